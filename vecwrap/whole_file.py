"""Files that are written completely or not at all, whatever happens meanwhile."""

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
    """Write a file completely or not at all, whatever happens meanwhile."""
    with written(path, write, to_disk=to_disk) as growing:
        growing.replace(path)


@contextlib.contextmanager
def written(path: Path, write: Callable[[Any], None], *, to_disk: bool = False) -> Iterator[Path]:
    """Write a file's contents into a temporary file beside it, which exists as long as the context."""
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
        with contextlib.suppress(OSError):  # it is gone if it was renamed
            growing.unlink()


def _is_of(error: OSError, growing: Path) -> bool:
    """Whether an error is about the temporary file, whose name means nothing to the user."""
    named = error.filename
    return error.errno is not None and (named is None or str(named) == str(growing))
