"""Parts of saved states, whose form is checked before they are used."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from gymnasium.spaces import GraphInstance

from vecwrap.rows.batch import Batch, leaves


def fitting(saved: Any, like: Any, what: str = "an entry") -> Any:
    """Return a saved value that fits ``like`` in type, shape and kind of dtype; else TypeError."""
    if isinstance(like, (dict, tuple)) and like:
        own = leaves(like)
        given = leaves(saved)
        if [path for path, _ in own] != [path for path, _ in given]:
            raise TypeError(
                f"{what}: expected the members {[path for path, _ in own]}, got "
                f"{_short_repr(saved)}"
            )
        for (_, mine), (_, theirs) in zip(own, given, strict=True):
            fitting(theirs, mine, what)
        return saved
    if isinstance(like, np.ndarray):
        fits = (
            type(saved) is np.ndarray
            and saved.shape == like.shape
            and saved.dtype.kind == like.dtype.kind
        )
        form = f"an array of shape {like.shape} and dtype {like.dtype}"
    elif type(like) is float:
        fits = type(saved) in (int, float)
        form = "a number"
    else:
        fits = type(saved) is type(like)
        form = type(like).__name__
    if fits and type(saved) is int:
        fits = -(2**63) <= saved < 2**63
        form = "an integer of at most 64 bits"
    if not fits:
        raise TypeError(f"{what}: expected {form}, got {_short_repr(saved)}")
    return saved


def fitting_list(saved: Any, length: int, what: str) -> list[Any]:
    if type(saved) is not list or len(saved) != length:
        raise TypeError(f"{what}: expected a list of {length}, got {_short_repr(saved)}")
    return saved


def put(target: Batch, saved: Any, what: str) -> None:
    fitting(saved, target, what)
    for (_, mine), (_, theirs) in zip(leaves(target), leaves(saved), strict=True):
        mine[...] = theirs


def _short_repr(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"one of shape {value.shape} and dtype {value.dtype}"
    if type(value) is list:
        return f"a list of {len(value)}"
    return type(value).__name__


def same_data(one: Any, other: Any) -> bool:
    """Whether two plain values are equal; what is of different types never is."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_data, one, other))
    return not isinstance(one, np.ndarray) and bool(one == other)


def is_plain(value: Any) -> bool:
    """Return whether a file restores a value unchanged.

    Such values are numbers, text, arrays, and plain containers of these.
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
