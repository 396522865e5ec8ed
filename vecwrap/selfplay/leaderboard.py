"""The results of a tournament or a pool: CSV files, a heat map of scores, a curve of ratings.

Tables need only NumPy; matplotlib (extra ``plot``) is imported when a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vecwrap.errors import PlotError, printable, truncate
from vecwrap.rows.step_result import FloatArray, IntArray
from vecwrap.selfplay.ratings import Ratings
from vecwrap.selfplay.results import Results
from vecwrap.tools.plot import COLOURS, clean_axes, new_figure, short, write_file
from vecwrap.wrappers.recording.run_files import csv_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "heat_map",
    "rating_curve",
    "ratings_csv",
    "results_csv",
    "score_matrix",
    "snapshot_steps",
    "write_csv",
]

MAX_NUMBERED = 16  # players up to which each cell of a heat map shows its number
MAX_LABELS = 60  # players up to which each is named
NINETY_FIVE = 1.96  # standard errors on both sides of a 95 % interval


def results_csv(results: Results) -> str:
    """Write a table of results as CSV: a line for each player, opponent and seat of the player.

    >>> results = Results()
    >>> results.record("greedy", "random", seat=0, result=1)
    >>> print(results_csv(results), end="")
    player,opponent,seat,games,wins,draws,losses,score
    greedy,random,0,1,1,0,0,1.0
    """
    lines = [(*row[:3], row.games, *row[3:], round(row.score, 6)) for row in results.rows()]
    return _csv(["player", "opponent", "seat", "games", "wins", "draws", "losses", "score"], lines)


def ratings_csv(ratings: Ratings) -> str:
    """Write ratings as CSV, the strongest first.

    A player that cannot be compared with the anchor has no rating.

    The column ``anchor`` says whose rating is 0, and ``resampled`` what the errors were resampled
    over; it is empty if nothing was, and games are taken as independent.

    >>> from vecwrap.selfplay.ratings import bradley_terry
    >>> results = Results()
    >>> results.record("greedy", "random", seat=0, result=1)
    >>> print(ratings_csv(bradley_terry(results, "random")), end="")
    player,rating,error,games,anchor,resampled
    greedy,190.8,401.2,1,random,
    random,0.0,0.0,1,random,
    """
    lines = []
    for i in np.argsort(-ratings.points, kind="stable"):
        known: list[float | str] = ["", ""]
        for at, of in enumerate((ratings.points, ratings.errors)):
            if np.isfinite(of[i]):
                known[at] = round(float(of[i]), 1)
        lines.append(
            (ratings.players[i], *known, int(ratings.games[i]), ratings.anchor, ratings.resampled)
        )
    return _csv(["player", "rating", "error", "games", "anchor", "resampled"], lines)


def _csv(header: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    return "".join(map(csv_line, (header, *lines)))


def write_csv(path: Path, text: str) -> None:
    """Write a CSV file, as a whole or not at all; folders are created.

    Raises:
        PlotError: it cannot be written.
    """
    write_file(path, "table", lambda file: file.write(text.encode(errors="backslashreplace")))


def snapshot_steps(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the training steps of snapshots, fewest first, for those whose facts name them.

    >>> snapshot_steps({"000001": {"steps": 500}, "random": {}, "000002": {"steps": 100}})
    {'000002': 100.0, '000001': 500.0}
    """
    said: dict[str, Any] = {name: each.get("steps") for name, each in facts.items()}
    known = {
        name: float(steps)
        for name, steps in said.items()
        if type(steps) in (int, float) and 0 <= steps < 2**53
    }
    return dict(sorted(known.items(), key=lambda item: item[1]))


def score_matrix(results: Results, players: Sequence[str]) -> tuple[FloatArray, IntArray]:
    """Return the mean results of p players against each other, over all seats.

    Returns:
        The scores, (p, p) float64: of the player in the row against the one in the column, 1 for a
            win and 0.5 for a
        draw; NaN without games. And how many games there were, (p, p) int64.
    """
    index = {name: i for i, name in enumerate(players)}
    points = np.zeros((len(players), len(players)))
    games = np.zeros((len(players), len(players)), np.int64)
    for row in results.rows():
        if row.player in index and row.opponent in index:
            i = index[row.player]
            j = index[row.opponent]
            points[i, j] += row.points
            points[j, i] += row.games - row.points  # both are one cell for games against oneself
            games[i, j] += row.games
            games[j, i] += row.games
    return np.divide(points, games, out=np.full_like(points, np.nan), where=games > 0), games


