"""What `make bench` measures: the workloads, and the peers."""
