"""What a backend of its own kind says of how a plan would run on it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Outline"]


class Outline(NamedTuple):
    """How sub-environments would be spread; a backend's class gives it by its method ``outline``.

    Attributes:
        shares: how many sub-environments each worker or actor holds.
        summary: the same in words.
        notes: what else is worth a line.
    """

    shares: list[int]
    summary: str
    notes: tuple[str, ...] = ()
