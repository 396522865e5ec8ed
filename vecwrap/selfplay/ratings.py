"""Ratings of players from the results of their games: a Bradley-Terry fit with uncertainties."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vecwrap.errors import ArgumentError, did_you_mean
from vecwrap.rows.step_result import FloatArray, IntArray
from vecwrap.selfplay.results import CURRENT, Results, Row
from vecwrap.selfplay.scripted import RANDOM

ELO = 400 / math.log(10)
"""Elo points in one unit of log-odds: 400 points are odds of 10 to 1."""
REPLICATES = 400
"""How often seeds are resampled: the errors are then exact to about 4 %."""
_MAX_STEPS = 500
_CONVERGED_LOG_ODDS = 1e-8  # of log-odds
_MAX_LOG_ODDS = 300.0  # whose odds, multiplied, are finite


@dataclass(frozen=True)
class Ratings:
    """How strong p players are, in Elo points above the anchor.

    Attributes:
        players: their names.
        points: (p,) float64; NaN for players whom no chain of games connects with the anchor.
        covariance: (p, p) float64, of the points; infinite where those are unknown.
        games: (p,) int64, how many each played.
        anchor: the player whose rating is 0.
        seats: the advantage of each seat in Elo points, which sum to 0; empty if the games cannot
            tell it.
        resampled: what the covariance was resampled over, such as ``"20 seeds"``; empty if nothing
            was, and games are taken as independent.

    >>> rows = [Row("greedy", "random", seat, 30, 0, 10) for seat in (0, 1)]
    >>> ratings = bradley_terry(Results(rows), anchor="random")
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
    resampled: str = ""

    @property
    def errors(self) -> FloatArray:
        """(p,) float64: the standard errors of the points, relative to the anchor."""
        return np.sqrt(np.diagonal(self.covariance))

    @property
    def about(self) -> str:
        """What the numbers are, in a line: the anchor, and what the errors were resampled over."""
        source = "as if all games were independent"
        if self.resampled:
            source = f"from resampling {self.resampled}"
        return f"Elo points above {self.anchor}, with standard errors {source}"

    def difference(self, player: str, opponent: str) -> tuple[float, float]:
        """Return by how many points a player is stronger than another, and the standard error.

        The errors of two players are correlated, so this error is not the sum of theirs.
        """
        i = self._index(player)
        j = self._index(opponent)
        points = float(self.points[i] - self.points[j])
        if math.isnan(points):
            return points, math.inf
        if i == j:
            return points, 0.0
        if not np.isfinite(self.covariance[i, i] + self.covariance[j, j]):
            return points, math.inf
        variance = self.covariance[i, i] + self.covariance[j, j] - 2 * self.covariance[i, j]
        return points, math.sqrt(max(float(variance), 0.0))

    def expected(self, player: str, opponent: str) -> float:
        """Return the expected mean result, from 0 to 1, averaged over the seats."""
        advantage = 0.0
        if len(self.seats) == 2:
            advantage = next(iter(self.seats.values()), 0.0)
        points = self.difference(player, opponent)[0]
        return sum(1 / (1 + math.exp(-(points + sign * advantage) / ELO)) for sign in (1, -1)) / 2

    def _index(self, name: str) -> int:
        if name not in self.players:
            raise ArgumentError(
                f'ratings: "{name}" has played no game.{did_you_mean(name, self.players)}'
            )
        return self.players.index(name)


def default_anchor(results: Results) -> str:
    """Return whose rating is 0 unless another is named, the same everywhere.

    ``random`` if it has played; or else the scripted player whose name comes first; or else who
    played most.
    """
    rated = _rated_games(results)
    players = rated.players()
    if not players:
        raise ArgumentError(
            "ratings: expected games between two players, got none; play some first"
        )
    if RANDOM in players:
        return RANDOM
    scripted = [name for name in players if ":" in name]
    if scripted:
        return scripted[0]
    totals = rated.totals()
    return max(players, key=lambda name: sum(totals[name]))


