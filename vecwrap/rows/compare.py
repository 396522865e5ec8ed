"""Bit-for-bit comparison, copies to compare with later, and rows of results."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.rows.gymnasium_form import by_leaf, element


class Different(AssertionError):
    """Two values differ: where, and the two parts that do."""

    def __init__(self, path: str, expected: Any, got: Any, more: str = "") -> None:
        super().__init__(f"{path}: expected {expected!r}, got {got!r}{more}")
        self.path = path
        self.expected = expected
        self.got = got


def assert_same(expected: Any, got: Any, path: str = "result") -> None:
    """Raise AssertionError at the first difference in type, keys, shape, dtype or any bit.

    The error reports the location of the difference.

    Objects whose class defines no ``==`` are compared by their repr, without addresses in memory.

    Args:
        expected: any value that environments return: arrays, numbers, text, and dicts, lists and
            tuples of them.
        got: the value that must be the same.
        path: its name in the error.

    Raises:
        AssertionError: they differ.

    >>> assert_same({"a": np.zeros(2)}, {"a": np.zeros(2)})
    >>> assert_same({"a": ["x", "y"]}, {"a": ["x", "z"]})
    Traceback (most recent call last):
        ...
    vecwrap.rows.compare.Different: result['a'][1]: expected 'y', got 'z'
    """
    if type(expected) is not type(got) and _name(type(expected)) != _name(type(got)):
        raise Different(
            path, expected, got, f" ({type(expected).__name__} and {type(got).__name__})"
        )
    if isinstance(expected, dict):
        if set(expected) != set(got):
            raise Different(f"{path}, keys", sorted(expected, key=str), sorted(got, key=str))
        for key in expected:
            assert_same(expected[key], got[key], f"{path}[{key!r}]")
    elif isinstance(expected, (tuple, list)):
        if len(expected) != len(got):
            raise Different(f"{path}, length", len(expected), len(got))
        for i, pair in enumerate(zip(expected, got, strict=True)):
            assert_same(*pair, f"{path}[{i}]")
    elif isinstance(expected, np.ndarray):
        _assert_same_arrays(expected, got, path)
    elif isinstance(expected, (float, np.floating)):
        if np.float64(expected).tobytes() != np.float64(got).tobytes():
            raise Different(path, expected, got)
    elif not _equal(expected, got):
        raise Different(path, expected, got)


def is_same(one: Any, other: Any) -> bool:
    try:
        assert_same(one, other)
    except Different:
        return False
    return True


def _assert_same_arrays(
    expected: np.ndarray[Any, Any], got: np.ndarray[Any, Any], path: str
) -> None:
    if expected.dtype != got.dtype or expected.shape != got.shape:
        raise Different(
            f"{path}, dtype and shape", (expected.dtype, expected.shape), (got.dtype, got.shape)
        )
    if expected.dtype == object:
        for index in np.ndindex(expected.shape):
            assert_same(expected[index], got[index], f"{path}{list(index)}")
    elif expected.tobytes() != got.tobytes():
        for index in np.ndindex(expected.shape):
            if expected[index].tobytes() != got[index].tobytes():
                raise Different(f"{path}{list(index) or ''}", expected[index], got[index])


def _equal(expected: Any, got: Any) -> bool:
    equals: Any = type(expected).__eq__
    with contextlib.suppress(Exception):  # an == of many truths, as tensors have
        if expected == got or (type(expected) is type(got) and equals is not object.__eq__):
            return bool(expected == got)
    return _without_addresses(expected) == _without_addresses(got)


def _without_addresses(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _name(kind: type) -> tuple[str, str]:
    """Another process may hold a copy of a script's class."""
    return kind.__module__, kind.__qualname__


def take_row(space: spaces.Space[Any], observations: Any, i: int) -> Any:
    """Return row i of a batch, as one sub-environment would return it."""
    return element(space, by_leaf(lambda leaf, part: part[i], space, observations))


def rows_of(
    space: spaces.Space[Any], result: tuple[Any, ...], ignore: Collection[str] = ()
) -> list[tuple[int, dict[str, Any]]]:
    """Split a five-tuple into pairs of a sub-environment and its values.

    ``ignore`` are dotted names of infos.
    """
    observations, rewards, terminations, truncations, infos = result
    if "env_id" in infos:
        ids = infos["env_id"].tolist()
    else:
        ids = range(len(rewards))
    return [
        (
            i,
            {
                "observation": take_row(space, observations, k),
                "reward": float(rewards[k]),
                "terminated": bool(terminations[k]),
                "truncated": bool(truncations[k]),
                "info": info_row(infos, k, ignore),
            },
        )
        for k, i in enumerate(ids)
    ]


def info_row(
    infos: dict[str, Any], i: int, ignore: Collection[str] = (), prefix: str = ""
) -> dict[str, Any]:
    """Rebuild one row's info from columns and masks, with numbers as floats.

    A column's dtype depends on all of its rows, so a number's own type is not known.

    >>> info_row({"lives": np.array([3, 0]), "_lives": np.array([True, False])}, 0)
    {'lives': 3.0}
    """
    row = {}
    for name, column in infos.items():
        mask = infos.get(f"_{name}")
        if f"{prefix}{name}" in ignore or (mask is None and (not prefix or name[1:] in infos)):
            continue
        if mask is None or mask[i]:  # a batch of observations contains no masks
            row[name] = _cell(column, i, ignore, f"{prefix}{name}.")
    return row


def _cell(column: Any, i: int, ignore: Collection[str], prefix: str) -> Any:
    if isinstance(column, dict):
        return info_row(column, i, ignore, prefix)
    if isinstance(column, tuple):
        return tuple(_cell(part, i, ignore, prefix) for part in column)
    return _normalise(column[i])


def _normalise(value: Any) -> Any:
    """A value without the dtype that its column gave it."""
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return float(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value.astype(np.float64)
    return value
