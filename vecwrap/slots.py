"""Slots: one row of storage per sub-environment, for all that passes between a sub-environment and the parent.

The same slots serve every backend. They differ in where the arrays live: in this process (dummy), in each of two
processes with the values sent through a pipe (subprocess), or in memory that both share (shmem). Leaves of a space that
have no array form are kept as objects and always travel by the pipe.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from vecwrap.batch import Allocate, Batch, object_array, recycle, scatter, take, tree_map
from vecwrap.batch import copy as copy_batch
from vecwrap.contract import IntArray, StepResult
from vecwrap.errors import CastWarning
from vecwrap.info_cells import MOST_LAYOUTS, InfoCells
from vecwrap.infos import columns, snapshot

__all__ = ["Arena", "Slots", "make_column"]

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
    """Rows of one leaf, or of a dict or tuple of leaves.

    Attributes:
        rides_the_pipe: whether values of it have to be sent, because they are no arrays.
    """

    @property
    def rides_the_pipe(self) -> bool: ...

    def put(self, i: int, value: Any) -> None:
        """Copy one value into row i; cast within a kind, refuse another shape or kind and leave the row as it is."""

    def putter(self, i: int) -> Callable[[Any], None]:
        """Give ``put`` for row i, as fast as it can be."""

    def conform(self, value: Any) -> Any:
        """Give one value in a form that ``put`` takes, or refuse it as ``put`` does."""

    def fill(self, rows: Any, batch: Batch) -> None:
        """Copy a batch of values, already in this column's form, into rows."""

    def get_all(self, rows: Sequence[int]) -> Sequence[Any]:
        """Give the value of each of these rows, for the caller to write into."""

    def batch(self) -> Batch:
        """All rows, as a batch; for arrays these are the rows themselves, not a copy."""

    def export(self, rows: Any) -> Any:
        """What of these rows has to travel by the pipe, or None."""

    def load(self, rows: Any, payload: Any) -> None:
        """Take in what ``export`` gave."""


