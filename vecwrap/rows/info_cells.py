"""The infos of rows, with plain numbers in arrays: one copy a step, however many numbers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from vecwrap.rows.batch import Allocate, IntArray
from vecwrap.rows.infos import DTYPES, columns, snapshot

NUMBERS_PER_INFO = 16  # numbers in an info
MAX_LAYOUTS = 32  # that one writer learns; infos of further ones stay dicts
_MAX_PLANS = 256
_FLOATS = frozenset({float, np.float64, np.float32})
_DTYPES = {int: np.dtype(np.int64), **DTYPES}

Layout: TypeAlias = tuple[tuple[str, ...], tuple[type, ...]]
"""The keys of an info, in order, and the type of each value."""


class _Member(NamedTuple):
    """One column that rows of given layouts make together."""

    key: str
    mask: str  # the key of the mask
    dtype: np.dtype[Any]
    cell_of: dict[int, tuple[int, bool]]  # by layout: which cell, and whether it holds a float


class _Plan(NamedTuple):
    """How rows of given layouts become columns."""

    members: list[_Member]
    uniform: bool  # whether all of them are one layout, that of different writers


_NOTHING: tuple[bytes, None, int, list[tuple[int, int]]] = (b"", None, 0, [])


def _format(kind: type) -> str:
    if kind in _FLOATS:
        return "d"
    return "?7x" if kind is np.bool_ else "q"


class RowInfos:
    """The infos of n rows, each in cells, or among ``others`` as it is.

    The writer learns layouts from the infos that come; an info that does not fit, or whose layout
    is only being learnt, is one of the others. Readers in other processes receive each layout
    once. ``layouts`` holds the layout of each row; 0: its info is not in cells.
    """

    def __init__(self, num_rows: int, allocate: Allocate, base: int = 0) -> None:
        self.others: dict[int, dict[str, Any]] = {}
        self.layouts: IntArray = allocate((num_rows,), np.int64)
        # a row's cells are contiguous, for one writer
        self._integers = allocate((num_rows, NUMBERS_PER_INFO), np.int64)
        self._floats = self._integers.view(np.float64)
        self._all = np.ones(num_rows, np.bool_)
        self._base = base
        # By keys and types: the number of a layout, and what writes all values of such an info into
        # cells at once.
        self._packers: dict[tuple[Any, ...], tuple[int, Callable[..., None]]] = {}
        self.known: dict[int, Layout] = {}
        self._num_exported = 0  # how many of the layouts learnt here have been sent
        self._plans: dict[tuple[int, ...], _Plan | None] = {}
        # What `columns` did last: the rows' layouts, and what `_survey` says of them.
        self._latest: tuple[bytes, _Plan | None, int, list[tuple[int, int]]] = _NOTHING

    def put(self, row: int, info: dict[str, Any]) -> None:
        if self.others:
            self.others.pop(row, None)
        if info:
            values = info.values()
            packer = self._packers.get((*info, *map(type, values)))
            if packer is None:
                self._add_layout(tuple(info), tuple(map(type, values)))
            else:
                number, pack = packer
                try:
                    pack(self._integers, row * (NUMBERS_PER_INFO * 8), *values)
                except struct.error:  # an integer of more than 64 bits
                    pass
                else:
                    self.layouts[row] = number
                    return
        self.layouts[row] = 0
        if info:
            self.others[row] = snapshot(info)

    def _add_layout(self, keys: tuple[str, ...], types: tuple[type, ...]) -> None:
        fits = len(keys) <= NUMBERS_PER_INFO and all(kind in _DTYPES for kind in types)
        # otherwise `columns` renames some
        fits = fits and {f"_{key}" for key in keys}.isdisjoint(keys)
        if fits and all(type(key) is str for key in keys) and len(self._packers) < MAX_LAYOUTS:
            number = self._base + len(self._packers) + 1
            self.known[number] = keys, types
            self._packers[(*keys, *types)] = (
                number,
                struct.Struct("".join(map(_format, types))).pack_into,
            )

    def new_layouts(self) -> dict[int, Layout]:
        """Return what has not been sent yet."""
        return {
            number: layout
            for number, layout in self.known.items()
            if number > self._base + self._num_exported
        }

    def mark_exported(self) -> None:
        self._num_exported = len(self._packers)

    def forget(self, row: int) -> None:
        self.others.pop(row, None)
        self.layouts[row] = 0

    def leave_cells(self, row: int) -> None:
        """Copy a row's info out of shared memory, because a new writer numbers keys differently."""
        info = self.get(row)
        self.forget(row)
        if info:
            self.others[row] = info

    def add_layouts(self, layouts: dict[int, Layout], base: int = 0) -> None:
        """Record what another process has learnt, whose numbers begin above ``base``."""
        for number, (keys, types) in layouts.items():
            if (
                not base < number <= base + MAX_LAYOUTS
                or len(keys) != len(types)
                or len(keys) > NUMBERS_PER_INFO
            ):
                raise ValueError(
                    f"expected layouts {base + 1} to {base + MAX_LAYOUTS} of up to "
                    f"{NUMBERS_PER_INFO} numbers"
                )
            if {*map(type, keys)} - {str} or set(types) - _DTYPES.keys():
                raise ValueError("expected keys and types of numbers")
            self.known[number] = keys, types
        self._plans.clear()
        self._latest = _NOTHING

    def export_cells(self, rows: Sequence[int]) -> Any:
        """Return the cells of rows, for memory that is not shared; None if all are empty."""
        layouts = self.layouts[rows]
        if layouts.any():
            return (layouts, self._integers[rows])
        return None

    def load_cells(self, rows: Sequence[int], payload: Any) -> None:
        if payload is None:
            self.layouts[rows] = 0
        else:
            self.layouts[rows], self._integers[rows] = payload

    def get(self, row: int) -> dict[str, Any]:
        if row in self.others or not self.known:
            return self.others.get(row, {})
        layout = self.known.get(int(self.layouts[row]))
        if layout is None:
            return {}
        out: dict[str, Any] = {}
        for cell, (key, kind) in enumerate(zip(*layout, strict=True)):
            cells = self._floats if kind in _FLOATS else self._integers
            out[key] = kind(cells[row, cell])
        return out

    def columns(
        self, rows: slice | IntArray, indices: Sequence[int], among: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """Return the infos of rows with these indices as columns, empty outside ``among``."""
        if not (self.others or self.known):
            return {}
        places: Sequence[int] = range(len(indices))
        if among is not None:
            places = among
        if not (self.others and any(indices[k] in self.others for k in places)):
            found = self._columns_of_cells(rows, among)
            if found is not None:
                return found
        infos: list[dict[str, Any]] = [{}] * len(indices)
        for k in places:
            infos[k] = self.get(indices[k])
        return columns(infos)

    def _columns_of_cells(
        self, rows: slice | IntArray, among: Sequence[int] | None
    ) -> dict[str, Any] | None:
        """Return None if the cells do not suffice."""
        numbers = self.layouts[rows]
        if among is not None:
            others = [(k, int(numbers[k])) for k in among]
            plan = self._plan_of((0, *dict.fromkeys(number for _, number in others)))
            most = 0
        else:
            layouts = numbers.tobytes()
            if layouts != self._latest[0]:
                self._latest = layouts, *self._survey(numbers.tolist())
            _, plan, most, others = self._latest
        if plan is None:
            return None
        return self._read(rows, plan, most, others)

    def _survey(self, numbers: list[int]) -> tuple[_Plan | None, int, list[tuple[int, int]]]:
        """Return the plan for these layouts, the most common one, and the places of the others."""
        if not numbers:  # no rows: all of them raised
            return _NOTHING[1:]
        present = tuple(dict.fromkeys(numbers))
        plan = self._plan_of(present)
        if plan is None or plan.uniform:
            return plan, numbers[0], []
        most = max(present, key=numbers.count)
        return plan, most, [(k, number) for k, number in enumerate(numbers) if number != most]

    def _read(
        self, rows: slice | IntArray, plan: _Plan, most: int, others: Sequence[tuple[int, int]]
    ) -> dict[str, Any]:
        """Copy each member's column of cells as if layouts were equal, then correct the others."""
        integers = self._integers[rows]
        floats = self._floats[rows]
        all_rows = self._all[rows]
        out: dict[str, Any] = {}
        for key, mask, dtype, cell_of in plan.members:
            if most in cell_of:
                cell, is_float = cell_of[most]
                column = (floats if is_float else integers)[:, cell].astype(dtype)
                present = all_rows.copy()
            else:
                column = np.zeros(len(all_rows), dtype)
                present = np.zeros(len(all_rows), np.bool_)
            for k, number in others:
                present[k] = number in cell_of
                if number in cell_of:
                    cell, is_float = cell_of[number]
                    column[k] = (floats if is_float else integers)[k, cell]
                else:
                    column[k] = 0
            out[key] = column
            out[mask] = present
        return out

    def _plan_of(self, present: tuple[int, ...]) -> _Plan | None:
        if present not in self._plans:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[present] = self._plan(present)
        return self._plans[present]

    def _plan(self, numbers: tuple[int, ...]) -> _Plan | None:
        layouts = {number: self.known.get(number) for number in numbers if number}
        if None in layouts.values():
            return None
        members: dict[str, list[tuple[int, int, type]]] = {}
        for number, layout in layouts.items():
            for cell, (key, kind) in enumerate(zip(*layout, strict=True)):  # type: ignore[misc]
                members.setdefault(key, []).append((number, cell, kind))
        if any(f"_{key}" in members for key in members):  # a mask would take an info's place
            return None
        return _Plan(
            [
                _Member(
                    key,
                    f"_{key}",
                    np.result_type(*{_DTYPES[kind] for _, _, kind in cells}),
                    {number: (cell, kind in _FLOATS) for number, cell, kind in cells},
                )
                for key, cells in members.items()
            ],
            uniform=0 not in numbers and len(set(layouts.values())) == 1,
        )
