"""What is done with an environment: evaluate, time, tune, bench, plot; independent of terminals."""
