"""The contents of a monitor file: ours, Stable-Baselines3's (``Monitor``, ``VecMonitor``) or OpenAI Baselines'."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vecwrap.contract import BoolArray, FloatArray, IntArray
from vecwrap.errors import PlotError

__all__ = ["MonitorLog", "read_monitor_file"]

_MOST = 2**53  # steps of an episode, or sub-environments: more is no count, and not exact in float64


@dataclass(frozen=True)
class MonitorLog:
    """One file: m episodes, in the order in which they ended.

    Attributes:
        path: its path.
        header: the contents of its first line; empty if the run was killed before writing it.
        scores: (m,) float64, the sums of rewards; not finite if the file says so.
        lengths: (m,) int64, in steps.
        ends: (m,) float64, seconds from the header's ``t_start`` to the end of each, never decreasing.
        envs: (m,) int64, the sub-environments' indices; -1 if the file does not say.
        lost: (m,) bool, whether it ended because its sub-environment was lost, so that it has no score.
        unreadable: the number of complete lines that are not episodes.
    """

    path: Path
    header: Mapping[str, Any]
    scores: FloatArray
    lengths: IntArray
    ends: FloatArray
    envs: IntArray
    lost: BoolArray
    unreadable: int


class _Row(NamedTuple):
    """One episode as written in a file."""

    score: float
    length: int
    end: float
    env: int
    lost: bool


def read_monitor_file(path: Path) -> MonitorLog:
    """Read a monitor file: CSV below a line of JSON, or in Baselines' old format only lines of JSON.

    An unterminated last line is left out: the run was killed while writing it. If the times in a file decrease, a later
    run appended to it and restarted the clock; its episodes continue from the time before.

    Args:
        path: the file; one that ends in ``.json`` is in the old format.

    Raises:
        PlotError: it cannot be read, or is not a monitor file.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PlotError(f"{path}: cannot be read: {error.strerror or error}") from error
    if text and text[0] not in "#{":
        raise _no_monitor_file(path, text)
    whole = text[: text.rfind("\n") + 1]
    first, _, below = whole.partition("\n")
    header = _read_header(first, path) if first else {}
    cells = _json_cells(below) if path.suffix == ".json" else _csv_cells(below, path)
    found = [_read_row(each) for each in cells]
    rows = [row for row in found if row is not None]
    ends = np.array([row.end for row in rows], dtype=np.float64)
    return MonitorLog(
        path,
        header,
        scores=np.array([row.score for row in rows], dtype=np.float64),
        lengths=np.array([row.length for row in rows], dtype=np.int64),
        ends=ends - np.cumsum(np.minimum(np.diff(ends, prepend=ends[:1]), 0)),
        envs=np.array([row.env for row in rows], dtype=np.int64),
        lost=np.array([row.lost for row in rows], dtype=np.bool_),
        unreadable=len(found) - len(rows),
    )


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
        f'{path}: expected a monitor file, whose first line is "#" and JSON with t_start, got {text[:60]!r}; a folder '
        "of a run is given as the folder"
    )


def _csv_cells(text: str, path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows below the header; none if the run ended before the column names were written."""
    lines = _csv_lines(text, path)
    columns = next(lines, None)
    if columns is None:
        return
    if missing := [name for name in ("r", "l", "t") if name not in columns]:
        raise PlotError(
            f'{path}: expected the columns r, l and t in its second line, got "{",".join(columns)[:60]}"; '
            f"missing: {', '.join(missing)}"
        )
    for line in lines:
        yield dict(zip(columns, line, strict=True)) if len(line) == len(columns) else {}


def _csv_lines(text: str, path: Path) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text, newline=""))
    except csv.Error as error:
        raise PlotError(f"{path}: expected rows of CSV, got something else: {error}") from error


def _json_cells(text: str) -> Iterable[Mapping[str, Any]]:
    for line in text.splitlines():
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError):
            cells = {}
        yield cells if isinstance(cells, dict) else {}


def _read_row(cells: Mapping[str, Any]) -> _Row | None:
    """Read one row; None if it is not an episode, as where a killed run was appended to."""
    try:
        row = _Row(
            score=float(cells["r"]),
            length=int(float(cells["l"])),
            end=float(cells["t"]),
            env=int(cells.get("env", -1)),
            lost=bool(int(cells.get("lost", 0))),
        )
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    return row if 0 <= row.length < _MOST and abs(row.env) < _MOST and math.isfinite(row.end) else None
