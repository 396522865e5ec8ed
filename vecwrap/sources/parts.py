"""What runners hold: a sub-environment for each row, or parts of sources of several rows, which are stepped together.

A part stands where a ``SubEnv`` would. What rows of one source are asked together is done once, with the first of them,
and the others report how it went; steps are taken source by source, of all its rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partialmethod
from typing import Any

from vecwrap.errors import ArgumentError, PlanError
from vecwrap.rows.step_result import Autoreset, Frames
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Description
from vecwrap.sources.engine import Engine
from vecwrap.sources.failure import Failure
from vecwrap.sources.game import Game
from vecwrap.sources.seats import ALL, Seats
from vecwrap.sources.several import AgainError, Several
from vecwrap.sources.sub_env import Factory, SeveralAgentsError, SubEnv, Takeover, factory_name


@dataclass(frozen=True)
class PartFactory:
    """How to make a row of a source of several; those of one are consecutive, and have the same ``make``."""

    make: Callable[[], Any]  # a vector environment, or an ``Engine``; a PettingZoo environment if it is a game's
    row: int  # which of its rows
    num_rows: int  # of how many
    of_game: bool = False
    seats: Seats = ALL  # of the game

    def __call__(self) -> Any:
        return self.make()


class Part:
    def __init__(self, index: int, source: Several, row: int) -> None:
        self.index = index
        self.source = source
        self.row = row
        self._frames = Frames.NONE

    def attach(self, slots: Slots, row: int) -> None:
        if self.row == 0:
            self.source.attach(slots, row)

    @property
    def frames(self) -> Frames:
        return self._frames

    @frames.setter
    def frames(self, frames: Frames) -> None:
        self._frames = frames
        self.source.want_frames(self.row, frames)

    def describe(self) -> Description:
        return self.source.describe()

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> None:
        self.source.take_part(self.row)

    def ask(self, method: str, *arguments: Any) -> Any:
        return self.source.ask_row(self.row, method, *arguments)

    call = partialmethod(ask, "call")
    get_attr = partialmethod(ask, "get_attr")
    set_attr = partialmethod(ask, "set_attr")
    has_attr = partialmethod(ask, "has_attr")
    is_wrapped = partialmethod(ask, "is_wrapped")
    state = partialmethod(ask, "state")
    load_state = partialmethod(ask, "load_state")

    def close(self, timeout: float = 5.0, terminate: bool = False) -> None:
        if self.row == 0:
            self.source.close(timeout, terminate)

    def failure(self, error: BaseException, during: str, action: Any = None) -> Failure:
        error = error.error if isinstance(error, AgainError) else error
        return self.source.failure(self.row, self.index, error, during, action)

    def refused(self, error: Exception, during: str, action: Any, *, of_the_end: bool) -> Failure:
        return self.failure(error, during, action)

    def made_anew(self, takeover: Takeover) -> Part:
        self.source.make_anew(self.row)
        self.take_over(takeover)
        return self

    def take_over(self, takeover: Takeover) -> None:
        self.source.take_over(self.row, takeover)
        self.frames = takeover.frames


Source = SubEnv | Part
_REFUSALS = PlanError.__name__, SeveralAgentsError.__name__  # which say enough


def make_source(index: int, factory: Factory, mode: Autoreset, before: Source | None, *, debug: bool) -> Source:
    """Make what stands in a row; ``before`` stands in the row before it."""
    if not isinstance(factory, PartFactory):
        return SubEnv(index, factory, mode, debug=debug)
    if factory.row:
        if not (isinstance(before, Part) and before.row == factory.row - 1):
            raise PlanError(
                f"expected row {factory.row} of {factory.num_rows} in one place with row {factory.row - 1}, with which "
                "it is stepped; a runner shares out so many rows at a time as vecwrap.sources.parts.together says"
            )
        return Part(index, before.source, factory.row)
    made = factory.make()
    try:
        source: Several
        if factory.of_game:
            source = Game(made, index // factory.num_rows, mode, factory.make, factory.seats)
        else:
            source = made if isinstance(made, Engine) else Engine(made)
        source.debug = debug
        rows, own = source.num_rows, source.mode.value
        if rows != factory.num_rows:
            raise PlanError(f"{source.name}: expected an {source.kind} of {factory.num_rows} rows, got one of {rows}")
        if source.mode is not mode:
            raise PlanError(f'{source.name} declares {own}, expected {mode.value}; set autoreset="{own}"')
    except BaseException:
        with contextlib.suppress(Exception):
            made.vector_env.close() if isinstance(made, Engine) else made.close()
        raise
    return Part(index, source, 0)


def refuse_one_for_several(sources: Sequence[Source]) -> None:
    """Refuse a factory that returns what another sub-environment, engine or game already has."""
    seen: dict[int, int] = {}
    for source in sources:
        kind, number, made = "environment", source.index, None
        if not isinstance(source, Part):
            made = source.env.unwrapped
        elif source.row == 0:
            kind, number = source.source.kind, source.index // source.source.num_rows
            made = source.source.unwrapped
        if made is not None and (other := seen.setdefault(id(made), number)) != number:
            raise ArgumentError(
                f"env: expected a new {kind} from each call, got the same for "
                f"{'sub-environment' if kind == 'environment' else kind}s {other} and {number}; make it within the "
                "callable"
            )


def of_engines(factories: Sequence[Factory]) -> bool:
    return isinstance(first := factories[0], PartFactory) and not first.of_game


def of_games(factories: Sequence[Factory]) -> bool:
    return isinstance(first := factories[0], PartFactory) and first.of_game


def together(factories: Sequence[Factory]) -> int:
    """How many consecutive rows step together: 1, or the rows of an engine or a game."""
    first = factories[0]
    return first.num_rows if isinstance(first, PartFactory) else 1


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


def announce(sources: Sequence[Source], method: str, arguments: Sequence[tuple[Any, ...]]) -> None:
    """Tell those of several rows among these of what is asked of their rows, before each of them is asked."""
    by_source: dict[int, list[tuple[Part, tuple[Any, ...]]]] = {}
    for source, given in zip(sources, arguments, strict=True):
        if isinstance(source, Part):
            by_source.setdefault(id(source.source), []).append((source, given))
    for parts in by_source.values():
        parts[0][0].source.announce(method, [part.row for part, _ in parts], [given for _, given in parts])
