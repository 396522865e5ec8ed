"""Smoothed scores of runs along an axis, and a picture of them.

matplotlib is imported when a picture is drawn; its global state is not touched.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vecwrap.contract import FloatArray, IntArray
from vecwrap.errors import PlotError, did_you_mean
from vecwrap.plotting.runs import Run, step_unit
from vecwrap.scalars import printable
from vecwrap.whole_file import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["AXES", "WINDOWS", "Curve", "check", "check_suffix", "curve", "draw", "save"]

AXES = ("steps", "episodes", "minutes")
WINDOWS = (10, 100)
# Okabe and Ito's colours, distinguishable with any kind of colour blindness; grey for their yellow, which is hardly
# visible on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
DASHES = ("-", "--", ":", "-.")  # of the second eight runs, and so on
WIDTH, PANEL, FRAME = 8.0, 2.5, 1.2  # inches
MOST_POINTS = 500  # per line
MOST_DOTS = 1000  # in an SVG; more are embedded as a bitmap
MOST_CHARACTERS = 48  # of a name in the legend

# -- smoothing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A smoothed score along an axis, p points.

    Attributes:
        x: (p,) int64 steps, float64 minutes or int64 episodes, rising.
        mean: (p,) float64, the score.
        spread: (p,) float64, one standard deviation: over the seeds, or of one seed over the episodes of the window.
    """

    x: FloatArray | IntArray
    mean: FloatArray
    spread: FloatArray


def check(axes: Sequence[str], windows: Sequence[int]) -> None:
    """Refuse an unknown axis, no axis at all, and a window below 1."""
    for axis in axes:
        if axis not in AXES:
            raise PlotError(f'expected axes of {", ".join(AXES)}, got "{axis}".{did_you_mean(axis, AXES)}')
    if not axes:
        raise PlotError(f"expected at least one axis of {', '.join(AXES)}, got none")
    for window in windows:
        if window < 1:
            raise PlotError(f"expected to smooth over at least 1 episode, got {window}")


def curve(run: Run, axis: str, window: int) -> Curve | None:
    """Smooth the scores of a run over ``window`` episodes.

    One seed: the trailing mean and standard deviation over the episodes of all sub-environments together, in the order
    in which they ended.

    Several seeds: the mean and spread over the seeds' trailing means, from where all have one to where the first ends.
    Seeds with fewer than ``window`` episodes are left out. Between episodes, each seed keeps its last value.

    Args:
        run: the run.
        axis: ``"steps"``, ``"episodes"`` or ``"minutes"``.
        window: the number of episodes, at least 1.

    Returns:
        The curve; None if no seed has ``window`` episodes, or there is no place that all reach.

    Raises:
        PlotError: an unknown axis, or a window below 1.
    """
    check([axis], [window])
    seeds = [seed for seed in run.seeds if len(seed.scores) >= window]
    if not seeds:
        return None
    places = [seed.along(axis)[window - 1 :] for seed in seeds]
    means = [trailing_mean(seed.scores, window) for seed in seeds]
    if len(seeds) == 1:
        centred = seeds[0].scores - seeds[0].scores.mean()
        variance = trailing_mean(centred**2, window) - trailing_mean(centred, window) ** 2
        return Curve(places[0], means[0], np.sqrt(np.maximum(variance, 0.0)))
    x = np.unique(np.concatenate(places))
    x = x[(x >= max(each[0] for each in places)) & (x <= min(each[-1] for each in places))]
    if not len(x):
        return None
    values = [mean[np.searchsorted(each, x, side="right") - 1] for each, mean in zip(places, means, strict=True)]
    return Curve(x, np.mean(values, axis=0), np.std(values, axis=0))


def trailing_mean(values: FloatArray, window: int) -> FloatArray:
    """Return the mean of each value and the ``window - 1`` before it; empty if there are fewer than ``window``.

    >>> trailing_mean(np.array([1.0, 3.0, 5.0, 0.0]), 2).tolist()
    [2.0, 4.0, 2.5]
    """
    if len(values) < window:
        return np.zeros(0)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(values, window).mean(axis=1))


def thinned(x: FloatArray | IntArray, most: int) -> IntArray:
    """Return the indices of at most about ``most`` points, evenly along the axis, including the first and the last."""
    if len(x) <= most:
        return np.arange(len(x))
    places = np.searchsorted(x, np.linspace(x[0], x[-1], most), side="right") - 1
    return np.unique([0, *places, len(x) - 1]).astype(np.int64)


# -- drawing ----------------------------------------------------------------------------------------------------------


