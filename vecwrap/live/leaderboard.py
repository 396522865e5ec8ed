"""Ratings and the win matrix of self-play for a page: of a pool, or of a run's monitor files."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

from vecwrap.errors import ArgumentError, printable, truncate
from vecwrap.selfplay.leaderboard import score_matrix, snapshot_steps
from vecwrap.selfplay.pool_files import Fact, PoolFolder
from vecwrap.selfplay.ratings import bradley_terry
from vecwrap.selfplay.results import LEARNER, Results
from vecwrap.tools.runs import RunGroup

MAX_PLAYERS = 24
MAX_SNAPSHOTS = 500  # in the chart
MAX_NAME_CHARACTERS = 40  # characters


def leaderboard(
    results: Results, facts: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any] | None:
    """Return players, strongest first, with ratings and scores; None without games.

    The scores are those of some players against all.

    The ratings of snapshots whose facts say ``steps`` are also given over these.

    Ratings are Elo points above the anchor that `default_anchor` names.
    """
    totals = results.totals()
    if not any(map(sum, totals.values())):
        return None
    anchor = about = ""
    rated: dict[
        str, tuple[float, float]
    ] = {}  # points and their errors, of those that can be compared
    with contextlib.suppress(ArgumentError):  # no games that can be rated
        ratings = bradley_terry(results)
        anchor = truncate(printable(ratings.anchor), MAX_NAME_CHARACTERS)
        about = truncate(printable(ratings.about), MAX_NAME_CHARACTERS + 100)
        each = zip(ratings.players, ratings.points.tolist(), ratings.errors.tolist(), strict=True)
        rated = {name: (points, error) for name, points, error in each if math.isfinite(points)}
    unrated = (-math.inf, math.nan)
    most = sorted(totals, key=lambda name: (name != LEARNER, -sum(totals[name])))[:MAX_PLAYERS]
    shown = sorted(most, key=lambda name: (-rated.get(name, unrated)[0], name))
    playing = {row.player for row in results.rows()}
    scores, games = score_matrix(results, shown)
    # A pool's games are mostly the learner's.
    against = [i for i, name in enumerate(shown) if name in playing]
    return {
        "anchor": anchor,
        "about": about,
        "players": [
            [
                truncate(printable(name), MAX_NAME_CHARACTERS),
                *map(_number, rated.get(name, unrated)),
                *totals[name],
            ]
            for name in shown
        ],
        "matrix": [
            [i, [[_number(scores[i, j], 3), int(games[i, j])] for j in range(len(shown))]]
            for i in against
        ],
        "left_out": len(totals) - len(shown),
        "over_steps": [
            [steps, *map(_number, rated[name]), truncate(printable(name), MAX_NAME_CHARACTERS)]
            for name, steps in list(snapshot_steps(facts or {}).items())[-MAX_SNAPSHOTS:]
            if name in rated
        ],
    }


def _number(value: float, digits: int = 1) -> float | None:
    """As JSON, which has neither infinity nor NaN."""
    if math.isfinite(value):
        return round(float(value), digits)
    return None


def facts_of(pool: PoolFolder) -> dict[str, dict[str, Fact]]:
    """Return the facts of the newest snapshots in a pool's folder."""
    facts = {}
    for name in pool.snapshot_names()[-MAX_SNAPSHOTS:]:
        with contextlib.suppress(FileNotFoundError):  # deleted a moment ago
            facts[name] = pool.read_snapshot(name).facts
    return facts


def results_of(runs: Iterable[RunGroup]) -> Results:
    """Return the results that monitors around `opponents` wrote beside each game."""
    found = Results()
    for opponent, seat, result in (
        game for run in runs for seed in run.runs for game in seed.played
    ):
        found.record(LEARNER, opponent, seat=seat, result=result)
    return found
