"""Plain values: those that can be copied, saved in a file and restored without running code."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from gymnasium.spaces import GraphInstance

__all__ = ["derives_from_plain", "is_plain"]


def is_plain(value: Any) -> bool:
    """Whether a value is a number, text, bytes, None, an array of such, or a list, tuple, dict or deque of plain ones.

    Graphs are plain. Instances of derived types are not (a Counter, an IntEnum, another named tuple), because a file
    would restore the plain type.

    >>> is_plain({"level": [1, 2.0, np.zeros(3)]}), is_plain([object()])
    (True, False)
    """
    if type(value) is dict:
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if type(value) in (list, deque, tuple, GraphInstance):
        return all(map(is_plain, value))
    if type(value) is np.ndarray and value.dtype == object:
        return all(map(is_plain, value.flat))
    if type(value) is np.ndarray or isinstance(value, np.generic):
        return not value.dtype.hasobject
    return value is None or type(value) in (bool, int, float, str, bytes)


def derives_from_plain(value: Any) -> bool:
    """Whether a value is of a type that derives from a plain one: a Counter, an IntEnum, a named tuple.

    >>> from collections import Counter
    >>> derives_from_plain(Counter()), derives_from_plain({}), derives_from_plain(object())
    (True, False, False)
    """
    kinds = (dict, list, tuple, deque, int, float, str, bytes, np.ndarray)
    known = (*kinds, bool, GraphInstance)
    return isinstance(value, kinds) and type(value) not in known and not isinstance(value, np.generic)
