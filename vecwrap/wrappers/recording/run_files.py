"""Files that a run writes: writable folders, names that overwrite nothing, whole files or none."""

from __future__ import annotations

import contextlib
import csv
import errno
import fcntl
import io
import itertools
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vecwrap.errors import PlanError

_Taken = TypeVar("_Taken")


class GrowingFile:
    """A file that text or bytes are appended to: each piece at once, as a whole or not at all.

    Killing this process loses no appended piece, and a full disk leaves none half written.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        if path.exists() and not path.is_file():  # a pipe or a device could block
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        # Unbuffered: each piece is written at once.
        self._raw = path.open("x+b" if new else "a+b", buffering=0)
        self._raw.seek(0, os.SEEK_END)
        with contextlib.suppress(OSError):  # a file system without locks
            # The lock says that the file is in use, and ends with this process.
            fcntl.flock(self._raw, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def append(self, piece: str | bytes) -> None:
        """Append a piece; if it cannot be written, no part of it is in the file."""
        if isinstance(piece, str):
            data = as_bytes(piece)
        else:
            data = piece
        written = self._raw.write(data)
        if written != len(data):
            end = self._raw.tell()
            if end == os.fstat(self._raw.fileno()).st_size:  # nobody has appended to it meanwhile
                self.cut(end - written)
            raise OSError(errno.ENOSPC, "No space left on device")

    def read(self) -> bytes:
        self._raw.seek(0)
        return self._raw.read()

    def cut(self, size: int) -> None:
        self._raw.truncate(size)
        self._raw.seek(size)

    def close(self) -> None:
        self._raw.close()


def is_in_use(path: Path) -> bool:
    """Whether somebody has this growing file open, as far as its file system says so."""
    with (
        contextlib.suppress(OSError),
        os.fdopen(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)) as file,
    ):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def move_aside(path: Path) -> Path:
    """Rename a file, folder or link to the first free of ``name.1``, ``name.2``, ...; return that.

    The name is taken before, so that of two processes none overwrites what the other has moved.
    """
    is_folder = path.is_dir() and not path.is_symlink()
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}.{number}")
        try:
            if is_folder:
                aside.mkdir()
            else:
                aside.open("xb").close()
        except FileExistsError:
            continue
        try:
            return path.replace(aside)
        except OSError:
            if is_folder:
                aside.rmdir()
            else:
                aside.unlink()
            raise
    raise AssertionError


def as_bytes(text: str) -> bytes:
    """Encode text for a file: UTF-8, with escapes for what UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace")


def csv_line(cells: Sequence[Any], end: str = "\n") -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerow(cells)
    return text.getvalue()


def make_folder(folder: Path, wrapper: str) -> None:
    """Create a wrapper's folder if it is missing, and refuse a folder that is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise PlanError(
            f"{wrapper}: dir: expected a folder that files can be written to, got "
            f'"{relative_to_cwd(folder)}": {error.strerror or error}; give another'
        ) from error


def relative_to_cwd(path: Path) -> Path:
    """Return a path as seen from the working directory: relative if it lies inside."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, OSError):  # elsewhere, or the working directory was deleted
        return path


def take_unused(path: Path, take: Callable[[Path], _Taken]) -> _Taken:
    """Take the path, or if it exists, the first of ``name-1``, ``name-2``, ... that does not.

    Others may write to the same folder, so checking whether a file exists is not enough: ``take``
    creates it, and raises FileExistsError if somebody else has created it.
    """
    names = itertools.chain(
        [path], (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(1))
    )
    while True:
        name = next(names)
        if not name.exists():
            with contextlib.suppress(FileExistsError):
                return take(name)
