"""Files that are there as a whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["write_whole", "written"]


def write_whole(path: Path, write: Callable[[Any], None], *, to_disk: bool = False) -> None:
    """Write a file so that it is there as a whole or not at all, whatever happens meanwhile.

    Args:
        path: the file; one that is there is replaced.
        write: takes a binary file and writes into it.
        to_disk: wait until it is on the disk, so that the old file is not lost even where the machine fails.

    Raises:
        OSError: it cannot be written, with the path that was given; nothing of it is left.
    """
    with written(path, write, to_disk=to_disk) as growing:
        growing.replace(path)


@contextlib.contextmanager
def written(path: Path, write: Callable[[Any], None], *, to_disk: bool = False) -> Iterator[Path]:
    """Write all that is to be in a file into another beside it, which is there for as long as the context.

    Args:
        path: the file that it is meant for, and that errors name.
        write: takes a binary file and writes into it.
        to_disk: wait until it is on the disk.

    Raises:
        OSError: it cannot be written, or the context cannot put it in its place.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "expected the name of a file, got a folder", str(path))
    growing = path.parent / f".{secrets.token_hex(8)}.tmp"  # short, however long the file's own name is
    try:
        with growing.open("xb") as file:
            write(file)
            if to_disk:
                file.flush()
                os.fsync(file.fileno())
        yield growing
    except OSError as error:
        if _is_of(error, growing):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        with contextlib.suppress(OSError):  # it is gone where it was renamed
            growing.unlink()


def _is_of(error: OSError, growing: Path) -> bool:
    """Whether it tells of the file in which all is written first, whose name says nothing to anybody."""
    named = error.filename
    return error.errno is not None and (named is None or str(named) == str(growing))
