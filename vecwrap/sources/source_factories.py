"""Factories of sources: sub-environments, engines and games, and the number of rows of each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium

from vecwrap.errors import PlanError
from vecwrap.sources.description import Env, is_game
from vecwrap.sources.failure import Failure, not_an_env
from vecwrap.sources.raw_rewards import RawRewardRecorder
from vecwrap.sources.seats import ALL, Seats

Factory = Callable[[], Env]


class SeveralAgentsError(TypeError):
    """A factory has made a game of several rows instead of an environment of one row."""


@dataclass(frozen=True)
class SubEnvFactory:
    """A factory of one sub-environment: the environment, then its wrappers, inner first."""

    make: Factory
    wrappers: tuple[Callable[[Env], Env], ...] = ()

    def __call__(self) -> Env:
        """Make the environment and wrap it; if a wrapper fails, close what was made."""
        made: Any = self.make()
        if not isinstance(made, gymnasium.Env):
            if is_game(type(made)):
                with contextlib.suppress(Exception):
                    made.close()
                raise SeveralAgentsError(
                    f"the factory {factory_name(self.make)} gave a game of several agents"
                )
            raise TypeError(f"the factory {factory_name(self.make)} gave {not_an_env(made)}")
        if self.wrappers:
            env: Env = RawRewardRecorder(made)
        else:
            env = made
        try:
            for wrapper in self.wrappers:
                wrapped = wrapper(env)
                if not isinstance(wrapped, gymnasium.Env):
                    raise TypeError(
                        f"the wrapper {wrapper!r} gave {type(wrapped).__name__}, expected a "
                        "gymnasium.Env"
                    )
                env = wrapped
        except BaseException:
            # Raise the reason, not an error of closing.
            with contextlib.suppress(Exception, SystemExit):
                env.close()
            raise
        return env


def factory_name(make: Any) -> str:
    """The name of what a factory calls, or the factory's own words."""
    make = getattr(make, "func", make)  # of a partial
    kind = type(make)
    return str(
        getattr(make, "__qualname__", make if "__str__" in vars(kind) else kind.__qualname__)
    )


@dataclass(frozen=True)
class EngineFactory:
    """How to make an engine."""

    make: Callable[[], Any]  # a vector environment, or an ``Engine``
    num_rows: int
    batch_size: int | None = None  # how many rows it returns at a time; None: all

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


def num_rows_of(factories: Sequence[Factory]) -> int:
    """How many rows each of these makes: 1, or those of an engine or a game."""
    first = factories[0]
    return first.num_rows if isinstance(first, (EngineFactory, GameFactory)) else 1


def never_made(factories: Sequence[Factory], *, restart: bool) -> str:
    """What an error says of sub-environments that could not be made even once."""
    names = dict.fromkeys(factory_name(getattr(factory, "make", factory)) for factory in factories)
    why = (
        ' What has never been made is not restarted: on_failure="restart" recreates what is '
        "lost later."
    )
    return f"\nIt was making {', '.join(names)}.{why * restart}"


def of_first_start(failure: Failure, factory: Factory, *, restart: bool) -> Failure:
    """Add to a first start's failure why the start is not repeated, if ``restart`` is set."""
    if not restart or failure.kind in _REFUSALS:
        return failure
    return replace(failure, note=failure.note + never_made([factory], restart=True))
