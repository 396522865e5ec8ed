"""The rows that were delivered last: what a lost sub-environment has left."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecwrap.rows.batch import Batch, empty_like, row, scatter, take
from vecwrap.rows.step_result import BoolArray, IntArray, StepResult
from vecwrap.rows.table import Slots

__all__ = ["DeliveredRows"]


class DeliveredRows:
    """Copies, because a worker may die while it writes into the slots.

    Attributes:
        over: (n,) bool. Rows without a running episode.
        dones: (2, n) bool. Terminations and truncations.
    """

    def __init__(self, num_rows: int, rows_per_source: int) -> None:
        self.over: BoolArray = np.ones(num_rows, dtype=np.bool_)
        self.dones: BoolArray = np.zeros((2, num_rows), dtype=np.bool_)
        self._rows_per_source = rows_per_source
        self._observations: Batch = None  # n rows, once any was delivered

    def deliver(self, step: StepResult) -> None:
        self._put(step.rows, step.observations)
        self.dones[0, step.rows] = step.terminations
        self.dones[1, step.rows] = step.truncations
        over = ~step.first & (step.dones | self.over[step.rows])
        # an agent that never joined its game has nothing to lose
        self.over[step.rows] = over | ~step.alive

    def keep_arrived(self, i: int, slots: Slots) -> None:
        """Keep a row that has arrived but is not delivered, and whose sub-environment is lost."""
        self._put([i], take(slots.observations.batch(), [i]))
        self.dones[:, i] = slots.terminations[i], slots.truncations[i]
        was_over = self.over[i] or self.dones[:, i].any()
        self.over[i] = slots.left[i] or (was_over and not slots.first[i])

    def load(self, i: int, state: dict[str, Any], slots: Slots) -> None:
        slots.observations.put(i, state["observation"])
        self._put([i], take(slots.observations.batch(), [i]))
        self.dones[:, i] = state["terminated"], state["truncated"]
        self.over[i] = state["over"] or state.get("gone", False)

    def state(self, i: int) -> dict[str, Any]:
        return {
            "observation": self.observation(i),
            "terminated": bool(self.dones[0, i]),
            "truncated": bool(self.dones[1, i]),
            "over": bool(self.over[i]),
        }

    def observation(self, i: int) -> Any:
        return row(self._observations, i)

    def resting(self, i: int) -> tuple[Any, bool, bool] | None:
        """The observation and flags of a row that rests after its loss; None: never delivered."""
        if self._observations is None:
            return None
        if self.over[i]:
            return self.observation(i), bool(self.dones[0, i]), bool(self.dones[1, i])
        return self.observation(i), False, True

    def are_over(self, env_ids: IntArray) -> BoolArray:
        """Whether no row of the source of each of these has a running episode."""
        number = self._rows_per_source
        if number == 1:
            return self.over[env_ids]
        sources: Any = self.over.reshape(-1, number).all(axis=1)
        return sources[env_ids // number]  # type: ignore[no-any-return]

    def _put(self, rows: Any, observations: Batch) -> None:
        if self._observations is None:
            self._observations = empty_like(observations, len(self.over))
        scatter(self._observations, rows, observations)
