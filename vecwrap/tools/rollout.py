"""Stepping under a policy, with counts and a way to stop; independent of terminals."""

import functools
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import SpecError, VecwrapError, did_you_mean
from vecwrap.interrupts import deduplicated_interrupts, is_repeated
from vecwrap.sources.import_paths import import_target
from vecwrap.tools import trained
from vecwrap.tools.policy_runner import RandomPolicy, ZerosPolicy
from vecwrap.wrappers.monitor import Monitor

Policy: TypeAlias = Callable[..., Any]


def rollout(
    env: VecEnv,
    policy: Policy,
    episode_stats: "EpisodeStats",
    *,
    steps: int | None,
    episodes: int | None,
    interrupt: "Interrupt",
) -> Iterator[None]:
    """Reset, then step until a limit is reached or the user stops; yield after each step.

    The limits are steps and episodes.

    ``steps`` are agent steps over all sub-environments, rounded up to a whole vector step. None: no
    limit.
    """
    mode = env.metadata["autoreset_mode"]
    observations, _ = env.reset()
    start = time.perf_counter()
    episode_stats.add(0, 0.0)  # games may have ended within the reset
    resetting = np.zeros(env.num_envs, bool)
    while not (
        interrupt.is_requested
        or (steps is not None and episode_stats.steps >= steps)
        or (episodes is not None and episode_stats.episodes >= episodes)
    ):
        observations, _, terminations, truncations, _ = env.step(policy(observations))
        episode_stats.add(int((~resetting).sum()), time.perf_counter() - start)
        dones = terminations | truncations
        if mode == AutoresetMode.NEXT_STEP:
            resetting = dones
        elif mode == AutoresetMode.DISABLED and dones.any():
            observations, _ = env.reset(options={"reset_mask": dones})
            episode_stats.add(0, time.perf_counter() - start)
        yield


# -- counting --------------------------------------------------------------------------------------


@dataclass
class EpisodeStats:
    """The counts so far."""

    monitor: Monitor | None = None  # whose games count as episodes
    window: int = 100  # how many episodes `recent_score` covers
    steps: int = 0  # agent steps over all sub-environments
    scores: list[float] = field(default_factory=list)  # of every episode
    lengths: list[int] = field(default_factory=list)  # in agent steps
    seconds: float = 0.0  # since the first reset was done
    _recent: deque[tuple[float, int]] = field(
        default_factory=lambda: deque([(0.0, 0)], maxlen=64), repr=False
    )

    @property
    def episodes(self) -> int:
        return len(self.scores)

    @property
    def rate(self) -> float:
        if self.seconds:
            return self.steps / self.seconds
        return 0.0

    @property
    def recent_rate(self) -> float:
        """Agent steps per second over the last vector steps, for a live display."""
        then, steps = self._recent[0]
        if self.seconds > then:
            return (self.steps - steps) / (self.seconds - then)
        return 0.0

    @property
    def recent_score(self) -> tuple[float, float] | None:
        """Mean and standard deviation over the last ``window`` episodes; None if none has ended."""
        recent = self.scores[-self.window :]
        if recent:
            return (float(np.mean(recent)), float(np.std(recent)))
        return None

    def add(self, acted: int, seconds: float) -> None:
        """Count what a step or reset gave."""
        self.steps += acted
        self.seconds = seconds
        self._recent.append((seconds, self.steps))
        if self.monitor is not None:
            self.scores += [episode.score for episode in self.monitor.latest]
            self.lengths += [episode.length for episode in self.monitor.latest]


# -- Ctrl-C and SIGTERM ----------------------------------------------------------------------------


