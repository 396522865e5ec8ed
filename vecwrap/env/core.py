"""What a chain has once: a runner and its rows, schedules, sub-environments' states, the end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from vecwrap.env.backend_rows import BackendRows
from vecwrap.env.calls import Calls
from vecwrap.env.health import Health
from vecwrap.env.observers import StepObserver
from vecwrap.env.options import RestartOptions
from vecwrap.env.pending_call import PendingCall
from vecwrap.env.refusals import no_engine_restarts
from vecwrap.env.row_protocol import NumberedRows
from vecwrap.env.runner import Context, Runner
from vecwrap.errors import (
    BackendError,
    CheckpointError,
    PlanError,
    ResetNeededError,
    SubEnvError,
)
from vecwrap.interrupts import deduplicated_interrupts
from vecwrap.rows.step_result import Autoreset, IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.known_engines import has_threads
from vecwrap.sources.source_factories import EngineFactory, Factory, GameFactory, num_rows_of

__all__ = ["Core"]

_open: weakref.WeakSet[Core] = weakref.WeakSet()


class Core:
    """A started backend, without the state of calls."""

    # whether something must still be stopped, including after an interrupted `close`
    is_open: bool = False
    forked: bool = False  # whether this process is a fork, in which it cannot be used

    def __init__(
        self,
        runner: Runner,
        factories: Sequence[Factory],
        autoreset: Autoreset,
        *,
        copy: bool,
        batch_size: int | None,
        debug: bool,
        restarts: RestartOptions,
        seed: int | None,
        start_index: int,
    ) -> None:
        if not factories:
            raise PlanError("n: expected at least one sub-environment, got 0 factories")
        rows_per_source = num_rows_of(factories)
        num_envs = len(factories) * rows_per_source
        has_engines = isinstance(factories[0], EngineFactory)
        together = rows_per_source
        if isinstance(factories[0], EngineFactory) and factories[0].batch_size is not None:
            together = 1
        agents = 0  # of a game
        if isinstance(factories[0], GameFactory):
            agents = rows_per_source
        _refuse_batch_size(batch_size, num_envs, together, agents)
        if has_engines and restarts.restart and not runner.recreates_engines:
            raise PlanError(f"on_failure: {no_engine_restarts(runner.name)}")
        if has_engines and restarts.recreate_every is not None:
            raise PlanError(
                "recreate_every: an engine is not recreated between episodes; leave it out"
            )
        if restarts.restart and type(runner).recreate is Runner.recreate:
            raise PlanError(
                f'on_failure: {runner.name} cannot recreate sub-environments; expected "raise"'
            )
        self.num_envs = num_envs
        self.autoreset = autoreset
        self.runner = runner
        self.name: str = runner.name
        self.copy = copy
        self.batch_size = batch_size
        context = Context(
            num_rows=num_envs,
            autoreset=autoreset,
            debug=debug,
            batch_size=batch_size,
            restarts=restarts.restart,
            recreate_every=restarts.recreate_every,
        )
        self.rows: BackendRows = BackendRows(
            runner, factories, context, copy=copy, options=restarts, agents=agents
        )
        self._owner = os.getpid()
        _open.add(self)
        self.calls: Calls = Calls(self.rows, runner)
        self.pending: PendingCall = PendingCall(
            self.rows.all_ids,
            seed=seed,
            start_index=start_index,
            rows_per_seed=agents or 1,
            batch_size=batch_size,
        )
        # the numbering of the backend, then those of wrappers
        self.numberings: list[tuple[PendingCall, NumberedRows]] = [(self.pending, self.rows)]
        self._observers_lock = threading.Lock()
        self.on_schedule: bool = False  # whether seedless resets get what schedules say
        self.is_open = True
        with deduplicated_interrupts():
            try:
                self.description: EnvDescription = self.rows.start()
                if has_engines:
                    runner.engine = self.description.name
            except BaseException:
                # an error while closing must not hide the cause
                with contextlib.suppress(Exception, SystemExit):
                    self.close(None, terminate=True)
                raise
        # A copy: gymnasium.make_vec later sets the id of `spec` to that of a whole pipeline.
        spec = self.description.spec
        self.env_id: str = spec.id if spec is not None else self.description.name

    @property
    def is_engine(self) -> bool:
        return bool(self.runner.engine)

    @property
    def slots(self) -> Slots:
        return self.rows.slots

    def request_frames(self, wrapper: Any, env_ids: IntArray, opening: IntArray) -> None:
        if self.runner.engine and self.description.render_mode != "rgb_array":
            raise PlanError(
                f"{self.runner.engine}: a recorder takes the frames of an engine made with "
                f'render_mode="rgb_array", got {self.description.render_mode!r}'
            )
        self.rows.frames.request(wrapper, env_ids, opening)
        self.rows.fast = False

    def health(self) -> Health:
        rows = self.rows
        restarts = rows.restarts
        resting = rows.needs_reset.ended.copy()
        slots = getattr(rows, "slots", None)  # another thread may close the environment meanwhile
        if slots is not None:
            resting |= slots.not_to_move
        in_flight = np.zeros(self.num_envs, dtype=np.bool_)
        in_flight[list(rows.in_flight)] = True
        lost = restarts.lost.copy()
        lost[[*restarts.restart_at, *restarts.unrecoverable]] = True
        return Health(
            restarts=restarts.counts.copy(),
            lost_episodes=restarts.lost_episodes.copy(),
            failures=tuple(restarts.reasons),
            workers=self.runner.health(),
            lost=lost,
            resting=resting,
            in_flight=in_flight,
        )

    def interrupt(self) -> None:
        """End an interrupted call: drop the rows in flight, and require resets of all rows."""
        for pending, rows in self.numberings:
            pending.call = None
            rows.drop_all()

    def observe(self, observer: StepObserver) -> None:
        """Report every step to an observer, along the general path; from any thread."""
        with self._observers_lock:
            if observer not in self.rows.observers:
                self.rows.observers = (*self.rows.observers, observer)
        self.rows.fast = False

    def ignore(self, observer: StepObserver) -> None:
        """Report nothing to an observer any more; from any thread."""
        with self._observers_lock:
            self.rows.observers = tuple(
                other for other in self.rows.observers if other is not observer
            )

    def follow(self, schedule: bytes) -> None:
        """Have seedless resets get what a ``Schedule`` says, which was pickled."""
        if self.rows.agents:
            raise PlanError(
                f"expected an environment of one agent, got {self.description.name}, a game: its "
                "games go on from one seed; for a schedule, reset them with reset(seed=[...], "
                "options={'reset_mask': ...})"
            )
        if self.runner.engine:
            raise PlanError(
                f"{self.runner.engine}: an engine resets its sub-environments itself; for a "
                "schedule of seeds, use one of vecwrap's backends"
            )
        self.calls.of_each("follow", [(schedule, 0)] * self.num_envs)
        self.on_schedule = True
        self.rows.restarts.follow(schedule)

    def scheduled(self) -> list[int]:
        """How many episodes the schedule has supplied to each sub-environment."""
        return self.calls.of_all("scheduled")

    def resume_schedule(self, scheduled: Sequence[int]) -> None:
        self.calls.of_each("resume_schedule", [(number,) for number in scheduled])
        self.rows.slots.scheduled[:] = scheduled
        self.rows.restarts.resume_schedule(scheduled)

    def leave_seed_to_schedules(self) -> None:
        """Use build's seed only for first resets without a scheduled seed.

        Otherwise the seed would restart the schedules.
        """
        pending = self.pending
        if pending.seed is None or not self.on_schedule:
            return
        seeds = pending.seeds(None, pending.all_ids)
        self.calls.of_each("leave_seed", [(seed,) for seed in seeds])
        pending.seed = None
        self.rows.restarts.set_seeds(seeds)

    def sub_env_states(self) -> tuple[list[dict[str, Any]] | None, str | None]:
        """Return the state of each sub-environment, or None and the reason."""
        rows = self.rows
        if self.description.why_no_state:
            return None, self.description.why_no_state
        if rows.needs_reset.any_ended and rows.needs_reset.never_reset.any():
            return None, "it has not been reset yet"
        try:
            states = self.calls.of_all("state")
        except (SubEnvError, ResetNeededError, BackendError) as error:
            # with restarts, saving has killed a worker twice: save only the wrappers
            if isinstance(error, BackendError) and rows.restart_manager is None:
                raise
            return None, str(error)
        for i, state in enumerate(states):
            state["ended"] = bool(rows.needs_reset.ended[i])
            if rows.restart_manager is not None:
                state["recovery"] = rows.restart_manager.state(i)
        return states, None

    def load_sub_env_states(self, states: Sequence[dict[str, Any]] | None) -> None:
        """Restore all sub-environments, or none if one refuses; without states, require resets."""
        rows = self.rows
        needs_reset = rows.needs_reset
        rows.fast = False
        if states is None:
            for _, numbered in self.numberings:
                numbered.needs_reset.require_reset(slice(None))
            return
        attributes = [self._attributes_of(i, state) for i, state in enumerate(states)]
        try:
            before = self.calls.of_all("state")
            self.calls.of_all("load_state", list(zip(states, attributes, strict=True)))
        except SubEnvError as error:
            try:
                self.calls.of_all(
                    "load_state",
                    [(state, self._attributes_of(i, state)) for i, state in enumerate(before)],
                )
            except SubEnvError:  # its own code fails again
                self.load_sub_env_states(None)
            raise CheckpointError(
                f"{error}; its saved state does not fit; save it again"
            ) from error
        needs_reset.never_reset[:] = False
        needs_reset.interrupted = False
        for i, state in enumerate(states):
            rows.slots.observations.put(i, state["observation"])
            needs_reset.ended[i] = state["ended"]
            rows.restarts.load(i, state)
        needs_reset.any_ended = bool(needs_reset.ended.any())

    def _attributes_of(self, i: int, state: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes set on a sub-environment saved after a restart, before a reset."""
        if state["env"] is not None:
            return {}
        return self.rows.restarts.attributes_of(i, state)

    def refuse_forked(self, name: str) -> NoReturn:
        why = self.runner.of_its_process or "whose engine's threads a forked process does not have"
        raise BackendError(
            f"{name}: this environment was built in process {self._owner}, {why}; build one in "
            f"this process ({os.getpid()})"
        )

    def note_fork(self) -> None:
        if self.runner.of_its_process or any(map(has_threads, self.runner.engines())):
            self.forked = True
            self.rows.fast = False

    def close(self, timeout: float | None, terminate: bool, *, report: bool = False) -> None:
        if not self.is_open:
            return
        rows = self.rows
        dropped = None
        # an exception says already why a call is pending, also to its wait
        if report and not (
            rows.broken is not None or rows.interrupts.inside or sys.exc_info()[0] is not None
        ):
            # with `batch_size`, rows that were sent are pending whenever a loop ends
            dropped = next(
                (
                    pending.call
                    for pending, numbered in self.numberings
                    if pending.call == "call"
                    or (pending.call in ("step", "reset") and numbered.in_flight)
                ),
                None,
            )
        rows.closed = True
        rows.fast = False
        self.is_open = False
        for pending, _ in self.numberings:
            pending.call = None
        try:
            if not self.forked:  # workers and threads are those of the process that made them
                self.runner.stop(5.0 if timeout is None else timeout, terminate)
        except BaseException as error:
            # after an interrupt the next call continues
            self.is_open = not isinstance(error, Exception)
            raise
        finally:
            rows.release_slots()
            rows.interrupts.close()
        if dropped is not None:  # last, because filters may make it an exception
            warnings.warn(
                f"Calling `close` while waiting for a pending call to `{dropped}` to complete. "
                "Its result is dropped.",
                stacklevel=4,
            )


def _note_fork() -> None:
    for core in _open:
        core.note_fork()


os.register_at_fork(after_in_child=_note_fork)


def _refuse_batch_size(batch_size: int | None, num_envs: int, together: int, agents: int) -> None:
    if batch_size is None:
        return
    if not 1 <= batch_size <= num_envs:
        raise PlanError(f"batch_size: expected 1 to n={num_envs}, got {batch_size}")
    if batch_size % together:
        what = "the agents of a game" if agents else "the rows of an engine"
        raise PlanError(f"batch_size: expected a multiple of {together}, {what}, got {batch_size}")
