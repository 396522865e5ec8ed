"""Rounds: all contenders open at once and measured in turn, so that disturbances affect all of them alike."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Sequence

from vecwrap.bench.contender import CannotRun, Contender, Sampler
from vecwrap.bench.results import Measurement
from vecwrap.errors import VecwrapError

__all__ = ["measure_rounds"]

WARM_UP = 0.25  # of a sample; caches are filled, spins learnt, chunks fitted


def measure_rounds(
    contenders: Sequence[Contender],
    rounds: int,
    seconds: float,
    *,
    warm_up: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> list[Measurement]:
    """Measure contenders interleaved: one sample of each per round, in an order that rotates by one each round.

    A peer that cannot be opened, or fails later, becomes a measurement without figures that says why. Errors on our
    own side are raised.

    Args:
        contenders: what to compare; names must differ.
        rounds: how many samples of each.
        seconds: how long a sample lasts.
        warm_up: first take a short sample of each, which is not counted.
        say: called with messages for a progress line.

    Returns:
        One per contender, in the same order.

    Raises:
        VecwrapError: a contender of ours failed.
    """
    found = {contender.name: Measurement.of(contender) for contender in contenders}
    if len(found) != len(contenders):
        raise ValueError(f"contenders: expected different names, got {[contender.name for contender in contenders]}")
    with contextlib.ExitStack() as stack:
        running: dict[str, Sampler] = {}

        def attempt(contender: Contender, action: Callable[[], None]) -> None:
            try:
                action()
            except CannotRun as error:
                found[contender.name].missing = str(error)
                running.pop(contender.name, None)
            except Exception as error:
                if contender.side == "ours" and isinstance(error, VecwrapError):
                    raise
                if contender.side == "ours":
                    raise VecwrapError(f"{contender.name} failed: {type(error).__name__}: {error}") from error
                found[contender.name].missing = f"failed: {type(error).__name__}: {_first_line(error)}"
                running.pop(contender.name, None)

        def start(contender: Contender) -> None:
            sampler = contender.open()
            stack.callback(_close, sampler)
            running[contender.name] = sampler
            if warm_up:
                sampler.sample(seconds * WARM_UP)

        def sample(contender: Contender) -> None:
            gc.collect()  # nobody pays for another's garbage
            found[contender.name].rounds.append(dict(running[contender.name].sample(seconds)))

        for contender in contenders:
            say(f"{contender.name}: starting")
            attempt(contender, lambda c=contender: start(c))  # type: ignore[misc]
        for number in range(rounds):
            turn = number % len(contenders)
            for contender in [*contenders[turn:], *contenders[:turn]]:
                if contender.name in running:
                    say(f"round {number + 1} of {rounds}: {contender.name}")
                    attempt(contender, lambda c=contender: sample(c))  # type: ignore[misc]
    return list(found.values())


def _close(sampler: Sampler) -> None:
    """Close; an exception that a peer raises while closing does not cost any figures."""
    with contextlib.suppress(Exception):
        sampler.close()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]
