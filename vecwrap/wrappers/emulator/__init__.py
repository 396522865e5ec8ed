"""What the Atari wrappers share: the two lineages, ticks and images, the openings of games."""
