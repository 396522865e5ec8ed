"""Who stands above: Gymnasium's vector wrappers do not say so, but their calls lead down."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from gymnasium.vector import VectorEnv, VectorWrapper

__all__ = ["gymnasium_wrappers_above"]


def gymnasium_wrappers_above() -> list[VectorWrapper[Any, Any, Any, Any, Any]]:
    """Give the vector wrappers of Gymnasium's through which the present call came, the innermost first.

    For a layer to call, within a ``reset`` or ``step``. The search ends at the first frame that is no environment's.
    """
    found: list[VectorWrapper[Any, Any, Any, Any, Any]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and isinstance(caller := frame.f_locals.get("self"), VectorEnv):
        if isinstance(caller, VectorWrapper) and caller not in found:
            found.append(caller)
        frame = frame.f_back
    return found
