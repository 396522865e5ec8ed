"""What runners hold: a sub-environment for each row, or parts of engines, whose rows are stepped together.

A part stands where a ``SubEnv`` would. What rows of one engine are asked together is done once, with the first of them,
and the others report how it went; so no runner need know which kind it holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partialmethod
from typing import Any

from vecwrap.errors import ArgumentError, PlanError, VecwrapError
from vecwrap.rows.step_result import Autoreset, Frames
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Description
from vecwrap.sources.engine import AgainError, Engine
from vecwrap.sources.failure import Failure, make_failure
from vecwrap.sources.sub_env import Factory, SubEnv, Takeover


@dataclass(frozen=True)
class PartFactory:
    """How to make a row of an engine; those of one engine are consecutive, and have the same ``make``."""

    make: Callable[[], Any]  # a vector environment, or an ``Engine``
    row: int  # which of its rows
    num_rows: int  # of how many

    def __call__(self) -> Any:
        """Make the engine."""
        return self.make()


class EnginePart:
    """One row of an engine."""

    frames = Frames.NONE  # engines send none

    def __init__(self, index: int, engine: Engine, row: int) -> None:
        self.index = index
        self.engine = engine
        self.row = row

    def attach(self, slots: Slots, row: int) -> None:
        """Set where the results go."""
        if self.row == 0:
            self.engine.attach(slots, row)

    def describe(self) -> Description:
        """What a backend must know of it."""
        return self.engine.describe()

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> None:
        """Take part in the reset that was announced."""
        self.engine.take_part(self.row)

    def step(self, action: Any) -> None:
        """Take part in a step of all its engine's rows, which come in any order."""
        self.engine.take_part_in_step(self.row)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Ask the row's own environment, or take part in the call that was announced."""
        own = self.engine.sub_envs
        return self.engine.take_part(self.row) if own is None else getattr(own[self.row], method)(*arguments)

    call = partialmethod(ask, "call")
    get_attr = partialmethod(ask, "get_attr")
    set_attr = partialmethod(ask, "set_attr")
    has_attr = partialmethod(ask, "has_attr")
    is_wrapped = partialmethod(ask, "is_wrapped")

    def close(self, timeout: float = 5.0, terminate: bool = False) -> None:
        """Close the engine, once."""
        if self.row == 0:
            self.engine.close(timeout, terminate)

    def failure(self, error: BaseException, during: str, action: Any = None) -> Failure:
        """Report that its engine raised: all the rows that were asked with it have failed."""
        engine, of_row, note = self.engine, during in ("step", "reset"), ""
        error = error.error if isinstance(error, AgainError) else error
        whole = ""
        if of_row and engine.is_asked_whole():
            several = engine.num_rows > 1
            whole = (
                f" failed with the other rows of its {engine.name}, which" if several else f", all of a {engine.name},"
            )
        if whole and not isinstance(error, VecwrapError):
            note = (
                f"\nReset all {engine.num_rows} before the next step; if that raises too, as after the death of one of "
                "its workers, make it again. With vecwrap.build instead, errors name the sub-environment that failed, "
                'and on_failure="restart" recreates it.'
            )
        elif not of_row and engine.sub_envs is None and engine.asked_of > 1:
            note = f"\n{engine.name} does not report which of its {engine.asked_of} rows that were asked it was."
        return replace(
            make_failure(self.index, error),
            during=during,
            action=action,
            seed=engine.seed_of(self.row),
            note=note,
            refused=isinstance(error, ArgumentError) and not of_row,
            whole=whole,
        )

    def refused(self, error: Exception, during: str, action: Any, *, of_the_end: bool) -> Failure:
        """Report that its result cannot be passed on."""
        return self.failure(error, during, action)

    def made_anew(self, takeover: Takeover) -> EnginePart:
        """Refuse: an engine's rows cannot be restarted one by one."""
        raise PlanError(f"{self.engine.name}: an engine is not made anew")


Source = SubEnv | EnginePart


def make_source(
    index: int, factory: Factory, mode: Autoreset, before: Source | None, *, debug: bool
) -> SubEnv | EnginePart:
    """Make what stands in a row; ``before`` stands in the row before it."""
    if not isinstance(factory, PartFactory):
        return SubEnv(index, factory, mode, debug=debug)
    if factory.row:
        assert isinstance(before, EnginePart)
        return EnginePart(index, before.engine, factory.row)
    made = factory.make()
    try:
        engine = made if isinstance(made, Engine) else Engine(made)
        engine.debug = debug
        rows, own = engine.num_rows, engine.mode.value
        if rows != factory.num_rows:
            raise PlanError(f"{engine.name}: expected an engine of {factory.num_rows} rows, got one of {rows}")
        if engine.mode is not mode:
            raise PlanError(f'{engine.name} declares {own}, expected {mode.value}; set autoreset="{own}"')
    except BaseException:
        with contextlib.suppress(Exception):
            made.vector_env.close() if isinstance(made, Engine) else made.close()
        raise
    return EnginePart(index, engine, 0)


def of_engines(factories: Sequence[Factory]) -> bool:
    """Whether rows are an engine's, though of one row each."""
    return isinstance(factories[0], PartFactory)


def together(factories: Sequence[Factory]) -> int:
    """How many consecutive rows step together: 1, or the rows of an engine."""
    first = factories[0]
    return first.num_rows if isinstance(first, PartFactory) else 1


def announce(sources: Sequence[Source], method: str, arguments: Sequence[tuple[Any, ...]]) -> None:
    """Tell the engines among these of what is asked of their rows, before each of them is asked."""
    by_engine: dict[int, list[tuple[EnginePart, tuple[Any, ...]]]] = {}
    for source, given in zip(sources, arguments, strict=True):
        if isinstance(source, EnginePart):
            by_engine.setdefault(id(source.engine), []).append((source, given))
    for parts in by_engine.values():
        engine = parts[0][0].engine
        engine.announce(method, [part.row for part, _ in parts], [given for _, given in parts])