def bradley_terry(results: Results, anchor: str | None = None) -> Ratings:
    """Fit the strengths of players to the results of their games.

    The model: the odds that a player in a seat beats an opponent are ``exp(player - opponent +
    seat)`` (Bradley and Terry, 1952; the seat as in Davidson and Beaver, 1977). A draw counts as
    half a win. So a difference of ratings says the mean result, as Elo's does, and the number of
    draws says nothing of strength; models with a parameter for draws (Rao and Kupper, 1967;
    Davidson, 1970) need one that is equal for all pairs, which it is not where better players draw
    more.

    The standard errors take games as independent, and each result for a win or a loss, so with
    draws they are too large. Of games that share seeds they are too small: `bradley_terry_by_seed`.

    The fit maximises Jeffreys' penalised likelihood (Firth, 1993), which is finite for who won or
    lost all games, and less biased with few games. Running Elo ratings depend on the order of the
    games; these do not.

    Games against `CURRENT` and against oneself are left out. The seats' advantages are fitted where
    the games can tell them, which needs a pair that changed seats. The anchor's rating is 0;
    `default_anchor` says whose that is.
    """
    return _Fit(results, anchor).ratings()


def bradley_terry_by_seed(results: Sequence[Results], anchor: str | None = None) -> Ratings:
    """Fit ratings to games that share seeds, with the errors of resampling the seeds.

    The ratings are those of `bradley_terry`. The errors are a bootstrap (Efron, 1979; of clusters,
    Davison and Hinkley, 1997, 3.8): the seeds are drawn again with replacement, each with all games
    that began from it. One more seed is among those drawn, in which every game is a draw, so that
    the rating of who won all games has an error too. From one seed no error can be estimated, and
    it is infinite.

    Args:
        results: the games of each seed, (s,).
        anchor: whose rating is 0; by default as `default_anchor` says.
    """
    together = Results(row for each in results for row in each.rows())
    fit = _Fit(together, anchor)
    found = fit.ratings()
    count = len(results)
    covariance = found.covariance.copy()
    rated = np.ix_(fit.places, fit.places)
    if count == 1:
        covariance[rated] = np.inf
    else:
        covariance[rated] = fit.resampled(results) * count / (count - 1)
    return replace(
        found, covariance=covariance, resampled=f"{count} seed{'s' if count > 1 else ''}"
    )


def _rated_games(results: Results) -> Results:
    return Results(
        row
        for row in results.rows()
        if CURRENT not in row[:2] and row.player != row.opponent and row.games
    )


