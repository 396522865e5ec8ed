"""What is measured: a contender opens something that gives figures, one sample a round."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from vecwrap.errors import VecwrapError

__all__ = [
    "QUANTITIES",
    "SEED",
    "CannotRun",
    "Contender",
    "Quantity",
    "Sample",
    "Sampler",
    "Side",
    "Steps",
    "Throughput",
    "action_batches",
    "peer_module",
]

SEED = 1  # of every first reset and of the actions, so that all contenders play the same games
ACTION_BATCHES = 64  # drawn before the clock runs and taken in turn, so that drawing is nobody's cost
CHUNKS = 20  # how often the clock is looked at within a sample; rarely enough to cost nothing

Side: TypeAlias = Literal["ours", "peer", "reference"]
Sample: TypeAlias = Mapping[str, float]


@dataclass(frozen=True)
class Quantity:
    """What a figure is.

    Attributes:
        unit: as tables write it.
        more_is_better: a rate rather than a cost.
    """

    unit: str
    more_is_better: bool


QUANTITIES = {
    "rate": Quantity("env steps/s", more_is_better=True),
    "chain": Quantity("µs per vector step", more_is_better=False),
    "start": Quantity("s", more_is_better=False),
    "memory": Quantity("MB", more_is_better=False),
}


class CannotRun(VecwrapError):
    """A contender that has no figures; the message says why, and what would change that."""


class Sampler(Protocol):
    """A contender that is open: live environments, ready to be timed."""

    def sample(self, seconds: float) -> Sample:
        """Give one round's figures by quantity, from about ``seconds`` seconds of work."""

    def close(self) -> None:
        """Close what was opened."""


@dataclass(frozen=True)
class Contender:
    """One row of a comparison, not opened yet.

    Attributes:
        name: as tables write it.
        side: ``"ours"``; ``"peer"``; or ``"reference"``, what the cores could do at best.
        open: makes it ready; CannotRun where it cannot take part.
        note: what it does otherwise than the others.
    """

    name: str
    side: Side
    open: Callable[[], Sampler]
    note: str = ""


class Throughput:
    """Runs something over and over, and tells how often a second it got done.

    Args:
        run: does so many vector steps; gives how many environment steps these were.
        close: closes it.
        factor: what the rate is multiplied with (the cores, for an ideal).
        clock: in seconds.
    """

    def __init__(
        self,
        run: Callable[[int], int],
        close: Callable[[], object],
        *,
        factor: float = 1.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._run = run
        self._close = close
        self._factor = factor
        self._clock = clock
        self._chunk = 0

    def sample(self, seconds: float) -> Sample:
        """Give the rate over whole chunks that together last at least ``seconds``."""
        if not self._chunk:
            self._chunk = self._fitting_chunk(seconds / CHUNKS)
        done, start = 0, self._clock()
        while True:
            done += self._run(self._chunk)
            elapsed = self._clock() - start
            if elapsed >= seconds:
                return {"rate": self._factor * done / elapsed}

    def _fitting_chunk(self, seconds: float) -> int:
        """Double until a chunk lasts so long."""
        chunk = 1
        while True:
            start = self._clock()
            self._run(chunk)
            if self._clock() - start >= seconds:
                return chunk
            chunk *= 2

    def close(self) -> None:
        """Close it."""
        self._close()


class Steps:
    """Takes vector steps with actions in turn.

    Args:
        step: takes one batch of actions.
        actions: the batches.
        rows: how many environment steps one such step is.
    """

    def __init__(self, step: Callable[[Any], object], actions: Iterable[Any], rows: int) -> None:
        self._step = step
        self._actions = itertools.cycle(actions)
        self._rows = rows

    def __call__(self, count: int) -> int:
        """Take ``count`` vector steps; give the number of environment steps."""
        step = self._step
        for action in itertools.islice(self._actions, count):
            step(action)
        return count * self._rows


def action_batches(single: spaces.Space[Any], rows: int, *, as_list: bool = False) -> list[Any]:
    """Draw the batches that every contender takes; equal for equal spaces.

    Args:
        single: the action space of one environment.
        rows: how many actions a batch has.
        as_list: give each batch as a list of single actions, where it is no array.

    Returns:
        Batches as ``VectorEnv.step`` takes them.
    """
    space = batch_space(single, rows)
    space.seed(SEED)
    batches = [space.sample() for _ in range(ACTION_BATCHES)]
    if not as_list or isinstance(batches[0], np.ndarray):
        return batches
    return [list(iterate(space, batch)) for batch in batches]


def peer_module(name: str, pip: str) -> Any:
    """Import a peer.

    Args:
        name: the module.
        pip: what brings it.

    Raises:
        CannotRun: it is not installed, with the line that does it.
    """
    try:
        return import_module(name)
    except ImportError as error:
        missing = getattr(error, "name", None) or name
        raise CannotRun(f"{missing.partition('.')[0]} is not installed: pip install {pip}") from error
