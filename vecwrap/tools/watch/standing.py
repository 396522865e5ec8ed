"""Ratings and the win matrix of self-play as a page shows them: of a pool, or of the games in a run's monitor files."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from vecwrap.env.saving import open_regular
from vecwrap.errors import ArgumentError, cut, printable
from vecwrap.tools.standings import score_matrix
from vecwrap.wrappers.selfplay.ratings import bradley_terry
from vecwrap.wrappers.selfplay.results import LEARNER, MOST_SEATS, Results, Row

MOST_PLAYERS = 24
NAME = 40  # characters
COLUMNS = ("opponent", "seat", "result")


def standing(results: Results) -> dict[str, Any] | None:
    """Return players with their ratings, the strongest first, and the scores of some against all; None without games.

    Ratings are Elo points above the anchor that `bradley_terry` takes by itself.
    """
    totals: dict[str, list[int]] = {}
    for row in results.rows():
        for name, counts in ((row.player, row[3:]), (row.opponent, row[:2:-1])):
            totals[name] = [a + b for a, b in zip(totals.get(name, [0, 0, 0]), counts, strict=True)]
    if not any(map(sum, totals.values())):
        return None
    points, errors, anchor = _ratings(results)
    most = sorted(totals, key=lambda name: (name != LEARNER, -sum(totals[name])))[:MOST_PLAYERS]
    shown = sorted(most, key=lambda name: (-points.get(name, -math.inf), name))
    playing = {row.player for row in results.rows()}
    scores, games = score_matrix(results, shown)
    against = [i for i, name in enumerate(shown) if name in playing]  # a pool's games are mostly the learner's
    return {
        "anchor": cut(printable(anchor), NAME),
        "players": [
            [cut(printable(name), NAME), _number(points.get(name)), _number(errors.get(name)), *totals[name]]
            for name in shown
        ],
        "matrix": [[i, [[_number(scores[i, j], 3), int(games[i, j])] for j in range(len(shown))]] for i in against],
        "left_out": len(totals) - len(shown),
    }


def _ratings(results: Results) -> tuple[dict[str, float], dict[str, float], str]:
    try:
        found = bradley_terry(results)
    except ArgumentError:  # no games that can be rated
        return {}, {}, ""
    points = np.nan_to_num(found.points, nan=-math.inf).tolist()
    errors = found.errors.tolist()
    return dict(zip(found.players, points, strict=True)), dict(zip(found.players, errors, strict=True)), found.anchor


def _number(value: float | None, digits: int = 1) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), digits)


def results_of_files(paths: Iterable[Path]) -> Results:
    """Read the results that monitors around `opponents` wrote beside each game; what cannot be read is left out."""
    counts: dict[tuple[str, int], list[int]] = {}
    for path in paths:
        with open_regular(path) as binary:
            lines = (line.decode(errors="replace") for line in binary)
            next(lines, None)  # the header in JSON
            reader = csv.DictReader(lines)
            if not set(COLUMNS).issubset(reader.fieldnames or ()):
                continue
            for cells in reader:
                read = _result(cells)
                if read is not None:
                    opponent, seat, result = read
                    counts.setdefault((opponent, seat), [0, 0, 0])[(result < 0) + (result <= 0)] += 1
    return Results(Row(LEARNER, *key, *won) for key, won in counts.items())


def _result(cells: dict[Any, Any]) -> tuple[str, int, float] | None:
    try:
        opponent, seat, result = cells["opponent"], int(cells["seat"]), float(cells["result"])
    except (KeyError, ValueError, TypeError):  # a game that was lost has none
        return None
    return (opponent, seat, result) if opponent and 0 <= seat < MOST_SEATS and not math.isnan(result) else None
