"""Rows that step together: an engine's, or the agents of a game; partial requests are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from vecwrap.errors import ArgumentError
from vecwrap.rows.compare import is_same
from vecwrap.rows.step_result import IntArray
from vecwrap.sources.description import EnvDescription

__all__ = ["JointRows"]


class JointRows:
    """A number of consecutive rows of one source; ``agents`` is that number for games, else 0."""

    def __init__(
        self,
        num_rows: int,
        rows_per_source: int,
        agents: int,
        made: EnvDescription,
        *,
        step_together: bool = True,
    ) -> None:
        self._num_rows = num_rows
        self._rows_per_source = rows_per_source
        self._agents = agents
        self._step_together = step_together
        self._name = made.name
        self._why_no_masked_resets = made.why_no_masked_resets
        self._agent_names = made.agents

    def refuse_partial_games(self, rows: IntArray, *, of_reset: bool) -> None:
        """Raise ArgumentError for some rows of a source that steps, or resets, only as a whole."""
        number = self._rows_per_source
        apart = not self._step_together
        if of_reset:
            apart = not (self._why_no_masked_resets or self._agents)
        if number == 1 or len(rows) == self._num_rows or apart:
            return
        counts = np.bincount(rows // number, minlength=self._num_rows // number)
        if np.isin(counts, (0, number)).all():
            return
        if self._agents:
            self._refuse_part_of_game(rows, counts, of_reset=of_reset)
        why = "they step together; vecwrap's own sub-environments need not"
        if of_reset:
            why = self._why_no_masked_resets
        raise ArgumentError(
            f"{self._name}: expected all {number} rows of an engine or none, got {rows.tolist()}; "
            f"{why}"
        )

    def _refuse_part_of_game(self, rows: IntArray, counts: IntArray, *, of_reset: bool) -> NoReturn:
        number = self._agents
        game = int(np.flatnonzero((counts > 0) & (counts < number))[0])
        first = game * number
        missing = [i for i in range(first, first + number) if i not in rows]
        which = ", ".join(f"{i} ({self._agent_names[i - first]})" for i in missing)
        what = "reset_mask" if of_reset else "env_ids"
        raise ArgumentError(
            f"{what}: expected all rows of a game or none, got game {game} ({self._name}) without "
            f"its rows {which}; agents of one game step and begin again together"
            + ("" if of_reset else ", and the actions of those that are not to move are ignored")
        )

    def refuse_different(self, attribute: str, rows: Sequence[int], values: Sequence[Any]) -> None:
        """Raise ArgumentError for different values of an attribute of one game."""
        if not self._agents:
            return
        names = self._agent_names
        number = self._agents
        first: dict[int, tuple[int, Any]] = {}
        for i, value in zip(rows, values, strict=True):
            j, other = first.setdefault(i // number, (i, value))
            if value is not other and not is_same(value, other):
                raise ArgumentError(
                    f"set_attr({attribute!r}): expected one value for all agents of game "
                    f"{i // number} ({self._name}), which has it once, got {other!r} for "
                    f"{names[j % number]} and {value!r} for {names[i % number]}"
                )
