"""Makes the sources of a backend, each with its factory."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from vecwrap.errors import ArgumentError, PlanError
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.batched_engine import BatchedEngine
from vecwrap.sources.engine import Engine
from vecwrap.sources.game import Game
from vecwrap.sources.game_env import is_parallel, refuse_other
from vecwrap.sources.parallel_game import ParallelGame
from vecwrap.sources.recreate_counter import RecreateCounter
from vecwrap.sources.source import Source
from vecwrap.sources.source_factories import EngineFactory, Factory, GameFactory
from vecwrap.sources.sub_env import SubEnv
from vecwrap.sources.turn_game import TurnGame


def make_source(
    index: int, factory: Factory, mode: Autoreset, *, debug: bool, recreate_every: int | None = None
) -> Source:
    """Make a source; ``index`` is the number of its first row among all sub-environments."""
    source = _make_source(index, factory, mode, debug=debug)
    if recreate_every is not None:
        source.recreate_counter = RecreateCounter(recreate_every)
    return source


def _make_source(index: int, factory: Factory, mode: Autoreset, *, debug: bool) -> Source:
    if not isinstance(factory, (EngineFactory, GameFactory)):
        return SubEnv(index, factory, mode, debug=debug)
    made = factory.make()
    try:
        source = _make_inner(made, index, factory, mode)
        source.index = index
        source.debug = debug
        if source.num_rows != factory.num_rows:
            expected = f"an {source.kind} of {factory.num_rows} rows"
            raise PlanError(f"{source.name}: expected {expected}, got one of {source.num_rows}")
        if source.mode is not mode:
            own = source.mode.value
            raise PlanError(
                f'{source.name} declares {own}, expected {mode.value}; set autoreset="{own}"'
            )
    except BaseException:
        with contextlib.suppress(Exception):
            if isinstance(made, Engine):
                made.vector_env.close()
            else:
                made.close()
        raise
    return source


def _make_inner(
    made: Any, index: int, factory: EngineFactory | GameFactory, mode: Autoreset
) -> Engine | Game:
    if isinstance(factory, GameFactory):
        refuse_other(made)
        kind = ParallelGame if is_parallel(made) else TurnGame
        return kind(made, index // factory.num_rows, mode, factory.make, factory.seats)
    if isinstance(made, Engine):
        return made
    options = getattr(factory.make, "engine_options", None)
    if factory.batch_size is not None:
        return BatchedEngine(made, autoreset=mode, options=options)
    return Engine(made, autoreset=mode, make=factory.make, options=options)


def refuse_one_for_several(sources: Sequence[Source]) -> None:
    """Refuse a factory that returns what another source already has."""
    seen: dict[int, int] = {}
    for source in sources:
        number = source.index // source.num_rows
        other = seen.setdefault(id(source.unwrapped), number)
        if other != number:
            several = "sub-environments"
            if source.kind != "environment":
                several = f"{source.kind}s"
            raise ArgumentError(
                f"env: expected a new {source.kind} from each call, got the same for {several} "
                f"{other} and {number}; make it within the callable"
            )
