"""Learning curves as a picture. matplotlib is imported when one is drawn; its global state is not touched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vecwrap.errors import PlotError
from vecwrap.parts.run_files import write_whole
from vecwrap.plotting.curves import AXES, Curve, check_axes, check_windows, curve, thinned
from vecwrap.plotting.runs import Run
from vecwrap.scalars import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SUFFIXES", "WINDOWS", "check_suffix", "draw", "save", "step_label"]

SUFFIXES = (".png", ".svg")
WINDOWS = (10, 100)
# Okabe and Ito's colours, distinguishable with any kind of colour blindness; grey for their yellow, which is hardly
# visible on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
MARKERS = "osD^vX<>"
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
GREY = "#555555"
WIDTH, PANEL, FRAME = 8.0, 2.5, 1.2  # inches
MOST_POINTS = 500  # per line
MOST_DOTS = 1000  # in an SVG; more are embedded as a bitmap
MOST_CHARACTERS = 48  # of a name in the legend
MARKED_FROM = 4  # runs; from this many on, colours alone are hard to tell apart


class _Style(NamedTuple):
    """How a run is drawn; ``places`` are those of the markers on its line, different from its neighbours'."""

    colour: str
    dashes: Any
    marker: str | None
    places: tuple[float, float]


def draw(
    runs: Sequence[Run],
    axes: Sequence[str] = AXES,
    windows: Sequence[int] = WINDOWS,
    title: str | None = None,
) -> Figure:
    """Draw learning curves: a panel for each axis, each with all runs, raw and smoothed.

    Episodes are dots, each window is a line, thicker for wider windows, and the spread of the widest is a band.

    Args:
        runs: as returned by ``read_runs``.
        axes: any of ``"steps"``, ``"episodes"``, ``"minutes"``.
        windows: the numbers of episodes to smooth scores over.
        title: above everything; None: the environment's id, if the runs share one.

    Raises:
        PlotError: no run has a finished episode, an argument is invalid, or matplotlib is missing.
    """
    axes, windows = check_axes(axes), sorted(check_windows(windows))
    drawn = [(run, _style(i, len(runs))) for i, run in enumerate(runs) if any(len(seed.scores) for seed in run.seeds)]
    if not drawn:
        raise PlotError(f"{', '.join(run.name for run in runs)}: expected at least one finished episode, got none")
    figure = _new_figure(WIDTH, FRAME + PANEL * len(axes))
    panels = figure.subplots(len(axes), 1, squeeze=False)[:, 0]
    shown: set[int] = set()
    over: set[str] = set()
    for axis, panel in zip(axes, panels, strict=True):
        _prepare(panel, axis, runs)
        for run, style in drawn:
            _draw_episodes(panel, run, axis, style, len(drawn))
            widest = None
            for rank, window in enumerate(windows):
                if (line := curve(run, axis, window)) is not None:
                    _draw_line(panel, line, style, rank / max(len(windows) - 1, 1))
                    shown.add(window)
                    widest = line
            if widest is not None and _draw_band(panel, widest, style):
                over.add(run.over)
        panel.set_xlim(left=0)
    _name(figure, drawn, title)
    _explain(figure, [window for window in windows if window in shown], windows, sorted(over))
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
    """Refuse a picture in an unsupported format.

    Raises:
        PlotError: the suffix is not one of ``SUFFIXES``.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise PlotError(f'expected a picture that ends in {" or ".join(SUFFIXES)}, got "{path}"')


def step_label(runs: Sequence[Run]) -> str:
    """Name the steps of runs, as ``"agent steps of 4 frames"``; ``"steps"`` if they differ or are unknown."""
    said = {_step_unit(seed.step_unit, seed.frame_skip) for run in runs for seed in run.seeds}
    return said.pop() if len(said) == 1 else "steps"


def _step_unit(unit: str | None, frames: int | None) -> str:
    if unit is None:
        return "steps"
    return f"{unit}s of {frames} frames" if frames is not None and frames > 1 else f"{unit}s"


def _new_figure(width: float, height: float) -> Figure:
    """Return an empty figure that belongs to no window system and is unknown to pyplot."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError(f'pictures need matplotlib ({error}): pip install "vecwrap[plot]"') from error
    figure = Figure(figsize=(width, height), dpi=100, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _style(number: int, count: int) -> _Style:
    rounds, place = divmod(number, len(COLOURS))
    marker = MARKERS[place] if count >= MARKED_FROM else None
    return _Style(COLOURS[place], DASHES[rounds % len(DASHES)], marker, (0.016 * place, 0.13))


# -- a panel -----------------------------------------------------------------------------------------------------------


def _prepare(panel: Axes, axis: str, runs: Sequence[Run]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    panel.set_xlabel(printable(step_label(runs)) if axis == "steps" else axis)
    panel.set_ylabel("score")
    panel.grid(color="#E4E4E4", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10], integer=axis != "minutes"))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    panel.margins(x=0.02)


