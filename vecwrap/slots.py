"""Slots: one row of storage per sub-environment, for all that passes between a sub-environment and the parent.

The same slots serve every backend. They differ in where the arrays live: in this process (dummy), in each of two
processes with the values sent through a pipe (subprocess), or in memory that both share (shmem). Leaves of a space that
have no array form are kept as objects and always travel by the pipe.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from vecwrap.batch import Batch, object_array, scatter, take
from vecwrap.batch import copy as copy_batch
from vecwrap.contract import IntArray, StepResult
from vecwrap.errors import CastWarning
from vecwrap.infos import columns

__all__ = ["Allocate", "Arena", "Slots", "make_column"]

Allocate = Callable[[tuple[int, ...], Any], np.ndarray[Any, Any]]
"""``allocate(shape, dtype)`` gives a zeroed array."""

_ALIGNMENT = 64  # a cache line: two columns never share one


class Arena:
    """Hands out aligned arrays from one buffer; without a buffer it only measures how many bytes that takes.

    Two processes that allocate the same columns in the same order over the same buffer see the same arrays.
    """

    def __init__(self, buffer: Any = None) -> None:
        self.buffer = buffer
        self.num_bytes = 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """Give the next array, zeroed where the buffer is."""
        dtype = np.dtype(dtype)
        start = self.num_bytes
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.num_bytes = start + -(-size // _ALIGNMENT) * _ALIGNMENT
        if self.buffer is None:
            return np.broadcast_to(np.zeros((), dtype), shape)
        return np.ndarray(shape, dtype, buffer=self.buffer, offset=start)


class Column(Protocol):
    """Rows of one leaf, or of a dict or tuple of leaves."""

    def put(self, i: int, value: Any) -> None:
        """Copy one value into row i; cast within a kind, refuse another shape or kind."""

    def fill(self, rows: Any, batch: Batch) -> None:
        """Copy a batch of values, already in this column's form, into rows."""

    def batch(self) -> Batch:
        """All rows, as a batch; for arrays these are the rows themselves, not a copy."""

    def export(self, rows: Any) -> Any:
        """What of these rows has to travel by the pipe, or None."""

    def load(self, rows: Any, payload: Any) -> None:
        """Take in what ``export`` gave."""


class ArrayColumn:
    """A leaf with an array form: Box, Discrete, MultiBinary, MultiDiscrete."""

    def __init__(self, space: spaces.Space[Any], num_rows: int, allocate: Allocate, shared: bool, path: str) -> None:
        assert space.shape is not None and space.dtype is not None
        self._shape = space.shape
        self._dtype = np.dtype(space.dtype)
        self._array = allocate((num_rows, *space.shape), self._dtype)
        self._shared = shared
        self._path = path
        self._warned = False

    def put(self, i: int, value: Any) -> None:
        if type(value) is np.ndarray and value.dtype == self._dtype and value.shape == self._shape:
            self._array[i] = value
        else:
            self._array[i] = self._conform(value)

    def _conform(self, value: Any) -> Any:
        try:
            array = np.asarray(value)
        except ValueError:  # a ragged list
            array = np.asarray(value, dtype=object)
        if array.shape != self._shape:
            raise ValueError(f"{self._path}: expected shape {self._shape}, got shape {array.shape}")
        if array.dtype == self._dtype:
            return array
        if not np.can_cast(array.dtype, self._dtype, "same_kind"):
            raise TypeError(f"{self._path}: expected dtype {self._dtype}, got {array.dtype}, which is of another kind")
        if isinstance(value, np.ndarray) and not self._warned:  # a plain int or float has no dtype of its own to lose
            self._warned = True
            warnings.warn(
                f"{self._path}: the space says {self._dtype}, the value is {array.dtype}; it is cast on every step",
                CastWarning,
                stacklevel=2,
            )
        return array

    def fill(self, rows: Any, batch: Batch) -> None:
        self._array[rows] = batch

    def batch(self) -> Batch:
        return self._array

    def export(self, rows: Any) -> Any:
        return None if self._shared else self._array[rows]

    def load(self, rows: Any, payload: Any) -> None:
        if payload is not None:
            self._array[rows] = payload