class ArrayColumn:
    """A leaf with an array form: Box, Discrete, MultiBinary, MultiDiscrete."""

    rides_the_pipe = False

    def __init__(self, space: spaces.Space[Any], num_rows: int, allocate: Allocate, shared: bool, path: str) -> None:
        assert space.shape is not None and space.dtype is not None
        self._shape = space.shape
        self._dtype = _the_one(np.dtype(space.dtype))
        self._array = allocate((num_rows, *space.shape), self._dtype)
        self._shared = shared
        self._path = path
        self._warned = False

    def put(self, i: int, value: Any) -> None:
        self._array[i] = self.conform(value)

    def putter(self, i: int) -> Callable[[Any], None]:
        if len(self._shape) != 1 or not self._dtype.isnative or self._dtype.kind not in "iuf":
            return partial(self.put, i)
        row, conform = self._array[i], self.conform
        cells = row.data

        def put(value: Any) -> None:
            try:
                cells[:] = value  # refuses another shape or dtype by itself, in a third of the time
                return
            except (TypeError, ValueError):
                pass
            row[:] = conform(value)

        return put

    def conform(self, value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype is self._dtype and value.shape == self._shape:
            return value
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

    def get_all(self, rows: Sequence[int]) -> Sequence[Any]:
        return list(self._array[rows if type(rows) is not range else slice(rows.start, rows.stop)].copy())

    def batch(self) -> Batch:
        return self._array

    def export(self, rows: Any) -> Any:
        return None if self._shared else self._array[rows]

    def load(self, rows: Any, payload: Any) -> None:
        if payload is not None:
            self._array[rows] = payload


def _the_one(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """NumPy's own object for a dtype, where a pickled one is another: arrays have that, and ``is`` tells at once."""
    own = np.dtype(dtype.type)
    return own if own == dtype else dtype


class TextColumn:
    """A Text leaf in an array: code points and a length, so that it can be shared."""

    rides_the_pipe = False

    def __init__(self, space: spaces.Text, num_rows: int, allocate: Allocate, shared: bool, path: str) -> None:
        self._max_length = space.max_length
        self._points = allocate((num_rows, space.max_length), np.uint32)
        self._lengths = allocate((num_rows,), np.int32)
        self._shared = shared
        self._path = path

    def put(self, i: int, value: Any) -> None:
        value = self.conform(value)
        self._points[i, : len(value)] = [ord(character) for character in value]
        self._lengths[i] = len(value)

    def putter(self, i: int) -> Callable[[Any], None]:
        return partial(self.put, i)

    def conform(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise TypeError(f"{self._path}: expected a str, got {type(value).__name__}")
        if len(value) > self._max_length:
            raise ValueError(f"{self._path}: expected at most {self._max_length} characters, got {len(value)}")
        return value

    def fill(self, rows: Any, batch: Batch) -> None:
        for row, value in zip(range(len(batch)) if isinstance(rows, slice) else rows, batch, strict=True):
            self.put(row, value)

    def get_all(self, rows: Sequence[int]) -> Sequence[Any]:
        return ["".join(map(chr, self._points[i, : self._lengths[i]])) for i in rows]

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

    rides_the_pipe = True

    def __init__(self, num_rows: int) -> None:
        self._objects = np.full(num_rows, None, dtype=object)

    def put(self, i: int, value: Any) -> None:
        self._objects[i] = deepcopy(value)

    def putter(self, i: int) -> Callable[[Any], None]:
        return partial(self.put, i)

    def conform(self, value: Any) -> Any:
        return value

    def fill(self, rows: Any, batch: Batch) -> None:
        scatter(self._objects, rows, batch)

    def get_all(self, rows: Sequence[int]) -> Sequence[Any]:
        return [self._objects[i] for i in rows]  # they were copied when they came, and are nobody else's

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
        self.rides_the_pipe = any(column.rides_the_pipe for column in members.values())
        self._path = path

    def put(self, i: int, value: Any) -> None:
        self.putter(i)(value)

    def putter(self, i: int) -> Callable[[Any], None]:
        conform = self.conform
        putters = {key: column.putter(i) for key, column in self._members.items()}

        def put(value: Any) -> None:
            for key, part in conform(value).items():  # all of it before any of it is written
                putters[key](part)

        return put

    def conform(self, value: Any) -> Any:
        if not isinstance(value, Mapping) or not value.keys() >= self._members.keys():
            got = list(value) if isinstance(value, Mapping) else type(value).__name__
            raise ValueError(f"{self._path}: expected a dict with keys {list(self._members)}, got {got}")
        return {key: column.conform(value[key]) for key, column in self._members.items()}

    def fill(self, rows: Any, batch: Batch) -> None:
        for key, column in self._members.items():
            column.fill(rows, batch[key])

    def get_all(self, rows: Sequence[int]) -> Sequence[Any]:
        parts = {key: column.get_all(rows) for key, column in self._members.items()}
        return [{key: part[k] for key, part in parts.items()} for k in range(len(rows))]

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
        self.rides_the_pipe = any(column.rides_the_pipe for column in members)
        self._path = path

    def put(self, i: int, value: Any) -> None:
        self.putter(i)(value)

    def putter(self, i: int) -> Callable[[Any], None]:
        conform = self.conform
        putters = [column.putter(i) for column in self._members]

        def put(value: Any) -> None:
            for put_member, part in zip(putters, conform(value), strict=True):  # likewise
                put_member(part)

        return put

    def conform(self, value: Any) -> Any:
        if not isinstance(value, (tuple, list)) or len(value) != len(self._members):
            got = f"{len(value)} members" if isinstance(value, (tuple, list)) else type(value).__name__
            raise ValueError(f"{self._path}: expected a tuple of {len(self._members)} members, got {got}")
        return tuple([column.conform(part) for column, part in zip(self._members, value, strict=True)])

    def fill(self, rows: Any, batch: Batch) -> None:
        for column, part in zip(self._members, batch, strict=True):
            column.fill(rows, part)

    def get_all(self, rows: Sequence[int]) -> Sequence[Any]:
        parts = [column.get_all(rows) for column in self._members]
        return [tuple(part[k] for part in parts) for k in range(len(rows))]

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
        infos, final_infos: the dicts of those rows that have one, as far as they are not numbers in shared memory.
        frames, final_frames: the frames of those rows that have one.
    """

    def __init__(
        self,
        num_rows: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        allocate: Allocate = np.zeros,
        shared: bool = False,
        first_row: int = 0,
    ) -> None:
        self.num_rows = num_rows
        self._shared = shared
        self.observations = make_column(observation_space, num_rows, allocate, shared=shared)
        self.final_observations = make_column(observation_space, num_rows, allocate, shared=shared)
        self.actions = make_column(action_space, num_rows, allocate, shared=shared, path="action")
        self._numbers = allocate((3, num_rows), np.float64)
        self._flags = allocate((7, num_rows), np.bool_)
        self.rewards, self.raw_rewards, self.scheduled = self._numbers
        self.acted, self.terminations, self.truncations, self.first, self.raw_dones, self.raw_first, self.lost = (
            self._flags
        )
        self._flags_in_stride = bytes([1] * num_rows + [0] * (6 * num_rows))
        self._yes, self._no = np.ones(num_rows, dtype=np.bool_), np.zeros(num_rows, dtype=np.bool_)
        self._yes.flags.writeable = self._no.flags.writeable = False
        self.infos: dict[int, dict[str, Any]] = {}
        self.final_infos: dict[int, dict[str, Any]] = {}
        self.frames: dict[int, Any] = {}
        self.final_frames: dict[int, Any] = {}
        base = MOST_LAYOUTS * first_row
        self._cells = InfoCells(num_rows, allocate, base) if shared else None
        self._final_cells = InfoCells(num_rows, allocate, base) if shared else None
        self._told = 0, 0
        self.rides_the_pipe = self.observations.rides_the_pipe

    def recycle(self) -> None:
        """Have the memory of what is made at every step recycled: an environment's observation, a batch of them."""
        leaves: list[np.ndarray[Any, Any]] = []
        tree_map(leaves.append, self.observations.batch())
        recycle(sum(leaf.nbytes for leaf in leaves))

    # -- infos and frames ----------------------------------------------------------------------------------------------

    def put_info(self, row: int, info: dict[str, Any]) -> None:
        """Take the info of a row as a copy."""
        if info:
            self.infos[row] = snapshot(info)
        elif self.infos:
            self.infos.pop(row, None)

    def put_final_info(self, row: int, info: dict[str, Any]) -> None:
        """Take the last info of the episode that ended in a row, as a copy."""
        if info:
            self.final_infos[row] = snapshot(info)
        elif self.final_infos:
            self.final_infos.pop(row, None)

    def add_info(self, row: int, key: str, value: Any) -> None:
        """Add to the info of a row."""
        self.infos[row] = {**self._info(row, self.infos, self._cells), key: value}
        if self._cells is not None:
            self._cells.forget(row)

    def forget_info(self, row: int) -> None:
        """A row has neither info nor frame."""
        self._forget(row, self.infos, self.frames, self._cells)

    def forget_final_info(self, row: int) -> None:
        """The same of the episode that ended in it."""
        self._forget(row, self.final_infos, self.final_frames, self._final_cells)

    def leave_cells(self, row: int) -> None:
        """Take the infos of a row out of shared memory, whose next writer means other keys by the same numbers."""
        for infos, cells in ((self.infos, self._cells), (self.final_infos, self._final_cells)):
            if cells is not None:
                info = cells.get(row)
                cells.forget(row)
                if info is not None:
                    infos[row] = info

    @staticmethod
    def _forget(row: int, infos: dict[int, Any], frames: dict[int, Any], cells: InfoCells | None) -> None:
        infos.pop(row, None)
        frames.pop(row, None)
        if cells is not None:
            cells.forget(row)

    @staticmethod
    def _info(row: int, infos: dict[int, dict[str, Any]], cells: InfoCells | None) -> dict[str, Any]:
        info = infos.get(row)
        if info is None and cells:
            info = cells.get(row)
        return info or {}

    # -- from one process to another -----------------------------------------------------------------------------------

    def put_into_cells(self, rows: Sequence[int]) -> Sequence[int]:
        """Put the infos of rows into shared memory, as far as they are numbers; gives the rows of which all lies there.

        Frames never do.
        """
        if self.rides_the_pipe or not self._shared:
            return ()
        if not (self.infos or self.final_infos or self.frames or self.final_frames or self._cells):
            return rows
        shared = []
        for row in rows:
            ended = bool(self.first[row] and (self.terminations[row] or self.truncations[row]))
            if self._put_into_cells(row, ended) and row not in self.frames and not (ended and row in self.final_frames):
                shared.append(row)
        return shared

    def _put_into_cells(self, row: int, ended: bool) -> bool:
        assert self._cells is not None
        assert self._final_cells is not None
        fits = self._cells.put(row, self.infos.get(row))
        if ended:
            fits = self._final_cells.put(row, self.final_infos.get(row)) and fits
        return fits

    def export(self, rows: Sequence[int]) -> Any:
        """Give what of these rows has to travel by the pipe: a small tuple, None where there is nothing."""
        index = list(rows)
        ended = [row for row in index if self.first[row] and (self.terminations[row] or self.truncations[row])]
        learnt = None
        if self._cells is not None and self._final_cells is not None:
            for row in index:
                self._put_into_cells(row, row in ended)
            learnt = self._cells.learnt(self._told[0]), self._final_cells.learnt(self._told[1])
        return (
            None if self._shared else (self._numbers[:, index], self._flags[:, index]),
            self.observations.export(index),
            (
                ended,
                self.final_observations.export(ended),
                _pick(self.final_infos, ended),
                _pick(self.final_frames, ended),
            )
            if ended
            else None,
            _pick(self.infos, index),
            _pick(self.frames, index),
            learnt if learnt and any(learnt) else None,
        )

    def exported(self) -> None:
        """Take note that what ``export`` gave last is on its way."""
        if self._cells is not None and self._final_cells is not None:
            self._told = self._cells.num_learnt, self._final_cells.num_learnt

    def load(self, rows: Sequence[int], payload: Any, offset: int = 0) -> None:
        """Take in what ``export`` gave in another process, whose row r is our row ``offset + r``."""
        index = [offset + row for row in rows]
        numbers, observations, final, infos, frames, learnt = payload
        if numbers is not None:
            self._numbers[:, index], self._flags[:, index] = numbers
        if observations is not None:
            self.observations.load(index, observations)
        if final is not None:
            ended, final_observations, final_infos, final_frames = final
            self.final_observations.load([offset + row for row in ended], final_observations)
            _spread(self.final_infos, ended, offset, final_infos, self._final_cells)
            _spread(self.final_frames, ended, offset, final_frames, None)
        _spread(self.infos, rows, offset, infos, self._cells)
        _spread(self.frames, rows, offset, frames, None)
        if learnt is not None and self._cells is not None and self._final_cells is not None:
            self._cells.know(learnt[0])
            self._final_cells.know(learnt[1])

    def load_shared(self, rows: Sequence[int]) -> None:
        """Take note that all of these rows lies in shared memory."""
        for kept in (self.infos, self.final_infos, self.frames, self.final_frames):
            if kept:
                for row in rows:
                    kept.pop(row, None)

    # -- to the layers -------------------------------------------------------------------------------------------------

    def collect(self, env_ids: IntArray, *, copy: bool = True) -> StepResult:
        """Give these rows as a StepResult of fresh arrays (views of the slots with ``copy=False``, where possible)."""
        if len(env_ids) == self.num_rows:
            flags = self._flags.tobytes()
            if flags == self._flags_in_stride and not self.frames:
                return self._collect_in_stride(env_ids, copy)
        return self._collect(env_ids, copy)

    def _collect_in_stride(self, env_ids: IntArray, copy: bool) -> StepResult:
        """All rows, where each acted and nothing else happened: the many steps amid episodes."""
        numbers, observations = self._numbers, self.observations.batch()
        if copy:
            numbers, observations = numbers.copy(), copy_batch(observations)
        num_rows, no = self.num_rows, self._no
        return StepResult(
            env_ids=env_ids,
            rows=slice(None),
            observations=observations,
            rewards=numbers[0],
            terminations=np.zeros(num_rows, np.bool_),
            truncations=np.zeros(num_rows, np.bool_),
            first=no,
            acted=self._yes,
            lost=no,
            raw_rewards=numbers[1],
            raw_dones=no,
            raw_first=no,
            infos=self._infos(slice(None), range(num_rows)) if self.infos or self._cells else {},
        )

    def _collect(self, env_ids: IntArray, copy: bool) -> StepResult:
        whole = len(env_ids) == self.num_rows
        rows: Any = slice(None) if whole else env_ids
        numbers, flags = self._numbers[:, rows], self._flags[:, rows]
        observations = take(self.observations.batch(), rows)
        if whole and copy:
            numbers, flags, observations = numbers.copy(), flags.copy(), copy_batch(observations)
        elif copy and self.rides_the_pipe:  # the arrays are fresh, the objects in them are not
            observations = copy_batch(observations)
        acted, terminations, truncations, first, raw_dones, raw_first, lost = flags
        indices: Sequence[int] = range(self.num_rows) if whole else env_ids.tolist()
        final_obs = final_infos = frames = final_frames = None
        ended = (first & (terminations | truncations)).nonzero()[0]
        if len(ended):
            ended_ids = ended if whole else env_ids[ended]
            final_obs = copy_batch(observations)
            scatter(final_obs, ended, take(self.final_observations.batch(), ended_ids))
            ended_set = frozenset(ended_ids.tolist())
            final_infos = self._final_infos(indices, ended_set)
            if self.final_frames and any(i in self.final_frames for i in ended_set):
                final_frames = tuple(self.final_frames.get(i) if i in ended_set else None for i in indices)
        if self.frames and any(i in self.frames for i in indices):
            frames = tuple(self.frames.get(i) for i in indices)
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
            infos=self._infos(rows, indices) if self.infos or self._cells else {},
            final_obs=final_obs,
            final_infos=final_infos,
            frames=frames,
            final_frames=final_frames,
        )

    def _infos(self, rows: Any, indices: Sequence[int]) -> dict[str, Any]:
        """The infos of rows, as columns."""
        if self._cells:
            found = self._cells.columns(rows)
            if found is not None and not any(i in self.infos for i in indices):
                return found
        return columns([self._info(i, self.infos, self._cells) for i in indices])

    def _final_infos(self, indices: Sequence[int], ended: frozenset[int]) -> dict[str, Any]:
        """The last infos of the episodes that ended in these rows, as columns."""
        if not (self.final_infos or self._final_cells):
            return {}
        return columns([self._info(i, self.final_infos, self._final_cells) if i in ended else {} for i in indices])


def _pick(values: dict[int, Any], rows: Sequence[int]) -> dict[int, Any] | None:
    """The values of those rows that have one, by position; None where none has."""
    if not values:
        return None
    return {position: values[row] for position, row in enumerate(rows) if row in values} or None


def _spread(
    target: dict[int, Any], rows: Sequence[int], offset: int, values: dict[int, Any] | None, cells: InfoCells | None
) -> None:
    """Undo ``_pick``; where these are infos, what lies in cells holds no longer for them."""
    for position, row in enumerate(rows):
        if values is not None and position in values:
            target[offset + row] = values[position]
            if cells is not None:
                cells.forget(offset + row)
        elif target:
            target.pop(offset + row, None)
