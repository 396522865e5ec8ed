"""Find the backend that suits a pipeline on this machine: measure the real environment, and try candidates.

Every measurement runs in its own process, which is killed at its deadline, so the time is bounded whatever an
environment does. What is derived from the measurements (``candidates``, ``recommend``) is pure.
"""
