"""A backend's own description of how a plan would run on it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Outline"]


class Outline(NamedTuple):
    """How sub-environments would be distributed; returned by a backend class's method ``outline``.

    Attributes:
        shares: how many sub-environments each worker or actor runs.
        summary: the same in words.
        notes: further lines to show.
    """

    shares: list[int]
    summary: str
    notes: tuple[str, ...] = ()