def _short(value: float) -> str:
    """Format a number for an axis.

    >>> [_short(value) for value in (0, 0.5, 250, 12_000, 2_500_000)]
    ['0', '0.5', '250', '12k', '2.5M']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _draw_episodes(panel: Axes, run: Run, axis: str, style: _Style, count: int) -> None:
    """Draw a dot per episode: the more there are, the smaller and fainter."""
    x = np.concatenate([seed.along(axis) for seed in run.seeds])
    scores = np.concatenate([seed.scores for seed in run.seeds])
    crowd = np.log10(max(len(x) * count, 10)) - 1  # 0 for ten dots, 3 for ten thousand
    panel.plot(
        x,
        scores,
        linestyle="none",
        marker="o",
        markersize=max(5 - 1.1 * crowd, 1.5),
        markeredgewidth=0,
        color=_lighter(style.colour, min(0.15 + 0.15 * crowd, 0.6)),
        alpha=max(0.8 - 0.15 * crowd, 0.2),
        zorder=1,
        rasterized=len(x) > MOST_DOTS,
    )


def _lighter(colour: str, by: float) -> tuple[float, float, float]:
    """Mix a colour with white, so that lines stay visible on dots that cover everything."""
    red, green, blue = (1 - (1 - int(colour[i : i + 2], 16) / 255) * (1 - by) for i in (1, 3, 5))
    return red, green, blue


def _draw_line(panel: Axes, line: Curve, style: _Style, thickness: float) -> None:
    """Draw a smoothed line; ``thickness`` goes from 0 for the narrowest window to 1 for the widest."""
    points = thinned(line.x, MOST_POINTS)
    marker = style.marker if thickness == 1 else None
    if len(points) == 1:  # a single point draws no line
        marker = style.marker or "o"
    panel.plot(
        line.x[points],
        line.mean[points],
        color=style.colour,
        linestyle=style.dashes,
        linewidth=0.9 + 1.2 * thickness,
        alpha=0.55 + 0.45 * thickness,
        marker=marker,
        markersize=6,
        markeredgewidth=0,
        markevery=style.places if marker else None,
        zorder=3 + thickness,
    )


def _draw_band(panel: Axes, line: Curve, style: _Style) -> bool:
    if line.spread is None or np.isnan(line.spread).all():
        return False
    points = thinned(line.x, MOST_POINTS)
    mean, spread = line.mean[points], line.spread[points]
    panel.fill_between(
        line.x[points], mean - spread, mean + spread, color=style.colour, alpha=0.18, linewidth=0, zorder=2
    )
    return True


# -- around the panels -------------------------------------------------------------------------------------------------


def _name(figure: Figure, drawn: Sequence[tuple[Run, _Style]], title: str | None) -> None:
    """Put the title above, and the runs' names below it."""
    from matplotlib.lines import Line2D

    ids = {seed.env_id for run, _ in drawn for seed in run.seeds}
    known = ids.pop() if len(ids) == 1 else None
    names = [
        _cut(printable(run.name)) + (f" ({len(run.seeds)} seeds)" if len(run.seeds) > 1 else "") for run, _ in drawn
    ]
    columns = max(1, min(len(names), 100 // (max(map(len, names)) + 8)))
    handles = [
        Line2D([], [], color=style.colour, linestyle=style.dashes, linewidth=2.1, marker=style.marker, markersize=5)
        for _, style in drawn
    ]
    legend = figure.legend(
        handles,
        names,
        title="\n".join(map(printable, (title if title is not None else known or "learning curves").split("\n"))),
        title_fontsize=12,
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        fontsize=9,
    )
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)


def _cut(name: str) -> str:
    """Shorten a name in its middle; a leading underscore would hide it from matplotlib's legends."""
    if len(name) > MOST_CHARACTERS:
        half = MOST_CHARACTERS // 2
        name = f"{name[: half - 1]}…{name[-half:]}"
    return f" {name}" if name.startswith("_") else name


def _explain(figure: Figure, shown: Sequence[int], windows: Sequence[int], over: Sequence[str]) -> None:
    """Explain below the panels what dots, lines and bands are."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], color=GREY, linestyle="none", marker="o", markersize=3, alpha=0.7)]
    labels = ["an episode"]
    for rank, window in enumerate(windows):
        if window in shown:
            thickness = rank / max(len(windows) - 1, 1)
            handles.append(Line2D([], [], color=GREY, linewidth=0.9 + 1.2 * thickness, alpha=0.55 + 0.45 * thickness))
            labels.append(f"mean of the last {window}")
    if over:
        handles.append(Patch(color=GREY, alpha=0.25, linewidth=0))
        labels.append(f"± 1 standard deviation over {' or '.join(over)}")
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=8, labelcolor=GREY
    )
