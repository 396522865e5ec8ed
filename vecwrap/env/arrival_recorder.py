"""Records what a runner returns: results, values, descriptions, failures and losses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from vecwrap.env.arrivals import (
    Arrival,
    CallValues,
    EnvsMade,
    MakeFailed,
    RecreateFailed,
    RowResults,
    WorkerLost,
)
from vecwrap.env.pending_call_values import PendingCallValues
from vecwrap.env.pending_rows import PendingRows
from vecwrap.env.restart_manager import NoRestarts, RestartManager
from vecwrap.env.row_protocol import NeedsReset
from vecwrap.env.start_state import StartState
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
        values: PendingCallValues,
        restarts: NoRestarts | RestartManager,
        needs_reset: NeedsReset,
        start_state: StartState,
        factories: Sequence[Factory],
    ) -> None:
        self._pending = pending
        self._values = values
        self._restarts = restarts
        self._needs_reset = needs_reset
        self._start_state = start_state
        self._factories = factories

    def record(self, arrivals: Sequence[Arrival]) -> None:
        """Record arrivals.

        Raises:
            BackendError: a loss that ends the environment, or what nobody has requested.
            SubEnvError: a worker's sub-environments could not be made once more.
        """
        for arrival in arrivals:
            if isinstance(arrival, RowResults):
                self._record_results(arrival)
            elif isinstance(arrival, CallValues):
                self._values.take(arrival)
            elif isinstance(arrival, EnvsMade):
                self._start_state.record_made(arrival)
            elif isinstance(arrival, RecreateFailed):
                for failure in arrival.failures:
                    self.record_recreate_failed(failure)
            elif isinstance(arrival, MakeFailed):
                self._record_make_failed(arrival)
            else:
                self._record_worker_lost(arrival)

    def _record_results(self, results: RowResults) -> None:
        pending = self._pending
        dropped = pending.dropped and frozenset(pending.dropped)
        rows, failures = pending.take(results.rows, results.failures)
        if dropped:
            self._record_dropped(results, dropped)
        if self._restarts.is_on:
            self._restarts.report_losses(rows)
        for failure in failures:
            refused = self._restarts.lose_one(failure)
            if refused is not None:
                pending.fail(refused)

    def _record_dropped(self, results: RowResults, dropped: Collection[int]) -> None:
        """Record losses and advanced schedules of sub-environments whose results are dropped."""
        self._restarts.drop([row for row in results.rows if row in dropped])
        for failure in results.failures:
            if failure.index in dropped:
                self._restarts.lose_one(failure)

    def record_recreate_failed(self, failure: Failure) -> None:
        """Record a sub-environment that could not be recreated."""
        if not self._restarts.retry(failure):
            self._needs_reset.require_reset([failure.index])

    def _record_make_failed(self, arrival: MakeFailed) -> None:
        if not self._start_state.were_made(arrival.rows):
            self._start_state.record_failed(arrival)
            return
        failure = arrival.failure
        reason = str(failure.error()).partition("\n")[0]
        if not self._restarts.lose(arrival.rows, reason, were_made=False):
            raise self._restarts.with_refusal(failure).error()
        self._values.lose(
            arrival.rows, BackendError(f"{reason}{_NOT_REPEATED}", env_ids=tuple(arrival.rows))
        )

    def _record_worker_lost(self, loss: WorkerLost) -> None:
        facts: dict[str, Any] = {"worker": loss.worker, "env_ids": tuple(loss.rows), **loss.facts}
        said = f"{loss.reason}{loss.details}"
        is_on = self._restarts.is_on
        if not self._start_state.were_made(loss.rows):
            number = num_rows_of(self._factories)
            factories = self._factories[loss.rows[0] // number : loss.rows[-1] // number + 1]
            raise BackendError(said + never_made(factories, restart=is_on), **facts)
        self._start_state.record_lost(loss.rows)
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
