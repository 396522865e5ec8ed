"""The file of a monitor: ``monitor.csv``, or one for each sub-environment."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vecwrap.env.core import Core
from vecwrap.errors import PlanError, VecwrapError, printable
from vecwrap.wrappers.recording.run_files import (
    GrowingFile,
    as_bytes,
    csv_line,
    is_in_use,
    relative_to_cwd,
)

COLUMNS = ("r", "l", "t", "env", "lost", "steps")
_MAX_DIGITS = 15  # of a count of steps: more is none
_STEPS = COLUMNS.index("steps")
# Complete but for its steps, which may be incomplete.
_ROW = re.compile(rb"([^,]+,\d+,[^,]+,\d+,[01])(,\d*)?\r?")


def header_of(core: Core, pipeline: str | None) -> dict[str, Any]:
    """What the first line of the files says of an environment, and of the hash of its pipeline."""
    return {
        "t_start": time.time(),
        "env_id": core.env_id,
        "step_unit": "agent step",
        "frame_skip": _frame_skip(core),
        "pipeline": pipeline,
    }


def _frame_skip(core: Core) -> int | None:
    """Return the frames per agent step: 1 if undeclared, None if unknown, as around an engine."""
    if core.is_engine:
        return None
    try:
        (frames,) = core.calls.now("get_attr", [("frame_skip",)], [0])
    except VecwrapError:
        return 1
    if isinstance(frames, (int, np.integer)):
        return int(frames)
    return None


class MonitorFile:
    """Writes ``monitor.csv``: a line of JSON, a line of column names, and a row per game.

    An existing file is continued.
    """

    def __init__(self, path: Path, header: dict[str, Any], columns: tuple[str, ...]) -> None:
        self.path = path
        self.t_start: float = header["t_start"]
        self.steps = 0  # the largest in the file that is continued
        self._has_steps = True  # unlike a file of an earlier version
        self._end = "\n"
        self._is_shared = is_in_use(path)
        self._file = GrowingFile(path)
        try:
            if not self._goes_on(columns):
                self._file.append(f"#{json.dumps(header)}\n{csv_line(columns)}")
        except BaseException:
            self.close()
            raise

    def write(self, row: Sequence[Any]) -> None:
        if not self._has_steps:
            row = _without_steps(row)
        self._file.append(csv_line(row, self._end))

    def close(self) -> None:
        self._file.close()

    def _goes_on(self, columns: tuple[str, ...]) -> bool:
        """Check the file, drop an incomplete last row, and return whether anything is kept.

        A run that was killed may leave an incomplete row.
        """
        content = self._file.read()
        # Killed within the first two lines.
        if content.count(b"\n") < 2 and content[:1] in (
            b"",
            b"#",
        ):
            self._file.cut(0)
            return False
        first, _, table = content.partition(b"\n")
        try:
            self.t_start = float(json.loads(first[1:])["t_start"])
            fits = first.startswith(b"#") and self._takes(table, columns)
        except (ValueError, KeyError, TypeError):
            fits = False
        if not fits:
            raise PlanError(
                f'monitor: resume: expected {relative_to_cwd(self.path)} to begin with "#" and '
                f"JSON with t_start, then {as_bytes(csv_line(columns))!r}, got {content[:200]!r}; "
                "give the same info_keys, or another dir"
            )
        size = content.rfind(b"\n") + 1
        if self._has_steps:
            self.steps = _largest_steps(table)
        if self._is_shared:  # its last row may be one that another run is writing
            return True
        self._file.cut(size)
        # With info_keys, the last may be incomplete.
        if columns == COLUMNS and (row := _ROW.fullmatch(content, size)):
            self._file.append(row[1] + (b"," if self._has_steps else b"") + as_bytes(self._end))
        return True

    def _takes(self, table: bytes, columns: tuple[str, ...]) -> bool:
        """Whether a table begins with these columns; notes which, and how its lines end."""
        for has_steps, names in ((True, columns), (False, _without_steps(columns))):
            for end in ("\r\n", "\n"):  # the former where it was written or edited elsewhere
                if table.startswith(as_bytes(csv_line(names, end))):
                    self._has_steps = has_steps
                    self._end = end
                    return True
        return False


def _without_steps(row: Sequence[Any]) -> Sequence[Any]:
    return [*row[:_STEPS], *row[_STEPS + 1 :]]


def _largest_steps(table: bytes) -> int:
    """The largest number in the column ``steps``; 0 if there is none."""
    found = 0
    rows = csv.DictReader(io.StringIO(table.decode(errors="replace"), newline=""))
    with contextlib.suppress(csv.Error):
        for row in rows:
            steps = row.get("steps") or ""
            if steps.isdecimal() and len(steps) <= _MAX_DIGITS:
                found = max(found, int(steps))
    return found


def warn_of_another(folder: Path, *, resume: bool) -> None:
    """Warn if another run still writes the files that this one moves aside or continues."""
    paths = [*sorted(folder.glob("*monitor.csv")), *sorted(folder.glob("tensorboard/events.*"))]
    used = [path for path in paths if is_in_use(path)]
    if not used:
        return
    meanwhile = (
        "both append to the same files"
        if resume
        else "its files are moved aside and continued there"
    )
    name = printable(str(relative_to_cwd(folder)))
    number = f"{used[0].name}{'' if resume else '.1, .2, ...'}"
    warnings.warn(
        f'monitor: dir: another environment still writes into "{name}": {meanwhile} '
        f"({number}); give each a dir of its own, or close the other first",
        RuntimeWarning,
        stacklevel=2,
    )
