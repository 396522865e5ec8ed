"""The restart budget: whether a lost sub-environment may be recreated, and after which pause."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vecwrap.rows.step_result import BoolArray, IntArray

__all__ = ["MAX_RESTARTS_WITHOUT_A_STEP", "RestartBudget"]

MAX_RESTARTS_WITHOUT_A_STEP = 100
"""What dies in every reset ends, also where ``max_restarts`` sets no limit."""


class RestartBudget:
    """How often each sub-environment was recreated, and whether ``RestartOptions`` allow more."""

    def __init__(
        self,
        num_envs: int,
        max_restarts: int | None,
        window: float | None,
        pause: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.counts: IntArray = np.zeros(num_envs, dtype=np.int64)
        self.reasons: list[str] = [""] * num_envs  # the last one of each
        self._max_restarts = max_restarts
        self._window = window
        self._pause = pause
        self._times: list[deque[float]] = [deque(maxlen=max_restarts or 0) for _ in range(num_envs)]
        self._most_in_a_row = min(
            max_restarts or MAX_RESTARTS_WITHOUT_A_STEP, MAX_RESTARTS_WITHOUT_A_STEP
        )
        self._restarts_without_step = np.zeros(
            num_envs, dtype=np.int64
        )  # restarts since the last step
        self._any_without_step = False
        # the limit of the last one: max_restarts=3 within restart_window=60 s
        self.refusal: str = ""

    def request(self, env_ids: Sequence[int], reason: str) -> float | None:
        """Grant another restart of these sub-environments; return the pause in seconds, or None.

        None means that the restart is refused.
        """
        now = self.clock()
        if self._max_restarts is not None and any(
            self._used_up(self._times[i], now) for i in env_ids
        ):
            window = "the whole run"
            if self._window is not None:
                window = f"restart_window={self._window:g} s"
            self.refusal = f"max_restarts={self._max_restarts} within {window}"
            return None
        if (self._restarts_without_step[env_ids] >= self._most_in_a_row).any():
            limit = f"{self._most_in_a_row} restarts"
            if self._most_in_a_row == self._max_restarts:
                limit = f"max_restarts={self._max_restarts}"
            self.refusal = f"{limit} in a row without a step"
            return None
        pause = self._pause if self._restarts_without_step[env_ids].any() else 0.0
        for i in env_ids:
            self.counts[i] += 1
            self._restarts_without_step[i] += 1
            self._times[i].append(now)
            self.reasons[i] = reason
        self._any_without_step = True
        return pause

    def stepped(self, env_ids: IntArray, acted: BoolArray) -> None:
        if self._any_without_step:
            self._restarts_without_step[env_ids[acted]] = 0
            self._any_without_step = bool(self._restarts_without_step.any())

    def state(self, i: int) -> dict[str, Any]:
        """Return the counts of one sub-environment, with times relative to now.

        Another process has a different clock.
        """
        now = self.clock()
        return {
            "count": int(self.counts[i]),
            "reason": self.reasons[i],
            "ages": [now - then for then in self._times[i]],
            "in_vain": int(self._restarts_without_step[i]),
        }

    def load(self, i: int, state: dict[str, Any]) -> None:
        now = self.clock()
        self.counts[i] = state["count"]
        self.reasons[i] = state["reason"]
        self._restarts_without_step[i] = state["in_vain"]
        self._times[i] = deque((now - age for age in state["ages"]), maxlen=self._times[i].maxlen)
        self._any_without_step = bool(self._restarts_without_step.any())

    def _used_up(self, times: deque[float], now: float) -> bool:
        return len(times) == times.maxlen and (
            self._window is None or now - times[0] <= self._window
        )
