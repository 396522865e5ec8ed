"""Sub-environments in this process, stepped one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vecwrap.env.arrivals import Arrival, CallValues, EnvsMade, RowResults
from vecwrap.env.runner import Context
from vecwrap.errors import PlanError
from vecwrap.interrupts import Interrupts, is_interrupt
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch
from vecwrap.rows.infos import detached_copy
from vecwrap.rows.step_result import Frames
from vecwrap.rows.table import Slots
from vecwrap.sources.batched_engine import BatchedEngine
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.failure import Failure, MakeError
from vecwrap.sources.group import SourceGroup
from vecwrap.sources.source import RestartState, Source
from vecwrap.sources.source_factories import Factory, num_rows_of, of_first_start


@dataclass(slots=True)
class _Job:
    """Rows to be stepped, or reset with seeds and options, and their requested frames.

    The frames are those requested when the job was created.
    """

    rows: Sequence[int]
    seeds: Sequence[int | None] | None  # None: to be stepped
    options: dict[str, Any] | None
    frames: Sequence[Frames]
    begun: int = 0  # how many of its rows were started

    def of(self, places: Sequence[int]) -> _Job:
        """Return a job of the rows at these places."""
        seeds = None
        if self.seeds is not None:
            seeds = [self.seeds[k] for k in places]
        return _Job([self.rows[k] for k in places], seeds, self.options, self.frames)

    @property
    def left(self) -> range:
        return range(self.begun, len(self.rows))


class LocalRows:
    """Rows that are stepped here; requests wait in a queue until ``run``.

    Interrupts are held back while a source is stepped or reset; if one has come, ``run`` returns
    between two sources.
    """

    def __init__(
        self, rows: Sequence[int], factories: Sequence[Factory], interrupts: Interrupts
    ) -> None:
        self._interrupts = interrupts
        self._rows = range(rows[0], rows[-1] + 1)
        if len(self._rows) != len(factories) * num_rows_of(factories):
            raise PlanError(
                f"expected sub-environments {rows[0]} to {rows[-1]} to be all rows of "
                f"{len(factories)} sources of {num_rows_of(factories)}, whose rows step together"
            )
        self.group = SourceGroup(
            rows[0], factories, is_own=is_interrupt, check_interrupt=interrupts.is_pending
        )
        self._slots: Slots
        self._jobs: deque[_Job] = deque()
        self._results: list[RowResults] = []  # of a `step_all` that a row did not survive
        self._batched: BatchedEngine | None = None  # the one engine, if it is such a one
        self._call: tuple[int, str, Sequence[int], Sequence[tuple[Any, ...]]] | None = None
        self._frames: Sequence[Frames] = [Frames.NONE] * len(self._rows)
        self._frames_set: Sequence[Frames] = self._frames

    def make(self, context: Context) -> EnvsMade:
        """Make all sources, or raise SubEnvError.

        If ``restarts`` is set, the error says why these sources are not recreated.
        """
        return EnvsMade(self._rows, list(make_all(self.group, context).items()))

    @property
    def sources(self) -> Sequence[Source]:
        """All that are open."""
        return self.group.sources

    def attach(self, slots: Slots) -> None:
        """Set where the results go: into these slots."""
        self._slots = slots
        slots.one_source = self.sources[0].num_rows == slots.num_rows and (
            self.sources[0].gives_columns
        )
        self.group.attach(slots, self._rows.start)
        if isinstance(self.sources[0], BatchedEngine):
            self._batched = self.sources[0]

    def __bool__(self) -> bool:
        return bool(self._jobs or self._results or self._call)

    def set_frames(self, wanted: Sequence[Frames]) -> None:
        """Set the frames of rows that are requested from now on.

        ``wanted`` has an entry for each sub-environment of the vector.
        """
        self._frames = wanted[self._rows.start : self._rows.stop]

    def step(self, rows: Sequence[int]) -> None:
        """Request a step of these rows."""
        if self._batched is not None:
            self._batched.refuse_send(rows)
        if rows:
            self._jobs.append(_Job(rows, None, None, self._frames))

    def step_all(self, actions: Batch) -> bool:
        """Step all rows; False if one failed, or Ctrl-C came: then ``run`` returns results."""
        if self._frames is not self._frames_set:
            self._apply_frames(self._frames)
        slots = self._slots
        if self.group.take_actions:
            if slots.target is not None:
                slots.observations.move(slots.target)
            done, failures = self.group.step(self.group.rows, slots.own_actions(actions))
        elif slots.one_source:
            done, failures = self.group.step(self.group.rows, [batches.copy(actions)])
        else:
            slots.actions.fill(slice(None), actions)
            done, failures = self.group.step(self.group.rows)
        if done is self.group.rows:
            return True
        slots.observations.move_back(done)
        self._raise_interrupt(failures)
        slots.actions.fill(slice(None), actions)  # for rows that are still to be stepped
        self._results.append(RowResults(done, failures))
        begun = len(done) + len(failures)
        if begun < len(self._rows):
            self._jobs.append(_Job(self._rows, None, None, self._frames, begun))
        return False

    def reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        """Request resets of these rows."""
        if rows:
            options = detached_copy(options)  # the caller may change them before the reset runs
            self._jobs.append(_Job(rows, seeds, options, self._frames))

    def cancel(self, rows: Collection[int]) -> Collection[int]:
        """Cancel what was requested of these rows and has not begun, and drop their results.

        Returns:
            The rows that will arrive all the same.
        """
        jobs: deque[_Job] = deque()
        for job in self._jobs:
            left = job.of([k for k in job.left if job.rows[k] not in rows])
            if left.rows:
                jobs.append(left)
        self._jobs = jobs
        self._results = []
        if self._batched is None:
            return ()
        sent = self._batched.in_flight.intersection(rows)
        if sent:
            self._batched.cancel()
        return sent

    def shuffle(self, order: np.random.Generator) -> None:
        """Put the requests into a random order, row by row."""
        assert not self.group.of_several, "rows of engines and games come together"
        jobs = [job.of([k]) for job in self._jobs for k in job.left]
        self._jobs = deque(jobs[k] for k in order.permutation(len(jobs)))

    def run(self, *, one: bool = False) -> list[Arrival]:
        """Run all requests, or those of ``one`` source, and return their results.

        An interrupt ends the loop; the results before the interrupt are returned.
        """
        arrivals: list[Arrival] = []
        if self._call is not None:
            arrivals.append(self._run_call())
        arrivals += self._results
        self._results = []
        if self._batched is not None:
            self._interrupts.hold()
            return arrivals + self._run_batched(self._batched, one)
        while self._jobs and not (one and arrivals):
            self._interrupts.hold()
            job = self._jobs[0]
            arrivals.append(self._run(job, one))
            if job.begun == len(job.rows):
                self._jobs.popleft()
            elif self._interrupts.is_pending():
                break
        return arrivals

    def _run(self, job: _Job, one: bool) -> RowResults:
        if job.frames is not self._frames_set:
            self._apply_frames(job.frames)
        end = len(job.rows)
        if one:
            end = job.begun + self.group.first_of(job.rows[job.begun :])
        rows = job.rows[job.begun : end]
        if job.seeds is None:
            done, failures = self.group.step(rows)
        else:
            done, failures = self.group.reset(rows, job.seeds[job.begun : end], job.options)
        job.begun += len(done) + len(failures)
        if failures:
            self._raise_interrupt(failures)
        return RowResults(done, failures)

    def _run_batched(self, engine: BatchedEngine, one: bool) -> list[RowResults]:
        """Send what was requested to the engine, and return what it returns first, or all."""
        arrivals: list[RowResults] = []
        while self._jobs:
            job = self._jobs.popleft()
            try:
                if job.seeds is None:
                    engine.send(job.rows)
                else:
                    engine.send_reset(job.seeds, job.options)
            except BaseException as error:
                during = "step" if job.seeds is None else "reset"
                arrivals.append(self._failed(engine, job.rows, error, during))
        while engine.in_flight and not (arrivals and (one or self._interrupts.is_pending())):
            engine.refuse_receive()
            try:
                arrivals.append(RowResults(engine.receive()))
            except BaseException as error:
                rows = sorted(engine.in_flight)
                engine.in_flight.clear()
                arrivals.append(self._failed(engine, rows, error, "step"))
        return arrivals

    def _failed(
        self, engine: BatchedEngine, rows: Sequence[int], error: BaseException, during: str
    ) -> RowResults:
        failures = engine.failures(rows, error, during)
        self._raise_interrupt(failures)
        return RowResults([], failures)

    def _apply_frames(self, frames: Sequence[Frames]) -> None:
        self.group.want_frames(frames)
        self._frames_set = frames

    def recreate(self, restart_states: dict[int, RestartState]) -> list[Failure]:
        """Make lost sub-environments once more; return the failures."""
        return self.group.restore(list(restart_states), list(restart_states.values()))

    def call(
        self, number: int, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> None:
        """Request a call to the sources of these rows, each with its arguments."""
        if rows:
            self._call = number, method, rows, arguments

    def _run_call(self) -> CallValues:
        """Run the call, which interrupts are not held back from."""
        assert self._call is not None
        number, method, rows, arguments = self._call
        self._call = None
        self._interrupts.let_through()
        values, failures = self.group.call(method, rows, arguments)
        self._raise_interrupt(failures)
        return CallValues(number, values, failures)

    def _raise_interrupt(self, failures: Sequence[Failure]) -> None:
        """Raise the program's own interrupt if the last failure of a loop over sources is one."""
        cause = None
        if failures:
            cause = failures[-1].cause
        if cause is not None and is_interrupt(cause):
            self._interrupts.release()
            raise cause

    def close(self, timeout: float = 5.0, terminate: bool = False) -> None:
        """Close them all, despite errors and interrupts; then raise the first error.

        Engines may be in a hurry.
        """
        self._jobs.clear()
        close_all(self.group, timeout, terminate)


def make_all(group: SourceGroup, context: Context) -> dict[int, EnvDescription]:
    """Make all sources in this process; return the description of each, by its first row.

    Raises:
        SubEnvError: one could not be made; under ``restarts`` it says why that is not repeated.
    """
    try:
        every = context.recreate_every
        return dict(group.make(context.autoreset, debug=context.debug, recreate_every=every))
    except MakeError as reason:
        failure = of_first_start(reason.failure, reason.factory, restart=context.restarts)
        raise failure.error() from reason.__cause__


def close_all(group: SourceGroup, timeout: float, terminate: bool) -> None:
    """Close all sources in this process, then raise the first error."""
    errors = group.close(timeout, terminate)
    if errors:
        del errors[1:]
        # popped, so that no frame keeps it, and with it the sub-environment's memory, alive
        raise errors.pop()
