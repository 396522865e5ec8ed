"""What a runner returns from ``poll``: one record for each arrival from the sub-environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vecwrap.sources.description import Description
from vecwrap.sources.failure import Failure

__all__ = ["Arrival", "Lost", "Made", "NotMade", "NotRestored", "Results", "Values"]


@dataclass(frozen=True, slots=True)
class Results:
    """Rows whose step or reset is in the slots, and failures of rows that raised instead."""

    rows: Sequence[int]
    failures: Sequence[Failure] = ()


@dataclass(frozen=True, slots=True)
class Values:
    """Values that a call to sub-environments returned, and the failures, by sub-environment.

    ``call`` is the number that the call was given.
    """

    call: int
    values: Mapping[int, Any]
    failures: Sequence[Failure] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """The sub-environments of ``rows`` were made; descriptions that differ, by first row."""

    rows: Sequence[int]
    descriptions: Sequence[tuple[int, Description]]


@dataclass(frozen=True, slots=True)
class NotMade:
    """A sub-environment could not be made, so that none of ``rows`` exists: all of its worker."""

    rows: Sequence[int]
    failure: Failure


@dataclass(frozen=True, slots=True)
class NotRestored:
    """Sub-environments that a running worker could not recreate."""

    failures: Sequence[Failure]


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker has ended, and with it the sub-environments of ``rows``.

    Attributes:
        worker: its number.
        rows: all of its sub-environments.
        reason: one line: who, and what it died of.
        details: more lines, each after a newline: the tail of its stderr; or "".
        were_made: whether the sub-environments existed when it ended.
        facts: further arguments of ``BackendError``, such as ``exitcode``.
    """

    worker: int
    rows: Sequence[int]
    reason: str
    details: str = ""
    were_made: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)


Arrival = Results | Values | Made | NotMade | NotRestored | Lost
