"""The rows of a backend in flight, the rows that have arrived, and the rows to be dropped."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from vecwrap.errors import BackendError
from vecwrap.rows.row_set import RowSet
from vecwrap.sources.failure import Failure

__all__ = ["PendingRows"]

_NONE: frozenset[int] = frozenset()


class PendingRows:
    """Rows between a request and the delivery of their results.

    Attributes:
        in_flight: rows whose results are still to be delivered.
        arrived: those of them whose results are in the slots: what came together, in the order of
            arrival.
        failures: those of them that raised.
        num_arrived: how many rows ``arrived`` and ``failures`` are.
        awaited: those of them that the runner is to bring.
        dropped: rows of a call that an interrupt has ended; their results are dropped when they
            arrive.
    """

    def __init__(self, num_rows: int, runner_name: str) -> None:
        self._all = frozenset(range(num_rows))
        self._range = range(num_rows)
        self._runner_name = runner_name
        self.in_flight: frozenset[int] = _NONE
        self.arrived: list[Sequence[int]] = []
        self.failures: list[Failure] = []
        self.num_arrived: int = 0
        self.dropped: set[int] = set()
        self.awaited: RowSet = RowSet()

    def has_arrived(self, row: int) -> bool:
        return any(row in rows for rows in self.arrived)

    def request_all(self) -> None:
        self.in_flight = self._all
        self.awaited = RowSet(self._range)

    def request(self, rows: Iterable[int]) -> None:
        requested = frozenset(rows)
        self.in_flight |= requested
        self.awaited.add(requested)

    def withdraw(self, rows: Collection[int]) -> None:
        """Rows whose request was never sent are idle again."""
        self.in_flight = self.in_flight.difference(rows)
        self.awaited.discard(rows)

    def take(
        self, rows: Sequence[int], failures: Sequence[Failure]
    ) -> tuple[Sequence[int], Sequence[Failure]]:
        """Return what somebody waits for of what a runner has brought; these rows have arrived.

        What a failure means is for the caller to decide.

        Raises:
            BackendError: rows that were not requested, or that were brought twice.
        """
        brought = rows
        if failures:
            brought = [*rows, *(failure.index for failure in failures)]
        awaited = self.awaited
        if not self.dropped:
            if not awaited.take(brought):
                self._refuse_unexpected(brought, awaited.as_set())
            if rows:
                self.arrived.append(rows)
                self.num_arrived += len(rows)
            return rows, failures
        self._refuse_unexpected(brought, awaited.as_set() | self.dropped)
        wanted = [row for row in rows if row not in self.dropped]
        failures = [failure for failure in failures if failure.index not in self.dropped]
        self.dropped.difference_update(brought)
        awaited.as_set().difference_update(brought)
        self.complete(wanted)
        return wanted, failures

    def _refuse_unexpected(self, brought: Sequence[int], expected: Collection[int]) -> None:
        unasked = sorted(set(brought).difference(expected))
        twice = sorted(
            {row for row in brought if brought.count(row) > 1}
            | set(unasked).intersection(self.in_flight)
        )
        kinds = {
            "not asked for": [row for row in unasked if row not in self.in_flight],
            "brought twice": twice,
        }
        said = ", ".join(f"rows {rows} {what}" for what, rows in kinds.items() if rows)
        if said:
            raise BackendError(
                f"{self._runner_name}: expected each of the rows {sorted(self.in_flight)} once, "
                f"got {said}"
            )

    def lose(self, row: int) -> None:
        """The runner will not bring a row: its sub-environment is lost."""
        self.awaited.discard((row,))
        self.dropped.discard(row)

    def await_restarts(self, rows: Iterable[int]) -> None:
        """The runner is not asked for rows whose sub-environments are lost."""
        self.awaited.discard(rows)

    def await_again(self, rows: Iterable[int]) -> None:
        """Await lost rows again, after their request to the recreated sub-environments."""
        self.awaited.add(rows)

    def complete(self, rows: Sequence[int]) -> None:
        """Rows have their results in the slots, although no runner brought them."""
        self.arrived.append(rows)
        self.num_arrived += len(rows)

    def fail(self, failure: Failure) -> None:
        self.failures.append(failure)
        self.num_arrived += 1

    def deliver(self, count: int) -> list[int]:
        """Take ``count`` rows out, failures first; return the others in ascending order."""
        number = max(count - len(self.failures), 0)
        arrived = list(chain.from_iterable(self.arrived))
        taken = arrived[:number]
        self.in_flight = self.in_flight.difference(
            taken, (failure.index for failure in self.failures)
        )
        self._forget_arrived()
        if len(arrived) > number:
            self.complete(arrived[number:])
        return sorted(taken)

    def deliver_all(self) -> None:
        """Take all rows out, which have arrived without a failure."""
        self.in_flight = _NONE
        self.arrived = []
        self.num_arrived = 0

    def _forget_arrived(self) -> None:
        self.arrived = []
        self.failures = []
        self.num_arrived = 0

    def drop(self, still_to_come: Iterable[int]) -> None:
        """Wait for nothing any more; of the rows in flight these will still arrive."""
        self.dropped.update(still_to_come)
        self.in_flight = _NONE
        self._forget_arrived()
        self.awaited = RowSet()
