"""Where the time of a vector environment goes: every wrapper, the backend's wait, the copy, and what is done around it.

An environment without a stopwatch runs the unmodified methods of its classes; there is nothing to switch off.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import gymnasium

from vecwrap.backends.dummy import Dummy
from vecwrap.backends.workers.process import Processes
from vecwrap.env.runner import Runner
from vecwrap.env.vec_env import VecEnv
from vecwrap.pipeline import registry
from vecwrap.sources.raw_rewards import Tap
from vecwrap.sources.sub_env import SubEnv

__all__ = ["Kind", "Part", "Stopwatch"]

Kind: TypeAlias = Literal["environment", "wrapper", "backend", "window", "face", "policy", "other"]

FACE = ("step", "reset", "send", "send_some", "wait")
ROWS = ("send", "reset", "receive")


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

    Entering installs timed versions of the row protocol's methods on this chain's rows, and leaving removes them.
    Every moment in between belongs to exactly one part, the innermost that is running, so the parts add up to the total
    to the nanosecond. The parts include the cost of the clock itself, about a microsecond per part. Several stopwatches
    may be on at once, and left in any order, even from within a step.

    What runs in workers is part of the backend's wait. If the sub-environments are in this process, on ``dummy``, their
    wrappers are distinguished; a wrapper that bypasses the emulator's ``step``, as ``atari`` does, includes its time.

    Args:
        env: the environment; only the thread that enters may step it meanwhile. It is not kept alive.
        clock: in nanoseconds.
        sub_envs: whether the sub-environments in this process and their wrappers are told apart. Otherwise only objects
            of vecwrap's own are touched.

    Attributes:
        parts: inner first: the environment, its wrappers, the backend, the vector's wrappers, the window if there is
            one, the face; then what ``timed`` named; ``other`` is what runs outside all of these: the loop that drives
            the environment.

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

    def __init__(self, env: VecEnv, *, clock: Callable[[], int] = time.perf_counter_ns, sub_envs: bool = True) -> None:
        self._books = env.core.books
        self._clock = clock
        self._running: list[Part] = []
        self._since = 0
        self._steps = 0
        self._put_on: list[tuple[Any, str, Any]] = []
        self._other = Part("other", "other", "the loop that drives the environment")
        self._rows = env.rows
        self._places = list(self._all_places(env, sub_envs=sub_envs))
        self.parts = [*{id(part): part for _, _, part in self._places}.values(), self._other]

    @property
    def steps(self) -> int:
        """How many vector steps were timed: batches of actions, however often a wrapper steps what it wraps for one."""
        return self._steps

    @property
    def nanoseconds(self) -> int:
        return sum(part.nanoseconds for part in self.parts)

    def timed(self, name: str, kind: Kind, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same, timed as a separate part: the policy, for example."""
        part = Part(name, kind, what)
        self.parts.insert(-1, part)
        return self._timed(part, function)

    def __enter__(self) -> Stopwatch:
        self._books.stopwatches.append(self)
        self._books.in_line = False  # the general path is timed
        self.put_on()
        self._running = [self._other]
        self._since = self._clock()
        return self

    def __exit__(self, *exception: object) -> None:
        self._pass_time()
        self._running = []
        on = self._books.stopwatches
        later = on[on.index(self) + 1 :]  # whose methods are around ours
        for stopwatch in reversed([self, *later]):
            stopwatch.take_off()
        on.remove(self)
        for stopwatch in later:
            stopwatch.put_on()
        self._books.in_line = False

    def put_on(self) -> None:
        """Install the timed methods; entering does it."""
        for thing, name, part in self._places:
            before = getattr(thing, name)
            setattr(thing, name, self._timed(part, before))
            self._put_on.append((thing, name, before))
        send = self._rows.send
        self._rows.send = functools.partial(self._counted, send)  # type: ignore[method-assign]
        self._put_on.append((self._rows, "send", send))

    def take_off(self) -> None:
        """Remove the timed methods, which are the outermost; leaving does it."""
        while self._put_on:
            thing, name, before = self._put_on.pop()
            delattr(thing, name)
            if getattr(thing, name, None) != before:  # it was the instance's own, not its class's
                setattr(thing, name, before)

    def _counted(self, send: Callable[..., None], *args: Any) -> None:
        self._steps += 1
        send(*args)

    def _timed(self, part: Part, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            running = self._running
            if not running:  # a policy's function may outlive the timing
                return function(*args, **kwargs)
            self._pass_time()
            running.append(part)
            part.calls += 1
            try:
                return function(*args, **kwargs)
            finally:
                if running is self._running:  # not left meanwhile
                    self._pass_time()
                    running.pop()

        return run

    def _pass_time(self) -> None:
        """Add the time since the last call to the part that was running."""
        now = self._clock()
        self._running[-1].nanoseconds += now - self._since
        self._since = now

    # -- where to look ------------------------------------------------------------------------------------------------

    def _all_places(self, env: VecEnv, *, sub_envs: bool) -> Iterator[tuple[Any, str, Part]]:
        """Objects, names of their methods, and the parts that these belong to; inner parts first."""
        *wrappers, _ = env.chain
        yield from self._backend_places(env.core.runner, env.core.env_id, sub_envs=sub_envs)
        for wrapper in reversed(wrappers):
            part = Part(_name(wrapper), "wrapper", "in this process, around the vector")
            yield from ((wrapper.rows, name, part) for name in ROWS)
        if env is not env.chain[0]:  # a window around the chain is not one of its wrappers
            window = Part("window", "window", "shows the frames, and waits until the next are due")
            yield from ((env.rows, name, window) for name in ROWS)
        face = Part("face", "face", "checks the actions, makes the five-tuple")
        yield from ((env.face, name, face) for name in FACE)

    def _backend_places(self, runner: Runner, env_id: str, *, sub_envs: bool) -> Iterator[tuple[Any, str, Part]]:
        wait = Part("wait", "backend", "until the workers have answered, and their wrappers")
        books = runner.books
        if isinstance(runner, Dummy):
            wait.what = "the loop over the sub-environments"
            sources = runner.local.sources if sub_envs else []
            yield from _sub_env_places([source for source in sources if isinstance(source, SubEnv)], env_id)
            engine = Part(env_id, "environment", "the engine itself")
            engines = runner.engines() if sub_envs else ()
            yield from ((one, name, engine) for one in engines for name in ("step", "reset"))
        elif isinstance(runner, Processes) and runner.own is not None:
            yield runner.own, "run", Part("parent_share", "backend", "steps the sub-environments of this process")
        yield runner, "poll", wait
        yield books.slots, "collect", Part("copy", "backend", "makes fresh arrays and infos of all rows")
        yield books, "send", Part("send", "backend", "sends the actions off")
        yield books, "reset", Part("resets", "backend", "sends resets off that were asked for")
        yield books, "receive", Part("books", "backend", "keeps the books of which rows are home")


def _sub_env_places(sub_envs: list[SubEnv], env_name: str) -> Iterator[tuple[Any, str, Part]]:
    """The environment itself, then each wrapper around it; one part for all sub-environments."""
    parts: dict[tuple[int, type], Part] = {}
    for sub_env in sub_envs:
        around = []
        env: Any = sub_env.env
        while isinstance(env, gymnasium.Wrapper) and not isinstance(env, Tap):
            around.append(env)
            env = env.env
        if isinstance(env, Tap):
            env = env.env
        else:  # no wrappers: its wrappers are its own
            env, around = sub_env.env, []
        whole = Part(env_name, "environment", "the environment itself")
        for depth, thing in enumerate([env, *reversed(around)]):
            part = Part(_name(thing), "wrapper", "in each sub-environment") if depth else whole
            part = parts.setdefault((depth, type(thing)), part)
            yield from ((thing, name, part) for name in ("step", "reset"))


def _name(wrapper: Any) -> str:
    return registry.wrappers.name_of(type(wrapper)) or type(wrapper).__name__
