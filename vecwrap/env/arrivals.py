"""What a runner returns from ``poll``: one record for each arrival from the sub-environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vecwrap.sources.description import EnvDescription
from vecwrap.sources.failure import Failure

__all__ = [
    "Arrival",
    "CallValues",
    "EnvsMade",
    "MakeFailed",
    "RecreateFailed",
    "RowResults",
    "WorkerLost",
]


@dataclass(frozen=True, slots=True)
class RowResults:
    """Rows whose step or reset is in the slots, and failures of rows that raised instead."""

    rows: Sequence[int]
    failures: Sequence[Failure] = ()


@dataclass(frozen=True, slots=True)
class CallValues:
    """Values that a call to sub-environments returned, and the failures, by sub-environment.

    ``call`` is the number that the call was given.
    """

    call: int
    values: Mapping[int, Any]
    failures: Sequence[Failure] = ()


@dataclass(frozen=True, slots=True)
class EnvsMade:
    """The sub-environments of ``rows`` were made; descriptions that differ, by first row."""

    rows: Sequence[int]
    descriptions: Sequence[tuple[int, EnvDescription]]


@dataclass(frozen=True, slots=True)
class MakeFailed:
    """A sub-environment could not be made, so that none of ``rows`` exists: all of its worker."""

    rows: Sequence[int]
    failure: Failure


@dataclass(frozen=True, slots=True)
class RecreateFailed:
    """Sub-environments that a running worker could not recreate."""

    failures: Sequence[Failure]


@dataclass(frozen=True, slots=True)
class WorkerLost:
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


Arrival = RowResults | CallValues | EnvsMade | MakeFailed | RecreateFailed | WorkerLost
