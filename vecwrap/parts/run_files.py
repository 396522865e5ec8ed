"""Files that a run writes: a folder that can be written to, names that overwrite nothing, whole files or none."""

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

from vecwrap.errors import PlanError
from vecwrap.whole_file import write_whole, written

__all__ = [
    "GrowingFile",
    "as_bytes",
    "csv_line",
    "make_folder",
    "seen_from_here",
    "take_unused",
    "try_folder",
    "write_new",
    "write_whole",
]

_Taken = TypeVar("_Taken")


class GrowingFile:
    """A file that text is appended to, each piece at once and as a whole or not at all.

    Whoever kills this process loses no piece that was given, and a full disk leaves none half written.

    Args:
        path: the file; what stands in it stays.
        new: whether it is an error that it is there already.

    Attributes:
        path: the file.

    Raises:
        FileExistsError: it is there, and was to be new.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        self._raw = path.open("x+b" if new else "a+b", buffering=0)  # unbuffered: a piece is written when it is given
        self._size = self._raw.seek(0, os.SEEK_END)

    def append(self, text: str) -> None:
        """Append a piece.

        Raises:
            OSError: it cannot be written; no part of it stands in the file then.
        """
        data = as_bytes(text)
        try:
            if self._raw.write(data) != len(data):
                raise OSError(errno.ENOSPC, "No space left on device")
        except OSError:
            self.cut(self._size)
            raise
        self._size += len(data)

    def read(self) -> bytes:
        """Give all that stands in it."""
        self._raw.seek(0)
        return self._raw.read()

    def cut(self, size: int) -> None:
        """Leave only so many bytes."""
        self._raw.truncate(size)
        self._raw.seek(size)
        self._size = size

    def close(self) -> None:
        """Close the file."""
        self._raw.close()


def as_bytes(text: str) -> bytes:
    r"""Give text as it stands in a file: UTF-8, and an escape for what has no place in that.

    >>> as_bytes("lvl \udc80")
    b'lvl \\udc80'
    """
    return text.encode(errors="backslashreplace")


def csv_line(cells: Sequence[Any]) -> str:
    r"""Give a row of a CSV file.

    >>> csv_line([1.5, "a,b", None])
    '1.5,"a,b",\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def make_folder(folder: Path, layer: str) -> None:
    """Make a folder where it is missing, and see whether files can be written to it.

    Args:
        folder: the folder.
        layer: whose argument ``dir`` it is, for the error.

    Raises:
        PlanError: they cannot.
    """
    try:
        try_folder(folder)
    except OSError as error:
        raise PlanError(
            f'{layer}: dir: expected a folder that files can be written to, got "{seen_from_here(folder)}": '
            f"{error}; give another"
        ) from error


def try_folder(folder: Path) -> None:
    """Make a folder where it is missing, and see whether files can be written to it.

    Raises:
        OSError: they cannot.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error  # not the temporary file's name


def seen_from_here(path: Path) -> Path:
    """Give a path as a person in the working directory writes it: relative, where it lies within.

    >>> print(seen_from_here(Path("runs").absolute()))
    runs
    """
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, OSError):  # elsewhere, or the working directory was deleted
        return path


def take_unused(path: Path, take: Callable[[Path], _Taken]) -> _Taken:
    """Take the path, or where there is a file already the first of ``name-1``, ``name-2``, ... that is none.

    Others may write into the same folder. So it is not enough to look whether a file is there: ``take`` makes it.

    Args:
        path: the path.
        take: makes the file at a path, and raises FileExistsError where somebody else has made it.

    Returns:
        What ``take`` gives.
    """
    names = itertools.chain([path], (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(1)))
    while True:
        name = next(names)
        if not name.exists():
            with contextlib.suppress(FileExistsError):
                return take(name)


def write_new(path: Path, write: Callable[[Any], None]) -> Path:
    """Write a file as a whole or not at all, under the first name that ``take_unused`` finds.

    Args:
        path: the file; where there is one, another name is taken.
        write: takes a binary file and writes into it.

    Returns:
        Where it is.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    with written(path, write) as growing:
        return take_unused(path, partial(_put, growing))


def _put(growing: Path, path: Path) -> Path:
    """Put a file where there is none.

    Raises:
        FileExistsError: there is one.
    """
    try:
        os.link(growing, path)  # unlike a renaming, it replaces nothing
    except FileExistsError:
        raise
    except OSError:  # a file system without links; whoever looks now may see an empty file for a moment
        path.open("xb").close()
        try:
            growing.replace(path)
        except BaseException:
            path.unlink()
            raise
    return path
