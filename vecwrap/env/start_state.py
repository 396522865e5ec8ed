"""The start of a backend: which sub-environments are made, their descriptions and failures."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from vecwrap.env.arrivals import EnvsMade, MakeFailed
from vecwrap.sources.description import EnvDescription, joint_description
from vecwrap.sources.failure import Failure
from vecwrap.sources.source_factories import Factory, num_rows_of, of_first_start

__all__ = ["StartState"]

_LATE_FAILURE_SECONDS = 1.0


class StartState:
    """What is known while sources are made; ``over`` once all are attached."""

    def __init__(self, num_rows: int) -> None:
        self._all = frozenset(range(num_rows))
        self._made: set[int] = set()
        self._made_once: set[int] = set()
        self._descriptions: dict[int, EnvDescription] = {}
        self._failures: list[Failure] = []
        self._failed: set[int] = set()
        self._until = math.inf
        self.is_over = False

    def record_made(self, arrival: EnvsMade) -> None:
        self._made.update(arrival.rows)
        self._made_once.update(arrival.rows)
        if not self.is_over:
            self._descriptions.update(arrival.descriptions)

    def record_failed(self, arrival: MakeFailed) -> None:
        self._failures.append(arrival.failure)
        self._failed.update(arrival.rows)

    def record_lost(self, rows: Sequence[int]) -> None:
        self._made.difference_update(rows)

    def were_made(self, rows: Sequence[int]) -> bool:
        return self._made_once.issuperset(rows)

    def all_made(self) -> bool:
        return len(self._made) == len(self._all)

    def not_made(self) -> list[int]:
        return sorted(self._all - self._made)

    def raise_failure(self, factories: Sequence[Factory], *, restart: bool) -> None:
        """Raise the first failure, once the rows before it are made or a second has passed.

        The wait makes the reported failure the same every time.
        """
        if not self._failures:
            return
        first = min(self._failures, key=lambda failure: failure.index)
        self._until = min(self._until, time.monotonic() + _LATE_FAILURE_SECONDS)
        left = self._all - self._made - self._failed
        if any(row < first.index for row in left) and time.monotonic() < self._until:
            return
        factory = factories[first.index // num_rows_of(factories)]
        raise of_first_start(first, factory, restart=restart).error()

    def joint_description(self) -> EnvDescription:
        return joint_description(sorted(self._descriptions.items()))
