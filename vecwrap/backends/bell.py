"""A bell that one process rings and another one hears, also while it sleeps."""

from __future__ import annotations

import contextlib
import os

__all__ = ["Bell"]


class Bell:
    """Rung any number of times, it wakes once, and tells how often that was; ringing never waits.

    An eventfd where the system has that, else a pipe.

    Args:
        listens, rings: the descriptors of its two ends, which may be the same; -1 for the end that is elsewhere.
    """

    def __init__(self, listens: int, rings: int) -> None:
        self.listens, self.rings = listens, rings
        self._counts = hasattr(os, "eventfd")  # which adds up by itself; in a pipe each time is a byte

    @classmethod
    def create(cls) -> Bell:
        """Make one."""
        if hasattr(os, "eventfd"):
            descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return cls(descriptor, descriptor)
        listens, rings = os.pipe()
        for end in (listens, rings):
            os.set_blocking(end, False)
        return cls(listens, rings)

    def ring(self, times: int = 1) -> None:
        """Wake who listens; all that was written into shared memory before is there for who hears it."""
        try:  # noqa: SIM105 -- `suppress` takes as long as the bell itself
            os.write(self.rings, times.to_bytes(8, "little") if self._counts else bytes(times))
        except BlockingIOError:  # it has been rung so often that nobody can miss it
            pass

    def hush(self) -> int:
        """Take note that it was rung; gives how often."""
        times = 0
        with contextlib.suppress(BlockingIOError):
            if self._counts:
                return int.from_bytes(os.read(self.listens, 8), "little")
            while data := os.read(self.listens, 4096):
                times += len(data)
        return times

    def close(self) -> None:
        """Give the descriptors back; may be called again."""
        for end in {self.listens, self.rings} - {-1}:
            os.close(end)
        self.listens = self.rings = -1
