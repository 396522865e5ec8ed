"""Files that are there as a whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import os
import tempfile
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
        OSError: it cannot be written; nothing of it is left.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            if to_disk:
                file.flush()
                os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)  # as an ordinary new file
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
