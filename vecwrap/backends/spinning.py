"""Spin, then sleep: to be woken takes 24 to 46 µs, to look takes less than one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["MOST", "Spinner"]

MOST = 500e-6  # seconds; who waits longer than this as a rule sleeps at once
_WEIGHT = 0.125  # of the newest wait in the mean


class Spinner:
    """Looks again and again for a short while, whose length it learns from how long was waited lately.

    Args:
        allowed: False where there is no core to spare, or where looking is not enough to be sure; then it never looks
            twice.
        crowded: whether others may need this core; then it is offered to them between two looks.
        clock: gives seconds.

    Attributes:
        mean: how long was waited lately, in seconds; a wait counts four times ``MOST`` at most.
    """

    def __init__(self, allowed: bool, *, crowded: bool, clock: Callable[[], float] = time.perf_counter) -> None:
        self._allowed = allowed
        self._crowded = crowded
        self._clock = clock
        self.mean = 0.0

    @property
    def bound(self) -> float:
        """For how long it looks, in seconds."""
        if not self._allowed or self.mean > MOST:
            return 0.0
        return min(MOST, 4 * self.mean + 50e-6)

    def wait(self, ready: Callable[[], bool], sleep: Callable[[], bool]) -> None:
        """Wait until something is ready.

        Args:
            ready: whether it is.
            sleep: waits until it may be; True says that there is something else to do.
        """
        clock, crowded = self._clock, self._crowded
        start = clock()
        until = start + self.bound
        while not ready():
            if crowded:
                os.sched_yield()
            if clock() >= until and sleep():
                break
        self.mean += _WEIGHT * (min(clock() - start, 4 * MOST) - self.mean)
