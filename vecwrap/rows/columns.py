"""Columns: rows of storage for the values of a space, in arrays if the values allow arrays.

The arrays live in this process, or in memory shared by two processes: the allocator decides. Leaves
of a space that have no array form are kept as objects and always go through the pipe.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.errors import CastWarning, printable
from vecwrap.rows.batch import Allocate, Batch, in_numpy, object_array, scatter, tree_map

__all__ = ["ARRAY_SPACES", "Arena", "Column", "TensorColumn", "make_column"]

ARRAY_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)
"""Spaces whose values are arrays or numbers; those that derive from them too, as in Gymnasium."""

_INT64 = np.dtype(np.int64)
_ALIGNMENT = 64  # a cache line: two columns never share one


class Arena:
    """Allocates aligned arrays from one buffer; without a buffer, only counts their bytes.

    Two processes that allocate the same columns in the same order over the same buffer see the same
    arrays.
    """

    def __init__(self, buffer: Any = None) -> None:
        self.buffer = buffer
        self.num_bytes = 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """Return the next array, zeroed if the buffer is."""
        dtype = np.dtype(dtype)
        start = self.num_bytes
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.num_bytes = start + -(-size // _ALIGNMENT) * _ALIGNMENT
        if self.buffer is None:
            return np.broadcast_to(np.zeros((), dtype), shape)
        return np.ndarray(shape, dtype, buffer=self.buffer, offset=start)


class Column:
    """Rows of one leaf, or of a dict or tuple of leaves."""

    needs_pipe = False  # whether its values have to be sent, because they are not arrays
    can_move = False  # whether its rows may be written into other memory for a while

    def put(self, i: int, value: Any) -> None:
        """Copy one value into row i, cast within its kind; refuse another shape or kind.

        A refused value leaves the row unchanged.
        """
        raise NotImplementedError

    def putter(self, i: int) -> Callable[[Any], None]:
        """Return ``put`` for row i, as fast as possible."""
        return partial(self.put, i)

    def conform(self, value: Any) -> Any:
        """Return one value in a form that ``put`` takes, or refuse it as ``put`` does."""
        return value

    def fill(self, rows: Any, batch: Batch) -> None:
        """Copy a batch of values, already in this column's form, into rows."""
        raise NotImplementedError

    def keep(self, batch: Batch) -> None:
        """Copy a batch of all rows, in the memory order of its arrays; not for shared memory."""
        self.fill(slice(None), batch)

    def move(self, memory: Batch) -> None:
        """Have all rows written into this memory from now on; it has none of them yet.

        Until ``move_back``, ``batch`` is that memory. Only if ``can_move``.
        """
        raise NotImplementedError

    def move_back(self, written: Sequence[int] | None = None) -> None:
        """Copy all rows back into the column's own memory, if they were moved.

        Rows that are not among the ``written`` ones are as they were before the last ``move``.
        """

    def get_all(self, rows: Sequence[int]) -> Sequence[Any]:
        """Return the value of each of these rows; the caller may write into them."""
        raise NotImplementedError

    def batch(self) -> Batch:
        """Return all rows as a batch; for arrays, these are the rows themselves, not copies."""
        raise NotImplementedError

    def export(self, rows: Any) -> Any:
        """Return the parts of these rows that must go through the pipe, or None."""
        raise NotImplementedError

    def load(self, rows: Any, payload: Any) -> None:
        raise NotImplementedError


