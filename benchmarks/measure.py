"""Contenders measured in turn: each opens something that returns figures, one sample per round."""

from __future__ import annotations

import contextlib
import gc
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from statistics import median
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from vecwrap.errors import VecwrapError
from vecwrap.tools.throughput import SEED

WARM_UP = 0.25  # of a sample; caches are filled, spins learnt, chunks fitted

# A reference is what the cores could do at best.
Side: TypeAlias = Literal["ours", "peer", "reference"]
Sample: TypeAlias = Mapping[str, float]


class Quantity(NamedTuple):
    """What a figure measures: its unit, and whether it is a rate rather than a cost."""

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

    def close(self) -> object:
        """Close what was opened."""


@dataclass(frozen=True)
class Contender:
    """One row of a comparison, not yet opened; ``open`` raises CannotRun if it cannot take part."""

    name: str
    side: Side
    open: Callable[[], Sampler]
    note: str = ""  # what it does differently from the others


def peer_module(name: str, pip: str) -> Any:
    """Import a peer's module; CannotRun says what to install instead: ``pip``."""
    try:
        return import_module(name)
    except ImportError as error:
        missing = getattr(error, "name", None) or name
        raise CannotRun(
            f"{missing.partition('.')[0]} is not installed: pip install {pip}"
        ) from error


# -- figures ---------------------------------------------------------------------------------------


@dataclass
class Measurement:
    """The figures of one contender."""

    name: str
    side: Side
    note: str = ""
    rounds: list[Sample] = field(default_factory=list)
    missing: str = ""  # why there are no figures

    def values(self, quantity: str) -> list[float]:
        """Return one figure per round; empty if it has none, or stopped halfway."""
        return (
            []
            if self.missing
            else [sample[quantity] for sample in self.rounds if quantity in sample]
        )

    def median(self, quantity: str) -> float | None:
        values = self.values(quantity)
        return median(values) if values else None


class Ratio(NamedTuple):
    """How many times as good: above 1, it is faster or takes less.

    Of the medians, and at worst and best in a round.
    """

    of_medians: float
    low: float
    high: float


@dataclass
class WorkResult:
    """The results of all contenders on one workload, ours first."""

    key: str
    title: str
    how: str  # what the sides have in common, and where they differ
    measurements: Sequence[Measurement]

    @property
    def quantities(self) -> list[str]:
        return [q for q in QUANTITIES if any(m.values(q) for m in self.measurements)]

    @property
    def lead(self) -> Measurement | None:
        """The contender that the others are compared with: the first of ours that has figures."""
        return next(
            (m for m in self.measurements if m.side == "ours" and m.rounds and not m.missing), None
        )

    def ratio(self, other: Measurement, quantity: str = "rate") -> Ratio | None:
        """Return how many times as good as another contender the lead is; None without figures, and
        of itself.
        """
        lead = self.lead
        if lead is None or lead is other:
            return None
        mine, theirs = lead.values(quantity), other.values(quantity)
        if not mine or not theirs:
            return None
        if not QUANTITIES[quantity].more_is_better:
            mine, theirs = theirs, mine
        by_round = [a / b for a, b in zip(mine, theirs, strict=True)]
        return Ratio(median(mine) / median(theirs), min(by_round), max(by_round))


# -- rounds ----------------------------------------------------------------------------------------


def measure_rounds(
    contenders: Sequence[Contender],
    rounds: int,
    seconds: float,
    *,
    warm_up: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> list[Measurement]:
    """Measure contenders that are all open at once, in turn, so that disturbances affect all of
    them alike.

    Each round has a random order, so that none always follows the same one, whose processes are
    still going to sleep. A peer that cannot be opened, or fails later, becomes a measurement
    without figures that says why; a failure of ours is raised. ``say`` receives messages for a
    progress line.
    """
    found = {each.name: Measurement(each.name, each.side, each.note) for each in contenders}
    running: dict[str, Sampler] = {}
    with contextlib.ExitStack() as stack:

        def start(contender: Contender) -> None:
            sampler = contender.open()
            stack.callback(_close, sampler)
            running[contender.name] = sampler
            if warm_up:
                sampler.sample(seconds * WARM_UP)

        def sample(contender: Contender) -> None:
            gc.collect()  # nobody pays for another's garbage
            found[contender.name].rounds.append(running[contender.name].sample(seconds))

        def attempt(action: Callable[[Contender], None], contender: Contender) -> None:
            try:
                action(contender)
            except Exception as error:
                found[contender.name].missing = _reason(contender, error)
                running.pop(contender.name, None)

        for contender in contenders:
            say(f"{contender.name}: starting")
            attempt(start, contender)
        orders = random.Random(SEED)
        for number in range(rounds):
            for contender in orders.sample(contenders, len(contenders)):
                if contender.name in running:
                    say(f"round {number + 1} of {rounds}: {contender.name}")
                    attempt(sample, contender)
    return list(found.values())


def _reason(contender: Contender, error: Exception) -> str:
    """Return why a peer has no figures; raise what failed on our own side."""
    if isinstance(error, CannotRun):
        return str(error)
    kind, text = type(error).__name__, str(error).strip()
    if contender.side == "ours":
        if isinstance(error, VecwrapError):
            raise error
        raise VecwrapError(f"{contender.name} failed: {kind}: {text}") from error
    return f"failed: {kind}: {text.partition(chr(10))[0]}"


def _close(sampler: Sampler) -> None:
    """Close; an exception that a peer raises while closing does not cost any figures."""
    with contextlib.suppress(Exception):
        sampler.close()
