"""Learning curves of runs: smoothed, drawn. For ``vecwrap plot`` and scripts (docs/plotting.md).

Smoothing needs only NumPy; matplotlib (extra ``plot``) is imported when a picture is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vecwrap.env.atomic_files import write_atomically
from vecwrap.errors import (
    PlotError,
    did_you_mean,
    install_command,
    printable,
    printable_lines,
    truncate,
)
from vecwrap.rows.step_result import FloatArray, IntArray
from vecwrap.tools.runs import AXES, Run, RunGroup, axis_unit, read_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "AXES",
    "Curve",
    "Run",
    "RunGroup",
    "curve",
    "draw",
    "fitting_window",
    "read_runs",
    "save",
]

WINDOWS = (100, 50, 20, 10)  # episodes
_MIN_WINDOWS_PER_RUN = (
    10  # of a run's episodes, one in so many is what a window should at most hold
)
# Okabe and Ito's colours, distinguishable with any kind of colour blindness; grey for their yellow,
# which is hardly visible on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
DASHES = ("-", "--", ":", "-.")  # of the second eight runs, and so on
# inches
WIDTH = 8.0
PANEL = 2.5
FRAME = 1.2
_THICK: dict[str, Any] = {"linewidth": 2.1, "alpha": 1.0}  # the line of the widest window
_THIN: dict[str, Any] = {"linewidth": 0.9, "alpha": 0.6}
MAX_POINTS = 500  # per line
MAX_DOTS = 1000  # in an SVG; more are embedded as a bitmap
MAX_CHARACTERS = 48  # of a name in the legend

# -- smoothing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A smoothed score along an axis, p points.

    Attributes:
        x: (p,) int64 steps, float64 minutes or int64 episodes, rising.
        mean: (p,) float64, the score.
        spread: (p,) float64, one standard deviation: over the seeds, or of one seed over the
            episodes of the window.
    """

    x: FloatArray | IntArray
    mean: FloatArray
    spread: FloatArray


def check(axes: Sequence[str], windows: Sequence[int]) -> None:
    """Refuse an unknown axis, no axis at all, and a window below 1."""
    for axis in axes:
        if axis not in AXES:
            raise PlotError(
                f'expected axes of {", ".join(AXES)}, got "{axis}".{did_you_mean(axis, AXES)}'
            )
    if not axes:
        raise PlotError(f"expected at least one axis of {', '.join(AXES)}, got none")
    for window in windows:
        if window < 1:
            raise PlotError(f"expected to smooth over at least 1 episode, got {window}")


