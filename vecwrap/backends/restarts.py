"""How often and how soon a lost sub-environment is recreated, and the record of restarts."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vecwrap.contract import BoolArray, IntArray
from vecwrap.errors import PlanError, did_you_mean

__all__ = ["Health", "Restarts", "WorkerHealth", "check_policy"]

_LONGEST_PAUSE = 30.0  # seconds


@dataclass(frozen=True)
class WorkerHealth:
    """The current state of one worker process.

    Attributes:
        number: its number.
        pid: its process id; None while it is being restarted.
        env_ids: the sub-environments that it runs.
        restarts: how often it was restarted.
    """

    number: int
    pid: int | None
    env_ids: tuple[int, ...]
    restarts: int


@dataclass(frozen=True)
class Health:
    """Losses and restarts so far; ``print`` shows them.

    Attributes:
        restarts: (n,) int64. How often each sub-environment was recreated.
        lost_episodes: (n,) int64. How many of its episodes were lost.
        failures: n texts: the description of its last failure, "" if there was none.
        workers: the worker processes; empty if everything runs in this process.
    """

    restarts: IntArray
    lost_episodes: IntArray
    failures: tuple[str, ...]
    workers: tuple[WorkerHealth, ...] = ()

    def __str__(self) -> str:
        lines = [_lost(self.restarts.sum(), self.lost_episodes.sum())]
        for worker in self.workers:
            first, last = worker.env_ids[0], worker.env_ids[-1]
            held = f"sub-environments {first}-{last}" if last > first else f"sub-environment {first}"
            lines.append(f"worker {worker.number} (pid {worker.pid}, {held}): {_number_of(worker.restarts, 'restart')}")
        for i in np.flatnonzero(self.restarts).tolist():
            lost = _lost(self.restarts[i], self.lost_episodes[i])
            lines.append(f"sub-environment {i}: {lost}; {self.failures[i]}")
        return "\n".join(lines)


def _lost(restarts: int, episodes: int) -> str:
    return f"{_number_of(restarts, 'restart')}, {_number_of(episodes, 'lost episode')}"


def _number_of(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def check_policy(
    on_failure: str = "raise",
    max_restarts: int | None = 10,
    restart_window: float | None = 60.0,
    restart_backoff: float = 0.1,
) -> None:
    """Refuse invalid restart options.

    Raises:
        PlanError: one is invalid.
    """
    if on_failure not in ("raise", "restart"):
        near = did_you_mean(str(on_failure), ("raise", "restart"))
        raise PlanError(f"on_failure: expected raise or restart, got {on_failure!r}.{near}")
    if max_restarts is not None and max_restarts < 1:
        raise PlanError(
            f'max_restarts: expected at least 1, or null for no limit, got {max_restarts}; on_failure="raise" never '
            "restarts"
        )
    if restart_window is not None and not restart_window > 0:
        raise PlanError(f"restart_window: expected seconds above 0, or null for the whole run, got {restart_window}")
    if not 0 <= restart_backoff < float("inf"):
        raise PlanError(f"restart_backoff: expected seconds from 0, got {restart_backoff}")


class Restarts:
    """Counts restarts, and decides whether and when another one is allowed.

    A sub-environment may be recreated ``max_restarts`` times within any ``window`` seconds, and as often in a row
    without a step in between, however long that takes; after a refusal a new row begins. The first time this happens at
    once; if it is lost again without completing a step, there is a pause, which doubles on each repeat.

    Args:
        num_envs: n.
        max_restarts: how often; None for no limit.
        window: seconds; None counts over the whole run.
        backoff: the first pause in seconds.
        clock: returns seconds.

    Attributes:
        counts: (n,) int64.
        reasons: the last one of each, "" if there was none.
    """

    def __init__(
        self,
        num_envs: int,
        max_restarts: int | None,
        window: float | None,
        backoff: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_restarts = max_restarts
        self.window = window
        self.clock = clock
        self.counts: IntArray = np.zeros(num_envs, dtype=np.int64)
        self.reasons = [""] * num_envs
        self._backoff = backoff
        self._times: list[deque[float]] = [deque(maxlen=max_restarts or 0) for _ in range(num_envs)]
        self._in_vain = np.zeros(num_envs, dtype=np.int64)  # restarts since the last step
        self._any_in_vain = False
        self._refusal = ""

    def request(self, env_ids: Sequence[int], reason: str) -> float | None:
        """Request another restart of all of these; return the pause before it in seconds, or None if refused.

        A granted request is counted.
        """
        now = self.clock()
        in_vain = [i for i in env_ids if self._all_in_vain(i)]
        allowed = all(self._within_window(i, now) for i in env_ids)
        if in_vain or not allowed:
            self._refusal = "in a row without a step" if allowed else ""
            self._in_vain[in_vain] = 0  # the failure is raised; whoever goes on begins a new series
            return None
        pauses = [0.0]
        for i in env_ids:
            self.counts[i] += 1
            self._times[i].append(now)
            self.reasons[i] = reason
            if self._in_vain[i]:
                pauses.append(min(self._backoff * 2.0 ** min(int(self._in_vain[i]) - 1, 30), _LONGEST_PAUSE))
            self._in_vain[i] += 1
        self._any_in_vain = True
        return max(pauses)

    def stepped(self, env_ids: IntArray, acted: BoolArray) -> None:
        """Record rows that have completed a step."""
        if self._any_in_vain:
            self._in_vain[env_ids[acted]] = 0
            self._any_in_vain = bool(self._in_vain.any())

    def state(self, i: int) -> dict[str, Any]:
        """Return the counts of one; times are relative to now, because another process has a different clock."""
        now = self.clock()
        return {
            "count": int(self.counts[i]),
            "reason": self.reasons[i],
            "ages": [now - then for then in self._times[i]],
            "in_vain": int(self._in_vain[i]),
        }

    def load(self, i: int, state: dict[str, Any]) -> None:
        """Restore what ``state`` returned."""
        now = self.clock()
        self.counts[i], self.reasons[i], self._in_vain[i] = state["count"], state["reason"], state["in_vain"]
        self._times[i] = deque((now - age for age in state["ages"]), maxlen=self._times[i].maxlen)
        self._any_in_vain = bool(self._in_vain.any())

    def limit_in_words(self) -> str:
        """``max_restarts=3 within restart_window=60 s``: the limit that the last refused request has met."""
        window = "the whole run" if self.window is None else f"restart_window={self.window:g} s"
        return f"max_restarts={self.max_restarts} {self._refusal or f'within {window}'}"

    def _within_window(self, i: int, now: float) -> bool:
        times = self._times[i]
        if self.max_restarts is None or len(times) < self.max_restarts:
            return True
        return self.window is not None and now - times[0] > self.window

    def _all_in_vain(self, i: int) -> bool:
        return self.max_restarts is not None and bool(self._in_vain[i] >= self.max_restarts)
