"""Batches in Gymnasium's form and in ours: values without an array form are tuples there, object arrays here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.batch import Batch, object_array, tree_map
from vecwrap.columns import ARRAY_SPACES
from vecwrap.infos import own_copy

__all__ = ["element", "from_gymnasium", "has_objects", "has_scalar_boxes", "to_gymnasium"]


def has_objects(space: spaces.Space[Any]) -> bool:
    """Whether values of a leaf of the space have no array form."""
    return not all(isinstance(leaf, ARRAY_SPACES) for leaf in _leaves(space))


def has_scalar_boxes(space: spaces.Space[Any]) -> bool:
    """Whether a leaf of the space is a Box without axes."""
    return any(map(_is_scalar_box, _leaves(space)))


def to_gymnasium(batch: Batch) -> Any:
    """Return a batch with tuples in place of object arrays."""
    return tree_map(lambda array: tuple(array) if array.dtype == object else array, batch)


def from_gymnasium(space: spaces.Space[Any], value: Any, *, single: bool = False) -> Batch:
    """Return fresh arrays, and object arrays of copies in place of tuples."""
    if isinstance(space, spaces.Dict):
        return {key: from_gymnasium(space[key], value[key], single=single) for key in space.spaces}
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, value, strict=True)
        return tuple(from_gymnasium(member, part, single=single) for member, part in pairs)
    if isinstance(space, ARRAY_SPACES):
        return np.array(value, dtype=space.dtype)
    return object_array([own_copy(each) for each in ([value] if single else value)])


def element(space: spaces.Space[Any], row: Any) -> Any:
    """Return a row with arrays for Boxes without axes: indexing gives scalars, which are not elements of them."""
    if isinstance(space, spaces.Dict):
        return {key: element(member, row[key]) for key, member in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(element(member, part) for member, part in zip(space.spaces, row, strict=True))
    return np.asarray(row) if _is_scalar_box(space) else row


def _leaves(space: spaces.Space[Any]) -> Iterator[spaces.Space[Any]]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for member in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            yield from _leaves(member)
    else:
        yield space


def _is_scalar_box(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and space.shape == ()
