"""Self-play: a pool of opponents, how they are drawn, how their games ended, and how strong they are."""