class TextColumn:
    """A Text leaf in an array: code points and a length, so that it can be shared."""

    def __init__(self, space: spaces.Text, num_rows: int, allocate: Allocate, shared: bool, path: str) -> None:
        self._max_length = space.max_length
        self._points = allocate((num_rows, space.max_length), np.uint32)
        self._lengths = allocate((num_rows,), np.int32)
        self._shared = shared
        self._path = path

    def put(self, i: int, value: Any) -> None:
        if not isinstance(value, str):
            raise TypeError(f"{self._path}: expected a str, got {type(value).__name__}")
        if len(value) > self._max_length:
            raise ValueError(f"{self._path}: expected at most {self._max_length} characters, got {len(value)}")
        self._points[i, : len(value)] = [ord(character) for character in value]
        self._lengths[i] = len(value)

    def fill(self, rows: Any, batch: Batch) -> None:
        for row, value in zip(rows, batch, strict=True):
            self.put(row, value)

    def batch(self) -> Batch:
        lengths = self._lengths.tolist()
        return object_array(
            ["".join(map(chr, points[:length])) for points, length in zip(self._points, lengths, strict=True)]
        )

    def export(self, rows: Any) -> Any:
        return None if self._shared else (self._points[rows], self._lengths[rows])

    def load(self, rows: Any, payload: Any) -> None:
        if payload is not None:
            self._points[rows], self._lengths[rows] = payload


class ObjectColumn:
    """A leaf without an array form: Graph, Sequence, OneOf, a space of the user's own."""

    def __init__(self, num_rows: int) -> None:
        self._objects = np.full(num_rows, None, dtype=object)

    def put(self, i: int, value: Any) -> None:
        self._objects[i] = deepcopy(value)

    def fill(self, rows: Any, batch: Batch) -> None:
        self._objects[rows] = batch

    def batch(self) -> Batch:
        return self._objects

    def export(self, rows: Any) -> Any:
        return self._objects[rows]

    def load(self, rows: Any, payload: Any) -> None:
        self._objects[rows] = payload


class DictColumn:
    """A Dict space: a column a key."""

    def __init__(self, members: dict[str, Column], path: str) -> None:
        self._members = members
        self._path = path

    def put(self, i: int, value: Any) -> None:
        if not isinstance(value, Mapping) or any(key not in value for key in self._members):
            got = list(value) if isinstance(value, Mapping) else type(value).__name__
            raise ValueError(f"{self._path}: expected a dict with keys {list(self._members)}, got {got}")
        for key, column in self._members.items():
            column.put(i, value[key])

    def fill(self, rows: Any, batch: Batch) -> None:
        for key, column in self._members.items():
            column.fill(rows, batch[key])

    def batch(self) -> Batch:
        return {key: column.batch() for key, column in self._members.items()}

    def export(self, rows: Any) -> Any:
        payload = {key: part for key, column in self._members.items() if (part := column.export(rows)) is not None}
        return payload or None

    def load(self, rows: Any, payload: Any) -> None:
        for key, part in (payload or {}).items():
            self._members[key].load(rows, part)


class TupleColumn:
    """A Tuple space: a column a member."""

    def __init__(self, members: tuple[Column, ...], path: str) -> None:
        self._members = members
        self._path = path

    def put(self, i: int, value: Any) -> None:
        if not isinstance(value, (tuple, list)) or len(value) != len(self._members):
            got = f"{len(value)} members" if isinstance(value, (tuple, list)) else type(value).__name__
            raise ValueError(f"{self._path}: expected a tuple of {len(self._members)} members, got {got}")
        for column, part in zip(self._members, value, strict=True):
            column.put(i, part)

    def fill(self, rows: Any, batch: Batch) -> None:
        for column, part in zip(self._members, batch, strict=True):
            column.fill(rows, part)

    def batch(self) -> Batch:
        return tuple(column.batch() for column in self._members)

    def export(self, rows: Any) -> Any:
        payload = [column.export(rows) for column in self._members]
        return payload if any(part is not None for part in payload) else None

    def load(self, rows: Any, payload: Any) -> None:
        for column, part in zip(self._members, payload or (), strict=False):
            column.load(rows, part)


def make_column(
    space: spaces.Space[Any], num_rows: int, allocate: Allocate, *, shared: bool = False, path: str = "observation"
) -> Column:
    """Give storage for ``num_rows`` values of a space; leaves are allocated in the order of the space's members."""
    if isinstance(space, spaces.Dict):
        return DictColumn(
            {
                key: make_column(member, num_rows, allocate, shared=shared, path=f"{path}[{key!r}]")
                for key, member in space.spaces.items()
            },
            path,
        )
    if isinstance(space, spaces.Tuple):
        return TupleColumn(
            tuple(
                make_column(member, num_rows, allocate, shared=shared, path=f"{path}[{i}]")
                for i, member in enumerate(space.spaces)
            ),
            path,
        )
    if type(space) in (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete):
        return ArrayColumn(space, num_rows, allocate, shared, path)
    if type(space) is spaces.Text:
        return TextColumn(space, num_rows, allocate, shared, path)
    return ObjectColumn(num_rows)


