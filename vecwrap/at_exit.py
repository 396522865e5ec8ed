"""What is still open when the program ends is closed then, while what it may take for that can still be imported."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import Protocol

__all__ = ["at_exit"]


class _Open(Protocol):
    def _close_at_exit(self) -> None: ...


_open: weakref.WeakKeyDictionary[_Open, None] = weakref.WeakKeyDictionary()  # in the order in which they were opened


def at_exit(opened: _Open) -> None:
    """Let something be closed when the program ends, unless it is gone by then; in a forked copy it is not.

    That is before anything else ends that has asked for it so far: a package that an environment has imported, say.
    """
    _open[opened] = None
    atexit.unregister(_close_all)
    atexit.register(_close_all)  # those that came last are called first


def _close_all() -> None:
    """Close what is open, what was opened last first: layers before what they wrap."""
    with contextlib.ExitStack() as each:  # one that raises leaves no other open
        for opened in list(_open):
            each.callback(opened._close_at_exit)


os.register_at_fork(after_in_child=_open.clear)