def heat_map(
    results: Results, players: Sequence[str] | None = None, title: str = "mean results"
) -> Figure:
    """Draw a heat map of the players' mean results against each other.

    Blue is 1, white 0.5, red 0, and grey means no games.

    Args:
        results: the games.
        players: who is shown, from the top; by default everyone, by name. `Ratings.players` sorted
            by points shows a ladder.
        title: above the picture.

    Raises:
        PlotError: no games between the players, or no matplotlib.
    """
    if players is None:
        players = results.players()
    names = tuple(players)
    scores, games = score_matrix(results, names)
    if not games.any():
        raise PlotError(
            "expected games between the players of a heat map, got none; play some first"
        )
    side = 3.0 + min(0.45 * len(names), 9.0)
    figure = new_figure(side, side + 0.8)
    panel = figure.subplots()
    panel.set_facecolor("#D8D8D8")
    image = panel.imshow(
        np.ma.masked_invalid(scores), cmap="RdBu", vmin=0, vmax=1, interpolation="nearest"
    )
    every = -(-len(names) // MAX_LABELS)
    places = range(0, len(names), every)
    labels = [short(name) for name in names[::every]]
    panel.set_xticks(places, labels, rotation=90, fontsize=8, parse_math=False)
    panel.set_yticks(places, labels, fontsize=8, parse_math=False)
    panel.set_xlabel("against")
    panel.set_title(truncate(printable(title), 200), parse_math=False)
    if len(names) <= MAX_NUMBERED:
        for i, j in zip(*np.nonzero(games), strict=True):
            dark = abs(scores[i, j] - 0.5) > 0.35
            panel.text(
                j,
                i,
                f"{scores[i, j]:.2f}",
                ha="center",
                va="center",
                fontsize=7,
                color="w" if dark else "k",
            )
    figure.colorbar(image, ax=panel, shrink=0.7, label="mean result of the row")
    return figure


def rating_curve(
    ratings: Ratings,
    players: Sequence[str] | None = None,
    x: Sequence[float] | None = None,
    x_label: str = "snapshot",
    title: str = "ratings",
) -> Figure:
    """Draw the ratings of snapshots in their order, with 95 % intervals.

    The ratings of other players are lines across.

    Args:
        ratings: of everyone.
        players: the snapshots, in their order; by default all whose names begin with a digit. Those
            without a rating leave a gap.
        x: where each snapshot stands, (p,) float64, such as the steps it was trained for; by
            default 1, 2, ...
        x_label: below the axis.
        title: above the picture.

    Raises:
        PlotError: no snapshot has a rating, ``x`` is not as long as ``players``, or no matplotlib.
    """
    if players is None:
        players = [name for name in ratings.players if name[:1].isdigit()]
    names = list(players)
    if x is None:
        x = range(1, len(names) + 1)
    at = np.asarray(x, np.float64)
    if at.shape != (len(names),):
        raise PlotError(
            f"rating_curve: x: expected {len(names)} numbers, one for each player, got {len(at)}"
        )
    known = dict(
        zip(ratings.players, zip(ratings.points, ratings.errors, strict=True), strict=True)
    )
    points, errors = (
        np.array([known.get(name, (np.nan, np.nan)) for name in names]).reshape(-1, 2).T
    )
    if not np.isfinite(points).any():
        raise PlotError(
            "rating_curve: expected snapshots with ratings, got none; let them play first"
        )
    figure = new_figure(4.2)
    panel = figure.subplots()
    spread = np.where(np.isfinite(errors), NINETY_FIVE * errors, np.nan)
    panel.fill_between(
        at, points - spread, points + spread, color=COLOURS[0], alpha=0.18, linewidth=0
    )
    panel.plot(at, points, color=COLOURS[0], marker="o", ms=3, linewidth=1.8)
    for name, (rating, _) in known.items():
        if name not in names and np.isfinite(rating):
            panel.axhline(rating, color="#8C8C8C", linestyle="--", linewidth=1)
            panel.annotate(
                short(name),
                (1, rating),
                xycoords=("axes fraction", "data"),
                fontsize=8,
                ha="right",
                va="bottom",
                color="#555555",
                parse_math=False,
            )
    panel.set_title(truncate(printable(title), 200), parse_math=False)
    panel.set_xlabel(truncate(printable(x_label), 60), parse_math=False)
    panel.set_ylabel(f"Elo points above {short(ratings.anchor)}", parse_math=False)
    clean_axes(panel)
    source = "as if all games were independent"
    if ratings.resampled:
        source = f"from resampling {ratings.resampled}"
    text = f"band: 95 % interval of each rating relative to that player, {source}"
    figure.supxlabel(text, fontsize=8, color="#555555")
    return figure