@dataclass
class Interrupt:
    """Whether the user or the system has requested a stop, and by which signal."""

    is_requested: bool = False
    number: int = signal.SIGINT  # the last one
    # what runs takes a moment and must be completed, so another signal changes nothing
    ending: bool = False

    @contextmanager
    def may_stop(self) -> Iterator[None]:
        """Run what may take long or hang: a second signal stops it by a KeyboardInterrupt.

        From its end on, until the next such block, further signals are only noted.
        """
        self.ending = False
        try:
            yield
        finally:
            self.ending = True


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Let the first Ctrl-C or SIGTERM stop after the current step, and a second one at once.

    While the run is already ending, a second signal does not stop it at once.
    """
    interrupt = Interrupt()

    def ask(number: int, frame: FrameType | None) -> None:
        at_once = interrupt.is_requested and not interrupt.ending
        interrupt.is_requested = True
        interrupt.number = number
        if at_once:
            raise KeyboardInterrupt

    with _signal_handlers((signal.SIGINT, signal.SIGTERM), ask):
        yield interrupt


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[list[int]]:
    """Let SIGTERM end a command like Ctrl-C, closing everything.

    The yielded list receives the signal's number.
    """
    came: list[int] = [signal.SIGINT]

    def interrupt(number: int, frame: FrameType | None) -> None:
        came[0] = number
        raise KeyboardInterrupt

    with _signal_handlers((signal.SIGTERM,), interrupt):
        yield came


@contextmanager
def _signal_handlers(
    numbers: Sequence[int], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Handle signals during a block; signals that come together count as one.

    Only the main thread may handle signals.

    One that is ignored from the start stays ignored: a run that a script put into the background
    must survive Ctrl-C.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT or not is_repeated(number):  # a gate is in front of SIGINT
            handler(number, frame)

    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in numbers if main}
    before = {number: old for number, old in handlers.items() if old is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handle)
    try:
        with deduplicated_interrupts():
            yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


# -- policies --------------------------------------------------------------------------------------


def find_policy(name: str, env: VecEnv, algorithm: str | None = None) -> Any:
    """Return a policy: ``random``, ``zeros``, ``module:callable``, or a saved model.

    ``zeros`` takes the action nearest to zero.

    Actions of ``random`` and ``zeros`` are legal, if it is known which are. A model is a ``.zip``
    of Stable-Baselines3 or sb3-contrib, of an ``algorithm`` that need not be named if the file says
    it. SpecError for anything else.
    """
    if name.endswith(trained.SUFFIX):
        return trained.load_trained(Path(name), env, algorithm)
    if algorithm is not None:
        raise SpecError(
            f"--algo: expected a model's file with it, --policy model.zip, got --policy {name}."
        )
    if name == "random":
        return RandomPolicy(env)
    if name == "zeros":
        return ZerosPolicy(env, _nearest_to_zero(env.action_space))
    if ":" not in name:
        near = did_you_mean(name, ("random", "zeros"))
        if Path(f"{name}{trained.SUFFIX}").is_file():
            near = f" Did you mean {name}{trained.SUFFIX}?"
        raise SpecError(
            "--policy: expected random, zeros, module:callable or a model's .zip, got "
            f"{name!r}.{near}"
        )
    module, _, attribute = name.partition(":")
    where = f"--policy {name}"
    if module.endswith(".py") and Path(module).is_file():
        path = ".".join(Path(module).with_suffix("").parts)
        raise SpecError(
            f"{where}: expected module:callable, got a file name; leave out .py: "
            f"{path}:{attribute}."
        )
    policy = import_target(name, where)

    @functools.wraps(policy)  # it shows the keywords that the policy declares
    def act(*observations: Any, **keywords: Any) -> Any:
        try:
            return policy(*observations, **keywords)
        except (Exception, SystemExit) as error:
            raise VecwrapError(f"{where} raised {type(error).__name__}: {error}") from error

    return act


def _nearest_to_zero(space: spaces.Space[Any]) -> Any:
    """The action of a batch's space, of which simple ones are numbers, that is nearest to zero."""
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    if isinstance(space, spaces.MultiDiscrete):
        return np.clip(
            np.zeros(space.shape, space.dtype), space.start, space.start + space.nvec - 1
        )
    if isinstance(space, spaces.Dict):
        return {key: _nearest_to_zero(member) for key, member in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_nearest_to_zero(member) for member in space.spaces)
    raise SpecError(
        f"--policy zeros: the action space {space} contains no zero. Use --policy random."
    )
