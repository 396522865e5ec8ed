"""The fast one: observations, actions, rewards and flags in one block of shared memory."""

from __future__ import annotations

from typing import ClassVar

from vecwrap.backends.process import ProcessBackend

__all__ = ["ShmemBackend"]


class ShmemBackend(ProcessBackend):
    """Sub-environments in worker processes that write into memory shared with the parent.

    Every Gymnasium space of fixed size is shared (Box, Discrete, MultiBinary, MultiDiscrete, Text by its maximum
    length, Dict and Tuple of any nesting); leaves of other spaces ride the pipe beside it.
    """

    name: ClassVar[str] = "shmem"
    shared: ClassVar[bool] = True
