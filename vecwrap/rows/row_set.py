"""A set of rows in which the rows of a worker, or all rows, cost as little as one row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["RowSet"]


class RowSet:
    """Rows, kept as ranges until some of them are taken out one by one.

    Ranges that are added or discarded are of consecutive rows.
    """

    def __init__(self, *ranges: range) -> None:
        self._ranges = list(ranges)  # disjoint
        self._rows: set[int] = set()  # in none of the ranges

    def __bool__(self) -> bool:
        return bool(self._ranges or self._rows)

    def add(self, rows: Iterable[int]) -> None:
        if type(rows) is not range:
            self.as_set().update(rows)
            return
        for own in self._ranges:
            if own.start < rows.stop and rows.start < own.stop:
                self.discard(rows)
                break
        if self._rows:
            self._rows.difference_update(rows)
        self._ranges.append(rows)

    def discard(self, rows: Iterable[int]) -> None:
        """Remove those of the rows that are in the set."""
        if rows in self._ranges:  # all that were added together
            self._ranges.remove(rows)
            return
        if type(rows) is not range:
            self.as_set().difference_update(rows)
            return
        left: list[range] = []
        for own in self._ranges:
            if own.stop <= rows.start or rows.stop <= own.start:
                left.append(own)
                continue
            ends = (range(own.start, rows.start), range(rows.stop, own.stop))
            left += [end for end in ends if end]
        self._ranges = left
        self._rows.difference_update(rows)

    def take(self, rows: Sequence[int]) -> bool:
        """Remove rows; return False, and remove none, unless each of them is there, once."""
        if rows in self._ranges:
            self._ranges.remove(rows)
            return True
        if type(rows) is range and rows.step == 1:
            for own in self._ranges:
                if own.start <= rows.start and rows.stop <= own.stop:
                    self.discard(rows)
                    return True
        own_rows = self.as_set()
        if not own_rows.issuperset(rows) or len(set(rows)) < len(rows):
            return False
        own_rows.difference_update(rows)
        return True

    def as_set(self) -> set[int]:
        """The rows one by one; the set itself, not a copy."""
        if self._ranges:
            self._rows.update(*self._ranges)
            self._ranges = []
        return self._rows
