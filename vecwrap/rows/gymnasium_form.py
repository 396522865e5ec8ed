"""Batches in Gymnasium's form and in vecwrap's: values without an array form differ.

In Gymnasium's form they are tuples, in vecwrap's form object arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.errors import ArgumentError
from vecwrap.rows.batch import Batch, object_array, row, tree_map
from vecwrap.rows.columns import ARRAY_SPACES
from vecwrap.rows.infos import detached_copy


def has_objects(space: spaces.Space[Any]) -> bool:
    return not all(isinstance(leaf, ARRAY_SPACES) for leaf in _leaves(space))


def has_scalar_boxes(space: spaces.Space[Any]) -> bool:
    return any(map(_is_scalar_box, _leaves(space)))


def to_gymnasium(batch: Batch) -> Any:
    def convert(array: np.ndarray[Any, Any]) -> Any:
        if array.dtype == object:
            return tuple(array)
        return array

    return tree_map(convert, batch)


def by_leaf(
    function: Callable[[spaces.Space[Any], Any], Any], space: spaces.Space[Any], value: Any
) -> Any:
    """Apply ``function`` to each leaf of a space and the part of the value that belongs to it."""
    if isinstance(space, spaces.Dict):
        return {key: by_leaf(function, member, value[key]) for key, member in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(by_leaf(function, *pair) for pair in zip(space.spaces, value, strict=True))
    return function(space, value)


def from_gymnasium(space: spaces.Space[Any], value: Any, *, single: bool = False) -> Batch:
    """Return fresh arrays, and object arrays of copies in place of tuples."""

    def convert(leaf: spaces.Space[Any], part: Any) -> np.ndarray[Any, Any]:
        if isinstance(leaf, ARRAY_SPACES):
            return np.array(part, dtype=leaf.dtype)
        if single:
            return object_array([detached_copy(part)])
        return object_array([detached_copy(each) for each in part])

    return by_leaf(convert, space, value)


def element(space: spaces.Space[Any], row: Any) -> Any:
    """Return a row with arrays for Boxes without axes.

    Indexing returns scalars, which are not elements of such a Box.
    """

    def convert(leaf: spaces.Space[Any], part: Any) -> Any:
        if _is_scalar_box(leaf):
            return np.asarray(part)
        return part

    return by_leaf(convert, space, row)


def _leaves(space: spaces.Space[Any]) -> Iterator[spaces.Space[Any]]:
    if isinstance(space, spaces.Dict):
        for member in space.spaces.values():
            yield from _leaves(member)
    elif isinstance(space, spaces.Tuple):
        for member in space.spaces:
            yield from _leaves(member)
    else:
        yield space


def _is_scalar_box(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) and space.shape == ()


def conform_actions(
    space: spaces.Space[Any], actions: Any, num_rows: int, path: str = "actions"
) -> Batch:
    """Convert actions to the space's form: arrays of its dtype with ``num_rows`` rows."""
    if isinstance(space, ARRAY_SPACES):
        assert space.shape is not None
        return conform_array(space, actions, (num_rows, *space.shape), path)
    if isinstance(space, spaces.Dict):
        members = _members(actions, num_rows, path, dict.fromkeys(space.spaces))
        return {
            key: conform_actions(space[key], members[key], num_rows, f"{path}[{key!r}]")
            for key in space.spaces
        }
    if isinstance(space, spaces.Tuple):
        if isinstance(actions, tuple) and len(actions) == len(space.spaces):
            parts: Sequence[Any] = actions
        else:
            parts = list(
                _members(actions, num_rows, path, dict.fromkeys(range(len(space.spaces)))).values()
            )
        return tuple(
            conform_actions(member, part, num_rows, f"{path}[{i}]")
            for i, (member, part) in enumerate(zip(space.spaces, parts, strict=True))
        )
    if (
        not isinstance(actions, (Sequence, np.ndarray))
        or isinstance(actions, str)
        or len(actions) != num_rows
    ):
        raise ArgumentError(
            f"{path}: expected a sequence of {num_rows} actions of {space}, got {_form(actions)}"
        )
    return object_array(list(actions))


