"""Files that are written completely or not at all, and what killed processes leave of them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vecwrap.env.untrusted import open_regular

_TEMPORARY_NAME = re.compile(r"\.[0-9a-f]{16}\.tmp")
_ABANDONED_AFTER_SECONDS = 86_400  # on a file system that has no locks


def write_atomically(
    path: Path, write: Callable[[Any], None], *, to_disk: bool = False, follow: bool = True
) -> None:
    """Write a file completely or not at all, whatever happens meanwhile; with its old mode.

    A link's target is written, or without ``follow`` the link is replaced.
    """
    if follow:
        path = Path(os.path.realpath(path))
    with written_atomically(path, write, to_disk=to_disk) as temporary:
        with contextlib.suppress(OSError):  # there is none yet, or it is another user's
            temporary.chmod(stat.S_IMODE(path.stat(follow_symlinks=follow).st_mode))
        temporary.replace(path)


@contextlib.contextmanager
def written_atomically(
    path: Path, write: Callable[[Any], None], *, to_disk: bool = False
) -> Iterator[Path]:
    """Write a file's contents into a temporary file beside it, which exists as long as the context.

    The file is locked meanwhile, under its final name too, so that ``remove_abandoned`` does not
    remove it.
    """
    if path.is_dir():
        raise IsADirectoryError(
            errno.EISDIR, "expected the name of a file, got a folder", str(path)
        )
    # short, however long the file's own name is
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    lock: int | None = None
    try:
        with temporary.open("xb") as file:
            # locks the file until it is renamed: closing it may be what reports a full disk
            lock = os.dup(file.fileno())
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            # another process removed it as abandoned before it was locked
            if not os.path.lexists(temporary):
                with written_atomically(path, write, to_disk=to_disk) as another:
                    yield another
                return
            write(file)
            if to_disk:
                file.flush()
                os.fsync(file.fileno())
        yield temporary
    except OSError as error:
        # the temporary file's name tells the user nothing
        if error.errno is not None and str(error.filename) in ("None", str(temporary)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        with contextlib.suppress(OSError):  # it is gone if it was renamed
            temporary.unlink()
        if lock is not None:
            os.close(lock)


def remove_temporary_files(folder: Path) -> None:
    """Remove the temporary files that killed processes have left in a folder."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _TEMPORARY_NAME.fullmatch(path.name):
                remove_abandoned(path)


def remove_abandoned(path: Path, unless: Callable[[], bool] = lambda: False) -> None:
    """Remove a file unless a process is writing it; ``unless`` is called when none is any more."""
    with contextlib.suppress(OSError), open_regular(path, follow=False) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        except OSError:  # a file system without locks
            if time.time() - os.fstat(file.fileno()).st_mtime < _ABANDONED_AFTER_SECONDS:
                return
        if not unless():
            path.unlink()


def create_exclusively(temporary: Path, path: Path) -> Path:
    """Move a file to a path; raises a FileExistsError if that exists."""
    try:
        os.link(temporary, path)  # unlike a rename, this replaces nothing
    except FileExistsError:
        raise
    except OSError:  # a file system without links; an empty file may be visible for a moment
        path.open("xb").close()
        try:
            temporary.replace(path)
        except BaseException:
            path.unlink()
            raise
    return path
