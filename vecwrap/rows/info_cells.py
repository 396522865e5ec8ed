"""Cells: infos of plain numbers in arrays, so that an info costs one copy a step however many numbers it has."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from vecwrap.rows.batch import Allocate
from vecwrap.rows.step_result import IntArray

WIDTH = 16  # numbers in an info
MOST_LAYOUTS = 32  # that one writer learns; infos of further ones stay dicts
_MOST_PLANS = 256
_FLOATS = frozenset({float, np.float64, np.float32})
_DTYPES: dict[type, np.dtype[Any]] = {
    int: np.dtype(np.int64),
    bool: np.dtype(np.bool_),
    float: np.dtype(np.float64),
    **{kind: np.dtype(kind) for kind in (np.int64, np.int32, np.bool_, np.float64, np.float32)},
}

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
    width: int  # how many cells their rows fill
    uniform: bool  # whether all of them are one layout, that of different writers


def _format(kind: type) -> str:
    """How ``struct`` fills a cell with a value of this type."""
    if kind in _FLOATS:
        return "d"
    return "?7x" if kind is np.bool_ else "q"


class InfoCells:
    """Cells for the infos of n rows.

    The writer learns layouts from the infos that come; an info that does not fit, or whose layout is only being learnt,
    is not taken. Readers in other processes are told of each layout once. ``layouts`` holds the layout of each row;
    0: its info is not here.
    """

    def __init__(self, num_rows: int, allocate: Allocate, base: int = 0) -> None:
        self.layouts: IntArray = allocate((num_rows,), np.int64)
        self._integers = allocate((num_rows, WIDTH), np.int64)  # a row's cells are contiguous, for one writer
        self._floats = self._integers.view(np.float64)
        self._present = np.ones(num_rows, np.bool_)
        self._base = base
        # By keys and types: the number of a layout, and what writes all values of such an info into cells at once.
        self._packers: dict[tuple[Any, ...], tuple[int, Callable[..., None]]] = {}
        self.known: dict[int, Layout] = {}
        self._plans: dict[tuple[int, ...], _Plan | None] = {}
        self._latest: tuple[bytes, _Plan | None] = b"", None  # the layouts that `columns` read last, and their plan

    # -- writing -------------------------------------------------------------------------------------------------------

    def put(self, row: int, info: dict[str, Any]) -> bool:
        """Store an info; return False if it does not fit, or its layout is new."""
        if not info:
            self.layouts[row] = 0
            return True
        values = info.values()
        packer = self._packers.get((*info, *map(type, values)))
        if packer is None:
            self._learn(tuple(info), tuple(map(type, values)))
        else:
            number, pack = packer
            try:
                pack(self._integers, row * (WIDTH * 8), *values)
            except struct.error:  # an integer of more than 64 bits
                pass
            else:
                self.layouts[row] = number
                return True
        self.layouts[row] = 0
        return False

    def _learn(self, keys: tuple[str, ...], types: tuple[type, ...]) -> None:
        fits = len(keys) <= WIDTH and all(kind in _DTYPES for kind in types)
        fits = fits and {f"_{key}" for key in keys}.isdisjoint(keys)  # otherwise `columns` renames some
        if fits and all(type(key) is str for key in keys) and len(self._packers) < MOST_LAYOUTS:
            number = self._base + len(self._packers) + 1
            self.known[number] = keys, types
            self._packers[(*keys, *types)] = number, struct.Struct("".join(map(_format, types))).pack_into

    @property
    def num_learnt(self) -> int:
        """How many layouts this writer has learnt."""
        return len(self._packers)

    def learnt(self, told: int) -> dict[int, Layout]:
        """Return the layouts that were learnt after the first ``told``."""
        return {number: layout for number, layout in self.known.items() if number > self._base + told}

    def forget(self, row: int) -> None:
        """Record that the info of a row is elsewhere."""
        self.layouts[row] = 0

    # -- from one process to another -----------------------------------------------------------------------------------

    def know(self, layouts: dict[int, Layout], base: int = 0) -> None:
        """Record what another process has learnt, whose numbers begin above ``base``."""
        for number, (keys, types) in layouts.items():
            if not base < number <= base + MOST_LAYOUTS or len(keys) != len(types) or len(keys) > WIDTH:
                raise ValueError(f"expected layouts {base + 1} to {base + MOST_LAYOUTS} of up to {WIDTH} numbers")
            if {*map(type, keys)} - {str} or set(types) - _DTYPES.keys():
                raise ValueError("expected keys and types of numbers")
            self.known[number] = keys, types
        self._plans.clear()
        self._latest = b"", None

    def export(self, rows: Sequence[int]) -> Any:
        """Return the cells of rows, for memory that is not shared; None if all are empty."""
        layouts = self.layouts[rows]
        return (layouts, self._integers[rows]) if layouts.any() else None

    def load(self, rows: Sequence[int], payload: Any) -> None:
        """Load the result of ``export``."""
        if payload is None:
            self.layouts[rows] = 0
        else:
            self.layouts[rows], self._integers[rows] = payload

    # -- reading -------------------------------------------------------------------------------------------------------

    def get(self, row: int) -> dict[str, Any] | None:
        """Return the info of a row, or None if it is not here."""
        layout = self.known.get(int(self.layouts[row]))
        if layout is None:
            return None
        out: dict[str, Any] = {}
        for cell, (key, kind) in enumerate(zip(*layout, strict=True)):
            cells = self._floats if kind in _FLOATS else self._integers
            out[key] = kind(cells[row, cell])
        return out

    def columns(self, rows: slice | IntArray) -> dict[str, Any] | None:
        """Return the infos of rows as ``columns`` of their dicts would be; None if the cells do not suffice."""
        numbers = self.layouts[rows]
        layouts = numbers.tobytes()
        if layouts != self._latest[0]:
            self._latest = layouts, self._plan_of(tuple(dict.fromkeys(numbers.tolist())))
        plan = self._latest[1]
        if plan is None:
            return None
        if plan.uniform:
            return self._at_once(rows, plan.members)
        return self._one_by_one(rows, numbers.tolist(), plan) if plan.members else {}

    def columns_of_few(self, size: int, places: Sequence[tuple[int, int]]) -> dict[str, Any] | None:
        """Return ``size`` rows of columns of the infos of a few, by place and row; None if they are not of one layout.

        What the rows of ``columns`` are read with at once would take longer for these.
        """
        number, *others = {int(self.layouts[row]) for _, row in places}
        plan = None if others else self._plan_of((number,))
        if plan is None:
            return None
        out: dict[str, Any] = {}
        for cell, (key, mask, dtype, _) in enumerate(plan.members):
            cells = self._floats if dtype.kind == "f" else self._integers
            out[key], out[mask] = column, present = np.zeros(size, dtype), np.zeros(size, np.bool_)
            for place, row in places:
                column[place], present[place] = cells[row, cell], True
        return out

    def _plan_of(self, present: tuple[int, ...]) -> _Plan | None:
        if present not in self._plans:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[present] = self._plan(present)
        return self._plans[present]

    def _at_once(self, rows: slice | IntArray, members: list[_Member]) -> dict[str, Any]:
        """All rows have the same keys: each column is a copy of one of cells."""
        present = self._present[rows]
        out: dict[str, Any] = {}
        for cell, (key, mask, dtype, _) in enumerate(members):
            column = (self._floats if dtype.kind == "f" else self._integers)[rows, cell]
            out[key] = column.copy() if column.dtype is dtype else column.astype(dtype)
            out[mask] = present.copy()
        return out

    def _one_by_one(self, rows: slice | IntArray, layouts: list[int], plan: _Plan) -> dict[str, Any]:
        integers, floats = self._integers[rows, : plan.width].tolist(), self._floats[rows, : plan.width].tolist()
        out: dict[str, Any] = {}
        for key, mask, dtype, cell_of in plan.members:
            column, present = [0] * len(layouts), [False] * len(layouts)
            for i, layout in enumerate(layouts):
                if layout in cell_of:
                    cell, is_float = cell_of[layout]
                    column[i], present[i] = (floats if is_float else integers)[i][cell], True
            out[key], out[mask] = np.array(column, dtype), np.array(present, np.bool_)
        return out

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
            width=max((len(keys) for keys, _ in layouts.values()), default=0),
            uniform=0 not in numbers and len(set(layouts.values())) == 1,
        )
