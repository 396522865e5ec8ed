"""What is measured: a contender opens something that returns figures, one sample per round."""

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
ACTION_BATCHES = 64  # drawn before the clock starts and used in turn, so that nobody pays for drawing
CHUNKS = 20  # how often a sample checks the clock; rarely enough to cost nothing

Side: TypeAlias = Literal["ours", "peer", "reference"]
Sample: TypeAlias = Mapping[str, float]


@dataclass(frozen=True)
class Quantity:
    """What a figure measures.

    Attributes:
        unit: as shown in tables.
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
    """A contender cannot be measured; the message says why, and what would change that."""


class Sampler(Protocol):
    """An open contender: live environments, ready to be timed."""

    def sample(self, seconds: float) -> Sample:
        """Return one round's figures by quantity, from about ``seconds`` seconds of work."""

    def close(self) -> None:
        """Close what was opened."""


@dataclass(frozen=True)
class Contender:
    """One row of a comparison, not yet opened.

    Attributes:
        name: as shown in tables.
        side: ``"ours"``; ``"peer"``; or ``"reference"``, what the cores could do at best.
        open: makes it ready; CannotRun if it cannot take part.
        note: what it does differently from the others.
    """

    name: str
    side: Side
    open: Callable[[], Sampler]
    note: str = ""


class Throughput:
    """Runs something over and over, and measures how often per second.

    Args:
        run: takes a number of vector steps; returns how many environment steps these were.
        close: closes it.
        factor: multiplies the rate (the cores, for an ideal).
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
        """Return the rate over whole chunks that together last at least ``seconds``."""
        if not self._chunk:
            self._chunk = self._fitting_chunk(seconds / CHUNKS)
        done, start = 0, self._clock()
        while True:
            done += self._run(self._chunk)
            elapsed = self._clock() - start
            if elapsed >= seconds:
                return {"rate": self._factor * done / elapsed}

    def _fitting_chunk(self, seconds: float) -> int:
        """Double the chunk until it lasts this long."""
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
    """Takes vector steps, with batches of actions in turn.

    Args:
        step: takes one batch of actions.
        actions: the batches.
        rows: how many environment steps one vector step is.
    """

    def __init__(self, step: Callable[[Any], object], actions: Iterable[Any], rows: int) -> None:
        self._step = step
        self._actions = itertools.cycle(actions)
        self._rows = rows

    def __call__(self, count: int) -> int:
        """Take ``count`` vector steps; return the number of environment steps."""
        step = self._step
        for action in itertools.islice(self._actions, count):
            step(action)
        return count * self._rows


def action_batches(single: spaces.Space[Any], rows: int, *, as_list: bool = False) -> list[Any]:
    """Draw the batches that every contender uses; equal for equal spaces.

    Args:
        single: the action space of one environment.
        rows: how many actions a batch has.
        as_list: return each batch as a list of single actions, unless it is an array.

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
        pip: what to install.

    Raises:
        CannotRun: it is not installed; the message gives the command.
    """
    try:
        return import_module(name)
    except ImportError as error:
        missing = getattr(error, "name", None) or name
        raise CannotRun(f"{missing.partition('.')[0]} is not installed: pip install {pip}") from error
