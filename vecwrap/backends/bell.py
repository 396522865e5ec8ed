"""A bell that one process rings to wake another."""

from __future__ import annotations

import contextlib
import os

__all__ = ["Bell"]


class Bell:
    """Several rings wake the listener once; ``hush`` returns how many there were. Ringing never blocks.

    An eventfd if the system supports it, else a pipe.

    Args:
        listens, rings: the descriptors of its two ends, which may be the same; -1 for an end in another process.
    """

    def __init__(self, listens: int, rings: int) -> None:
        self.listens, self.rings = listens, rings
        self._counts = hasattr(os, "eventfd")  # it counts by itself; in a pipe each ring is a byte

    @classmethod
    def create(cls) -> Bell:
        """Create a bell."""
        if hasattr(os, "eventfd"):
            descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return cls(descriptor, descriptor)
        listens, rings = os.pipe()
        for end in (listens, rings):
            os.set_blocking(end, False)
        return cls(listens, rings)

    def ring(self, times: int = 1) -> None:
        """Wake the listener, which then sees everything written to shared memory before."""
        try:  # noqa: SIM105 -- `suppress` takes as long as the bell itself
            os.write(self.rings, times.to_bytes(8, "little") if self._counts else bytes(times))
        except BlockingIOError:  # full of rings already, so the listener will wake
            pass

    def hush(self) -> int:
        """Clear the bell; return how often it was rung."""
        times = 0
        with contextlib.suppress(BlockingIOError):
            if self._counts:
                return int.from_bytes(os.read(self.listens, 8), "little")
            while data := os.read(self.listens, 4096):
                times += len(data)
        return times

    def close(self) -> None:
        """Close the descriptors; may be called again."""
        for end in {self.listens, self.rings} - {-1}:
            os.close(end)
        self.listens = self.rings = -1
