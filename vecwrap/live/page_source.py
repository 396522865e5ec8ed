"""What a page shows: the interface shared by run folders and live environments, and curves."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vecwrap.errors import printable, truncate
from vecwrap.tools.plot import MAX_POINTS, curve, quantiles, thinned
from vecwrap.tools.runs import MAX_ABS_SCORE, RunGroup, axis_unit

MAX_EPISODES = 2_000  # of a run, each a dot
MAX_RUNS = 50
MAX_NAME_CHARACTERS = 80  # characters of a name
_MAX_SECONDS = 1e10  # seconds, three centuries


class PageSource(Protocol):
    """What is shown. Called by the server's thread alone."""

    @property
    def ended(self) -> bool:
        """Whether it will never change again."""

    def state(self, row: int | None) -> dict[str, Any]:
        """Return the changing state as JSON, with the last steps of a row if one is selected."""

    def about(self) -> dict[str, Any]:
        """Return what changes rarely: the plan, versions, the log, files."""

    def runs(self) -> list[RunGroup]:
        """Return the episodes so far."""

    def frame(self, row: int | None) -> bytes | None:
        """Return a row's picture as PNG, or all of them as one JPEG; None if there is none."""

    def file(self, name: str) -> Path | None:
        """Return the path of a file that ``about`` lists; None for any other name."""

    def record(self, row: int | None) -> str:
        """Record the next episode of a row, or of each shown row; return why not, or nothing."""

    def watched(self, viewers: int) -> None:
        """Note how many browsers look."""

    def done(self) -> None:
        """Finish what was begun: it is no longer served."""


def curves(runs: Sequence[RunGroup], axis: str, window: int) -> dict[str, Any]:
    """Return the learning curves of runs along an axis, as in `vecwrap plot`, but thinned."""
    shown = [run for run in runs if any(len(seed.scores) for seed in run.runs)]
    unit, scale = axis_unit(shown, axis)
    return {
        "unit": truncate(printable(unit), MAX_NAME_CHARACTERS),
        "window": window,
        "runs": [_one(run, axis, window, scale) for run in shown[:MAX_RUNS]],
        "left_out": len(shown[MAX_RUNS:]),
    }


def _one(run: RunGroup, axis: str, window: int, scale: int) -> dict[str, Any]:
    x = scale * np.concatenate([seed.along(axis) for seed in run.runs])
    scores = np.concatenate([seed.scores for seed in run.runs])
    dots = np.unique(np.linspace(0, len(x) - 1, min(len(x), MAX_EPISODES)).astype(np.int64))
    shown = {
        "name": truncate(printable(run.name), MAX_NAME_CHARACTERS),
        "dots": _numbers(x=x[dots], y=scores[dots]),
    }
    line = curve(run, axis, window)
    if line is None:
        return shown
    points = thinned(line.x, MAX_POINTS)
    at = line.x[points]
    mean = line.mean[points]
    spread = line.spread[points]
    shown["line"] = _numbers(x=scale * at, mean=mean, low=mean - spread, high=mean + spread)
    if len(run.runs) == 1 and (found := quantiles(run.runs[0], axis, window, at)) is not None:
        shown["quantiles"] = _numbers(x=scale * at, q10=found[0], q50=found[1], q90=found[2])
    return shown


def _numbers(**columns: Any) -> dict[str, list[float | None]]:
    """Columns as JSON, which has no NaN."""
    numbers: dict[str, list[float | None]] = {}
    for name, column in columns.items():
        numbers[name] = [round(float(value), 6) for value in column]
        for i in np.flatnonzero(~np.isfinite(column)).tolist():
            numbers[name][i] = None
    return numbers


def reload_hint(folder: Path | None) -> str:
    """How the run is shown again once its program has ended."""
    if folder is None:
        return (
            "Its games are in no file; with monitor: {dir: runs/a}, vecwrap watch runs/a "
            "shows them again."
        )
    return f"Look again with: vecwrap watch {printable(shlex.quote(str(folder.absolute())))}"


def score_text(scores: Collection[float]) -> str:
    """The mean and spread of scores, and how many are too large to compute with."""
    values = np.array(list(scores))
    kept = values[np.abs(values) < MAX_ABS_SCORE]
    shown = "–"
    if len(kept):
        shown = f"{kept.mean():.2f} ± {kept.std():.2f}"
    if len(kept) == len(values):
        return shown
    return f"{shown}, {len(values) - len(kept)} not finite"


def duration_text(seconds: float) -> str:
    """Seconds as people say them."""
    if not abs(seconds) < _MAX_SECONDS:
        return "–"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds) // 60
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02} min"
