"""Batches: an array with a leading axis of m rows, or a dict or tuple of such, nested to any depth.

These few functions are all that wrappers, backends and calls need; none of them needs a space. In
place of arrays they take an engine's tensors (PyTorch's, on any device), which stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np

_MAX_ROWS_ONE_BY_ONE = 4  # as many are written quicker one by one than all by their indices
_MAX_RECYCLED_BYTES = 31 << 20  # glibc never recycles a block of 32 MB or more

Batch: TypeAlias = Any
"""np.ndarray, or dict[str, Batch], or tuple[Batch, ...]."""

IntArray: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

Allocate: TypeAlias = Callable[[tuple[int, ...], Any], np.ndarray[Any, Any]]
"""``allocate(shape, dtype)`` returns a zeroed array."""


def tree_map(function: Callable[..., Any], batch: Batch, *others: Batch) -> Batch:
    """Apply ``function`` to each array of a batch, and to the matching arrays of ``others``."""
    if isinstance(batch, dict):
        return {
            key: tree_map(function, value, *(other[key] for other in others))
            for key, value in batch.items()
        }
    if isinstance(batch, tuple):
        return tuple(tree_map(function, *values) for values in zip(batch, *others, strict=True))
    return function(batch, *others)


def leaves(
    batch: Batch, path: tuple[str | int, ...] = ()
) -> list[tuple[tuple[str | int, ...], np.ndarray[Any, Any]]]:
    """Return the arrays of a batch, in order, each after the keys and positions that lead to it."""
    if not isinstance(batch, (dict, tuple)):  # an array, or one row of it
        return [(path, batch)]
    members: Iterable[tuple[Any, Any]] = enumerate(batch)
    if isinstance(batch, dict):
        members = batch.items()
    return [leaf for step, member in members for leaf in leaves(member, (*path, step))]


def copy(batch: Batch) -> Batch:
    if isinstance(batch, np.ndarray):
        return _copy_array(batch)
    return tree_map(_copy_leaf, batch)


def _copy_leaf(leaf: Any) -> Any:
    if is_tensor(leaf):
        return leaf.detach().clone()
    return _copy_array(leaf)


def _copy_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype.hasobject:
        return object_array([deepcopy(value) for value in array])
    return array.copy()


def is_tensor(leaf: Any) -> bool:
    return hasattr(leaf, "detach")


def has_tensors(batch: Batch) -> bool:
    """Whether the leaves are tensors, all of them."""
    if isinstance(batch, np.ndarray):
        return False
    found = leaves(batch)
    return bool(found) and all(is_tensor(leaf) for _, leaf in found)


def in_numpy(value: Any) -> Any:
    """The same with arrays in place of tensors (of PyTorch, on any device), deep inside too."""
    kind = type(value)
    if kind is np.ndarray:
        return value
    if isinstance(value, dict):
        return {key: in_numpy(part) for key, part in value.items()}
    if kind is tuple:
        return tuple(map(in_numpy, value))
    if is_tensor(value):
        value = value.detach().cpu()
        if "bfloat16" in str(value.dtype):  # which NumPy has not
            value = value.float()
        return value.numpy()
    return value


def take(batch: Batch, index: Any) -> Batch:
    """Return the rows of a mask, a slice or an index array: ``batch[index]`` for each array."""
    if isinstance(batch, np.ndarray):
        return batch[index]
    return tree_map(lambda array: array[index], batch)


def row(batch: Batch, i: int) -> Any:
    """Return one row as a sub-environment would return or take it; all of it fresh copies."""

    def value_in(array: np.ndarray[Any, Any]) -> Any:
        value = array[i]
        if array.dtype == object:
            return deepcopy(value)
        if isinstance(value, np.ndarray):
            return value.copy()
        if is_tensor(value):
            return value.clone()
        return value

    if isinstance(batch, np.ndarray):
        return value_in(batch)
    return tree_map(value_in, batch)


def where(mask: np.ndarray[Any, Any], yes: Batch, no: Batch) -> Batch:
    """Return a fresh batch, row by row: of ``yes`` if (m,) ``mask`` is True, else of ``no``.

    The dtypes are those of ``yes``.
    """

    def choose(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        out = second.astype(first.dtype, copy=True)
        out[mask] = first[mask]
        return out

    return tree_map(choose, yes, no)


def scatter(target: Batch, index: Any, source: Batch) -> None:
    """Write the rows of ``source`` into ``target`` at ``index``, in place; objects as copies."""

    def put(array: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> None:
        if values.dtype.hasobject:
            values = _copy_array(values)
        array[index] = values

    def put_leaf(leaf: Any, values: Any) -> None:
        if not is_tensor(leaf):
            put(leaf, values)
        elif is_tensor(values):
            leaf[index] = values.detach()
        else:
            leaf[index] = leaf.new_tensor(values)

    if isinstance(target, np.ndarray):
        put(target, source)
    else:
        tree_map(put_leaf, target, source)


def put_rows(target: Batch, pairs: Sequence[tuple[int, int]], source: Batch) -> None:
    """Copy rows of ``source`` into ``target`` in place, for pairs (target row, source row)."""
    if (
        isinstance(target, np.ndarray)
        and len(pairs) <= _MAX_ROWS_ONE_BY_ONE
        and not target.dtype.hasobject
    ):
        for target_row, source_row in pairs:
            target[target_row] = source[source_row]
    else:
        target_rows, source_rows = np.array(pairs).T
        scatter(target, target_rows, take(source, source_rows))


def empty_like(batch: Batch, num_rows: int) -> Batch:
    return tree_map(lambda array: np.zeros((num_rows, *array.shape[1:]), array.dtype), batch)


def object_array(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Return a one-dimensional object array of any values; ``np.array`` would unpack sequences."""
    return np.fromiter(values, dtype=object, count=len(values))


def recycle(num_bytes: int) -> None:
    """Have the memory of arrays of this size recycled, if a fresh one is made at every step.

    glibc returns freed memory to the system above a threshold that it learns from the largest block
    freed so far. Until it has seen one much larger than the arrays of a step, each of them gets new
    pages, and touching those takes ten times as long as filling the array. So it is shown one,
    which is never touched and costs nothing.
    """
    np.empty(min(4 * num_bytes, _MAX_RECYCLED_BYTES), np.uint8)
