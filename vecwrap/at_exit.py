"""Close what is still open when the program ends, while what that may need can still be imported."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import Protocol

__all__ = ["at_exit"]


class _Open(Protocol):
    def _close_at_exit(self) -> None: ...


_opened: weakref.WeakKeyDictionary[_Open, None] = weakref.WeakKeyDictionary()  # in the order in which they were opened


def at_exit(opened: _Open) -> None:
    """Have something closed when the program ends, unless it is gone by then; not in a forked copy.

    This precedes all exit handlers registered so far, such as that of a package that an environment has imported.
    """
    _opened[opened] = None
    atexit.unregister(_close_all)
    atexit.register(_close_all)  # those that came last are called first


def _close_all() -> None:
    """Close what is open, in reverse order of opening: layers before what they wrap."""
    with contextlib.ExitStack() as each:  # one that raises does not leave others open
        for opened in list(_opened):
            each.callback(opened._close_at_exit)


os.register_at_fork(after_in_child=_opened.clear)
