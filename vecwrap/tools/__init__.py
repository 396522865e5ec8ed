"""What is done with an environment: evaluate, time, tune, plot; independent of terminals."""
