"""Steps a vector environment under a policy and keeps count; independent of terminals."""

import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from vecwrap.commands.policies import Policy
from vecwrap.contract import StepResult
from vecwrap.vec_env import VecEnv
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["RECENT", "Interrupt", "StepCounter", "Tally", "interruptible", "rollout"]

RECENT = 100  # episodes over which scores are averaged during a run


class StepCounter(VecEnvWrapper):
    """Counts the agent steps of all sub-environments: not resets, and not rows that were lost.

    Attributes:
        steps: how many.
    """

    def __init__(self, env: VecEnv) -> None:
        super().__init__(env)
        self.steps = 0

    def on_step(self, step: StepResult) -> None:
        """Count the rows in which an action was taken."""
        self.steps += int(np.count_nonzero(step.acted))


@dataclass
class Tally:
    """The counts so far.

    Attributes:
        stats_key: the monitor's key in infos.
        steps: agent steps over all sub-environments.
        scores, lengths: of every reported episode: sum of rewards, agent steps.
        window: how many episodes ``recent_score`` covers.
        seconds: since the first reset was done.
    """

    stats_key: str = "episode"
    window: int = RECENT
    steps: int = 0
    scores: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    seconds: float = 0.0
    _recent: deque[tuple[float, int]] = field(default_factory=lambda: deque([(0.0, 0)], maxlen=64), repr=False)

    @property
    def episodes(self) -> int:
        """How many episodes ended."""
        return len(self.scores)

    @property
    def rate(self) -> float:
        """Agent steps per second, from the start."""
        return self.steps / self.seconds if self.seconds else 0.0

    @property
    def recent_rate(self) -> float:
        """Agent steps per second over the last vector steps, for a live display."""
        then, steps = self._recent[0]
        return (self.steps - steps) / (self.seconds - then) if self.seconds > then else 0.0

    @property
    def recent_score(self) -> tuple[float, float] | None:
        """Mean and standard deviation over the last ``window`` episodes; None if none has ended."""
        recent = self.scores[-self.window :]
        return (float(np.mean(recent)), float(np.std(recent))) if recent else None

    def add(self, acted: int, infos: dict[str, Any], seconds: float) -> None:
        """Count one vector step."""
        self.steps += acted
        self.seconds = seconds
        self._recent.append((seconds, self.steps))
        if self.stats_key in infos:
            ended, mask = infos[self.stats_key], infos[f"_{self.stats_key}"]
            self.scores.extend(ended["r"][mask].tolist())
            self.lengths.extend(ended["l"][mask].tolist())


@dataclass
class Interrupt:
    """Whether the user or the system has requested a stop, and by which signal.

    Attributes:
        asked: whether it has.
        number: the last signal.
        ending: whether what runs takes a moment and must be completed, so that another signal changes nothing.
    """

    asked: bool = False
    number: int = signal.SIGINT
    ending: bool = False

    @contextmanager
    def may_stop(self) -> Iterator[None]:
        """Run what may take long or hang: a second signal stops it by a KeyboardInterrupt, which is noted and raised.

        From its end on, until the next such block, further signals are only noted.
        """
        self.ending = False
        try:
            yield
        finally:
            self.ending = True


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Let the first Ctrl-C or SIGTERM stop after the current step; the second stops at once, unless all is ending."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        yield interrupt
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if interrupt.asked and not interrupt.ending:
            handler = before[number]
            if callable(handler):
                handler(number, frame)
            else:  # the system's: it ends the process
                signal.signal(number, handler)
                signal.raise_signal(number)
        interrupt.asked, interrupt.number = True, number

    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # A signal ignored from the start stays ignored: a run that a script put into the background must survive Ctrl-C.
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, ask)
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def rollout(
    env: VecEnv, policy: Policy, tally: Tally, *, steps: int | None, episodes: int | None, interrupt: Interrupt
) -> Iterator[None]:
    """Reset, then step until enough steps or episodes are done or the user asks to stop.

    Args:
        env: with a monitor among its layers, whose reports under ``tally.stats_key`` count as episodes.
        policy: from observations to actions.
        tally: receives the counts.
        steps: agent steps over all sub-environments, rounded up to a whole vector step; None for no limit.
        episodes: None for no limit.
        interrupt: checked between steps.

    Yields:
        After each vector step.
    """
    mode = env.metadata["autoreset_mode"]
    observations, _ = env.reset()
    start = time.perf_counter()
    resetting = np.zeros(env.num_envs, bool)
    while not (
        interrupt.asked
        or (steps is not None and tally.steps >= steps)
        or (episodes is not None and tally.episodes >= episodes)
    ):
        observations, _, terminations, truncations, infos = env.step(policy(observations))
        tally.add(int((~resetting).sum()), infos, time.perf_counter() - start)
        dones = terminations | truncations
        if mode == AutoresetMode.NEXT_STEP:
            resetting = dones
        elif mode == AutoresetMode.DISABLED and dones.any():
            observations, _ = env.reset(options={"reset_mask": dones})
        yield