def draw(
    runs: Sequence[Run],
    axes: Sequence[str] = AXES,
    windows: Sequence[int] = WINDOWS,
    title: str | None = None,
) -> Figure:
    """Draw learning curves: a panel for each axis, each with all runs, raw and smoothed.

    Episodes are dots, each window is a line, thicker for the widest, and the spread of the widest is a band.

    Args:
        runs: as returned by ``read_runs``.
        axes: any of ``"steps"``, ``"episodes"``, ``"minutes"``.
        windows: the numbers of episodes to smooth scores over.
        title: above everything; None: the environment's id, if the runs share one.

    Raises:
        PlotError: no run has a finished episode, an argument is invalid, or matplotlib is missing.
    """
    check(axes, windows)
    axes, windows = list(dict.fromkeys(axes)), sorted(set(windows))
    drawn = [run for run in runs if any(len(seed.scores) for seed in run.seeds)]
    if not drawn:
        raise PlotError(f"{', '.join(run.name for run in runs)}: expected at least one finished episode, got none")
    figure = _new_figure(FRAME + PANEL * len(axes))
    panels = figure.subplots(len(axes), 1, squeeze=False)[:, 0]
    shown: set[int] = set()
    for axis, panel in zip(axes, panels, strict=True):
        _prepare(panel, axis, runs)
        for number, run in enumerate(drawn):
            look = _look(number)
            _draw_episodes(panel, run, axis, look)
            lines = {window: line for window in windows if (line := curve(run, axis, window)) is not None}
            for window, line in lines.items():
                _draw_line(panel, line, look, thick=window == windows[-1])
            if lines:
                _draw_band(panel, lines[max(lines)], look)
            shown.update(lines)
        panel.set_xlim(left=0)
    _name(figure, drawn, title)
    _explain(figure, drawn, sorted(shown))
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a picture as a whole or not at all.

    Args:
        figure: as returned by ``draw``.
        path: its suffix gives the format, ``.png`` or ``.svg``; an existing file is replaced, folders are created.

    Raises:
        PlotError: another suffix, or it cannot be written.
    """
    check_suffix(path)
    kind = path.suffix[1:].lower()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda file: figure.savefig(file, format=kind, dpi=150, metadata=metadata))
    except OSError as error:
        raise PlotError(f"{path}: the picture cannot be written: {error.strerror or error}") from error


def check_suffix(path: Path) -> None:
    """Refuse a picture in an unsupported format."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise PlotError(f'expected a picture that ends in .png or .svg, got "{path}"')


def _new_figure(height: float) -> Figure:
    """Return an empty figure that belongs to no window system and is unknown to pyplot."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError(f'pictures need matplotlib ({error}): pip install "vecwrap[plot]"') from error
    figure = Figure(figsize=(WIDTH, height), dpi=100, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _look(number: int) -> dict[str, Any]:
    rounds, place = divmod(number, len(COLOURS))
    return {"color": COLOURS[place], "linestyle": DASHES[rounds % len(DASHES)]}


def _prepare(panel: Axes, axis: str, runs: Sequence[Run]) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    panel.set_xlabel(printable(step_unit(runs)) if axis == "steps" else axis)
    panel.set_ylabel("score")
    panel.grid(color="#E4E4E4", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10], integer=axis != "minutes"))
    if axis != "minutes":
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.margins(x=0.02)


def _draw_episodes(panel: Axes, run: Run, axis: str, look: dict[str, Any]) -> None:
    x = np.concatenate([seed.along(axis) for seed in run.seeds])
    scores = np.concatenate([seed.scores for seed in run.seeds])
    panel.plot(
        x,
        scores,
        color=look["color"],
        linestyle="none",
        marker="o",
        markersize=2,
        markeredgewidth=0,
        alpha=0.3,
        zorder=1,
        rasterized=len(x) > MOST_DOTS,
    )


def _draw_line(panel: Axes, line: Curve, look: dict[str, Any], *, thick: bool) -> None:
    points = thinned(line.x, MOST_POINTS)
    marker = "o" if len(points) == 1 else None  # a single point draws no line
    width, alpha = (2.1, 1.0) if thick else (0.9, 0.6)
    panel.plot(line.x[points], line.mean[points], linewidth=width, alpha=alpha, marker=marker, zorder=3 + thick, **look)


def _draw_band(panel: Axes, line: Curve, look: dict[str, Any]) -> None:
    points = thinned(line.x, MOST_POINTS)
    x, mean, spread = line.x[points], line.mean[points], line.spread[points]
    panel.fill_between(x, mean - spread, mean + spread, color=look["color"], alpha=0.18, linewidth=0, zorder=2)


def _name(figure: Figure, drawn: Sequence[Run], title: str | None) -> None:
    """Put the title above, and the runs' names below it."""
    from matplotlib.lines import Line2D

    ids = {seed.env_id for run in drawn for seed in run.seeds}
    if title is None:
        title = (ids.pop() if len(ids) == 1 else None) or "learning curves"
    names = [_in_legend(run) for run in drawn]
    legend = figure.legend(
        [Line2D([], [], linewidth=2.1, **_look(number)) for number in range(len(drawn))],
        names,
        title="\n".join(map(printable, title.split("\n"))),
        title_fontsize=12,
        loc="outside upper center",
        ncols=max(1, min(len(names), 100 // (max(map(len, names)) + 8))),
        frameon=False,
        fontsize=9,
    )
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)


def _in_legend(run: Run) -> str:
    """A run's name, shortened in its middle; a leading underscore would hide it from matplotlib's legends."""
    name = printable(run.name)
    if len(name) > MOST_CHARACTERS:
        half = MOST_CHARACTERS // 2
        name = f"{name[: half - 1]}…{name[-half:]}"
    name += f" ({len(run.seeds)} seeds)" if len(run.seeds) > 1 else ""
    return f" {name}" if name.startswith("_") else name


def _explain(figure: Figure, drawn: Sequence[Run], windows: Sequence[int]) -> None:
    """Explain below the panels what dots, lines and bands are."""
    text = "dots: episodes"
    if windows:
        over = {"over seeds" if len(run.seeds) > 1 else f"of the last {windows[-1]} scores" for run in drawn}
        text += f"; lines: means of the last {', '.join(map(str, windows))}"
        text += f"; bands: ± 1 standard deviation {' or '.join(sorted(over))}"
    figure.supxlabel(textwrap.fill(text, 120), fontsize=8, color="#555555")
