"""What makes the sources of a backend, a factory for each, and how many rows these have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vecwrap.errors import ArgumentError, PlanError
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.engine import Engine
from vecwrap.sources.failure import Failure
from vecwrap.sources.game import Game
from vecwrap.sources.game_env import is_parallel, refuse_other
from vecwrap.sources.parallel_game import ParallelGame
from vecwrap.sources.seats import ALL, Seats
from vecwrap.sources.source import Source
from vecwrap.sources.sub_env import Factory, SeveralAgentsError, SubEnv, factory_name
from vecwrap.sources.turn_game import TurnGame


@dataclass(frozen=True)
class EngineFactory:
    """How to make an engine."""

    make: Callable[[], Any]  # a vector environment, or an ``Engine``
    num_rows: int

    def __call__(self) -> Any:
        return self.make()


@dataclass(frozen=True)
class GameFactory:
    """How to make a game."""

    make: Callable[[], Any]  # a PettingZoo environment
    num_rows: int  # how many of its agents are rows
    seats: Seats = ALL

    def __call__(self) -> Any:
        return self.make()


_REFUSALS = PlanError.__name__, SeveralAgentsError.__name__  # which say enough


def make_source(index: int, factory: Factory, mode: Autoreset, *, debug: bool) -> Source:
    """Make a source; ``index`` is the number of its first row among all sub-environments."""
    if not isinstance(factory, (EngineFactory, GameFactory)):
        return SubEnv(index, factory, mode, debug=debug)
    made = factory.make()
    try:
        source = _around(made, index, factory, mode)
        source.index, source.debug = index, debug
        if source.num_rows != factory.num_rows:
            expected = f"an {source.kind} of {factory.num_rows} rows"
            raise PlanError(f"{source.name}: expected {expected}, got one of {source.num_rows}")
        if source.mode is not mode:
            own = source.mode.value
            raise PlanError(f'{source.name} declares {own}, expected {mode.value}; set autoreset="{own}"')
    except BaseException:
        with contextlib.suppress(Exception):
            made.vector_env.close() if isinstance(made, Engine) else made.close()
        raise
    return source


def _around(made: Any, index: int, factory: EngineFactory | GameFactory, mode: Autoreset) -> Engine | Game:
    if isinstance(factory, GameFactory):
        refuse_other(made)
        kind = ParallelGame if is_parallel(made) else TurnGame
        return kind(made, index // factory.num_rows, mode, factory.make, factory.seats)
    return made if isinstance(made, Engine) else Engine(made)


def refuse_one_for_several(sources: Sequence[Source]) -> None:
    """Refuse a factory that returns what another source already has."""
    seen: dict[int, int] = {}
    for source in sources:
        number = source.index // source.num_rows
        other = seen.setdefault(id(source.unwrapped), number)
        if other != number:
            several = "sub-environments" if source.kind == "environment" else f"{source.kind}s"
            raise ArgumentError(
                f"env: expected a new {source.kind} from each call, got the same for {several} {other} and {number}; "
                "make it within the callable"
            )


def num_rows_of(factories: Sequence[Factory]) -> int:
    """How many rows each of these makes: 1, or those of an engine or a game."""
    first = factories[0]
    return first.num_rows if isinstance(first, (EngineFactory, GameFactory)) else 1


def never_made(factories: Sequence[Factory], *, restart: bool) -> str:
    """What an error says of sub-environments that could not be made even once."""
    names = dict.fromkeys(factory_name(getattr(factory, "make", factory)) for factory in factories)
    why = ' What has never been made is not restarted: on_failure="restart" recreates what is lost later.'
    return f"\nIt was making {', '.join(names)}.{why * restart}"


def of_first_start(failure: Failure, factory: Factory, *, restart: bool) -> Failure:
    """Say of a failure to make a sub-environment for the first time why that is not repeated, under ``restart``."""
    if not restart or failure.kind in _REFUSALS:
        return failure
    return replace(failure, note=failure.note + never_made([factory], restart=True))
