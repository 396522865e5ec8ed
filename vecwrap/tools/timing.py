"""Measures the time of a vector environment: each wrapper, backend wait, copy, and code around it.

While a stopwatch is on, steps take the general path, and between an environment and those within it
there are rows that take the time: of what is not timed, nothing is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import gymnasium

from vecwrap.backends.dummy import Dummy
from vecwrap.backends.workers.process import Processes
from vecwrap.env.row_protocol import Rows
from vecwrap.env.runner import Runner
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ArgumentError
from vecwrap.pipeline import registry
from vecwrap.rows.batch import Batch
from vecwrap.rows.step_result import IntArray, StepResult
from vecwrap.sources.raw_rewards import RawRewardRecorder
from vecwrap.sources.sub_env import SubEnv
from vecwrap.tools.core_use import NOTHING_COUNTED, CoreCounts, CoreMeter, contention

__all__ = ["Kind", "Part", "Stopwatch"]

Kind: TypeAlias = Literal[
    "environment", "wrapper", "backend", "window", "interface", "policy", "other"
]


@dataclass
class Part:
    """One part and the time during which it, and nothing within it, was running."""

    name: str  # a wrapper's name in pipelines, or what the part is called
    kind: Kind
    what: str = ""  # what is counted here, in a few words
    nanoseconds: int = 0
    calls: int = 0  # how often it was entered


class Stopwatch:
    """Times the parts of an environment while it is entered.

    Every moment belongs to exactly one part, the innermost that is running, so the parts add up to
    the total to the nanosecond. The parts include the cost of the clock itself, about a microsecond
    per part.

    What runs in workers is part of the backend's wait. If the sub-environments are in this process,
    on ``dummy``, their wrappers are distinguished; a wrapper that bypasses the emulator's ``step``,
    as ``atari`` does, includes its time. These call each other without asking anybody: each has a
    timed ``step`` and ``reset`` of its own meanwhile.

    Args:
        env: the environment; only the thread that enters may step it meanwhile. It is not kept
            alive.
        clock: in nanoseconds.

    Attributes:
        parts: inner first: the environment, its wrappers, the backend, the vector's wrappers, the
            window if there is one, the interface; then what ``timed`` named; ``other`` is what runs
            outside all of these: the loop that drives the environment.
        meter: counts for how long this process waits for its workers, and who has a core meanwhile.

    >>> import vecwrap
    >>> env = vecwrap.build("CartPole-v1", n=2, wrappers=["framestack:4"], backend="dummy")
    >>> observations, infos = env.reset(seed=1)
    >>> with Stopwatch(env) as watch:
    ...     for _ in range(10):
    ...         result = env.step([0, 1])
    >>> watch.steps, sum(part.nanoseconds for part in watch.parts) == watch.nanoseconds
    (10, True)
    >>> [part.name for part in watch.parts if part.kind == "wrapper"]
    ['framestack']
    >>> env.close()
    """

    def __init__(self, env: VecEnv, *, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._core = env.core
        self._clock = clock
        self._running: list[Part] = []
        self._since = 0
        self._of_sub_envs = list(_sub_env_places(env.core.runner, env.core.env_id))
        self._backend = _backend_parts(env.core.runner)
        self._call_state = Part(
            "interface", "interface", "checks the actions, makes the five-tuple"
        )
        self._other = Part("other", "other", "the loop that drives the environment")
        self.meter = CoreMeter(env.core.runner)
        self._counted = NOTHING_COUNTED
        self._counted_before = NOTHING_COUNTED
        around = []  # the vector's wrappers, inner first, and a window, which is not one of them
        timed_rows = _TimedRows
        if self.meter.has_workers:
            timed_rows = _TimedWorkerRows
        self._rows = [
            timed_rows(
                self,
                env.unwrapped,
                *(self._backend[name] for name in ("send", "resets", "bookkeeping")),
            )
        ]
        for wrapper in reversed(dict.fromkeys([env, *env.chain[:-1]])):
            if wrapper is not env.unwrapped:
                around.append(_part_of(wrapper, env))
                self._rows.append(_TimedRows(self, wrapper, *[around[-1]] * 3))
        self._put_on: list[
            tuple[Any, str, Any]
        ] = []  # objects, names of methods, what they had of their own
        within = {id(part): part for _, _, part in self._of_sub_envs}
        self.parts = [
            *within.values(),
            *self._backend.values(),
            *around,
            self._call_state,
            self._other,
        ]

    @property
    def steps(self) -> int:
        """The number of timed vector steps, one for each batch of actions.

        A wrapper may step the inner environment several times for one batch.
        """
        return self._rows[-1].sends

    @property
    def nanoseconds(self) -> int:
        return sum(part.nanoseconds for part in self.parts)

    @property
    def remarks(self) -> list[str]:
        """Whether the program's other threads take the workers' core, in a sentence; else empty.

        The system counts for how long a worker could have run but had no core, and for how long
        this process's other threads had one while a step waited for workers. Only Linux counts the
        former; elsewhere this is always empty.
        """
        counted = self._counted
        if self._running:
            counted = counted.plus(self._counts_since_entered())
        remark = contention(counted)
        if remark:
            return [remark]
        return []

    def timed(
        self, name: str, kind: Kind, what: str, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return a function with the same effect, timed as a separate part, such as the policy."""
        part = Part(name, kind, what)
        self.parts.insert(-1, part)
        return self._timed(part, function)

    def __enter__(self) -> Stopwatch:
        timing = self._core.rows.context.timing
        if timing.timer is not None:
            raise ArgumentError(
                "env: expected one that no other stopwatch is timing; leave that one first"
            )
        timing.timer = self
        for rows in self._rows:
            rows.put_on()
        for thing, name, part in self._of_sub_envs:
            method = getattr(thing, name)
            self._put_on.append((thing, name, vars(thing).get(name)))
            setattr(thing, name, self._timed(part, method))
        self._counted_before = self.meter.read()
        self._running = [self._other]
        self._since = self._clock()
        self._core.observe(self)
        return self

    def __exit__(self, *exception: object) -> None:
        self._pass_time()
        self._running = []
        self._counted = self._counted.plus(self._counts_since_entered())
        self._core.ignore(self)
        for rows in self._rows:
            rows.take_off()
        while self._put_on:
            thing, name, own = self._put_on.pop()
            delattr(thing, name)
            if own is not None:
                setattr(thing, name, own)
        self._core.rows.context.timing.timer = None

    # -- what the environment tells of -------------------------------------------------------------

    def run(self, part: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the backend as a part of this name."""
        return self.run_as(self._backend[part], function, *arguments)

    def on_call(self) -> None:
        """A call begins."""
        self._pass_time()
        if self._running[-1] is not self._call_state:  # else an error ended it before
            self._running.append(self._call_state)
        self._call_state.calls += 1

    def on_send(self, actions: Batch, env_ids: IntArray) -> None:
        """Not used: ``_TimedRows`` takes the time."""

    def on_receive(self, step: StepResult) -> None:
        """Not used: ``_TimedRows`` takes the time."""

    def on_return(self) -> None:
        """A call ends."""
        self._pass_time()
        if self._running[-1] is self._call_state:
            self._running.pop()

    # -- the time of parts -------------------------------------------------------------------------

    def _timed(self, part: Part, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            if not self._running:  # a policy's function may outlive the timing
                return function(*arguments, **named)
            return self.run_as(part, function, *arguments, **named)

        return run

    def run_as(
        self, part: Part, function: Callable[..., Any], *arguments: Any, **named: Any
    ) -> Any:
        """Call a function, as this part."""
        self._pass_time()
        running = self._running
        running.append(part)
        part.calls += 1
        try:
            return function(*arguments, **named)
        finally:
            if running is self._running:  # not left meanwhile
                self._pass_time()
                running.pop()

    def _counts_since_entered(self) -> CoreCounts:
        return self.meter.read().since(self._counted_before)

    def _pass_time(self) -> None:
        """Add the time since the last call to the part that was running."""
        now = self._clock()
        self._running[-1].nanoseconds += now - self._since
        self._since = now


class _TimedRows:
    """An environment's rows in a chain, timed as parts.

    While timing is on, the outer rows drive these instead of the environment's own.
    """

    def __init__(
        self, stopwatch: Stopwatch, env: VecEnv, send: Part, reset: Part, receive: Part
    ) -> None:
        self._stopwatch = stopwatch
        self._call_state = env.call_state  # which does not keep the environment alive
        self._rows: Rows = env.call_state.rows
        self._send = send
        self._reset = reset
        self._receive = receive
        self.sends = 0

    def put_on(self) -> None:
        self._call_state.rows = self

    def take_off(self) -> None:
        self._call_state.rows = self._rows

    def send(self, actions: Batch, env_ids: IntArray) -> None:
        self.sends += 1
        self._stopwatch.run_as(self._send, self._rows.send, actions, env_ids)

    def reset(
        self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        self._stopwatch.run_as(self._reset, self._rows.reset, env_ids, seeds, options)

    def receive(self, count: int, timeout: float | None) -> StepResult:
        step: StepResult = self._stopwatch.run_as(self._receive, self._rows.receive, count, timeout)
        return step


class _TimedWorkerRows(_TimedRows):
    """The rows of a backend that has workers, for which this process waits."""

    def receive(self, count: int, timeout: float | None) -> StepResult:
        meter = self._stopwatch.meter
        meter.begin_wait()
        step = super().receive(count, timeout)
        meter.end_wait()
        return step


def _part_of(wrapper: VecEnv, env: VecEnv) -> Part:
    if wrapper is env and env is not env.chain[0]:
        return Part("window", "window", "shows the frames, and waits until the next are due")
    return Part(_name(wrapper), "wrapper", "in this process, around the vector")


def _backend_parts(runner: Runner) -> dict[str, Part]:
    """The parts of a backend by what its steps call them."""
    what = {
        "parent_share": "steps the sub-environments of this process",
        "wait": "until the workers have answered, and their wrappers",
        "copy": "makes fresh arrays and infos of all rows",
        "send": "sends the actions off",
        "resets": "sends resets off that were asked for",
        "bookkeeping": "records which rows have arrived",
    }
    if isinstance(runner, Dummy):
        what["wait"] = "the loop over the sub-environments"
    if not isinstance(runner, Processes) or runner.local_rows is None:
        del what["parent_share"]
    return {name: Part(name, "backend", text) for name, text in what.items()}


def _sub_env_places(runner: Runner, env_id: str) -> Iterator[tuple[Any, str, Part]]:
    """The methods to time in this process and their parts: the environment, then its wrappers."""
    if not isinstance(runner, Dummy):
        return
    parts: dict[tuple[int, type], Part] = {}
    whole = Part(env_id, "environment", "the environment itself")
    for engine in runner.engines():
        whole.what = "the engine itself"
        yield from ((engine, name, whole) for name in ("step", "reset"))
    for sub_env in [source for source in runner.local.sources if isinstance(source, SubEnv)]:
        around = []
        env: Any = sub_env.env
        while isinstance(env, gymnasium.Wrapper) and not isinstance(env, RawRewardRecorder):
            around.append(env)
            env = env.env
        if isinstance(env, RawRewardRecorder):
            env = env.env
        else:  # no wrappers: its wrappers are its own
            env = sub_env.env
            around = []
        for depth, thing in enumerate([env, *reversed(around)]):
            part = whole
            if depth:
                part = Part(_name(thing), "wrapper", "in each sub-environment")
            part = parts.setdefault((depth, type(thing)), part)
            yield from ((thing, name, part) for name in ("step", "reset"))


def _name(wrapper: Any) -> str:
    return registry.wrappers.name_of(type(wrapper)) or type(wrapper).__name__