def conform_array(
    space: spaces.Space[Any], actions: Any, shape: tuple[int, ...], path: str = "actions"
) -> np.ndarray[Any, Any]:
    """Convert actions of an array space to a shape and its dtype, usually with one NumPy call."""
    assert space.dtype is not None
    array: np.ndarray[Any, Any] = actions
    if type(actions) is not np.ndarray:
        array = _as_array(actions, path)
    if array.shape != shape:
        raise ArgumentError(
            f"{path}: expected shape {shape}, one action of {space} for each of {shape[0]} "
            f"sub-environments, got {_form(actions, array)}{_reshaping(array, shape)}"
        )
    if array.dtype == space.dtype and type(actions) in (np.ndarray, list):
        return array
    if array.dtype.kind in "iu" and space.dtype.kind in "iu":
        return _cast_integers(space, array, path)
    try:
        return array.astype(space.dtype, casting="same_kind")
    except TypeError:
        raise ArgumentError(
            f"{path}: expected dtype {space.dtype} for {space}, got "
            f"{array.dtype}{_rounding(space, array)}"
        ) from None


def _as_array(actions: Any, path: str) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(actions)
    except ValueError:
        return np.asarray(actions, dtype=object)
    except (RuntimeError, TypeError) as error:  # a tensor with gradients, or on a GPU
        raise ArgumentError(
            f"{path}: expected an array or a list, got {type(actions).__name__}: {error}"
        ) from None


def _cast_integers(
    space: spaces.Space[Any], array: np.ndarray[Any, Any], path: str
) -> np.ndarray[Any, Any]:
    """Cast integers; ArgumentError if one of them would become another number."""
    cast = array.astype(space.dtype)
    widens = array.itemsize < cast.itemsize and array.dtype.kind in ("u", cast.dtype.kind)
    if not widens and (cast != array).any():
        raise ArgumentError(
            f"{path}: expected integers that {space.dtype} can hold, got {array.min()} to "
            f"{array.max()}"
        )
    return cast


def _rounding(space: spaces.Space[Any], array: np.ndarray[Any, Any]) -> str:
    """What makes integers of these floats, if the space has integers."""
    if array.dtype.kind != "f" or np.dtype(space.dtype).kind not in "iu":
        return ""
    whole = bool((array == np.round(array)).all())
    return (
        "; np.asarray(actions, int) has it"
        if whole
        else "; choose whole numbers, as np.argmax does"
    )


def _reshaping(array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> str:
    """What turns an array into the shape, if that is clear."""
    if array.dtype == object:
        return ""
    if array.shape == shape[1:]:
        if shape[0] == 1:
            return "; that is one action, [action] is a list of one"
        return f"; [action] * {shape[0]} repeats it"
    axes = tuple(length for length in array.shape if length != 1)
    if axes == tuple(length for length in shape if length != 1):
        return f"; np.reshape(actions, {shape}) has it"
    return ""


def _members(actions: Any, num_rows: int, path: str, keys: dict[Any, None]) -> dict[Any, Any]:
    """For a Dict or Tuple space: the batched form unchanged, or a list of rows converted to it."""
    if isinstance(actions, Mapping) and all(key in actions for key in keys):
        return {key: actions[key] for key in keys}
    if (
        isinstance(actions, (Sequence, np.ndarray))
        and not isinstance(actions, str)
        and len(actions) == num_rows
    ):
        try:
            return {key: [action[key] for action in actions] for key in keys}
        except (KeyError, IndexError, TypeError):
            pass
    raise ArgumentError(
        f"{path}: expected {num_rows} actions with the members {list(keys)}, batched or as a list, "
        f"got {_form(actions)}"
    )


def _form(actions: Any, array: np.ndarray[Any, Any] | None = None) -> str:
    if array is not None and array.dtype != object:
        return f"shape {array.shape}"
    if isinstance(actions, Mapping):
        return f"a dict with the keys {list(actions)}"
    if isinstance(actions, Sequence) and not isinstance(actions, str):
        return f"a {type(actions).__name__} of {len(actions)}"
    return repr(actions)


def refuse_outside(space: spaces.Space[Any], actions: Batch, env_ids: Any, used: Any) -> None:
    """Raise ArgumentError for the first used action outside the space, as debug=True does."""
    for position, i in enumerate(env_ids.tolist()):
        action = row(actions, position)
        if used[position] and not space.contains(action):
            raise ArgumentError(
                f"actions[{position}], for sub-environment {i}: expected an element of {space}, "
                f"got {action!r}{range_of(space)}"
            )


def range_of(space: spaces.Space[Any]) -> str:
    """``". Discrete(2) takes 0 or 1"``; empty for spaces that say it themselves."""
    if not isinstance(space, spaces.Discrete):
        return ""
    first = int(space.start)
    last = first + int(space.n) - 1
    if first == last:
        return f". {space} takes {first} alone"
    if first + 1 == last:
        return f". {space} takes {first} or {last}"
    return f". {space} takes {first} to {last}"
