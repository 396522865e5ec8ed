"""The fast one: observations, actions, rewards and flags in one block of shared memory."""

from __future__ import annotations

from typing import ClassVar

from vecwrap.backends.process import ProcessBackend

__all__ = ["ShmemBackend"]


class ShmemBackend(ProcessBackend):
    """Sub-environments in worker processes that write into memory shared with the parent.

    Every Gymnasium space of fixed size is shared (Box, Discrete, MultiBinary, MultiDiscrete, Text by its maximum
    length, Dict and Tuple of any nesting); leaves of other spaces ride the pipe beside it. Infos that are numbers lie
    there too, and an ordinary step is asked for and answered through it, without a message: counts say how far each
    side is, and a bell wakes whoever sleeps (docs/backends.md, "How shmem talks"). ``parent_share`` lets this process
    step a share of its own while it would only wait.

    >>> import gymnasium
    >>> with ShmemBackend([lambda: gymnasium.make("CartPole-v1")] * 2, workers=2) as env:
    ...     observations, infos = env.reset(seed=1)
    ...     env.num_workers
    2
    >>> observations.shape, observations.dtype
    ((2, 4), dtype('float32'))
    """

    name: ClassVar[str] = "shmem"
    shared: ClassVar[bool] = True
