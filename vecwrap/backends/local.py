"""Sub-environments in this process, stepped one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vecwrap.errors import PlanError
from vecwrap.interrupts import Interrupts, is_interrupt
from vecwrap.rows.batch import Batch
from vecwrap.rows.infos import own_copy
from vecwrap.rows.step_result import Autoreset, Frames
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Description
from vecwrap.sources.failure import CouldNotMake, Failure
from vecwrap.sources.group import SourceGroup
from vecwrap.sources.making import num_rows_of, of_first_start
from vecwrap.sources.source import Source, Takeover
from vecwrap.sources.sub_env import Factory


@dataclass(slots=True)
class _Job:
    """Rows to be stepped, or reset with a seed each and options; and the frames wanted at the time of the request."""

    env_ids: Sequence[int]
    seeds: Sequence[int | None] | None  # None: to be stepped
    options: dict[str, Any] | None
    frames: Sequence[Frames]
    begun: int = 0  # how many of its rows have been started; none is started twice, even after an interrupt
    done: list[int] = field(default_factory=list)  # and failures: results that have not been reported yet
    failures: list[Failure] = field(default_factory=list)

    def row(self, k: int) -> _Job:
        seeds = None if self.seeds is None else self.seeds[k : k + 1]
        return _Job(self.env_ids[k : k + 1], seeds, self.options, self.frames)

    def without(self, rows: set[int]) -> _Job:
        """Return the job without these rows; rows that have been started stay, with their results."""
        left = [k for k, i in enumerate(self.env_ids) if k < self.begun or i not in rows]
        seeds = None if self.seeds is None else [self.seeds[k] for k in left]
        return replace(self, env_ids=[self.env_ids[k] for k in left], seeds=seeds)


class LocalRows:
    """Rows that are stepped here; requests wait in a queue until ``run``.

    Interrupts are held back while a source is stepped or reset, and let through between sources.
    """

    def __init__(self, env_ids: Sequence[int], factories: Sequence[Factory], interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._env_ids = range(env_ids[0], env_ids[-1] + 1)
        if len(self._env_ids) != len(factories) * num_rows_of(factories):
            raise PlanError(
                f"expected sub-environments {env_ids[0]} to {env_ids[-1]} to be all rows of {len(factories)} sources "
                f"of {num_rows_of(factories)}, whose rows step together"
            )
        self.group = SourceGroup(env_ids[0], factories, is_own=is_interrupt, came=interrupts.came)
        self._slots: Slots
        self._jobs: deque[_Job] = deque()
        self._calls: tuple[str, Sequence[int], Sequence[tuple[Any, ...]]] = "", (), ()
        self._values: dict[int, Any] = {}
        self._failures: list[Failure] = []
        self._frames: Sequence[Frames] = [Frames.NONE] * len(self._env_ids)
        self._frames_set: Sequence[Frames] = self._frames

    def make(self, mode: Autoreset, *, debug: bool, restart: bool = False) -> dict[int, Description]:
        """Make them all, or raise SubEnvError; return the description of each source, by its first row.

        ``restart``: lost ones are recreated, so that an error says why these are not.
        """
        return make_all(self.group, mode, debug=debug, restart=restart)

    @property
    def sources(self) -> Sequence[Source]:
        """All that are open."""
        return self.group.sources

    def attach(self, slots: Slots) -> None:
        """Set where the results go: into these slots."""
        self._slots = slots
        self.group.attach(slots, self._env_ids.start)

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def tell_frames(self, wanted: Sequence[Frames]) -> None:
        """Have rows requested from now on bring these frames; ``wanted`` are those of all sub-environments."""
        self._frames = wanted[self._env_ids.start : self._env_ids.stop]

    def step(self, env_ids: Sequence[int]) -> None:
        """Request a step of these rows."""
        if env_ids:
            self._jobs.append(_Job(env_ids, None, None, self._frames))

    def step_all(self, actions: Batch) -> bool:
        """Step all rows; False if one failed. Only where a row fails or Ctrl-C comes, a job is left."""
        if self._frames is not self._frames_set:
            self._set_frames(self._frames)
        if self.group.take_actions:
            done, failures = self.group.step(self.group.rows, self._slots.own_actions(actions))
        else:
            self._slots.actions.fill(slice(None), actions)
            done, failures = self.group.step(self.group.rows)
        if done == self.group.all_rows:
            return True
        self._slots.actions.fill(slice(None), actions)
        job = _Job(self._env_ids, None, None, self._frames, len(done) + len(failures), done, failures)
        self._jobs.append(job)
        if failures:
            _raise_interrupt(failures)
        self._interrupts.let_through()
        self._run(job, one=False)
        if job.failures:
            return False
        self._jobs.pop()
        return True

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Request resets of these rows."""
        if env_ids:
            options = own_copy(options)  # the caller may change them before the reset runs
            self._jobs.append(_Job(env_ids, seeds, options, self._frames))

    def forget(self, env_ids: Iterable[int]) -> None:
        """Discard what was requested of these rows."""
        rows = set(env_ids)
        self._jobs = deque(left for job in self._jobs if (left := job.without(rows)).env_ids)

    def shuffle(self, order: np.random.Generator) -> None:
        """Put the requests into a random order, row by row."""
        assert not self.group.of_several, "rows of engines and games come together"
        rows = [job.row(k) for job in self._jobs for k in range(job.begun, len(job.env_ids))]
        self._jobs = deque(rows[k] for k in order.permutation(len(rows)))

    def run(self, arrived: Callable[[list[int], list[Failure]], None], *, one: bool = False) -> None:
        """Run the requests, or those of ``one`` source; ``arrived`` gets what is done and has failed.

        After an interrupt it gets that at the next call.
        """
        while self._jobs:
            job = self._jobs[0]
            self._run(job, one)
            arrived(job.done, job.failures)
            if job.begun == len(job.env_ids):
                self._jobs.popleft()
            else:
                job.done, job.failures = [], []
            if one:
                return

    def _run(self, job: _Job, one: bool) -> None:
        if job.frames is not self._frames_set:
            self._set_frames(job.frames)
        while job.begun < len(job.env_ids):
            self._interrupts.hold()
            begin = job.begun
            end = begin + self.group.first_of(job.env_ids[begin:]) if one else len(job.env_ids)
            rows = job.env_ids[begin:end]
            if job.seeds is None:
                done, failures = self.group.step(rows)
            else:
                done, failures = self.group.reset(rows, job.seeds[begin:end], job.options)
            job.begun += len(done) + len(failures)
            job.done += done
            job.failures += failures
            if failures:
                _raise_interrupt(failures)
            if one:
                return
            if job.begun < len(job.env_ids):
                self._interrupts.let_through()

    def _set_frames(self, frames: Sequence[Frames]) -> None:
        self.group.want_frames(frames)
        self._frames_set = frames

    def recreate(self, takeovers: dict[int, Takeover]) -> list[Failure]:
        """Make lost sub-environments once more; return the failures."""
        return self.group.restore(list(takeovers), list(takeovers.values()))

    def ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Request a call to the sources of these rows, each with its arguments."""
        self._calls = method, env_ids, arguments
        self._values, self._failures = {}, []

    def answers(self) -> tuple[dict[int, Any], list[Failure]]:
        """Return what ``ask`` gave, values and failures; after an interrupt go on, and run no call twice."""
        method, env_ids, arguments = self._calls
        while env_ids:
            number = self.group.first_of(env_ids)
            now = method, env_ids[:number], arguments[:number]
            env_ids, arguments = env_ids[number:], arguments[number:]
            self._calls = method, env_ids, arguments
            values, failures = self.group.call(*now)
            self._values.update(values)
            self._failures += failures
            if failures:
                _raise_interrupt(failures)
        return self._values, self._failures

    def close(self, timeout: float = 5.0, terminate: bool = False) -> None:
        """Close them all, despite errors and interrupts; then raise the first error. Engines may be in a hurry."""
        self._jobs.clear()
        close_all(self.group, timeout, terminate)


def make_all(group: SourceGroup, mode: Autoreset, *, debug: bool, restart: bool) -> dict[int, Description]:
    """Make all sources in this process; return the description of each, by its first row.

    Raises:
        SubEnvError: one could not be made; with ``restart`` it says why that is not repeated.
    """
    try:
        return dict(group.make(mode, debug=debug))
    except CouldNotMake as reason:
        failure = of_first_start(reason.failure, reason.factory, restart=restart)
        raise failure.error() from reason.__cause__


def close_all(group: SourceGroup, timeout: float, terminate: bool) -> None:
    """Close all sources in this process, then raise the first error."""
    errors = group.close(timeout, terminate)
    if errors:
        del errors[1:]
        raise errors.pop()  # popped, so that no frame keeps it, and with it the sub-environment's memory, alive


def _raise_interrupt(failures: Sequence[Failure]) -> None:
    """Raise the interrupt of the program's own that ended a loop over sources, if the last failure is one."""
    cause = failures[-1].cause
    if cause is not None and is_interrupt(cause):
        raise cause
