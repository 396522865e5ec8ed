"""What `make bench` measures: the workloads, the targets, and how costs grow."""
