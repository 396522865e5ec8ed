"""Workers and pipes: supports any space, including custom ones."""

from __future__ import annotations

from typing import ClassVar

from vecwrap.backends.workers.process import Processes


class Subprocess(Processes):
    """Sub-environments in worker processes that receive pickled messages through pipes.

    Everything is pickled, one message per worker and step.

    Slower than shmem, but nothing is shared: use it for comparison if you suspect a problem with
    shared memory.

    >>> import gymnasium
    >>> from vecwrap.env.backend import Backend
    >>> with Backend(Subprocess(workers=1), [lambda: gymnasium.make("CartPole-v1")] * 2) as env:
    ...     observations, infos = env.reset(seed=1)
    ...     env.num_workers
    1
    >>> observations.shape, observations.dtype
    ((2, 4), dtype('float32'))
    """

    name: ClassVar[str] = "subprocess"
