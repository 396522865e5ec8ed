"""Finds Gymnasium wrappers outside a layer by inspecting the call stack."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from gymnasium.vector import VectorEnv, VectorWrapper

__all__ = ["gymnasium_wrappers_above"]

_PACKAGE = f"{Path(__file__).parents[1]}/"


def gymnasium_wrappers_above() -> list[VectorWrapper[Any, Any, Any, Any, Any]]:
    """Return the Gymnasium vector wrappers that the current call passed through, innermost first.

    To be called by a layer during a ``reset`` or ``step``. The search stops at the first frame outside an environment.
    """
    found: list[VectorWrapper[Any, Any, Any, Any, Any]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_a_method_of_one(frame.f_code):
        caller = frame.f_locals.get("self")
        if not isinstance(caller, VectorEnv):
            break
        if isinstance(caller, VectorWrapper) and caller not in found:
            found.append(caller)
        frame = frame.f_back
    return found


def _is_a_method_of_one(code: CodeType) -> bool:
    """Whether it may be an environment's: before Python 3.13, reading a frame's variables keeps them alive."""
    ours = code.co_filename.startswith(_PACKAGE)
    return code.co_varnames[:1] == ("self",) and (ours or code.co_name in ("reset", "step"))
