"""Which backend suits a pipeline on this machine: the real environment is measured, candidates are tried.

Every measurement runs in a process of its own that is killed at its deadline, so that the time is bounded whatever an
environment does. What follows from the figures (``candidates``, ``recommend``) is pure.
"""
