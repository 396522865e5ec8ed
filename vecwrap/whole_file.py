"""Files that are there as a whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["write_whole"]


def write_whole(path: Path, write: Callable[[Any], None], *, to_disk: bool = False) -> None:
    """Write a file so that it is there as a whole or not at all, whatever happens meanwhile.

    Args:
        path: the file; one that is there is replaced.
        write: takes a binary file and writes into it.
        to_disk: wait until it is on the disk, so that the old file is not lost even where the machine fails.

    Raises:
        OSError: it cannot be written, with the path that was given; nothing of it is left.
    """
    growing = path.parent / f".{secrets.token_hex(8)}.tmp"  # short, however long the file's own name is
    try:
        with growing.open("xb") as file:
            write(file)
            if to_disk:
                file.flush()
                os.fsync(file.fileno())
        growing.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            growing.unlink()
        if isinstance(error, OSError) and _is_of(error, growing):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _is_of(error: OSError, growing: Path) -> bool:
    """Whether it tells of the file in which all is written first, whose name says nothing to anybody."""
    named = error.filename
    return error.errno is not None and (named is None or str(named) == str(growing))
