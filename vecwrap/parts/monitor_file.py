"""``monitor.csv``: a line of JSON, a line of column names, and a row per finished episode."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

from vecwrap.errors import PlanError
from vecwrap.parts.run_files import GrowingFile, as_bytes, csv_line, seen_from_here

__all__ = ["MonitorFile", "move_aside", "open_in"]

OURS = re.compile(r"(\d+\.)?monitor\.csv")


class MonitorFile:
    """One file, open for appending rows; an existing file is continued.

    Args:
        path: the file.
        header: the data of the first line, including ``t_start`` (seconds since 1970).
        columns: the names of the second line.

    Attributes:
        path: the file.
        folder: its folder, independent of later changes of the working directory.
        t_start: of the header; that of the file if it existed already.
        given_way: whether another monitor has taken over the folder; then ``go_on_aside`` must precede the next row.

    Raises:
        PlanError: the existing file is not a monitor file, or has other columns. It is left unchanged.
        OSError: it cannot be opened or written.
    """

    def __init__(self, path: Path, header: dict[str, Any], columns: tuple[str, ...]) -> None:
        self.path = path
        self.folder = path.parent.resolve()
        self.t_start = float(header["t_start"])
        self.given_way = False
        self._header = header
        self._columns = columns
        self._file = GrowingFile(path)
        _open.add(self)
        try:
            if not self._go_on(csv_line(columns)):
                self._begin()
        except BaseException:
            self.close()
            raise

    def write(self, row: Sequence[Any]) -> None:
        """Append one row.

        Raises:
            OSError: it cannot be written; then no part of it is in the file.
        """
        self._file.append(csv_line(row))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        _open.discard(self)

    def give_way(self) -> None:
        """Leave the folder to a newer monitor."""
        self.close()
        self.given_way = True

    def go_on_aside(self) -> None:
        """Write further rows into a separate file, named like those of earlier runs.

        Raises:
            OSError: it cannot be opened or written.
        """
        self.path = _aside(self.folder / self.path.name)
        self._file = GrowingFile(self.path, new=True)
        self.given_way = False
        self._begin()

    def _begin(self) -> None:
        self._file.append(f"#{json.dumps({**self._header, 't_start': self.t_start})}\n{csv_line(self._columns)}")

    def _go_on(self, columns: str) -> int:
        """Check the existing content, drop the torn row of a killed run; return how many bytes are kept."""
        content = self._file.read()
        if content and not content.startswith(b"#"):
            raise self._no_monitor_file(content)
        first, second, _ = (*content.split(b"\n", 2), b"", b"")[:3]
        whole = content.count(b"\n") >= 2  # otherwise the run was killed within the first two lines
        if whole:
            self._check_head(first, second + b"\n", as_bytes(columns))
        size = content.rfind(b"\n") + 1 if whole else 0
        self._file.cut(size)
        return size

    def _check_head(self, first: bytes, found: bytes, expected: bytes) -> None:
        try:
            self.t_start = float(json.loads(first[1:])["t_start"])
        except (ValueError, KeyError, TypeError):
            raise self._no_monitor_file(first) from None
        if found != expected:
            here, there = (columns.decode(errors="backslashreplace").strip() for columns in (expected, found))
            raise PlanError(
                f'monitor: resume: expected {seen_from_here(self.path)} to have the columns "{here}", '
                f'got "{there}"; give the same info_keys, or another dir'
            )

    def _no_monitor_file(self, content: bytes) -> PlanError:
        return PlanError(
            f'monitor: resume: expected {seen_from_here(self.path)} to begin with "#" and JSON with '
            f"t_start, got {content[:60]!r}; give another dir"
        )


_open: WeakSet[MonitorFile] = WeakSet()


def open_in(folder: Path) -> list[MonitorFile]:
    """The files in a folder that monitors of this process write into."""
    return [file for file in _open if file.folder == folder.resolve()]


def move_aside(folder: Path) -> None:
    """Rename the files of an earlier run, overwriting nothing, so that no reader takes them for part of the next."""
    for path in sorted(folder.iterdir()):
        if OURS.fullmatch(path.name):
            path.rename(_aside(path))


def _aside(path: Path) -> Path:
    number = 1
    while (target := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return target
