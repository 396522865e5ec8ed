"""The pending call of a method of sub-environments, and the values that have arrived."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vecwrap.env.arrivals import CallValues
from vecwrap.errors import BackendError
from vecwrap.sources.failure import Failure

__all__ = ["PendingCallValues"]


class PendingCallValues:
    """One call at a time; values of an earlier call, which an interrupt has ended, are dropped.

    Attributes:
        awaited: sub-environments whose values have not arrived.
        values: by sub-environment.
        failures: of those that raised.
        lost: the error of a call during which a worker was lost.
    """

    def __init__(self) -> None:
        self._number = 0
        self.awaited: set[int] = set()
        self.values: dict[int, Any] = {}
        self.failures: list[Failure] = []
        self.lost: BackendError | None = None

    def begin(self, env_ids: Sequence[int]) -> int:
        """Begin a call; return its number."""
        self._number += 1
        self.awaited = set(env_ids)
        self.values = {}
        self.failures = []
        self.lost = None
        return self._number

    def end(self) -> None:
        """Wait for no value any more."""
        self.awaited = set()

    def take(self, arrival: CallValues) -> None:
        """Record values.

        Raises:
            BackendError: values of sub-environments that were not called, or twice.
        """
        if arrival.call != self._number:
            return
        answered = {*arrival.values, *(failure.index for failure in arrival.failures)}
        if not self.awaited:
            return
        if not answered <= self.awaited:
            raise BackendError(
                f"expected values of sub-environments {sorted(self.awaited)}, got "
                f"{sorted(answered)}"
            )
        self.awaited -= answered
        self.values.update(arrival.values)
        self.failures += arrival.failures

    def lose(self, rows: Sequence[int], error: BackendError) -> None:
        """Have the call fail if it waits for sub-environments that are lost."""
        lost = self.awaited.intersection(rows)
        if lost:
            self.awaited -= lost
            self.lost = error
