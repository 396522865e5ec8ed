"""The health of an environment: its losses and restarts so far, and where each row is now."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vecwrap.rows.step_result import BoolArray, IntArray

__all__ = ["Health", "WorkerHealth"]


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
    """Losses and restarts so far, and where each row is now; ``print`` shows the former.

    Attributes:
        restarts: (n,) int64. How often each sub-environment was recreated.
        lost_episodes: (n,) int64. How many of its episodes were lost.
        failures: n texts: the description of its last failure, "" if there was none.
        workers: the worker processes; empty if everything runs in this process.
        lost: (n,) bool. Whether the sub-environment is to be recreated, or could not be, or its
            loss is to be reported.
        resting: (n,) bool. Whether the row needs a reset or, in games, is not to move.
        in_flight: (n,) bool. Whether a result of the row is still to be received.
    """

    restarts: IntArray
    lost_episodes: IntArray
    failures: tuple[str, ...]
    workers: tuple[WorkerHealth, ...]
    lost: BoolArray
    resting: BoolArray
    in_flight: BoolArray

    def __repr__(self) -> str:
        return f"<Health {_lost(self.restarts.sum(), self.lost_episodes.sum())}>"

    def __str__(self) -> str:
        lines = [_lost(self.restarts.sum(), self.lost_episodes.sum())]
        for worker in self.workers:
            first = worker.env_ids[0]
            last = worker.env_ids[-1]
            held = f"sub-environment {first}"
            if last > first:
                held = f"sub-environments {first}-{last}"
            lines.append(
                f"worker {worker.number} (pid {worker.pid}, {held}): "
                f"{_number_of(worker.restarts, 'restart')}"
            )
        for i in np.flatnonzero(self.restarts).tolist():
            lost = _lost(self.restarts[i], self.lost_episodes[i])
            lines.append(f"sub-environment {i}: {lost}; {self.failures[i]}")
        return "\n".join(lines)


def _lost(restarts: int, episodes: int) -> str:
    return f"{_number_of(restarts, 'restart')}, {_number_of(episodes, 'lost episode')}"


def _number_of(number: int, what: str) -> str:
    if number == 1:
        return f"{number} {what}"
    return f"{number} {what}s"
