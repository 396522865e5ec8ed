"""Who stands above: Gymnasium's vector wrappers do not say so, but their calls lead down."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from gymnasium.vector import VectorEnv, VectorWrapper

__all__ = ["gymnasium_wrappers_above"]

_PACKAGE = f"{Path(__file__).parents[1]}/"


def gymnasium_wrappers_above() -> list[VectorWrapper[Any, Any, Any, Any, Any]]:
    """Give the vector wrappers of Gymnasium's through which the present call came, the innermost first.

    For a layer to call, within a ``reset`` or ``step``. The search ends at the first frame that is no environment's.
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
    """Whether it may be an environment's: who looks at a frame's variables keeps them alive, before Python 3.13."""
    ours = code.co_filename.startswith(_PACKAGE)
    return code.co_varnames[:1] == ("self",) and (ours or code.co_name in ("reset", "step"))
