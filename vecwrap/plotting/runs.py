"""Runs: the combined contents of a folder's monitor files, along one axis or another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vecwrap.contract import FloatArray, IntArray
from vecwrap.errors import PlotError, paths_looked_at
from vecwrap.plotting.monitor_log import MonitorLog, read_monitor_file

__all__ = ["Run", "Seed", "read_runs"]

PATTERNS = ("*monitor.csv", "*monitor.json")
_LARGEST = 1e150  # a score whose square, which a spread needs, is still finite


@dataclass(frozen=True)
class Seed:
    """The m episodes of one folder, in the order in which they ended, regardless of their file.

    Episodes whose sub-environment was lost, and scores that are not finite, are left out. The steps of lost episodes
    are counted nevertheless, because they were taken.

    Attributes:
        path: the folder, or the one file.
        files: the files.
        env_id: as the files say; None if they do not.
        step_unit: what a step is, ``"agent step"`` in our files; None if they do not say.
        frame_skip: the number of frames per step, if the files say so.
        pipeline: the pipeline's hash, if the files say so.
        scores: (m,) float64.
        steps: (m,) int64, steps of all sub-environments in all episodes that had ended by then, including this one.
        minutes: (m,) float64, from the earliest start of a file to the episode's end.
        envs: (m,) int64, whose episode it was, counted from 0 in the order of the files and their indices.
        total_steps: of all episodes, including lost ones.
        lost: the number of episodes left out because their sub-environment was lost.
        not_finite: the number left out because their score is not finite, or beyond 1e150, too large to compute with.
        unreadable: the number of lines that are not episodes.
    """

    path: Path
    files: tuple[Path, ...]
    env_id: str | None
    step_unit: str | None
    frame_skip: int | None
    pipeline: str | None
    scores: FloatArray
    steps: IntArray
    minutes: FloatArray
    envs: IntArray
    total_steps: int
    lost: int
    not_finite: int
    unreadable: int

    @property
    def num_envs(self) -> int:
        """How many sub-environments have finished an episode."""
        return len(np.unique(self.envs))

    def along(self, axis: str) -> FloatArray | IntArray:
        """Return the positions of the episodes on an axis.

        Args:
            axis: ``"steps"``, ``"episodes"`` (counted from 1) or ``"minutes"``.

        Returns:
            (m,), never decreasing.
        """
        if axis == "steps":
            return self.steps
        return self.minutes if axis == "minutes" else np.arange(1, len(self.scores) + 1)


@dataclass(frozen=True)
class Run:
    """What is drawn as one curve: one seed, or several.

    Attributes:
        name: as in the legend.
        seeds: its seeds.
    """

    name: str
    seeds: tuple[Seed, ...]

    @property
    def over(self) -> str:
        """What the spread of its curve is over: ``"seeds"``, ``"sub-environments"``, or ``""``."""
        if len(self.seeds) > 1:
            return "seeds"
        return "sub-environments" if self.seeds[0].num_envs > 1 else ""


@paths_looked_at(PlotError)
def read_runs(places: Sequence[str | Path]) -> list[Run]:
    """Read the monitor files of runs.

    A place is a monitor file, or a folder with monitor files, which are sub-environments of one run (as in
    Stable-Baselines3 and Baselines), or a folder without any whose subfolders have some: these are seeds of one run, or
    separate runs if their environments or pipelines differ. ``"NAME=PLACE"`` gives a name; places with the same name
    are seeds of one run.

    Args:
        places: files and folders.

    Returns:
        The runs, in the order given.

    Raises:
        PlotError: a place does not exist, holds no monitor file, or one that cannot be read; one is given twice under
            the same name.
    """
    named: dict[str, list[Seed]] = {}
    unnamed: list[tuple[Path, list[Seed]]] = []
    order: list[str | Path] = []
    for place in places:
        name, path = _name_and_path(place)
        if name is not None:
            order.append(name)
            named.setdefault(name, []).extend(seed for _, seeds in _read_place(path) for seed in seeds)
        else:
            found = _read_place(path)
            order.extend(each for each, _ in found)
            unnamed.extend(found)
    if not order:
        raise PlotError("expected folders of runs or monitor files, got none")
    for name, seeds in named.items():
        _refuse_twice(name, seeds)
    names = _short_names([path for path, _ in unnamed])
    runs = {path: Run(names[path], tuple(seeds)) for path, seeds in unnamed}
    return [runs[each] if isinstance(each, Path) else Run(each, tuple(named[each])) for each in dict.fromkeys(order)]


def _refuse_twice(name: str, seeds: Sequence[Seed]) -> None:
    """Refuse a file that would count as two seeds."""
    seen: set[Path] = set()
    for file in (file.resolve() for seed in seeds for file in seed.files):
        if file in seen:
            raise PlotError(f"{name}: expected each seed once, got {file} twice; leave one of the places out")
        seen.add(file)


def _name_and_path(place: str | Path) -> tuple[str | None, Path]:
    if isinstance(place, str) and not Path(place).exists():
        name, equals, path = place.partition("=")
        if equals and name:
            return name, Path(path)
    return None, Path(place)


def _read_place(path: Path) -> list[tuple[Path, list[Seed]]]:
    """Return the runs of a place, each with its path."""
    if path.is_file():
        return [(path, [_read_seed(path, [path])])]
    if not path.is_dir():
        raise PlotError(f"{path}: there is no such file or folder. Is the path right, relative to {Path.cwd()}?")
    if files := _monitor_files(path):
        return [(path, [_read_seed(path, files)])]
    folders = {folder: _monitor_files(folder) for folder in sorted(path.iterdir()) if folder.is_dir()}
    seeds = [_read_seed(folder, files) for folder, files in folders.items() if files]
    if not seeds:
        raise PlotError(
            f"{path}: expected monitor files ({' or '.join(PATTERNS)}) in it or in its folders, got none; the layer "
            "monitor writes one where it is given a dir"
        )
    if len({(seed.env_id, seed.pipeline) for seed in seeds}) > 1:
        return [(seed.path, [seed]) for seed in seeds]
    return [(path, seeds)]


def _monitor_files(folder: Path) -> list[Path]:
    return sorted(path for pattern in PATTERNS for path in folder.glob(pattern) if path.is_file())


def _read_seed(path: Path, files: Sequence[Path]) -> Seed:
    logs = [read_monitor_file(file) for file in files]
    starts = [float(log.header["t_start"]) for log in logs if log.header]
    start = min(starts, default=0.0)
    seconds = np.concatenate([log.ends + float(log.header.get("t_start", start)) - start for log in logs])
    order = np.argsort(seconds, kind="stable")
    lengths = np.concatenate([log.lengths for log in logs])[order]
    scores = np.concatenate([log.scores for log in logs])[order]
    lost = np.concatenate([log.lost for log in logs])[order]
    finite = np.abs(scores) < _LARGEST
    kept = ~lost & finite
    steps = np.cumsum(lengths)
    frame_skip = _said(logs, "frame_skip")
    return Seed(
        path,
        tuple(files),
        env_id=_said(logs, "env_id"),
        step_unit=_said(logs, "step_unit"),
        frame_skip=int(frame_skip) if frame_skip is not None and frame_skip.isdigit() else None,
        pipeline=_said(logs, "pipeline"),
        scores=scores[kept],
        steps=steps[kept],
        minutes=seconds[order][kept] / 60,
        envs=_numbered(logs)[order][kept],
        total_steps=int(lengths.sum()),
        lost=int(lost.sum()),
        not_finite=int((~lost & ~finite).sum()),
        unreadable=sum(log.unreadable for log in logs),
    )


def _said(logs: Sequence[MonitorLog], key: str) -> str | None:
    """Return the value that all headers with this key agree on, as text; None if there is none or they differ."""
    said = {str(log.header[key]) for log in logs if log.header.get(key) not in (None, "None")}
    return said.pop() if len(said) == 1 else None


def _numbered(logs: Sequence[MonitorLog]) -> IntArray:
    """Number the sub-environments across all files: one file may hold many, and two files may both have an index 0."""
    pairs = np.concatenate([np.stack([np.full_like(log.envs, i), log.envs], axis=1) for i, log in enumerate(logs)])
    _, numbers = np.unique(pairs, axis=0, return_inverse=True)
    return np.asarray(numbers, dtype=np.int64).reshape(-1)


def _short_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Name paths by as few of their last parts as tell them apart; a file ``monitor.csv`` by its folder."""
    parts = {}
    for path in dict.fromkeys(paths):
        whole = path.resolve()
        if whole.is_file():
            stem = whole.name.partition("monitor.")[0].rstrip(".")
            whole = whole.with_name(stem) if stem else whole.parent
        parts[path] = whole.parts
    longest = max(map(len, parts.values()), default=0)
    for count in range(1, longest + 1):
        names = {path: "/".join(each[-count:]) for path, each in parts.items()}
        if len(set(names.values())) == len(set(parts.values())):
            break
    return names if parts else {}
