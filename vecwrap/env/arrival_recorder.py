"""Records what a runner returns: results, values, descriptions, failures and losses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from vecwrap.env.arrivals import Arrival, Lost, Made, NotMade, NotRestored, Results, Values
from vecwrap.env.pending_rows import PendingRows
from vecwrap.env.pending_values import PendingValues
from vecwrap.env.restart_manager import NoRestarts, RestartManager
from vecwrap.env.row_protocol import Endings
from vecwrap.env.starting import Starting
from vecwrap.errors import BackendError
from vecwrap.sources.failure import Failure
from vecwrap.sources.source_factories import Factory, never_made, num_rows_of

__all__ = ["ArrivalRecorder"]

_NOT_REPEATED = (
    "\nIt is being restarted, and the episodes of its sub-environments are lost; the call is "
    "not repeated."
)


class ArrivalRecorder:
    """Where each arrival goes."""

    def __init__(
        self,
        pending: PendingRows,
        values: PendingValues,
        restarts: NoRestarts | RestartManager,
        endings: Endings,
        starting: Starting,
        factories: Sequence[Factory],
    ) -> None:
        self._pending = pending
        self._values = values
        self._restarts = restarts
        self._endings = endings
        self._starting = starting
        self._factories = factories

    def take(self, arrivals: Sequence[Arrival]) -> None:
        """Record arrivals.

        Raises:
            BackendError: a loss that ends the environment, or what nobody has requested.
            SubEnvError: a worker's sub-environments could not be made once more.
        """
        for arrival in arrivals:
            if isinstance(arrival, Results):
                self._take_results(arrival)
            elif isinstance(arrival, Values):
                self._values.take(arrival)
            elif isinstance(arrival, Made):
                self._starting.made(arrival)
            elif isinstance(arrival, NotRestored):
                for failure in arrival.failures:
                    self.take_not_restored(failure)
            elif isinstance(arrival, NotMade):
                self._take_not_made(arrival)
            else:
                self._take_loss(arrival)

    def _take_results(self, results: Results) -> None:
        pending = self._pending
        dropped = pending.dropped and frozenset(pending.dropped)
        rows, failures = pending.take(results.rows, results.failures)
        if dropped:
            self._take_dropped(results, dropped)
        if self._restarts.is_on:
            self._restarts.arrived(rows)
        pending.arrived += rows
        for failure in failures:
            refused = self._restarts.lose_one(failure)
            if refused is not None:
                pending.failures.append(refused)

    def _take_dropped(self, results: Results, dropped: Collection[int]) -> None:
        """Record losses and advanced schedules of sub-environments whose results are dropped."""
        self._restarts.dropped([row for row in results.rows if row in dropped])
        for failure in results.failures:
            if failure.index in dropped:
                self._restarts.lose_one(failure)

    def take_not_restored(self, failure: Failure) -> None:
        """Record a sub-environment that could not be recreated."""
        if not self._restarts.not_restored(failure):
            self._endings.mark([failure.index])

    def _take_not_made(self, arrival: NotMade) -> None:
        if not self._starting.were_made(arrival.rows):
            self._starting.failed(arrival)
            return
        failure = arrival.failure
        reason = str(failure.error()).partition("\n")[0]
        if not self._restarts.lose(arrival.rows, reason, were_made=False):
            raise self._restarts.refused(failure).error()
        self._values.lose(
            arrival.rows, BackendError(f"{reason}{_NOT_REPEATED}", env_ids=tuple(arrival.rows))
        )

    def _take_loss(self, loss: Lost) -> None:
        facts: dict[str, Any] = {"worker": loss.worker, "env_ids": tuple(loss.rows), **loss.facts}
        said = f"{loss.reason}{loss.details}"
        is_on = self._restarts.is_on
        if not self._starting.were_made(loss.rows):
            number = num_rows_of(self._factories)
            factories = self._factories[loss.rows[0] // number : loss.rows[-1] // number + 1]
            raise BackendError(said + never_made(factories, restart=is_on), **facts)
        self._starting.lost(loss.rows)
        if self._restarts.lose(loss.rows, loss.reason, were_made=loss.were_made):
            self._values.lose(loss.rows, BackendError(said + _NOT_REPEATED, **facts))
            return
        remedy = 'with on_failure="restart" this is automatic'
        if is_on:
            remedy = f"this is no longer automatic: {self._restarts.why_refused} are used up"
        raise BackendError(
            f"{said}\nclose() still works; build the environment again to continue ({remedy}).",
            **facts,
        )
