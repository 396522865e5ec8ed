"""How sub-environments run: in this process, or in workers with pipes or shared memory."""