class ArrayColumn(Column):
    """A leaf with an array form: Box, Discrete, MultiBinary, MultiDiscrete."""

    def __init__(
        self, space: spaces.Space[Any], num_rows: int, allocate: Allocate, shared: bool, path: str
    ) -> None:
        assert space.shape is not None and space.dtype is not None
        self._shape = space.shape
        self._dtype = only_instance(np.dtype(space.dtype))
        self._array = allocate((num_rows, *space.shape), self._dtype)
        # else writers hold on to their rows
        self.can_move: bool = len(space.shape) > 1 and not shared
        self._own = self._array
        self._before = self._array  # where the rows were before the last move
        self._shared = shared
        self._path = path
        self._warned = False

    def put(self, i: int, value: Any) -> None:
        self._array[i] = self.conform(value)

    def putter(self, i: int) -> Callable[[Any], None]:
        if not self._shape and self._dtype is _INT64:
            return self._integer_putter(i)
        if len(self._shape) != 1 or not self._dtype.isnative or self._dtype.kind not in "iuf":
            return super().putter(i)
        if self._dtype == np.uint8:  # a memoryview takes bytes for such an array
            return super().putter(i)
        row = self._array[i]
        conform = self.conform
        cells = row.data

        def put(value: Any) -> None:
            try:
                cells[:] = value  # refuses another shape or dtype by itself, in a third of the time
                return
            except (TypeError, ValueError):
                pass
            row[:] = conform(value)

        return put

    def _integer_putter(self, i: int) -> Callable[[Any], None]:
        cells = self._array.data
        conform = self.conform

        def put(value: Any) -> None:
            try:
                cells[i] = value  # refuses what is no integer, or does not fit
            except (TypeError, ValueError):
                cells[i] = int(conform(value))  # which says what is wrong

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
            raise TypeError(
                f"{self._path}: expected dtype {self._dtype}, got {array.dtype}, which is of "
                "another kind"
            )
        # a plain int or float has no dtype of its own to lose
        if isinstance(value, np.ndarray) and not self._warned:
            self._warned = True
            warnings.warn(
                f"{printable(self._path)}: the space says {self._dtype}, the value is "
                f"{array.dtype}; it is cast on every step",
                CastWarning,
                stacklevel=2,
            )
        return array

    def fill(self, rows: Any, batch: Batch) -> None:
        self._array[rows] = batch

    def keep(self, batch: Batch) -> None:
        self._array = self._own = batch.copy(order="K")

    def move(self, memory: Batch) -> None:
        self._before = self._array
        self._array = memory

    def move_back(self, written: Sequence[int] | None = None) -> None:
        if self._array is self._own:
            return
        if written is None:
            self._own[:] = self._array
        else:
            self._own[:] = self._before
            self._own[written] = self._array[written]
        self._array = self._before = self._own

    def get_all(self, rows: Sequence[int]) -> Sequence[Any]:
        if type(rows) is range:
            chosen = self._array[rows.start : rows.stop]
        else:
            chosen = self._array[rows]
        if chosen.ndim > 1:  # a list of one dimension has numbers and no views
            chosen = chosen.copy()
        return list(chosen)

    def batch(self) -> Batch:
        return self._array

    def export(self, rows: Any) -> Any:
        if self._shared:
            return None
        return self._array[rows]

    def load(self, rows: Any, payload: Any) -> None:
        if payload is not None:
            self._array[rows] = payload


