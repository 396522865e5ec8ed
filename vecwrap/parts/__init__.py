"""Parts of layers that need more than one file, or that several layers share: statistics, files, pictures, Atari."""
