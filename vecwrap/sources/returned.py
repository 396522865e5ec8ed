"""What is returned of an environment's own: values as copies, and frames, or what rendering raised instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vecwrap.errors import RemoteTraceback, traceback_of
from vecwrap.interrupts import is_interrupt
from vecwrap.rows.infos import own_copy
from vecwrap.sources.saving import is_plain


def frame_of(render: Callable[[], Any]) -> Any:
    """Render for a recorder, whose problems must not affect training: an exception takes the frame's place."""
    try:
        frame = yours(render())
    except BaseException as error:  # not all are Exceptions: those of libraries in Rust, say
        if is_interrupt(error):
            raise
        return RemoteTraceback(traceback_of(error))
    if frame is None:
        return RemoteTraceback("render() gave None, expected a frame")
    return frame


def yours(value: Any) -> Any:
    """The value to return: arrays, lists and dicts as copies, as from other processes; other objects themselves."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if is_plain(value):
        return own_copy(value)
    return value
