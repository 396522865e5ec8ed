"""Values and frames that environments return: copies, or the exception of a failed render."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vecwrap.errors import RemoteTraceback, traceback_of
from vecwrap.interrupts import is_interrupt
from vecwrap.rows.infos import detached_copy
from vecwrap.rows.saved import is_plain


def frame_of(render: Callable[[], Any]) -> Any:
    """Render a frame for a recorder; an exception takes the frame's place.

    Problems of a recorder must not affect training.
    """
    try:
        frame = returned_copy(render())
    except BaseException as error:  # not all are Exceptions: those of libraries in Rust, say
        if is_interrupt(error):
            raise
        return RemoteTraceback(traceback_of(error))
    if frame is None:
        return RemoteTraceback("render() gave None, expected a frame")
    return frame


def returned_copy(value: Any) -> Any:
    """Return arrays, lists and dicts as copies, and other objects themselves.

    Values from other processes are copies, too.
    """
    if isinstance(value, np.ndarray):
        return value.copy()
    if is_plain(value):
        return detached_copy(value)
    return value
