"""Smoothed scores of a run along an axis, and their spread over seeds or sub-environments: pure functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vecwrap.contract import FloatArray, IntArray
from vecwrap.errors import PlotError, did_you_mean
from vecwrap.plotting.runs import Run, Seed

__all__ = ["AXES", "Curve", "check_axes", "check_windows", "curve", "thinned", "trailing_mean"]

AXES = ("steps", "episodes", "minutes")


@dataclass(frozen=True)
class Curve:
    """A smoothed score along an axis, p points.

    Attributes:
        x: (p,) int64 steps, float64 minutes or int64 episodes, rising.
        mean: (p,) float64, the score.
        spread: (p,) float64, one standard deviation over seeds or sub-environments; NaN where not all of them have a
            value yet. None if there are fewer than two.
    """

    x: FloatArray | IntArray
    mean: FloatArray
    spread: FloatArray | None


def check_axes(axes: Sequence[str]) -> list[str]:
    """Refuse an unknown axis.

    Args:
        axes: any of ``"steps"``, ``"episodes"``, ``"minutes"``.

    Returns:
        Each once, in the order given.

    Raises:
        PlotError: an unknown axis, or none at all.
    """
    for axis in axes:
        if axis not in AXES:
            raise PlotError(f'expected axes of {", ".join(AXES)}, got "{axis}".{did_you_mean(axis, AXES)}')
    if not axes:
        raise PlotError(f"expected at least one axis of {', '.join(AXES)}, got none")
    return list(dict.fromkeys(axes))


def check_windows(windows: Sequence[int]) -> list[int]:
    """Refuse a window below 1.

    Args:
        windows: the number of episodes of each.

    Returns:
        Each once, in the order given.

    Raises:
        PlotError: one below 1.
    """
    for window in windows:
        if window < 1:
            raise PlotError(f"expected to smooth over at least 1 episode, got {window}")
    return list(dict.fromkeys(windows))


def trailing_mean(values: FloatArray, window: int) -> FloatArray:
    """Return the mean of each value and the ``window - 1`` before it.

    Args:
        values: (m,).
        window: the number of values, at least 1.

    Returns:
        (m - window + 1,) float64, empty if there are fewer than ``window`` values.

    Example:
        >>> trailing_mean(np.array([1.0, 3.0, 5.0, 0.0]), 2).tolist()
        [2.0, 4.0, 2.5]
    """
    if len(values) < window:
        return np.zeros(0)
    return np.asarray(np.lib.stride_tricks.sliding_window_view(values, window).mean(axis=1))


def curve(run: Run, axis: str, window: int) -> Curve | None:
    """Smooth the scores of a run over ``window`` episodes.

    One seed: the trailing mean over the episodes of all sub-environments together, in the order in which they ended.
    Its spread is over the sub-environments' own trailing means, each over ``window / number of sub-environments`` of
    its own episodes (rounded up), which is about the same stretch of time.

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
    check_axes([axis])
    check_windows([window])
    lines = [_line(seed, axis, window) for seed in run.seeds if len(seed.scores) >= window]
    if not lines:
        return None
    if len(run.seeds) == 1:
        (x, mean), seed = lines[0], run.seeds[0]
        return Curve(x, mean, _spread(_sub_environments(seed, axis, window), x))
    first, last = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    x = np.unique(np.concatenate([x for x, _ in lines]))
    x = x[(x >= first) & (x <= last)]
    if not len(x):
        return None
    return Curve(x, np.mean([_values_at(x, *line) for line in lines], axis=0), _spread(lines, x))


def thinned(x: FloatArray | IntArray, most: int) -> IntArray:
    """Return the indices of at most about ``most`` points, evenly along the axis, including the first and the last.

    Args:
        x: (p,), never decreasing.
        most: how many.
    """
    if len(x) <= most:
        return np.arange(len(x))
    places = np.searchsorted(x, np.linspace(x[0], x[-1], most), side="right") - 1
    return np.unique([0, *places, len(x) - 1]).astype(np.int64)


_Line = tuple[FloatArray | IntArray, FloatArray]


def _line(seed: Seed, axis: str, window: int) -> _Line:
    return seed.along(axis)[window - 1 :], trailing_mean(seed.scores, window)


def _sub_environments(seed: Seed, axis: str, window: int) -> list[_Line]:
    """Return each sub-environment's own trailing mean, along the axis of all; none if one has too few episodes."""
    own = -(-window // seed.num_envs)
    x = seed.along(axis)
    rows = [np.flatnonzero(seed.envs == env) for env in np.unique(seed.envs)]
    if min(map(len, rows)) < own:
        return []
    return [(x[mine][own - 1 :], trailing_mean(seed.scores[mine], own)) for mine in rows]


def _values_at(places: FloatArray | IntArray, x: FloatArray | IntArray, values: FloatArray) -> FloatArray:
    """Return a line's value at each place: that of its last point up to there, NaN before its first."""
    index = np.searchsorted(x, places, side="right") - 1
    return np.where(index < 0, np.nan, values[index])


def _spread(lines: Sequence[_Line], places: FloatArray | IntArray) -> FloatArray | None:
    """Return one standard deviation over the lines at each place, NaN before all have a value; None for one line."""
    if len(lines) < 2:
        return None
    return np.asarray(np.std([_values_at(places, *line) for line in lines], axis=0))
