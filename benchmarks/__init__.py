"""What `make bench` measures: the workloads, and how costs grow."""