class _Fit:
    """The fit to one table: which players are rated, and their strengths in log-odds."""

    def __init__(self, results: Results, anchor: str | None) -> None:
        games = _rated_games(results)
        rows = games.rows()
        totals = games.totals()
        self.players = games.players()
        by_default = default_anchor(results)
        self.anchor = by_default if anchor is None else anchor
        if self.anchor not in self.players:
            raise ArgumentError(
                f'ratings: anchor: "{self.anchor}" has played no '
                f"game.{did_you_mean(self.anchor, self.players)} Who "
                f"has: {', '.join(self.players)}"
            )
        self.games = np.array([sum(totals[name]) for name in self.players], np.int64)
        known = _connected(rows, self.anchor)
        self.rows = [row for row in rows if row.player in known]
        rated = [name for name in self.players if name in known and name != self.anchor]
        self.places = [self.players.index(name) for name in rated]
        pairs = np.array(
            [
                [(name == row.player) - float(name == row.opponent) for name in rated]
                for row in self.rows
            ]
        )
        design = np.hstack([pairs, _seat_columns([row.seat for row in self.rows])])
        self.has_seats = bool(np.linalg.matrix_rank(design) == design.shape[1])
        self.design = design if self.has_seats else pairs
        self.parameters, self.covariance = _fit(self.design, *_counts(self.rows))

    def ratings(self) -> Ratings:
        rated = len(self.places)
        anchored = self.players.index(self.anchor)
        points = np.full(len(self.players), np.nan)
        points[self.places] = ELO * self.parameters[:rated]
        points[anchored] = 0.0
        known = [*self.places, anchored]
        covariance = np.full((len(self.players), len(self.players)), np.inf)
        covariance[np.ix_(known, known)] = 0.0
        covariance[np.ix_(self.places, self.places)] = ELO**2 * self.covariance[:rated, :rated]
        advantages = ELO * self.parameters[rated:]
        seats = {}
        if self.has_seats:
            seats = dict(enumerate([*advantages.tolist(), -float(advantages.sum())]))
        return Ratings(self.players, points, covariance, self.games, self.anchor, seats)

    def resampled(self, results: Sequence[Results]) -> FloatArray:
        """Return the covariance of the rated players' points over resampled seeds."""
        keys = [row[:3] for row in self.rows]
        games = np.zeros((len(results) + 1, len(keys)))
        won = np.zeros((len(results) + 1, len(keys)))
        for seed, each in enumerate(results):
            by_key = {row[:3]: row for row in each.rows()}
            for i, key in enumerate(keys):
                if key in by_key:
                    games[seed, i] = by_key[key].games
                    won[seed, i] = by_key[key].points
        games[-1] = games[:-1].mean(axis=0)
        won[-1] = games[-1] / 2
        rng = np.random.default_rng(0)  # so that the same games give the same errors
        times = rng.multinomial(
            len(results), np.full(len(results) + 1, 1 / (len(results) + 1)), size=REPLICATES
        )
        points = [
            ELO
            * _fit(self.design, each @ games, each @ won, self.parameters)[0][: len(self.places)]
            for each in times
        ]
        return np.cov(np.array(points).T).reshape(len(self.places), len(self.places))


def _counts(rows: Sequence[Row]) -> tuple[FloatArray, FloatArray]:
    """How many games each row has, and how many were won, a draw being half a win."""
    return np.array([row.games for row in rows], np.float64), np.array([row.points for row in rows])


def _connected(rows: Sequence[Row], start: str) -> set[str]:
    """Everyone whom a chain of games connects with a player."""
    known = {start}
    before = 0
    while len(known) > before:
        before = len(known)
        known |= {name for row in rows if known & {*row[:2]} for name in row[:2]}
    return known


def _seat_columns(seats: Sequence[int]) -> FloatArray:
    """One column for each seat but the last, whose advantage is minus the sum of theirs."""
    number = max(2, *(seat + 1 for seat in seats))
    coded = np.vstack([np.eye(number - 1), -np.ones(number - 1)])
    return coded[list(seats)]


def _fit(
    design: FloatArray, games: FloatArray, won: FloatArray, start: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Fit Firth's logistic regression by Fisher scoring; return parameters and covariance."""
    if start is None:
        parameters = np.zeros(design.shape[1])
    else:
        parameters = start.copy()
    for _ in range(_MAX_STEPS):
        odds = np.exp(np.clip(design @ parameters, -_MAX_LOG_ODDS, _MAX_LOG_ODDS))
        expected = odds / (1 + odds)
        weights = games * expected / (1 + odds)
        covariance = np.linalg.inv(design.T @ (weights[:, None] * design))
        leverages = weights * ((design @ covariance) * design).sum(axis=1)
        score = design.T @ (won + leverages / 2 - (games + leverages) * expected)
        curvature = (games + leverages) * expected / (1 + odds)  # as if the leverages were games
        step = np.linalg.solve(design.T @ (curvature[:, None] * design), score)
        largest = float(np.abs(step).max(initial=0.0))
        if largest:
            parameters += step * min(1.0, 2 / largest)
        if largest < _CONVERGED_LOG_ODDS:
            break
    return parameters, np.asarray(covariance, np.float64)
