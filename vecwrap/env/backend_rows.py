"""The rows of a backend: which are requested, which have arrived, and which are lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import compress, groupby
from typing import Any, NoReturn

import numpy as np
from gymnasium.error import ClosedEnvironmentError, NoAsyncCallError

from vecwrap.env.arrival_recorder import ArrivalRecorder
from vecwrap.env.arrivals import Arrival
from vecwrap.env.frame_requests import FrameRequests
from vecwrap.env.joint_rows import JointRows
from vecwrap.env.observers import StepObserver
from vecwrap.env.options import RestartOptions
from vecwrap.env.pending_call_values import PendingCallValues
from vecwrap.env.pending_rows import PendingRows
from vecwrap.env.restart_manager import NoRestarts, Reset, RestartManager
from vecwrap.env.row_protocol import NeedsReset
from vecwrap.env.runner import POLL_SECONDS, Context, Runner
from vecwrap.env.start_state import StartState
from vecwrap.errors import (
    BackendError,
    ResetNeededError,
    SubEnvError,
    VecwrapError,
    WaitTimeoutError,
)
from vecwrap.interrupts import Interrupts
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch
from vecwrap.rows.step_result import Autoreset, Infos, IntArray, StepResult
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.failure import errors_of
from vecwrap.sources.source_factories import Factory, num_rows_of

__all__ = ["BackendRows"]


class BackendRows:
    """The rows of a backend, which a runner steps and resets; they implement ``NumberedRows``.

    Attributes:
        slots: where the runner's sub-environments write their rows.
        pending: which rows are in flight.
        restarts: what a loss means; ``restart_manager`` is the same, or None if a loss is final.
        needs_reset: which rows need a reset.
        values: the pending call to methods of sub-environments.
        fast: whether the next step of all rows may take the fast path: set by the end of a general
            call.
        closed, broken: only ever set, maybe by another thread or a signal's handler; ``broken`` is
            raised by every further call.
        last_observations, last_infos: of the rows that were delivered last, before any wrapper;
            with the infos those of ended episodes.
        agents: how many consecutive rows are those of one game; 0: no games.
    """

    slots: Slots

    def __init__(
        self,
        runner: Runner,
        factories: Sequence[Factory],
        context: Context,
        *,
        copy: bool,
        options: RestartOptions,
        agents: int = 0,
    ) -> None:
        self.num_rows: int = context.num_rows
        self.agents = agents
        self.context = context
        self.interrupts: Interrupts = context.interrupts
        self.debug: bool = context.debug
        self.copy = copy
        self.all_ids: IntArray = np.arange(self.num_rows)
        self.all_ids.flags.writeable = False
        self.needs_reset: NeedsReset = NeedsReset(
            self.num_rows,
            resets_on_request=context.autoreset is Autoreset.DISABLED,
            agents=agents,
        )
        self.pending: PendingRows = PendingRows(self.num_rows, type(runner).__name__)
        self.values: PendingCallValues = PendingCallValues()
        self.frames: FrameRequests = FrameRequests(self.num_rows)
        self.restart_manager: RestartManager | None = None
        if options.restart:
            self.restart_manager = RestartManager(
                self.num_rows,
                context.autoreset,
                options,
                self.pending,
                num_rows_of(factories),
                is_game=bool(agents),
            )
        self.restarts: RestartManager | NoRestarts = self.restart_manager or NoRestarts(
            self.num_rows
        )
        self.closed = False
        self.broken: VecwrapError | None = None
        self.fast: bool = False
        self.observers: tuple[StepObserver, ...] = ()
        self.last_observations: Batch = None
        self.last_infos: tuple[Infos, Infos | None] = {}, None
        self.joint: JointRows | None = None
        self._is_lent_memory = False  # whether observations may be in memory that was lent
        self._runner = runner
        self._factories = factories
        self._start_state = StartState(self.num_rows)
        self._recorder = ArrivalRecorder(
            self.pending, self.values, self.restarts, self.needs_reset, self._start_state, factories
        )
        self._can_be_fast = context.batch_size is None and not options.restart and not context.debug

    # -- the start ---------------------------------------------------------------------------------

    def start(self) -> EnvDescription:
        """Make all sources; return the description of all.

        Raises:
            SubEnvError: one of them raised.
            BackendError: a worker died, or their spaces differ.
        """
        runner = self._runner
        self._record(runner.begin(self.context, self._factories))
        while not self._start_state.all_made():
            self._start_state.raise_failure(self._factories, restart=self.restarts.is_on)
            self.advance()
        made = self._start_state.joint_description()
        self.slots = runner.allocate(made)
        if self.restart_manager is not None:
            self.restart_manager.attach(self.slots)
        while runner.is_starting():
            self.advance()
        self._start_state.is_over = True
        self._can_be_fast = self._can_be_fast and runner.has_fast_path
        number = num_rows_of(self._factories)
        if number > 1:
            in_batches = getattr(self._factories[0], "batch_size", None) is not None
            self.joint = JointRows(
                self.num_rows, number, self.agents, made, step_together=not in_batches
            )
        self.slots.recycle()
        return made

    # -- rows --------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> frozenset[int]:
        return self.pending.in_flight

    @property
    def num_arrived(self) -> int:
        return self.pending.num_arrived

    def sources(self, env_ids: IntArray) -> IntArray:
        return env_ids

    frame_rows = sources

    def send(self, actions: Batch, env_ids: IntArray) -> None:
        if self.joint is not None:
            self.joint.refuse_partial_games(env_ids, of_reset=False)
        if self.pending.dropped:  # a state was loaded instead of a reset
            self._await_dropped()
        for observer in self.observers:
            observer.on_send(actions, env_ids)
        restarts = self.restart_manager
        if restarts is not None:
            beginning = restarts.beginning_rows(env_ids)
            # this step has not caused their deaths, and its resets come next in schedules
            if len(beginning):
                self._record(self._runner.notice_losses(beginning))
        if self.frames.changed:
            # before the rows are in flight: a worker found dead here died earlier
            self.frames.send(self._runner)
        try:
            self._request(env_ids)
            if restarts is None or (lost := restarts.request_steps(env_ids)) is None:
                self._send_steps(actions, env_ids)
                return
            if not lost.all():
                self._send_steps(batches.take(actions, ~lost), env_ids[~lost])
            lost_ids = env_ids[lost].tolist()
            self.pending.await_restarts(lost_ids)
            self._reset_recreated(restarts.complete_or_reset(lost_ids))
        except Exception as error:
            self._withdraw(env_ids, error)
            raise

    def reset(
        self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        if self.joint is not None:
            self.joint.refuse_partial_games(env_ids, of_reset=True)
        self._runner.refuse_reset(seeds, options)
        if self.pending.dropped:
            self._await_dropped()
        for observer in self.observers:
            observer.on_send(None, env_ids)
        restarts = self.restart_manager
        # this reset has not caused the deaths of the past: its seeds stay as given
        if restarts is not None:
            self._record(self._runner.notice_losses(env_ids))
        if self.frames.changed:
            self.frames.send(self._runner)
        try:
            self._request(env_ids)
            if (
                restarts is None
                or (lost := restarts.request_resets(env_ids, seeds, options)) is None
            ):
                self._runner.reset(env_ids, seeds, options)
                return
            if not lost.all():
                self._runner.reset(env_ids[~lost], list(compress(seeds, ~lost)), options)
            self.pending.await_restarts(env_ids[lost].tolist())
        except Exception as error:
            self._withdraw(env_ids, error)
            raise

    def receive(self, count: int, timeout: float | None) -> StepResult:
        """Return ``count`` rows as soon as they are ready; WaitTimeoutError past the timeout."""
        deadline = None
        if timeout is not None:
            deadline = time.monotonic() + timeout
        pending = self.pending
        while pending.num_arrived < count:
            if (
                self.advance(deadline)
                and deadline is not None
                and pending.num_arrived < count
                and time.monotonic() > deadline
            ):
                raise self._timeout_error()
        self.interrupts.hold()
        failures = pending.failures
        if not failures and pending.num_arrived == count == self.num_rows:
            pending.deliver_all()
            env_ids = self.all_ids
        else:
            env_ids = np.array(pending.deliver(count), dtype=np.int64)
        step = self._collect(env_ids)
        if failures:
            self.needs_reset.require_reset([failure.index for failure in failures])
            step.failures = errors_of(failures)
        for observer in self.observers:
            observer.on_receive(step)
        return step

    def _collect(self, env_ids: IntArray) -> StepResult:
        if self.context.timing.timer is None:
            step = self.slots.collect(env_ids, copy=self.copy)
        else:
            step = self.context.timing.run(
                "copy", partial(self.slots.collect, env_ids, copy=self.copy)
            )
        self.last_infos = step.infos, step.final_infos
        if self.restart_manager is not None:
            self.restart_manager.deliver(step)
        self.needs_reset.update(step)
        self.last_observations = step.observations
        return step

    def drop_all(self) -> None:
        """End an interrupted call: drop its results when they arrive, and require resets."""
        in_flight = self.pending.in_flight
        if (
            in_flight
            and self.interrupts.is_broken
            and self._runner.of_its_process
            and self.broken is None
        ):
            self.broken = BackendError(
                f"a second interrupt ended a call while sub-environments {sorted(in_flight)} were "
                "in flight, so the workers' replies can no longer be matched to requests; "
                "close() still works; build the environment again to continue",
                env_ids=tuple(sorted(in_flight)),
            )
        self.pending.drop(self._runner.cancel(in_flight))
        self.needs_reset.interrupt()
        self.fast = False

    def _await_dropped(self) -> None:
        while self.pending.dropped:
            self.advance()
        self.interrupts.hold()

    def _request(self, env_ids: IntArray) -> None:
        self.fast = False
        if self._is_lent_memory:
            self.slots.observations.move_back()
        if env_ids is self.all_ids:
            self.pending.request_all()
        else:
            self.pending.request(env_ids.tolist())

    def _send_steps(self, actions: Batch, env_ids: IntArray) -> None:
        if env_ids is self.all_ids:
            self.slots.actions.fill(slice(None), actions)
        else:
            self.slots.actions.fill(env_ids, actions)
        self._runner.send(env_ids)

    def _withdraw(self, env_ids: IntArray, error: Exception) -> None:
        """Withdraw a request that failed: all rows are idle, and the rows sent need a reset."""
        self.set_broken(error)
        rows = env_ids.tolist()
        sent = self._runner.cancel(rows)
        self.pending.withdraw(rows)
        if sent:
            self.pending.dropped.update(sent)
            self.needs_reset.require_reset(sorted(sent))

    # -- the fast path -----------------------------------------------------------------------------

    def update_fast(self) -> None:
        """At the end of a general call: is there nothing that the fast path could not do?"""
        self.fast = self._can_be_fast and not (
            self.pending.in_flight
            or self.needs_reset.any_ended
            or self.frames.changed
            or self.observers
            or self.closed
            or self.pending.dropped
        )

    def step_all(self, actions: Any) -> StepResult | None:
        """Take a step of all rows; None if the general path has to go on with it."""
        self.fast = False
        if not self._runner.step_all(actions):
            self.pending.request_all()
            return None
        step = self.slots.collect(self.all_ids, copy=self.copy)
        self.last_infos = step.infos, step.final_infos
        if self.needs_reset.resets_on_request:
            self.needs_reset.update(step)
        self.last_observations = step.observations
        return step

    def leave_fast_path(self) -> None:
        """After an exception: rows that were requested are in flight."""
        if self._runner.is_busy():
            self.pending.request_all()

    # -- arrivals ----------------------------------------------------------------------------------

    def advance(self, deadline: float | None = None) -> bool:
        """Recreate what is due, and record arrivals; wait for some if there are none yet.

        Returns:
            Whether anything has arrived.

        Raises:
            WaitTimeoutError: nothing has arrived by the deadline.
        """
        self.interrupts.let_through()
        if self.broken is not None:
            raise self.broken
        if self.restarts.restart_at:
            number = self.pending.num_arrived
            self._recreate_due()
            if self.pending.num_arrived > number:
                return True
        until = time.monotonic() + POLL_SECONDS
        if deadline is not None or self.restarts.restart_at:
            until = self._poll_until(until, deadline)
        pending = self.pending
        if (
            not (pending.awaited or pending.dropped or self.values.awaited)
            and self._start_state.is_over
        ):
            self._sleep(until)
        else:
            return_early = deadline is not None or self.context.batch_size is not None
            try:
                if self.context.timing.timer is None:
                    arrivals = self._runner.poll(until, return_early=return_early)
                else:
                    arrivals = self.context.timing.run(
                        "wait", partial(self._runner.poll, until, return_early=return_early)
                    )
            except BackendError as error:
                self.set_broken(error)
                raise
            if arrivals:
                self.interrupts.hold()
                self._record(arrivals)
                return True
            is_attaching = self._start_state.all_made() and not self._start_state.is_over
            if time.monotonic() < until and not (self.closed or is_attaching):
                self._refuse_no_arrivals()
        self.refuse_closed_meanwhile()
        if deadline is not None and time.monotonic() >= deadline:
            raise self._timeout_error()
        return False

    def _poll_until(self, until: float, deadline: float | None) -> float:
        """Return until when to wait: not past the deadline, nor past the next restart."""
        if deadline is not None:
            until = min(until, deadline)
        if self.restart_manager is not None and self.restart_manager.restart_at:
            until = min(until, time.monotonic() + self.restart_manager.next_restart())
        return until

    def _sleep(self, until: float) -> None:
        """Sleep until the next restart, or the next check whether the environment was closed."""
        if not self.restarts.restart_at:
            self._refuse_no_arrivals()
        time.sleep(max(0.0, until - time.monotonic()))

    def _refuse_no_arrivals(self) -> NoReturn:
        """Nothing will arrive: an error is better than waiting forever."""
        rows = sorted(
            self.pending.in_flight.difference(*self.pending.arrived) | self.pending.dropped
        )
        if not self._start_state.is_over:
            rows = self._start_state.not_made()
        if not rows and not self.values.awaited:
            raise NoAsyncCallError(
                "Another thread has taken the result this thread waits for.", "wait"
            )
        rows = rows or sorted(self.values.awaited)
        raise BackendError(
            f"{type(self._runner).__name__}: expected results of sub-environments {rows}, which "
            "were requested, got none, and none will arrive; close() still works; build the "
            "environment again to continue",
            env_ids=tuple(rows),
        )

    def _record(self, arrivals: Sequence[Arrival]) -> None:
        """Record what has arrived; interrupts are held back."""
        if self.closed:
            self.refuse_closed_meanwhile()
        try:
            self._recorder.record(arrivals)
        except (BackendError, SubEnvError) as error:
            self.broken = self.broken or error
            raise

    def set_broken(self, error: Exception) -> None:
        if self.broken is None and isinstance(error, BackendError):
            self.broken = error

    # -- restarts ----------------------------------------------------------------------------------

    def _recreate_due(self) -> None:
        """Recreate the sub-environments that are due, and request what their rows need."""
        restarts = self.restart_manager
        if restarts is None or not (due := restarts.due_rows()):
            return
        self.interrupts.hold()
        for failure in self._runner.recreate(
            {i: restarts.restart_state(i, self.frames.reported[i]) for i in due}
        ):
            self._recorder.record_recreate_failed(failure)
        waiting = self.pending.in_flight.difference(restarts.unrecoverable)
        self._reset_recreated(restarts.complete_or_reset([i for i in due if i in waiting]))
        self.interrupts.let_through()

    def _reset_recreated(self, resets: Sequence[tuple[int, Reset]]) -> None:
        self.pending.await_again([i for i, _ in resets])
        for _, group in groupby(resets, key=lambda item: id(item[1].options)):
            rows, requests = zip(*group, strict=True)
            seeds = [reset.seed for reset in requests]
            self._runner.reset(np.array(rows), seeds, requests[0].options)

    def wait_until_made(self, env_ids: Sequence[int]) -> None:
        """Wait until these sub-environments exist again; raise ResetNeededError if one cannot."""
        while not self.restarts.restart_at.keys().isdisjoint(env_ids):
            self._sleep(self._poll_until(time.monotonic() + POLL_SECONDS, None))
            self.refuse_closed_meanwhile()
            self._recreate_due()
        unrecoverable = sorted(self.restarts.unrecoverable.intersection(env_ids))
        if unrecoverable:
            raise ResetNeededError(
                f"sub-environments {unrecoverable} were lost and could not be recreated; a reset "
                "tries again, or exclude them with indices"
            )

    def read_observations(self) -> None:
        """Have observations in arrays, and not in an engine's tensors, as somebody reads them."""
        if hasattr(self, "slots"):
            self.slots.read_observations()

    def lend_memory(self, target: Batch) -> None:
        """Let the observations of steps of all rows be written there; None: no longer."""
        if hasattr(self, "slots"):
            self.slots.target = target
            self._is_lent_memory = True

    def own_observations(self) -> None:
        """Hold the last observations in the slots' own memory again."""
        self._is_lent_memory = False
        if hasattr(self, "slots"):
            moved = self.slots.observations.batch()
            self.slots.observations.move_back()
            if self.last_observations is moved:
                self.last_observations = self.slots.observations.batch()

    def release_slots(self) -> None:
        """Release the memory of the slots, which goes with the last array over it."""
        if hasattr(self, "slots"):
            del self.slots
            self.restarts.detach()
            self.last_observations = None

    # -- refusals ----------------------------------------------------------------------------------

    def refuse_closed_meanwhile(self, error: Exception | None = None) -> None:
        """Raise ClosedEnvironmentError if closed meanwhile, instead of the resulting error."""
        if self.closed:  # by another thread, or a signal's handler
            raise ClosedEnvironmentError("the environment was closed meanwhile") from error

    def _timeout_error(self) -> WaitTimeoutError:
        number = len(self.pending.in_flight)
        who = "not all sub-environments have"
        if number:
            who = f"{number} sub-environments have not"
        return WaitTimeoutError(f"{who} answered yet; wait again")
