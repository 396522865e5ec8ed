"""How sub-environments run: in this process, in workers with pipes, or in workers with shared memory."""
