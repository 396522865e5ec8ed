"""The masks of legal actions that environments report.

A method is called once a step, so that masks are data in infos and need no further call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from vecwrap.sources.description import Env, chain_of

MEMBER = "action_mask"
METHOD = "action_masks"


def masks_method(env: Env) -> Callable[[], Any] | None:
    """The method of the outermost wrapper that has one; None if none has."""
    for wrapper in chain_of(env):
        if inspect.getattr_static(wrapper, METHOD, None) is not None:  # not what only is forwarded
            method = getattr(wrapper, METHOD)
            return method if callable(method) else None
    return None


def with_mask(info: dict[str, Any], method: Callable[[], Any]) -> dict[str, Any]:
    """Return an info with the mask that a method gives, int8 and flat, unless it has one."""
    if MEMBER in info:
        return info
    given = method()
    if isinstance(given, (tuple, list)):
        parts = given
    else:
        parts = (given,)
    return {**info, MEMBER: np.concatenate([np.ravel(part) for part in parts]).astype(np.int8)}
