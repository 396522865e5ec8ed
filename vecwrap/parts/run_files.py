"""Files that a run writes: a folder that can be written to, names that overwrite nothing, whole files or none."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vecwrap.errors import PlanError

__all__ = ["make_folder", "unused", "write_whole"]


def make_folder(folder: Path, layer: str) -> None:
    """Make a folder where it is missing, and see whether files can be written to it.

    Args:
        folder: the folder.
        layer: whose argument ``dir`` it is, for the error.

    Raises:
        PlanError: they cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise PlanError(
            f'{layer}: dir: expected a folder that files can be written to, got "{folder}": {error}; give another'
        ) from error


def unused(path: Path) -> Path:
    """Give the path, or where there is a file already the first of ``name-1``, ``name-2``, ... that is none."""
    if not path.exists():
        return path
    names = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def write_whole(path: Path, write: Callable[[Any], None]) -> None:
    """Write a file so that it is there as a whole or not at all, whatever happens meanwhile.

    Args:
        path: the file; one that is there is replaced.
        write: takes a binary file and writes into it.

    Raises:
        OSError: it cannot be written; nothing of it is left.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)  # as an ordinary new file
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