def only_instance(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return NumPy's own object for a dtype, so that ``is`` is enough to compare dtypes.

    Arrays have NumPy's own object; a pickled dtype is another object.
    """
    own = np.dtype(dtype.type)
    return own if own == dtype else dtype


class TextColumn(Column):
    """A Text leaf in an array: code points and a length, so that it can be shared."""

    def __init__(
        self, space: spaces.Text, num_rows: int, allocate: Allocate, shared: bool, path: str
    ) -> None:
        self._max_length = space.max_length
        self._points = allocate((num_rows, space.max_length), np.uint32)
        self._lengths = allocate((num_rows,), np.int32)
        self._shared = shared
        self._path = path

    def put(self, i: int, value: Any) -> None:
        value = self.conform(value)
        self._points[i, : len(value)] = [ord(character) for character in value]
        self._lengths[i] = len(value)

    def conform(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise TypeError(f"{self._path}: expected a str, got {type(value).__name__}")
        if len(value) > self._max_length:
            raise ValueError(
                f"{self._path}: expected at most {self._max_length} characters, got {len(value)}"
            )
        return value

    def fill(self, rows: Any, batch: Batch) -> None:
        if isinstance(rows, slice):
            rows = range(*rows.indices(len(self._lengths)))
        for row, value in zip(rows, batch, strict=True):
            self.put(row, value)

    def get_all(self, rows: Sequence[int]) -> Sequence[Any]:
        return ["".join(map(chr, self._points[i, : self._lengths[i]])) for i in rows]

    def batch(self) -> Batch:
        lengths = self._lengths.tolist()
        return object_array(
            [
                "".join(map(chr, points[:length]))
                for points, length in zip(self._points, lengths, strict=True)
            ]
        )

    def export(self, rows: Any) -> Any:
        if self._shared:
            return None
        return (self._points[rows], self._lengths[rows])

    def load(self, rows: Any, payload: Any) -> None:
        if payload is not None:
            self._points[rows], self._lengths[rows] = payload


class ObjectColumn(Column):
    """A leaf without an array form: Graph, Sequence, OneOf, a custom space."""

    needs_pipe = True

    def __init__(self, num_rows: int) -> None:
        self._objects = np.full(num_rows, None, dtype=object)

    def put(self, i: int, value: Any) -> None:
        self._objects[i] = deepcopy(value)

    def fill(self, rows: Any, batch: Batch) -> None:
        scatter(self._objects, rows, batch)

    def get_all(self, rows: Sequence[int]) -> Sequence[Any]:
        # the objects were copied on arrival, so nobody else has them
        return [self._objects[i] for i in rows]

    def batch(self) -> Batch:
        return self._objects

    def export(self, rows: Any) -> Any:
        return self._objects[rows]

    def load(self, rows: Any, payload: Any) -> None:
        self._objects[rows] = payload


class TensorColumn(Column):
    """Rows of an engine's tensors, on their device, while nobody needs them as arrays.

    Args:
        arrays: the column that holds them otherwise.
        like: such tensors, of any number of rows.
    """

    def __init__(self, arrays: Column, like: Batch, num_rows: int) -> None:
        self._arrays = arrays
        self._tensors = tree_map(lambda leaf: leaf.new_zeros((num_rows, *leaf.shape[1:])), like)

    def fill(self, rows: Any, batch: Batch) -> None:
        scatter(self._tensors, rows, batch)

    def batch(self) -> Batch:
        return self._tensors

    def as_arrays(self) -> Column:
        """Return the other column, which holds the same rows from now on."""
        self._arrays.fill(slice(None), in_numpy(self._tensors))
        return self._arrays

    def conform(self, value: Any) -> Any:
        return self._arrays.conform(value)


class MembersColumn(Column):
    """A Dict or Tuple space: one column per key or place."""

    def __init__(self, members: dict[Any, Column], is_dict: bool, path: str) -> None:
        self._members = members
        self._is_dict = is_dict
        self.needs_pipe = any(column.needs_pipe for column in members.values())
        self._path = path

    def _joined(self, parts: dict[Any, Any]) -> Any:
        if self._is_dict:
            return parts
        return tuple(parts.values())

    def put(self, i: int, value: Any) -> None:
        self.putter(i)(value)

    def putter(self, i: int) -> Callable[[Any], None]:
        conform = self.conform
        putters = {key: column.putter(i) for key, column in self._members.items()}

        def put(value: Any) -> None:
            parts = conform(value)  # check all of it before writing any of it
            for key, put_member in putters.items():
                put_member(parts[key])

        return put

    def conform(self, value: Any) -> Any:
        (self._refuse_no_dict if self._is_dict else self._refuse_no_tuple)(value)
        return self._joined(
            {key: column.conform(value[key]) for key, column in self._members.items()}
        )

    def _refuse_no_dict(self, value: Any) -> None:
        if not isinstance(value, Mapping) or not value.keys() >= self._members.keys():
            got = type(value).__name__
            if isinstance(value, Mapping):
                got = str(list(value))
            raise ValueError(
                f"{self._path}: expected a dict with keys {list(self._members)}, got {got}"
            )

    def _refuse_no_tuple(self, value: Any) -> None:
        if not isinstance(value, (tuple, list)) or len(value) != len(self._members):
            if isinstance(value, (tuple, list)):
                got = f"{len(value)} members"
            else:
                got = type(value).__name__
            raise ValueError(
                f"{self._path}: expected a tuple of {len(self._members)} members, got {got}"
            )

    def fill(self, rows: Any, batch: Batch) -> None:
        for key, column in self._members.items():
            column.fill(rows, batch[key])

    def keep(self, batch: Batch) -> None:
        for key, column in self._members.items():
            column.keep(batch[key])

    def get_all(self, rows: Sequence[int]) -> Sequence[Any]:
        parts = {key: column.get_all(rows) for key, column in self._members.items()}
        return [
            self._joined({key: part[k] for key, part in parts.items()}) for k in range(len(rows))
        ]

    def batch(self) -> Batch:
        return self._joined({key: column.batch() for key, column in self._members.items()})

    def export(self, rows: Any) -> Any:
        payload = {
            key: part
            for key, column in self._members.items()
            if (part := column.export(rows)) is not None
        }
        return payload or None

    def load(self, rows: Any, payload: Any) -> None:
        for key, part in (payload or {}).items():
            self._members[key].load(rows, part)


def make_column(
    space: spaces.Space[Any],
    num_rows: int,
    allocate: Allocate,
    *,
    shared: bool = False,
    path: str = "observation",
) -> Column:
    """Return storage for values of a space; a subclass of a Gymnasium space is stored like it.

    Gymnasium batches such a space in the same way.
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        is_dict = isinstance(space, spaces.Dict)
        if isinstance(space, spaces.Dict):
            members: Any = space.spaces.items()
        else:
            members = enumerate(space.spaces)
        columns = {
            key: make_column(member, num_rows, allocate, shared=shared, path=f"{path}[{key!r}]")
            for key, member in members
        }
        return MembersColumn(columns, is_dict, path)
    if isinstance(space, ARRAY_SPACES):
        return ArrayColumn(space, num_rows, allocate, shared, path)
    if isinstance(space, spaces.Text):
        return TextColumn(space, num_rows, allocate, shared, path)
    return ObjectColumn(num_rows)
