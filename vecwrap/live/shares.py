"""What a step takes, by the moments that an environment tells its observer of."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

RECENT = 1000  # steps; older ones count for less and less
PROGRAM, WRAPPERS, BACKEND = range(3)
PARTS = (
    ("your program", "the policy, learning: what runs between two steps"),
    (
        "wrappers",
        "around the vector, with the checks of the actions and the making of the five values",
    ),
    ("sub-environments", "and the backend: from the sending of actions to the arrival of results"),
)


class StepShares:
    """Measures time in program, wrappers and backend; the stepping thread writes, any thread reads.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = [0.0, 0.0, 0.0]
        self._steps = 0
        self._since = 0.0
        self._latest = ""  # moment; "": nobody looked

    def on_call(self) -> None:
        self._ends(PROGRAM, "call")

    def on_send(self) -> None:
        # a reset comes without a call
        self._ends(PROGRAM if self._latest == "return" else WRAPPERS, "send")

    def on_receive(self) -> None:
        self._ends(BACKEND, "receive")

    def on_return(self) -> None:
        if self._latest == "send":
            self._ends(BACKEND, "return")
            return
        self._ends(WRAPPERS, "return")
        self._steps += 1
        if self._steps > 2 * RECENT:
            self._steps = RECENT
            self._seconds = [seconds / 2 for seconds in self._seconds]

    def stop(self) -> None:
        """Nobody looks: what passes until the next moment is nobody's."""
        self._latest = ""

    def shares(self) -> list[list[Any]]:
        """Return per part, inner first: the name, what is counted, microseconds per vector step."""
        steps = self._steps
        spent = self._seconds
        if not steps:
            return []
        return [
            [*PARTS[part], round(1e6 * spent[part] / steps, 2)]
            for part in (BACKEND, WRAPPERS, PROGRAM)
        ]

    def _ends(self, part: int, moment: str) -> None:
        """What has passed from the latest moment to this one was this part."""
        now = self._clock()
        if self._latest:
            self._seconds[part] += now - self._since
        self._since = now
        self._latest = moment
