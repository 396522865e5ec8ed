"""Self-play: a pool of opponents, how they are drawn, results of games, and ratings."""
