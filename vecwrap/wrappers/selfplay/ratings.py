"""Ratings of players from the results of their games: a Bradley-Terry fit with uncertainties."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vecwrap.errors import ArgumentError, did_you_mean
from vecwrap.rows.step_result import FloatArray, IntArray
from vecwrap.wrappers.selfplay.results import CURRENT, Results, Row
from vecwrap.wrappers.selfplay.scripted import RANDOM

ELO = 400 / math.log(10)
"""Elo points in one unit of log-odds: 400 points are odds of 10 to 1."""
_MOST_STEPS = 500
_CLOSE = 1e-8  # of log-odds
_LARGEST = 300.0  # whose odds, multiplied, are finite


@dataclass(frozen=True)
class Ratings:
    """How strong p players are, in Elo points above the anchor.

    Attributes:
        players: their names.
        points: (p,) float64; NaN for players whom no chain of games connects with the anchor.
        covariance: (p, p) float64, of the points; infinite where those are unknown.
        games: (p,) int64, how many each played.
        anchor: the player whose rating is 0.
        seats: the advantage of each seat in Elo points, which sum to 0; empty if the games cannot tell it.

    >>> table = Results([Row("greedy", "random", 0, 30, 0, 10), Row("greedy", "random", 1, 30, 0, 10)])
    >>> ratings = bradley_terry(table, anchor="random")
    >>> ratings.players, ratings.points.round().tolist(), ratings.errors.round().tolist()
    (('greedy', 'random'), [185.0, 0.0], [44.0, 0.0])
    >>> round(ratings.expected("greedy", "random"), 2)
    0.74
    """

    players: tuple[str, ...]
    points: FloatArray
    covariance: FloatArray
    games: IntArray
    anchor: str
    seats: Mapping[int, float]

    @property
    def errors(self) -> FloatArray:
        """(p,) float64: the standard errors of the points, relative to the anchor."""
        return np.sqrt(np.diagonal(self.covariance))

    def difference(self, player: str, opponent: str) -> tuple[float, float]:
        """Return by how many points a player is stronger than another, and the standard error of that.

        The errors of two players are correlated, so this error is not the sum of theirs.
        """
        i, j = self._index(player), self._index(opponent)
        points = float(self.points[i] - self.points[j])
        if math.isnan(points):
            return points, math.inf
        variance = self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j]
        return points, math.sqrt(max(float(variance), 0.0))

    def expected(self, player: str, opponent: str) -> float:
        """Return the mean result that the fit expects, from 0 to 1, averaged over who sits where."""
        advantage = next(iter(self.seats.values()), 0.0) if len(self.seats) == 2 else 0.0
        points = self.difference(player, opponent)[0]
        return sum(1 / (1 + math.exp(-(points + sign * advantage) / ELO)) for sign in (1, -1)) / 2

    def _index(self, name: str) -> int:
        if name not in self.players:
            raise ArgumentError(f'ratings: "{name}" has played no game.{did_you_mean(name, self.players)}')
        return self.players.index(name)


def bradley_terry(results: Results, anchor: str | None = None) -> Ratings:
    """Fit the strengths of players to the results of their games.

    The model: the odds that a player in a seat beats an opponent are ``exp(player - opponent + seat)`` (Bradley and
    Terry, 1952; the seat as in Davidson and Beaver, 1977). A draw counts as half a win. So a difference of ratings
    says the mean result, as Elo's does, and the number of draws says nothing of strength; models with a parameter for
    draws (Rao and Kupper, 1967; Davidson, 1970) need one that is equal for all pairs, which it is not where better
    players draw more. The standard errors take each result for a win or a loss, so with draws they are too large, and
    never too small.

    The fit maximises Jeffreys' penalised likelihood (Firth, 1993), which is finite for who won or lost all games, and
    less biased with few games. Running Elo ratings depend on the order of the games; these do not.

    Games against `CURRENT` and against oneself are left out. The seats' advantages are fitted where the games can tell
    them, which needs a pair that changed seats. The anchor's rating is 0; by default that is the first scripted player,
    or else who played most.
    """
    rows = [row for row in results.rows() if CURRENT not in row[:2] and row.player != row.opponent and row.games]
    players = Results(rows).players()
    if not players:
        raise ArgumentError("ratings: expected games between two players, got none; play some first")
    games = np.array([sum(row.games for row in rows if name in row[:2]) for name in players], np.int64)
    if anchor is None:
        scripted = [name for name in players if name == RANDOM or ":" in name]
        anchor = scripted[0] if scripted else players[int(games.argmax())]
    if anchor not in players:
        raise ArgumentError(
            f'ratings: anchor: "{anchor}" has played no game.{did_you_mean(anchor, players)} Who has: '
            f"{', '.join(players)}"
        )
    known = _connected(rows, anchor)
    rows = [row for row in rows if row.player in known]
    rated = [name for name in players if name in known and name != anchor]
    pairs = np.array([[(name == row.player) - float(name == row.opponent) for name in rated] for row in rows])
    seats = _seat_columns([row.seat for row in rows])
    design = np.hstack([pairs, seats])
    has_seats = bool(np.linalg.matrix_rank(design) == design.shape[1])
    strengths, covariance = _fit(design if has_seats else pairs, rows)

    points = np.full(len(players), np.nan)
    all_covariance = np.full((len(players), len(players)), np.inf)
    places = [players.index(name) for name in rated]
    points[places] = ELO * strengths[: len(rated)]
    points[players.index(anchor)] = 0.0
    of_known = [players.index(name) for name in (*rated, anchor)]
    all_covariance[np.ix_(of_known, of_known)] = 0.0
    all_covariance[np.ix_(places, places)] = ELO**2 * covariance[: len(rated), : len(rated)]
    advantages = ELO * strengths[len(rated) :]
    seat_points = dict(enumerate([*advantages.tolist(), -float(advantages.sum())])) if has_seats else {}
    return Ratings(players, points, all_covariance, games, anchor, seat_points)


def _connected(rows: Sequence[Row], start: str) -> set[str]:
    """Everyone whom a chain of games connects with a player."""
    known, before = {start}, 0
    while len(known) > before:
        before = len(known)
        known |= {name for row in rows if known & {*row[:2]} for name in row[:2]}
    return known


def _seat_columns(seats: Sequence[int]) -> FloatArray:
    """One column for each seat but the last, whose advantage is minus the sum of theirs."""
    number = max(2, *(seat + 1 for seat in seats))
    coded = np.vstack([np.eye(number - 1), -np.ones(number - 1)])
    return coded[list(seats)]


def _fit(design: FloatArray, rows: Sequence[Row]) -> tuple[FloatArray, FloatArray]:
    """Firth's logistic regression by Fisher scoring; returns the parameters and their covariance."""
    games = np.array([row.games for row in rows], np.float64)
    won = np.array([row.points for row in rows])
    parameters = np.zeros(design.shape[1])
    for _ in range(_MOST_STEPS):
        odds = np.exp(np.clip(design @ parameters, -_LARGEST, _LARGEST))
        expected = odds / (1 + odds)
        weights = games * expected / (1 + odds)
        covariance = np.linalg.inv(design.T @ (weights[:, None] * design))
        leverages = weights * np.einsum("ij,jk,ik->i", design, covariance, design)
        score = design.T @ (won + leverages / 2 - (games + leverages) * expected)
        curvature = (games + leverages) * expected / (1 + odds)  # as if the leverages were games
        step = np.linalg.solve(design.T @ (curvature[:, None] * design), score)
        largest = float(np.abs(step).max(initial=0.0))
        parameters += step * min(1.0, 2 / largest) if largest else 0.0
        if largest < _CLOSE:
            break
    return parameters, np.asarray(covariance, np.float64)
