"""The fast backend: observations, actions, rewards and flags in one block of shared memory."""

from __future__ import annotations

from typing import ClassVar

from vecwrap.backends.workers.process import Processes


class Shmem(Processes):
    """Sub-environments in worker processes that write into memory shared with the parent.

    Every Gymnasium space of fixed size is shared (Box, Discrete, MultiBinary, MultiDiscrete, Text
    by its maximum length, Dict and Tuple of any nesting); leaves of other spaces go through a pipe.
    Numeric infos are shared too, and an ordinary step is requested and answered through shared
    memory, without messages: counters track the progress of each side, and a doorbell wakes a
    sleeping process (docs/backends.md, "How shmem talks"). With ``parent_share`` this process steps
    a share of the sub-environments instead of only waiting.

    >>> import gymnasium
    >>> from vecwrap.env.backend import Backend
    >>> with Backend(Shmem(workers=2), [lambda: gymnasium.make("CartPole-v1")] * 2) as env:
    ...     observations, infos = env.reset(seed=1)
    ...     env.num_workers
    2
    >>> observations.shape, observations.dtype
    ((2, 4), dtype('float32'))
    """

    name: ClassVar[str] = "shmem"
    shared: ClassVar[bool] = True
