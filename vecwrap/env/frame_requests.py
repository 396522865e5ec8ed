"""Which frames the wrappers of a chain want, merged for the runner."""

from __future__ import annotations

import weakref
from typing import Any

from vecwrap.env.runner import Runner
from vecwrap.rows.step_result import Frames, IntArray

__all__ = ["FrameRequests"]


class FrameRequests:
    """The requests of each wrapper; ``changed`` until the runner has received them."""

    def __init__(self, num_rows: int) -> None:
        self._by_wrapper: weakref.WeakKeyDictionary[Any, tuple[frozenset[int], frozenset[int]]]
        self._by_wrapper = weakref.WeakKeyDictionary()
        self.changed: bool = False
        self.reported: list[Frames] = [Frames.NONE] * num_rows

    def request(self, wrapper: Any, rows: IntArray, opening: IntArray) -> None:
        """Request all frames of ``rows``, and the frames that open an episode of ``opening``."""
        self._by_wrapper[wrapper] = frozenset(rows.tolist()), frozenset(opening.tolist())
        self.changed = True

    def send(self, runner: Runner) -> None:
        """Have the runner send the frames that are wanted now with the rows requested next."""
        requests = list(self._by_wrapper.values())
        wanted = [Frames.NONE] * len(self.reported)
        for _, opening in requests:
            for i in opening:
                wanted[i] = Frames.OPENING
        for rows, _ in requests:
            for i in rows:
                wanted[i] = Frames.ALL
        if wanted != self.reported:
            runner.set_frames(wanted)
            self.reported = wanted
        self.changed = False
