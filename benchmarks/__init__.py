"""What `make bench` measures: the workloads, what is to be reached, and how costs grow."""
