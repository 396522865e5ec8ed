"""Workers and pipes: any space, custom ones too."""

from __future__ import annotations

from typing import ClassVar

from vecwrap.backends.process import ProcessBackend

__all__ = ["SubprocessBackend"]


class SubprocessBackend(ProcessBackend):
    """Sub-environments in worker processes; everything travels pickled through a pipe, one message a worker and step.

    Slower than shmem, and with nothing shared: the one to compare with when shared memory is in doubt.

    >>> import gymnasium
    >>> with SubprocessBackend([lambda: gymnasium.make("CartPole-v1")] * 2, workers=1) as env:
    ...     observations, infos = env.reset(seed=1)
    ...     env.num_workers
    1
    >>> observations.shape, observations.dtype
    ((2, 4), dtype('float32'))
    """

    name: ClassVar[str] = "subprocess"