def fitting_window(runs: Iterable[RunGroup]) -> int:
    """Return over how many episodes to average, one number for all runs: 100, 50, 20 or 10.

    A tenth of the shortest seed at most, so that what a run reached in the end is not averaged with
    how it began; 10 for seeds of fewer than 200 episodes, and half of one that has fewer than 20.

    >>> zeros = [np.zeros(m) for m in (165, 5000, 0)]
    >>> runs = [Run(Path(), None, "steps", *[each] * 4, 0) for each in zeros]
    >>> one, other = RunGroup("a", (runs[0],)), RunGroup("b", (runs[1], runs[2]))
    >>> fitting_window([one]), fitting_window([other])
    (10, 100)
    """
    shortest = min(
        (len(seed.scores) for run in runs for seed in run.runs if len(seed.scores)), default=1
    )
    fitting = [window for window in WINDOWS if window * _MIN_WINDOWS_PER_RUN <= shortest]
    if fitting:
        return fitting[0]
    return max(1, min(WINDOWS[-1], shortest // 2))


def fitting_windows(runs: Sequence[RunGroup]) -> list[int]:
    """Return the windows to smooth over: the one that fits, and the narrowest if different.

    `draw` smooths over these windows.
    """
    window = fitting_window(runs)
    if window > WINDOWS[-1]:
        return [WINDOWS[-1], window]
    return [window]


def curve(run: RunGroup, axis: str, window: int) -> Curve | None:
    """Smooth the scores of a run over ``window`` episodes.

    One seed: the trailing mean and standard deviation over the episodes of all sub-environments
    together, in the order in which they ended.

    Several seeds: the mean and spread over the seeds' trailing means, from where all have one to
    where the first ends. Seeds with fewer than ``window`` episodes are left out. Between episodes,
    each seed keeps its last value.

    None if no seed has ``window`` episodes, or there is no place that all reach.
    """
    check([axis], [window])
    seeds = [seed for seed in run.runs if len(seed.scores) >= window]
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
    values = [
        mean[np.searchsorted(each, x, side="right") - 1]
        for each, mean in zip(places, means, strict=True)
    ]
    return Curve(x, np.mean(values, axis=0), np.std(values, axis=0))


def quantiles(seed: Run, axis: str, window: int, x: FloatArray | IntArray) -> FloatArray | None:
    """Return the 10, 50 and 90 % quantiles over a seed's sub-environments at these places, (3, p).

    Of each sub-environment, the mean of its share of the last ``window`` episodes, at least one.
    NaN where none has that many; None if there is only one sub-environment.
    """
    along = seed.along(axis)
    envs = np.unique(seed.envs)
    if len(envs) < 2 or not len(x):
        return None
    share = max(1, window // len(envs))
    values = np.full((len(envs), len(x)), np.nan)
    for row, env in zip(values, envs.tolist(), strict=True):
        own = seed.envs == env
        means = trailing_mean(seed.scores[own], share)
        if len(means):
            last = np.searchsorted(along[own][share - 1 :], x, side="right") - 1
            row[:] = np.where(last >= 0, means[last], np.nan)
    known = ~np.isnan(values).all(axis=0)
    found = np.full((3, len(x)), np.nan)
    found[:, known] = np.nanquantile(values[:, known], [0.1, 0.5, 0.9], axis=0)
    return found


def trailing_mean(values: FloatArray, window: int) -> FloatArray:
    """Return the mean of each value and the ``window - 1`` values before it.

    The result is empty if there are fewer than ``window`` values.

    >>> trailing_mean(np.array([1.0, 3.0, 5.0, 0.0]), 2).tolist()
    [2.0, 4.0, 2.5]
    """
    if len(values) < window:
        return np.zeros(0)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(values, window).mean(axis=1))


def thinned(x: FloatArray | IntArray, most: int) -> IntArray:
    """Return indices of at most about ``most`` points, even along the axis, with both ends."""
    if len(x) <= most:
        return np.arange(len(x))
    places = np.searchsorted(x, np.linspace(x[0], x[-1], most), side="right") - 1
    return np.unique([0, *places, len(x) - 1]).astype(np.int64)


# -- drawing ---------------------------------------------------------------------------------------


def draw(
    runs: Sequence[RunGroup],
    axes: Sequence[str] = AXES,
    windows: Sequence[int] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw learning curves: a panel for each axis, each with all runs, raw and smoothed.

    Episodes are dots, each window of episodes to smooth over is a line, thicker for the widest, and
    the spread of the widest is a band. By default the window is `fitting_window`, and 10 beside it
    if that is more; the legend says how many. The title is the environment's id if the runs share
    one, unless another is given.
    """
    check(axes, windows or ())
    axes = list(dict.fromkeys(axes))
    if windows is None:
        windows = fitting_windows(runs)
    windows = sorted(set(windows))
    drawn = [run for run in runs if any(len(seed.scores) for seed in run.runs)]
    if not drawn:
        raise PlotError(
            f"{', '.join(run.name for run in runs)}: expected at least one finished episode, got "
            "none. Run longer: vecwrap run PIPELINE --episodes 10"
        )
    figure = new_figure(FRAME + PANEL * len(axes))
    panels = figure.subplots(len(axes), 1, squeeze=False)[:, 0]
    shown: set[int] = set()
    for axis, panel in zip(axes, panels, strict=True):
        shown.update(draw_curves(panel, drawn, axis, windows))
    add_legend(figure, drawn, title, windows, shown)
    _explain(figure, drawn, sorted(shown))
    return figure


def draw_curves(
    panel: Axes, runs: Sequence[RunGroup], axis: str, windows: Sequence[int]
) -> set[int]:
    """Draw runs along one axis; return the windows of which there are lines.

    Short runs have seconds, not minutes.
    """
    unit, scale = axis_unit(runs, axis)
    _prepare(panel, axis, unit)
    shown: set[int] = set()
    for number, run in enumerate(runs):
        _draw_episodes(panel, run, axis, scale, line_style(number))
        lines = {
            window: line for window in windows if (line := curve(run, axis, window)) is not None
        }
        for window, line in lines.items():
            _draw_line(
                panel,
                line,
                scale,
                line_style(number),
                thick=window == windows[-1],
                band=window == max(lines),
            )
        shown.update(lines)
    panel.set_xlim(left=0)
    return shown


def save(figure: Figure, path: Path) -> None:
    """Write a picture, ``.png`` or ``.svg``, as a whole or not at all; folders are created."""
    check_suffix(path)
    kind = path.suffix[1:].lower()
    metadata = {"Software": None}
    if kind == "svg":
        metadata = {"Date": None}
    write_file(
        path, "picture", lambda file: figure.savefig(file, format=kind, dpi=150, metadata=metadata)
    )


def write_file(path: Path, what: str, write: Callable[[Any], Any]) -> None:
    """Write a file completely or not at all, and create folders; PlotError on failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, write)
    except OSError as error:
        raise PlotError(
            f"{path}: the {what} cannot be written: {error.strerror or error}"
        ) from error


def check_suffix(path: Path) -> None:
    """Refuse a picture in an unsupported format."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise PlotError(f'expected a picture that ends in .png or .svg, got "{path}"')


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure that belongs to no window system and is unknown to pyplot."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotError(f"pictures need matplotlib ({error}): {install_command('plot')}") from error
    figure = Figure(figsize=(width, height), dpi=100, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def line_style(number: int) -> dict[str, Any]:
    """The colour and the dashes of a run."""
    rounds, place = divmod(number, len(COLOURS))
    return {"color": COLOURS[place], "linestyle": DASHES[rounds % len(DASHES)]}


def short(name: str, most: int = 32) -> str:
    """A name in which the middle is left out if it is long."""
    name = printable(name)
    if len(name) <= most:
        return name
    return f"{name[: most // 2 - 1]}…{name[-(most // 2) :]}"


def clean_axes(panel: Axes, grid: Literal["both", "x"] = "both") -> None:
    """Draw a light grid behind everything, and no frame."""
    panel.grid(axis=grid, color="#E4E4E4", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _prepare(panel: Axes, axis: str, unit: str) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    panel.set_xlabel(truncate(printable(unit), 60), parse_math=False)
    panel.set_ylabel("score")
    clean_axes(panel)
    panel.xaxis.set_major_locator(
        MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10], integer=axis != "minutes")
    )
    if axis != "minutes":
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.margins(x=0.02)


def _draw_episodes(
    panel: Axes, run: RunGroup, axis: str, scale: int, style: dict[str, Any]
) -> None:
    x = scale * np.concatenate([seed.along(axis) for seed in run.runs])
    scores = np.concatenate([seed.scores for seed in run.runs])
    many = len(x) > MAX_DOTS
    panel.plot(
        x, scores, "o", color=style["color"], ms=2, mew=0, alpha=0.3, zorder=1, rasterized=many
    )


def _draw_line(
    panel: Axes, line: Curve, scale: int, style: dict[str, Any], *, thick: bool, band: bool
) -> None:
    points = thinned(line.x, MAX_POINTS)
    x = scale * line.x[points]
    mean = line.mean[points]
    spread = line.spread[points]
    marker = "o" if len(points) == 1 else None  # a single point draws no line
    panel.plot(x, mean, marker=marker, zorder=3 + thick, **_THICK if thick else _THIN, **style)
    if band:
        panel.fill_between(
            x, mean - spread, mean + spread, color=style["color"], alpha=0.18, linewidth=0, zorder=2
        )


def add_legend(
    figure: Figure,
    drawn: Sequence[RunGroup],
    title: str | None,
    windows: Sequence[int],
    shown: set[int],
) -> None:
    """Put the title above, and below it the runs' names and the windows of the shown lines.

    A window is the number of episodes that a line averages.
    """
    from matplotlib.lines import Line2D

    ids = {seed.env_id for run in drawn for seed in run.runs}
    if title is None:
        title = "learning curves"
        if len(ids) == 1:
            title = ids.pop() or title
    lines = [Line2D([], [], **_THICK, **line_style(number)) for number in range(len(drawn))]
    averaged = [window for window in windows if window in shown]
    lines += [
        Line2D([], [], color="#555555", **_THICK if window == windows[-1] else _THIN)
        for window in averaged
    ]
    names = [_in_legend(run) for run in drawn]
    names += [f"mean of {window} episode{'s' if window > 1 else ''}" for window in averaged]
    legend = figure.legend(
        lines,
        names,
        title=truncate(printable_lines(title), 400),
        title_fontsize=12,
        loc="outside upper center",
        ncols=max(1, min(len(names), 100 // (max(map(len, names)) + 8))),
        frameon=False,
        fontsize=9,
    )
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)


def _in_legend(run: RunGroup) -> str:
    """A run's name for a legend, shortened in the middle.

    A leading underscore would hide the name from matplotlib's legends.
    """
    name = short(run.name, MAX_CHARACTERS)
    if len(run.runs) > 1:
        name += f" ({len(run.runs)} seeds)"
    if name.startswith("_"):
        return f" {name}"
    return name


def _explain(figure: Figure, drawn: Sequence[RunGroup], windows: Sequence[int]) -> None:
    """Explain below the panels what dots and bands are."""
    text = "dots: episodes"
    if windows:
        over = set()
        if any(len(run.runs) <= 1 for run in drawn):
            over.add(f"of the last {windows[-1]} scores")
        if any(len(run.runs) > 1 for run in drawn):
            over.add("over seeds")
        text += f"; bands: ± 1 standard deviation {' or '.join(sorted(over))}"
    figure.supxlabel(textwrap.fill(text, 120), fontsize=8, color="#555555")
