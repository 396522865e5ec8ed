"""Reads the episodes of runs from monitor files, as described in docs/plotting.md.

The files are vecwrap's, Stable-Baselines3's or Baselines'.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vecwrap.env.untrusted import read_bytes
from vecwrap.errors import PlotError, searched_paths
from vecwrap.rows.step_result import BoolArray, FloatArray, IntArray

__all__ = ["AXES", "Run", "RunGroup", "read_runs"]

AXES = ("steps", "episodes", "minutes")
PATTERN = "*monitor.csv"
MAX_MONITOR_BYTES = 2_000_000_000
_MAX_EPISODE_STEPS = 2**53  # of an episode; more are not exact in float64
_MAX_DIGITS = 15  # of all steps
MAX_SEATS = 1000  # of a game; more cannot be a count
MAX_ABS_SCORE = 1e150  # a score whose square, which a spread needs, is still finite


# -- one file --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MonitorLog:
    """One file: m episodes, in the order in which they ended."""

    header: Mapping[str, Any]  # empty if the run was killed before writing it
    scores: FloatArray  # not finite if the file says so
    lengths: IntArray
    ends: FloatArray  # seconds from the header's ``t_start``, never decreasing
    lost: BoolArray  # ended because the sub-environment was lost, so that there is no score
    envs: IntArray  # which sub-environment each was of; -1 if the file does not say
    steps: FloatArray  # agent steps of all sub-environments by then; NaN if the file does not say
    unreadable: int  # complete lines that are not episodes
    played: Sequence[tuple[str, int, float]]  # opponent, seat and result of games against opponents


def read_monitor_file(path: Path) -> MonitorLog:
    """Read a monitor file: CSV below a line of JSON.

    An unterminated last line, left by a kill of the run, is dropped.

    If the times in a file decrease, a later run appended to it and restarted the clock; its
    episodes continue from the time before.
    """
    try:
        data = read_bytes(path, MAX_MONITOR_BYTES)
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="replace").read()
    except OSError as error:
        raise PlotError(f"{path}: cannot be read: {error.strerror or error}") from error
    if text and text[0] != "#":
        raise _no_monitor_file(path, text)
    first, _, below = text[: text.rfind("\n") + 1].partition("\n")
    header = {}
    if first:
        header = _read_header(first, path)
    table = _read_cells(below, path)
    found = [_read_row(cells) for cells in table]
    rows = [row for row in found if row is not None]
    scores, lengths, ends, lost, envs, steps = np.array(rows, dtype=np.float64).reshape(-1, 6).T
    continued = ends - np.cumsum(np.minimum(np.diff(ends, prepend=ends[:1]), 0))
    played = []
    if table and "opponent" in table[0]:
        played = [game for game in map(_read_game, table) if game is not None]
    whole = lengths.astype(np.int64), continued, lost != 0, envs.astype(np.int64), steps
    return MonitorLog(header, scores, *whole, len(found) - len(rows), played)


def _read_header(line: str, path: Path) -> dict[str, Any]:
    try:
        header = json.loads(line.removeprefix("#"))
        if not math.isfinite(header["t_start"]):
            raise ValueError
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise _no_monitor_file(path, line) from None
    return dict(header)


def _no_monitor_file(path: Path, text: str) -> PlotError:
    return PlotError(
        f'{path}: expected a monitor file, whose first line is "#" and JSON with t_start, got '
        f"{text[:60]!r}; a folder "
        "of a run is given as the folder"
    )


def _read_cells(text: str, path: Path) -> list[dict[str, Any]]:
    """The rows below the header; none if the run ended before the column names were written."""
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        columns = reader.fieldnames
        rows = list(reader)
    except csv.Error as error:
        raise PlotError(f"{path}: expected rows of CSV, got something else: {error}") from error
    if columns is not None and (
        missing := [name for name in ("r", "l", "t") if name not in columns]
    ):
        raise PlotError(
            f"{path}: expected the columns r, l and t in its second line, got "
            f'"{",".join(columns)[:60]}"; '
            f"missing: {', '.join(missing)}"
        )
    return rows


def _read_row(cells: Mapping[Any, Any]) -> tuple[float, int, float, int, int, float] | None:
    """Read score, length, end, lost, row and steps of an episode; None for an invalid line.

    A line that was cut off in writing is invalid, for example.
    """
    try:
        row = (
            float(cells["r"]),
            int(float(cells["l"])),
            float(cells["t"]),
            int(int(cells.get("lost", 0)) != 0),
            _env(cells),
            _steps(cells),
        )
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    if None in cells or None in cells.values():  # too many cells, or too few
        return None
    if 0 <= row[1] < _MAX_EPISODE_STEPS and math.isfinite(row[2]):
        return row
    return None


def _read_game(cells: Mapping[Any, Any]) -> tuple[str, int, float] | None:
    """Read a game's opponent, the learner's seat, and the result; None if there is none."""
    try:
        opponent = cells["opponent"]
        seat = int(cells["seat"])
        result = float(cells["result"])
    except (KeyError, ValueError, TypeError):  # a game that was lost has none
        return None
    if opponent and 0 <= seat < MAX_SEATS and not math.isnan(result):
        return (opponent, seat, result)
    return None


def _env(cells: Mapping[Any, Any]) -> int:
    text = str(cells.get("env") or "")
    if text.isdecimal() and len(text) < 10:
        return int(text)
    return -1


def _steps(cells: Mapping[Any, Any]) -> float:
    text = str(cells.get("steps") or "")
    if text.isdecimal() and len(text) <= _MAX_DIGITS:
        return float(text)
    return math.nan


# -- the files of a run ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """The m episodes of one folder, in the order in which they ended, regardless of their file.

    Episodes whose sub-environment was lost, and scores that are not finite, are left out. Their
    steps are counted nevertheless, because they were taken.

    Attributes:
        path: the folder, or the one file.
        env_id: as the files say; None if they do not.
        step_unit: what is counted as a step: ``"agent steps of 4 frames"``; ``"steps"`` if the
            files do not say.
        pipeline: the pipeline's hash, if the files say so.
        scores: (m,) float64.
        steps: (m,) int64, agent steps of all sub-environments by then, as the files say; if they do
            not, those of all episodes that had ended by then, including this one.
        minutes: (m,) float64, from the earliest start of a file to the episode's end.
        envs: (m,) int64, the sub-environment, or the file's number if its rows do not say.
        total_steps: by the end of the last episode, including those left out.
        lost: the number of episodes left out because their sub-environment was lost.
        not_finite: the number left out because their score is not finite, or beyond 1e150, too
            large to compute with.
        unreadable: the number of lines that are not episodes.
        played: opponent, seat and result of the games against opponents.
    """

    path: Path
    env_id: str | None
    step_unit: str
    scores: FloatArray
    steps: IntArray
    minutes: FloatArray
    envs: IntArray
    total_steps: int
    pipeline: str | None = None
    lost: int = 0
    not_finite: int = 0
    unreadable: int = 0
    played: Sequence[tuple[str, int, float]] = ()

    def along(self, axis: str) -> FloatArray | IntArray:
        """Return the (m,) positions of the episodes on an axis.

        The axis is ``"steps"``, ``"episodes"`` (from 1) or ``"minutes"``.
        """
        if axis == "steps":
            return self.steps
        if axis == "minutes":
            return self.minutes
        return np.arange(1, len(self.scores) + 1)


@dataclass(frozen=True)
class RunGroup:
    """What is drawn as one curve, by the name in the legend: one seed, or several."""

    name: str
    runs: tuple[Run, ...]


def step_unit(runs: Iterable[RunGroup]) -> str:
    """What they count as a step; ``"steps"`` if they differ."""
    units = {seed.step_unit for run in runs for seed in run.runs}
    if len(units) == 1:
        return units.pop()
    return "steps"


@searched_paths(PlotError)
def read_runs(places: Sequence[str | Path]) -> list[RunGroup]:
    """Read the monitor files of runs.

    A place is a monitor file, or a folder with monitor files, which are sub-environments of one run
    (as in Stable-Baselines3 and Baselines), or a folder without any whose subfolders have some:
    these are seeds of one run, or separate runs if their environments or pipelines differ.
    ``"NAME=PLACE"`` gives a name; places with the same name are seeds of one run.

    PlotError: a place does not exist, holds no monitor file, or one that cannot be read; one is
    given twice under the same name.
    """
    runs: dict[str | Path, list[Run]] = {}
    for place in places:
        name, path = _name_and_path(place)
        for where, seeds in _read_place(path):
            if name is None:
                runs[where] = seeds
            else:
                known = {seed.path.resolve() for seed in runs.get(name, [])}
                if twice := [seed.path for seed in seeds if seed.path.resolve() in known]:
                    raise PlotError(
                        f"{name}: expected each seed once, got {twice[0]} twice; leave one of the "
                        "places out"
                    )
                runs.setdefault(name, []).extend(seeds)
    if not runs:
        raise PlotError("expected folders of runs or monitor files, got none")
    names = _short_names([key for key in runs if isinstance(key, Path)])
    found = []
    for key, seeds in runs.items():
        if isinstance(key, Path):
            key = names[key]
        found.append(RunGroup(key, tuple(seeds)))
    return found


def _name_and_path(place: str | Path) -> tuple[str | None, Path]:
    if isinstance(place, str) and not Path(place).exists():
        name, equals, path = place.partition("=")
        if equals and name:
            return name, Path(path)
    return None, Path(place)


def _read_place(path: Path) -> list[tuple[Path, list[Run]]]:
    """Return the runs of a place, each with its path."""
    if path.is_file():
        return [(path, [_read_run(path, [path])])]
    if not path.is_dir():
        raise PlotError(
            f"{path}: there is no such file or folder. Is the path right, relative to {Path.cwd()}?"
        )
    if files := sorted(path.glob(PATTERN)):
        return [(path, [_read_run(path, files)])]
    folders = {
        folder: sorted(folder.glob(PATTERN)) for folder in sorted(path.iterdir()) if folder.is_dir()
    }
    seeds = [_read_run(folder, files) for folder, files in folders.items() if files]
    if not seeds:
        raise PlotError(
            f"{path}: expected monitor files ({PATTERN}) in it or in its folders, got none; the "
            "wrapper monitor writes one where it is given a dir"
        )
    if len({(seed.env_id, seed.pipeline) for seed in seeds}) > 1:
        return [(seed.path, [seed]) for seed in seeds]
    return [(path, seeds)]


def _read_run(path: Path, files: Sequence[Path]) -> Run:
    logs = [read_monitor_file(file) for file in files]
    start = min((float(log.header["t_start"]) for log in logs if log.header), default=0.0)
    seconds = np.concatenate(
        [log.ends + float(log.header.get("t_start", start)) - start for log in logs]
    )
    order = np.argsort(seconds, kind="stable")
    lengths = np.concatenate([log.lengths for log in logs])[order]
    scores = np.concatenate([log.scores for log in logs])[order]
    lost = np.concatenate([log.lost for log in logs])[order]
    envs = np.concatenate([np.where(log.envs < 0, i, log.envs) for i, log in enumerate(logs)])[
        order
    ]
    steps = _steps_by_then(logs, lengths, order)
    finite = np.abs(scores) < MAX_ABS_SCORE
    kept = ~lost & finite
    total_steps = 0
    if len(steps):
        total_steps = int(steps[-1])
    return Run(
        path,
        env_id=_header_values(logs, "env_id"),
        step_unit=_step_unit(_header_values(logs, "step_unit"), _header_values(logs, "frame_skip")),
        pipeline=_header_values(logs, "pipeline"),
        scores=scores[kept],
        steps=steps[kept],
        minutes=seconds[order][kept] / 60,
        envs=envs[kept],
        total_steps=total_steps,
        lost=int(lost.sum()),
        not_finite=int((~lost & ~finite).sum()),
        unreadable=sum(log.unreadable for log in logs),
        played=[game for log in logs for game in log.played],
    )


def _steps_by_then(logs: Sequence[MonitorLog], lengths: IntArray, order: IntArray) -> IntArray:
    """The agent steps by the end of each episode, which never decrease.

    If a file does not record them, they are the sum of the lengths.
    """
    ended = np.cumsum(lengths)
    if not len(ended) or any(len(log.steps) and np.isnan(log.steps).all() for log in logs):
        return ended
    said = np.concatenate([log.steps for log in logs])[order]
    # the last row that says it
    known = np.maximum.accumulate(np.where(np.isnan(said), -1, np.arange(len(said))))
    # steps of games that had not ended by then
    running = np.where(known < 0, 0.0, said[known] - ended[known])
    return np.maximum.accumulate(ended + running).astype(np.int64)


def _header_values(logs: Sequence[MonitorLog], key: str) -> str | None:
    """Return the text that all headers with a key agree on; None without one or if they differ."""
    said = {str(log.header[key]) for log in logs if log.header.get(key) not in (None, "None")}
    if len(said) == 1:
        return said.pop()
    return None


def _step_unit(unit: str | None, frames: str | None) -> str:
    if unit is None:
        return "steps"
    if frames not in (None, "1"):
        return f"{unit}s of {frames} frames"
    return f"{unit}s"


def _short_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Name paths by the fewest last parts that distinguish them.

    A file ``monitor.csv`` has the name of its folder.
    """
    parts = {}
    for path in paths:
        whole = path.resolve()
        if whole.is_file():
            stem = whole.name.partition("monitor.")[0].rstrip(".")
            if stem:
                whole = whole.with_name(stem)
            else:
                whole = whole.parent
        parts[path] = whole.parts
    count = 1
    while len({each[-count:] for each in parts.values()}) < len(set(parts.values())):
        count += 1
    return {path: "/".join(each[-count:]) for path, each in parts.items()}


def axis_unit(runs: Iterable[RunGroup], axis: str) -> tuple[str, int]:
    """Return what an axis of runs counts, and how many there are to one of `Run.along`."""
    if axis == "minutes":
        return time_unit(runs)
    if axis == "steps":
        return step_unit(runs), 1
    return axis, 1


def time_unit(runs: Iterable[RunGroup]) -> tuple[str, int]:
    """Return the unit of time for runs, and how many there are to a minute.

    The unit is seconds if no run took two minutes.
    """
    minutes = [float(seed.minutes[-1]) for run in runs for seed in run.runs if len(seed.minutes)]
    if max(minutes, default=0.0) < 2:
        return ("seconds", 60)
    return ("minutes", 1)
