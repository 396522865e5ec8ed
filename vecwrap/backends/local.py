"""Sub-environments in this process, stepped one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vecwrap.interrupts import Interrupts, close_lost, is_interrupt
from vecwrap.rows.batch import Batch
from vecwrap.rows.infos import own_copy
from vecwrap.rows.step_result import Autoreset, Frames
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Description
from vecwrap.sources.engine import Engine
from vecwrap.sources.failure import Failure, make_failure
from vecwrap.sources.parts import Part, Source, announce, make_source, of_first_start, refuse_one_for_several
from vecwrap.sources.sub_env import Factory, SubEnv, Takeover


@dataclass(slots=True)
class _Job:
    """Rows to be stepped, or reset with a seed and options each; and the frames wanted at the time of the request."""

    env_ids: Sequence[int]
    resets: Sequence[tuple[int | None, dict[str, Any] | None]] | None
    frames: Mapping[int, Frames]
    begun: int = 0  # how many of its rows have been started; none is started twice, even after an interrupt
    done: list[int] = field(default_factory=list)  # and failures: results that have not been reported yet
    failures: list[Failure] = field(default_factory=list)

    def row(self, k: int) -> _Job:
        return _Job(self.env_ids[k : k + 1], None if self.resets is None else self.resets[k : k + 1], self.frames)

    def without(self, rows: set[int]) -> _Job:
        """Return the job without these rows; rows that have been started stay, with their results."""
        left = [k for k, i in enumerate(self.env_ids) if k < self.begun or i not in rows]
        resets = None if self.resets is None else [self.resets[k] for k in left]
        return replace(self, env_ids=[self.env_ids[k] for k in left], resets=resets)


class LocalRows:
    """Rows that are stepped here; requests wait in a queue until ``run``.

    Interrupts are held back while a row is stepped or reset, and let through between rows.
    """

    def __init__(self, env_ids: Sequence[int], factories: Sequence[Factory], interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._env_ids = env_ids
        self._factories = dict(zip(env_ids, factories, strict=True))
        self._sub_envs: dict[int, Source] = {}
        self._slots: Slots
        self._jobs: deque[_Job] = deque()
        self._calls: deque[tuple[str, int, tuple[Any, ...]]] = deque()
        self._values: dict[int, Any] = {}
        self._failures: list[Failure] = []
        self._frames: Mapping[int, Frames] = dict.fromkeys(env_ids, Frames.NONE)
        self._frames_set: Mapping[int, Frames] = self._frames
        self._of_several = False

    def make(self, mode: Autoreset, *, debug: bool, restart: bool = False) -> dict[int, Description]:
        """Make them all, or raise SubEnvError; return the description of each, by index.

        ``restart``: lost ones are recreated, so that an error says why these are not.
        """
        descriptions: dict[int, Description] = {}
        made: Source | None = None
        for i, factory in self._factories.items():
            try:
                self._sub_envs[i] = made = make_source(i, factory, mode, made, debug=debug)
                descriptions[i] = made.describe()
            except (Exception, SystemExit) as error:
                if is_interrupt(error):
                    raise
                raise of_first_start(make_failure(i, error), factory, restart=restart).error() from error
        refuse_one_for_several(self.sub_envs)
        self._of_several = isinstance(made, Part)
        return descriptions

    @property
    def sub_envs(self) -> list[Source]:
        return list(self._sub_envs.values())

    @property
    def engines(self) -> list[Engine]:
        if not self._of_several:
            return []
        sources = [part.source for part in self._sub_envs.values() if isinstance(part, Part) and part.row == 0]
        return [source for source in sources if isinstance(source, Engine)]

    @property
    def envs(self) -> list[Any] | None:
        """The environments of these, each in its wrappers, a game for each of its rows; None if an engine has none."""
        found: list[Any] = []
        for source in self._sub_envs.values():
            if isinstance(source, SubEnv):
                found.append(source.env)
            elif source.row == 0:
                if (envs := source.source.envs()) is None:
                    return None
                found += envs
        return found

    def attach(self, slots: Slots) -> None:
        self._slots = slots
        for i, sub_env in self._sub_envs.items():
            sub_env.attach(slots, i)

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def tell_frames(self, wanted: Sequence[Frames]) -> None:
        self._frames = {i: wanted[i] for i in self._factories}

    def step(self, env_ids: Sequence[int]) -> None:
        if env_ids:
            self._jobs.append(_Job(env_ids, None, self._frames))

    def step_all(self, actions: Batch) -> bool:
        """Step all rows; False if one failed. Only where a row fails or Ctrl-C comes, a job is left."""
        if self._frames is not self._frames_set:
            self._set_frames(self._frames)
        if self._of_several:
            return self._run_whole(self._leave(0, actions))
        own, came, k = self._slots.own_actions(actions), self._interrupts.came, 0
        sub_envs: dict[int, Any] = self._sub_envs
        try:
            for k, sub_env in enumerate(sub_envs.values()):  # how far it got
                if came():
                    break
                sub_env.step(own[k])
            else:
                return True
        except BaseException as error:
            job = self._leave(k, actions)
            job.begun += 1
            job.failures.append(self._sub_envs[self._env_ids[k]].failure(error, "step", own[k]))
            if is_interrupt(error):  # how far it got is unknown
                raise
        else:
            job = self._leave(k, actions)
        return self._run_whole(job)

    def _run_whole(self, job: _Job) -> bool:
        self._run(job, one=False)
        if job.failures:
            return False
        self._jobs.pop()
        return True

    def _leave(self, number: int, actions: Batch) -> _Job:
        """Leave the job of a step of all rows, the first ``number`` of which are done."""
        self._slots.actions.fill(slice(None), actions)
        job = _Job(self._env_ids, None, self._frames, number, list(self._env_ids[:number]))
        self._jobs.append(job)
        return job

    def reset(self, env_ids: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        if env_ids:
            options = own_copy(options)  # the caller may change them before the reset runs
            self._jobs.append(_Job(env_ids, [(seed, options) for seed in seeds], self._frames))

    def forget(self, env_ids: Iterable[int]) -> None:
        rows = set(env_ids)
        self._jobs = deque(left for job in self._jobs if (left := job.without(rows)).env_ids)

    def shuffle(self, order: np.random.Generator) -> None:
        """Put the requests into a random order, row by row."""
        assert not self._of_several, "rows of engines and games come together"
        rows = [job.row(k) for job in self._jobs for k in range(job.begun, len(job.env_ids))]
        self._jobs = deque(rows[k] for k in order.permutation(len(rows)))

    def run(self, arrived: Callable[[list[int], list[Failure]], None], *, one: bool = False) -> None:
        """Run the requests, or ``one`` row; ``arrived`` gets what is done and has failed, after an interrupt later."""
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
        if self._of_several and job.resets is None:
            self._step_sources(job, one)
            return
        sub_envs: dict[int, Any] = self._sub_envs
        resets, first, interrupts = job.resets, job.begun, self._interrupts
        env_ids = job.env_ids[first : first + self._few(job)] if one else job.env_ids[first:]
        actions = self._slots.actions.get_all(env_ids) if resets is None else ()
        interrupts.hold()
        if resets is not None and not first:
            announce([sub_envs[i] for i in job.env_ids], "reset", resets)
        for k, i in enumerate(env_ids):
            if interrupts.came():
                interrupts.let_through()
            job.begun = first + k + 1
            try:
                if resets is None:
                    sub_envs[i].step(actions[k])
                else:
                    sub_envs[i].reset(*resets[first + k])
            except BaseException as error:
                during, action = ("step", actions[k]) if resets is None else ("reset", None)
                job.failures.append(sub_envs[i].failure(error, during, action))
                if is_interrupt(error):  # how far it got is unknown
                    raise
            else:
                job.done.append(i)

    def _step_sources(self, job: _Job, one: bool) -> None:
        """Step rows source by source, for they come together: an engine may have a thousand of them."""
        self._interrupts.hold()
        while job.begun < len(job.env_ids):
            if self._interrupts.came():
                self._interrupts.let_through()
            part: Any = self._sub_envs[job.env_ids[job.begun]]
            rows = job.env_ids[job.begun : job.begun + part.source.num_rows]
            job.begun += len(rows)
            try:
                part.source.step_whole()
            except BaseException as error:
                job.failures += [self._sub_envs[i].failure(error, "step") for i in rows]
                if is_interrupt(error):
                    raise
            else:
                job.done += rows
            if one:
                return

    def _few(self, job: _Job) -> int:
        """How many of a job's next rows are run at once: one, or all of the same source."""
        sub_envs, env_ids, end = self._sub_envs, job.env_ids, job.begun + 1
        source = getattr(sub_envs[env_ids[job.begun]], "source", None)
        while source is not None and end < len(env_ids) and getattr(sub_envs[env_ids[end]], "source", None) is source:
            end += 1
        return end - job.begun

    def _set_frames(self, frames: Mapping[int, Frames]) -> None:
        for i, sub_env in self._sub_envs.items():
            sub_env.frames = frames[i]
        self._frames_set = frames

    def make_anew(self, takeovers: dict[int, Takeover]) -> list[Failure]:
        failures = []
        for i, takeover in takeovers.items():
            if (old := self._sub_envs.get(i)) is None:  # closed meanwhile, by another thread
                break
            try:
                close_lost(old)
                new = old.made_anew(takeover)
                if self._sub_envs.get(i) is old:
                    self._sub_envs[i] = new
                else:
                    close_lost(new)
            except (Exception, SystemExit) as error:
                if is_interrupt(error):
                    raise
                failures.append(make_failure(i, error))
        return failures

    def ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        announce([self._sub_envs[i] for i in env_ids], method, arguments)
        self._calls = deque((method, i, args) for i, args in zip(env_ids, arguments, strict=True))
        self._values, self._failures = {}, []

    def answers(self) -> tuple[dict[int, Any], list[Failure]]:
        """Return what ``ask`` gave, values and failures; after an interrupt go on, and run no call twice."""
        while self._calls:
            method, i, arguments = self._calls[0]
            try:
                self._calls.popleft()
                self._values[i] = getattr(self._sub_envs[i], method)(*arguments)
            except BaseException as error:
                self._failures.append(self._sub_envs[i].failure(error, method))
                if is_interrupt(error) or not isinstance(error, (Exception, SystemExit)):
                    raise
        return self._values, self._failures

    def close(self, timeout: float = 5.0, terminate: bool = False) -> None:
        """Close them all, despite errors and interrupts; then raise the first error. Engines may be in a hurry."""
        self._jobs.clear()
        first: list[BaseException] = []
        while self._sub_envs:
            sub_env = self._sub_envs.pop(next(iter(self._sub_envs)))
            try:
                sub_env.close(timeout, terminate) if isinstance(sub_env, Part) else sub_env.close()
            except BaseException as error:
                first = first or [error]
        if first:
            raise first.pop()  # popped, so that no frame keeps it, and with it the sub-environment's memory, alive
