"""Infos as numbers in arrays, if they are numbers under a few keys: no dict is made, and none is sent.

Transport only: a reader gets the same values of the same types as were written, and columns that are bit for bit those
that ``vecwrap.infos.columns`` makes of the dicts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vecwrap.batch import Allocate
from vecwrap.contract import IntArray

__all__ = ["MOST_LAYOUTS", "InfoCells", "Layout"]

WIDTH = 16  # numbers in an info
MOST_LAYOUTS = 32  # that one writer learns; infos of further ones are sent as dicts
_FLOATS = frozenset({float, np.float64, np.float32})
_CELL_DTYPES: dict[type, np.dtype[Any]] = {
    int: np.dtype(np.int64),
    bool: np.dtype(np.bool_),
    float: np.dtype(np.float64),
    **{kind: np.dtype(kind) for kind in (np.int64, np.int32, np.bool_, np.float64, np.float32)},
}


class Layout(NamedTuple):
    """The keys of an info, in order, and the type of each value."""

    keys: tuple[str, ...]
    types: tuple[type, ...]


class _Packer(NamedTuple):
    """How infos of a layout are written: its number, and what writes all of their values into cells at once."""

    number: int
    pack_into: Callable[..., None]


def _format(kind: type) -> str:
    """How ``struct`` fills a cell with a value of this type."""
    if kind in _FLOATS:
        return "d"
    return "?7x" if kind is np.bool_ else "q"


class InfoCells:
    """Cells for the infos of n rows.

    The writer learns layouts from the infos that come, and announces each once; an info that does not fit, or whose
    layout is not announced yet, is not taken. ``layouts`` holds the layout of each row; 0: its info is not here.
    """

    def __init__(self, num_rows: int, allocate: Allocate, base: int = 0) -> None:
        self.layouts: IntArray = allocate((num_rows,), np.int64)
        self._integers = allocate((num_rows, WIDTH), np.int64)  # a row's cells are contiguous, for one writer
        self._floats = self._integers.view(np.float64)
        self._base = base
        self._numbers: dict[Layout, int] = {}
        self._packers: dict[tuple[Any, ...], _Packer] = {}
        self._known: dict[int, Layout] = {}
        self._written: dict[int, int] = {}  # rows that have a layout, as far as this writer knows

    def __bool__(self) -> bool:
        """Whether any layout is known."""
        return bool(self._known)

    # -- writing -------------------------------------------------------------------------------------------------------

    def put(self, row: int, info: dict[str, Any] | None) -> bool:
        """Store an info; return False if it does not fit, or its layout is new."""
        if not info:
            if self._written.pop(row, 0):
                self.layouts[row] = 0
            return True
        layout = tuple(info), tuple(map(type, info.values()))
        packer = self._packers.get(layout)
        if packer is None:
            self._learn(Layout(*layout))
        else:
            try:
                packer.pack_into(self._integers, row * WIDTH * 8, *info.values())
            except struct.error:  # an integer of more than 64 bits
                pass
            else:
                self.layouts[row] = self._written[row] = packer.number
                return True
        self.layouts[row] = self._written[row] = 0
        return False

    def _learn(self, layout: Layout) -> None:
        fits = len(layout.keys) <= WIDTH and all(kind in _CELL_DTYPES for kind in layout.types)
        if fits and all(type(key) is str for key in layout.keys) and len(self._numbers) < MOST_LAYOUTS:
            self._numbers[layout] = number = self._base + len(self._numbers) + 1
            self._known[number] = layout
            packed = struct.Struct("".join(map(_format, layout.types)))
            self._packers[layout] = _Packer(number, packed.pack_into)

    @property
    def num_learnt(self) -> int:
        """How many layouts this writer has learnt."""
        return len(self._numbers)

    def learnt(self, told: int) -> dict[int, Layout]:
        """Return the layouts that were learnt after the first ``told``."""
        return {number: layout for number, layout in self._known.items() if number > self._base + told}

    # -- reading -------------------------------------------------------------------------------------------------------

    def know(self, layouts: dict[int, Layout]) -> None:
        """Record what another process has learnt."""
        self._known.update(layouts)

    def get(self, row: int) -> dict[str, Any] | None:
        """Return the info of a row, or None if it is not here."""
        layout = self._known.get(int(self.layouts[row]))
        if layout is None:
            return None
        out: dict[str, Any] = {}
        for cell, (key, kind) in enumerate(zip(layout.keys, layout.types, strict=True)):
            cells = self._floats if kind in _FLOATS else self._integers
            out[key] = kind(cells[row, cell])
        return out

    def forget(self, row: int) -> None:
        """Record that the info of a row is elsewhere."""
        self.layouts[row] = 0

    def columns(self, rows: slice | Sequence[int] | IntArray) -> dict[str, Any] | None:
        """Return the infos of rows as columns if all of them have the same keys and types; else None."""
        numbers = set(self.layouts[rows].tolist())
        layouts = {self._known.get(number) for number in numbers}
        if len(layouts) != 1 or (layout := layouts.pop()) is None:
            return None
        out: dict[str, Any] = {}
        for cell, (key, kind) in enumerate(zip(layout.keys, layout.types, strict=True)):
            cells = self._floats if kind in _FLOATS else self._integers
            out[key] = column = cells[rows, cell].astype(_CELL_DTYPES[kind])
            out[f"_{key}"] = np.ones(len(column), dtype=np.bool_)
        return out
