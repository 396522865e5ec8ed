"""Which backend suits a pipeline on this machine, and the processes that measure it."""