class Slots:
    """All columns of ``num_rows`` sub-environments.

    Attributes:
        observations, final_observations, actions: columns of the spaces' leaves.
        rewards, raw_rewards: (num_rows,) float64.
        scheduled: (num_rows,) float64. How many episodes a schedule has given.
        terminations, truncations, first, acted, raw_dones, raw_first: (num_rows,) bool.
        lost: (num_rows,) bool. Written by the parent alone.
        infos, final_infos: a dict per row.
        frames, final_frames: a frame per row, or None.
    """

    def __init__(
        self,
        num_rows: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        allocate: Allocate = np.zeros,
        shared: bool = False,
    ) -> None:
        self.num_rows = num_rows
        self._shared = shared
        self.observations = make_column(observation_space, num_rows, allocate, shared=shared)
        self.final_observations = make_column(observation_space, num_rows, allocate, shared=shared)
        self.actions = make_column(action_space, num_rows, allocate, shared=shared, path="action")
        self._numbers = allocate((3, num_rows), np.float64)
        self._flags = allocate((6, num_rows), np.bool_)
        self.rewards, self.raw_rewards, self.scheduled = self._numbers
        self.terminations, self.truncations, self.first, self.acted, self.raw_dones, self.raw_first = self._flags
        self.lost = np.zeros(num_rows, dtype=np.bool_)
        self.infos: list[dict[str, Any]] = [{}] * num_rows
        self.final_infos: list[dict[str, Any]] = [{}] * num_rows
        self.frames: list[Any] = [None] * num_rows
        self.final_frames: list[Any] = [None] * num_rows

    def export(self, rows: Sequence[int]) -> Any:
        """Give what of these rows has to travel by the pipe: a small tuple, None where there is nothing."""
        index = list(rows)
        ended = [row for row in index if self.first[row] and (self.terminations[row] or self.truncations[row])]
        return (
            None if self._shared else (self._numbers[:, index], self._flags[:, index]),
            self.observations.export(index),
            (
                ended,
                self.final_observations.export(ended),
                [self.final_infos[row] for row in ended],
                [self.final_frames[row] for row in ended],
            )
            if ended
            else None,
            [self.infos[row] for row in index] if any(self.infos[row] for row in index) else None,
            [self.frames[row] for row in index] if any(self.frames[row] is not None for row in index) else None,
        )

    def load(self, rows: Sequence[int], payload: Any, offset: int = 0) -> None:
        """Take in what ``export`` gave in another process, whose row r is our row ``offset + r``."""
        index = [offset + row for row in rows]
        numbers, observations, final, infos, frames = payload
        if numbers is not None:
            self._numbers[:, index], self._flags[:, index] = numbers
        if observations is not None:
            self.observations.load(index, observations)
        if final is not None:
            ended, final_observations, final_infos, final_frames = final
            ended = [offset + row for row in ended]
            self.final_observations.load(ended, final_observations)
            _spread(self.final_infos, ended, final_infos, {})
            _spread(self.final_frames, ended, final_frames, None)
        _spread(self.infos, index, infos, {})
        _spread(self.frames, index, frames, None)

    def collect(self, env_ids: IntArray, *, copy: bool = True) -> StepResult:
        """Give these rows as a StepResult of fresh arrays (views of the slots with ``copy=False``, where possible)."""
        whole = len(env_ids) == self.num_rows
        rows: Any = slice(None) if whole else env_ids
        numbers, flags, lost = self._numbers[:, rows], self._flags[:, rows], self.lost[rows]
        observations = take(self.observations.batch(), rows)
        if whole and copy:
            numbers, flags, observations = numbers.copy(), flags.copy(), copy_batch(observations)
            lost = lost.copy()
        terminations, truncations, first, acted, raw_dones, raw_first = flags
        indices: Iterable[int] = range(self.num_rows) if whole else env_ids.tolist()
        final_obs = final_infos = frames = final_frames = None
        ended = first & (terminations | truncations)
        if ended.any():
            ended_ids = env_ids[ended]
            final_obs = copy_batch(observations)
            scatter(final_obs, ended, take(self.final_observations.batch(), ended_ids))
            ended_list = ended_ids.tolist()
            final_infos = columns([self.final_infos[i] if i in ended_list else {} for i in indices])
            if any(self.final_frames[i] is not None for i in ended_list):
                final_frames = tuple(self.final_frames[i] if i in ended_list else None for i in indices)
        if any(self.frames[i] is not None for i in indices):
            frames = tuple(self.frames[i] for i in indices)
        return StepResult(
            env_ids=env_ids,
            rows=rows,
            observations=observations,
            rewards=numbers[0],
            terminations=terminations,
            truncations=truncations,
            first=first,
            acted=acted,
            lost=lost,
            raw_rewards=numbers[1],
            raw_dones=raw_dones,
            raw_first=raw_first,
            infos=columns([self.infos[i] for i in indices]),
            final_obs=final_obs,
            final_infos=final_infos,
            frames=frames,
            final_frames=final_frames,
        )


def _spread(target: list[Any], index: Sequence[int], values: Sequence[Any] | None, absent: Any) -> None:
    for position, i in enumerate(index):
        target[i] = absent if values is None else values[position]
