"""How games between players ended: wins, draws and losses by pair and seat."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vecwrap.errors import ArgumentError
from vecwrap.rows.saved import fitting
from vecwrap.rows.step_result import FloatArray
from vecwrap.tools.runs import MAX_SEATS

LEARNER = "learner"
"""The player that is being trained, whose strength changes."""
CURRENT = "current"
"""The learner's own present policy as an opponent; such games are counted, but not rated."""


class Row(NamedTuple):
    """The games of a player in one seat against one opponent, as the player sees them."""

    player: str
    opponent: str
    seat: int
    wins: int
    draws: int
    losses: int

    @property
    def games(self) -> int:
        return self.wins + self.draws + self.losses

    @property
    def points(self) -> float:
        return self.wins + self.draws / 2

    @property
    def score(self) -> float:
        if self.games:
            return self.points / self.games
        return math.nan


class Results:
    """A table of wins, draws and losses by player, opponent and the player's seat.

    Each game is recorded once, from either side.

    >>> results = Results()
    >>> results.record("greedy", "random", seat=0, result=1)
    >>> results.record("greedy", "random", seat=0, result=0)
    >>> results.rows()
    [Row(player='greedy', opponent='random', seat=0, wins=1, draws=1, losses=0)]
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._counts: dict[tuple[str, str, int], list[int]] = {}
        self.add(rows)

    def record(self, player: str, opponent: str, *, seat: int = 0, result: float) -> None:
        """Count a game with the player's result and seat.

        Seats count from 0, as in ``OpponentPool.record``.
        """
        if math.isnan(result):
            raise ArgumentError(
                f"results: {player} against {opponent}: expected a result above, at or below 0, "
                f"got {result}; a game without a result is not recorded"
            )
        wins = int(result > 0)
        draws = int(result == 0)
        self.add([Row(player, opponent, seat, wins, draws, 1 - wins - draws)])

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if not 0 <= row.seat < MAX_SEATS:
                raise ArgumentError(f"results: seat: expected 0 to {MAX_SEATS - 1}, got {row.seat}")
            counts = self._counts.setdefault(row[:3], [0, 0, 0])
            for k, count in enumerate(row[3:]):
                counts[k] += count

    def rows(self) -> list[Row]:
        return [Row(*key, *counts) for key, counts in sorted(self._counts.items())]

    def players(self) -> tuple[str, ...]:
        return tuple(
            sorted({name for player, opponent, _ in self._counts for name in (player, opponent)})
        )

    def totals(self) -> dict[str, tuple[int, ...]]:
        """Return the wins, draws and losses of each player over all opponents and seats."""
        found: dict[str, tuple[int, ...]] = {}
        for row in self.rows():
            for name, counts in ((row.player, row[3:]), (row.opponent, row[:2:-1])):
                before = found.get(name, (0, 0, 0))
                found[name] = tuple(a + b for a, b in zip(before, counts, strict=True))
        return found

    def rename(self, old: str, new: str) -> None:
        rows = self.rows()
        self._counts.clear()
        for row in rows:
            player, opponent = (new if name == old else name for name in row[:2])
            self.add([row._replace(player=player, opponent=opponent)])

    def state(self) -> list[list[Any]]:
        return [list(row) for row in self.rows()]


def score_of(returns: FloatArray, seats: Sequence[int]) -> float:
    """Return the mean of a player's summed rewards minus the best of the others'."""
    others = np.delete(returns, list(seats))
    return float(returns[list(seats)].mean() - others.max())


class WinRates:
    """The learner's mean results against each opponent, from 0 to 1.

    Earlier games count less.
    """

    def __init__(self, decay: float, state: Any = ()) -> None:
        self.decay = decay
        self._rates = {
            fitting(name, ""): [_amount(score), _amount(games)] for name, score, games in state
        }

    def record(self, opponent: str, result: float) -> None:
        rate = self._rates.setdefault(opponent, [0.0, 0.0])
        points = (np.sign(result) + 1) / 2  # 1 for a win, 0.5 for a draw
        rate[0] = self.decay * rate[0] + float(points)
        rate[1] = self.decay * rate[1] + 1.0

    def of(self, opponent: str) -> float:
        score, games = self._rates.get(opponent, (0.0, 0.0))
        return (score + 1) / (games + 2)

    def state(self) -> list[list[Any]]:
        return [[name, *rate] for name, rate in self._rates.items()]


def _amount(value: Any) -> float:
    if not 0 <= float(fitting(value, 0.0)) < math.inf:
        raise ValueError(f"rates: expected a number from 0, got {value}")
    return float(value)


def read_rows(state: Any, where: str) -> list[Row]:
    """Read what ``RowResults.state`` returned; TypeError for anything else."""
    rows = []
    if not isinstance(state, list):
        state = [state]
    for cells in state:
        fits = isinstance(cells, list) and [type(cell) for cell in cells] == [
            str,
            str,
            int,
            int,
            int,
            int,
        ]
        if not fits or min(cells[2:]) < 0 or cells[2] >= MAX_SEATS or max(cells[3:]) >= 2**53:
            raise TypeError(
                f"{where}: expected rows of player, opponent, seat, wins, draws and losses, got "
                f"{reprlib.repr(cells)[:200]}"
            )
        rows.append(Row(*cells))
    return rows
