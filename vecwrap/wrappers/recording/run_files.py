"""Files that a run writes: writable folders, names that overwrite nothing, whole files or none."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import itertools
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from vecwrap.env.saving import put_new, written
from vecwrap.errors import PlanError

_Taken = TypeVar("_Taken")


class GrowingFile:
    """A file that text or bytes are appended to, each piece immediately and as a whole or not at all.

    Killing this process loses no appended piece, and a full disk leaves none half written.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        if path.exists() and not path.is_file():  # a pipe or a device could block
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        self._raw = path.open("x+b" if new else "a+b", buffering=0)  # unbuffered: each piece is written at once
        self._size = self._raw.seek(0, os.SEEK_END)

    def append(self, piece: str | bytes) -> None:
        """Append a piece; if it cannot be written, no part of it is in the file."""
        data = as_bytes(piece) if isinstance(piece, str) else piece
        try:
            if self._raw.write(data) != len(data):
                raise OSError(errno.ENOSPC, "No space left on device")
        except OSError:
            self.cut(self._size)
            raise
        self._size += len(data)

    def read(self) -> bytes:
        self._raw.seek(0)
        return self._raw.read()

    def cut(self, size: int) -> None:
        self._raw.truncate(size)
        self._raw.seek(size)
        self._size = size

    def close(self) -> None:
        self._raw.close()


def as_bytes(text: str) -> bytes:
    """Encode text for a file: UTF-8, with escapes for what UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace")


def csv_line(cells: Sequence[Any], end: str = "\n") -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerow(cells)
    return text.getvalue()


def make_folder(folder: Path, wrapper: str) -> None:
    """Create a wrapper's folder if it is missing, and refuse one that files cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise PlanError(
            f'{wrapper}: dir: expected a folder that files can be written to, got "{seen_from_here(folder)}": '
            f"{error.strerror or error}; give another"
        ) from error


def seen_from_here(path: Path) -> Path:
    """Return a path as seen from the working directory: relative if it lies inside."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, OSError):  # elsewhere, or the working directory was deleted
        return path


def take_unused(path: Path, take: Callable[[Path], _Taken]) -> _Taken:
    """Take the path, or if it exists, the first of ``name-1``, ``name-2``, ... that does not.

    Others may write to the same folder, so checking whether a file exists is not enough: ``take`` creates it, and
    raises FileExistsError if somebody else has created it.
    """
    names = itertools.chain([path], (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(1)))
    while True:
        name = next(names)
        if not name.exists():
            with contextlib.suppress(FileExistsError):
                return take(name)


def write_new(path: Path, write: Callable[[Any], None]) -> Path:
    with written(path, write) as growing:
        return take_unused(path, partial(put_new, growing))
