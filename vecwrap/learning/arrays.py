"""NumPy's arrays, or tensors of a library that is loaded already: what differs between the two."""

from __future__ import annotations

import operator
import sys
from contextlib import suppress
from typing import Any

import numpy as np

from vecwrap.errors import ArgumentError
from vecwrap.rows.batch import Batch, in_numpy, leaves, tree_map
from vecwrap.rows.infos import detached_copy

__all__ = [
    "ArrayPool",
    "Grid",
    "Stack",
    "as_arrays",
    "copied",
    "is_numpy",
    "joined",
    "like",
    "put_rows",
    "refuse_others",
    "taken",
    "to_numpy",
    "whole_number",
]


def is_numpy(batch: Batch) -> bool:
    """Whether all leaves are NumPy's arrays, and none is a tensor."""
    if isinstance(batch, np.ndarray):
        return True
    return all(isinstance(leaf, np.ndarray) for _, leaf in leaves(batch))


def _library(tensor: Any) -> Any:
    """The library of a tensor: ``torch``, say."""
    if hasattr(tensor, "__array_namespace__"):
        return tensor.__array_namespace__()
    return sys.modules[type(tensor).__module__.partition(".")[0]]


def as_arrays(batch: Any) -> Batch:
    """Return a batch whose leaves have a shape: lists and numbers become NumPy's arrays."""

    def convert(leaf: Any) -> Any:
        if hasattr(leaf, "shape") and not isinstance(leaf, np.generic):
            return leaf
        return np.asarray(leaf)

    return tree_map(convert, batch)


def to_numpy(array: Any) -> np.ndarray[Any, Any]:
    return np.asarray(in_numpy(array))


def like(array: np.ndarray[Any, Any], example: Any, dtype: Any = None) -> Any:
    """Return an array as the library of ``example`` has it, on its device; of a dtype if given."""
    if isinstance(example, np.ndarray):
        return array.astype(dtype or array.dtype, copy=False)
    return _library(example).asarray(array, device=example.device, dtype=dtype)


def copied(batch: Batch) -> Batch:
    def copy(array: Any) -> Any:
        if hasattr(array, "clone"):
            return array.clone()
        return detached_copy(array)

    return tree_map(copy, batch)


def joined(*parts: Any, axis: int = 0) -> Any:
    """Return the rows of all parts, one after the other."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts, axis=axis)
    return _library(parts[0]).concat(parts, axis=axis)


def taken(batch: Batch, index: Any) -> Batch:
    """Return rows by their index array, as copies that share nothing, objects neither."""
    if type(batch) is np.ndarray and not batch.dtype.hasobject:
        return batch[index]

    def take(array: Any) -> Any:
        rows = array[index]
        if isinstance(rows, np.ndarray) and rows.dtype.hasobject:
            return detached_copy(rows)
        return rows

    return tree_map(take, batch)


def whole_number(where: str, value: Any) -> int:
    with suppress(TypeError):
        if (number := operator.index(value)) >= 1:
            return number
    raise ArgumentError(f"{where}: expected an int of 1 or more, got {value!r}")


def put_rows(target: Batch, env_ids: Any, rows: Batch) -> None:
    """Put m rows into a batch of n, in place."""

    def put(array: Any, values: Any) -> None:
        array[env_ids] = values

    tree_map(put, target, rows)


def refuse_others(first: Batch, batch: Batch, where: str) -> None:
    """Raise ArgumentError unless the rows of a batch are like those of the first one."""
    expected = {path: (leaf.shape[1:], leaf.dtype) for path, leaf in leaves(first)}
    got = {path: (leaf.shape[1:], leaf.dtype) for path, leaf in leaves(batch)}
    if got != expected:
        raise ArgumentError(
            f"{where}: expected rows as in the first step, {_text(expected)}, got {_text(got)}"
        )


def _text(forms: dict[tuple[Any, ...], tuple[Any, Any]]) -> str:
    said = [
        f"{'/'.join(map(str, path)) or 'each'}: {dtype} of shape {tuple(shape)}"
        for path, (shape, dtype) in forms.items()
    ]
    return ", ".join(said) or "nothing"


class Stack:
    """Batches of the same rows, one after the other; tensors keep their gradients."""

    def __init__(self) -> None:
        self._parts: list[Batch] = []

    def add(self, batch: Batch) -> None:
        self._parts.append(tree_map(_own, batch))

    def get(self) -> Batch:
        """Return all of them, (length, n, ...); an empty dict of none."""
        if not self._parts:
            return {}
        return tree_map(_stacked, *self._parts)


def _own(leaf: Any) -> Any:
    """A tensor as it is, an array as a copy: whoever made the array may write into it again."""
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    return leaf


def _stacked(*parts: Any) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.stack(parts)
    return _library(parts[0]).stack(parts)


class ArrayPool:
    """Large arrays that are handed out again once nobody else has them, or views of them.

    New memory takes longer to be touched for the first time than to be copied into.
    """

    def __init__(self) -> None:
        self._handed_out: list[list[np.ndarray[Any, Any]]] = []

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Return an array with any content."""
        for holder in self._handed_out:
            is_like = holder[0].shape == shape and holder[0].dtype == dtype
            if is_like and _num_owners(holder) == _ALONE:
                return holder[0]
        array = np.empty(shape, dtype)
        if array.nbytes >= _MIN_POOLED_BYTES and not dtype.hasobject:
            self._handed_out = [*self._handed_out[-1:], [array]]
        return array


def _num_owners(holder: list[np.ndarray[Any, Any]]) -> int:
    return sys.getrefcount(holder[0])


_ALONE = _num_owners([np.empty(0)])  # what CPython counts if the list alone has the array
_MIN_POOLED_BYTES = 1 << 20


class Grid:
    """A batch of (length, n, ...), whose rows are written one by one or n at a time.

    What is missing is zeros, or anything in arrays of a pool. Tensors lose their gradients.
    """

    def __init__(self, length: int, num_rows: int, pool: ArrayPool | None = None) -> None:
        self._shape = (length, num_rows)
        self._pool = pool
        self.batch: Batch = None

    def put(self, times: Any, columns: Any, rows: Batch) -> None:
        """Put m rows at their times, (m,) int64 or one for all, in their columns, (m,) int64."""
        if self.batch is None:
            self.batch = tree_map(self._allocate, rows)
        if type(rows) is np.ndarray and not rows.dtype.hasobject:
            self.batch[times, columns] = rows
            return

        def put(target: Any, values: Any) -> None:
            if not isinstance(values, np.ndarray):
                values = values.detach()
            elif values.dtype.hasobject:
                values = detached_copy(values)
            target[times, columns] = values

        tree_map(put, self.batch, rows)

    def take(self, times: Any, columns: Any) -> Batch:
        if self.batch is None:
            return {}
        return tree_map(lambda array: array[times, columns], self.batch)

    def repeat_after(self, times: np.ndarray[Any, Any]) -> None:
        """Repeat the entry of each column at ``times``, (n,) int64, in all entries after it."""

        def repeat(array: Any) -> None:
            for column in np.flatnonzero(times + 1 < len(array)).tolist():
                array[times[column] + 1 :, column] = array[times[column], column]

        tree_map(repeat, self.batch)

    def _allocate(self, rows: Any) -> Any:
        shape = (*self._shape, *rows.shape[1:])
        if not isinstance(rows, np.ndarray):
            return _library(rows).zeros(shape, dtype=rows.dtype, device=rows.device)
        if self._pool is not None:
            return self._pool.array(shape, rows.dtype)
        array = np.zeros(shape, rows.dtype)
        if rows.dtype.hasobject:
            array[:] = None
        return array
