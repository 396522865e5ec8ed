"""Workers and pipes: any space, custom ones too."""

from __future__ import annotations

from typing import ClassVar

from vecwrap.backends.process import ProcessBackend

__all__ = ["SubprocessBackend"]


class SubprocessBackend(ProcessBackend):
    """Sub-environments in worker processes; everything travels pickled through a pipe, one message a worker and step.

    Slower than shmem, and with nothing shared: the one to compare with when shared memory is in doubt.
    """

    name: ClassVar[str] = "subprocess"
