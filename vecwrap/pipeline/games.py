"""Games of several agents in pipelines: PettingZoo's ids, what makes games, and a look at one before n are started."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from vecwrap.errors import PlanError, SpecError, did_you_mean, is_installed
from vecwrap.sources.description import is_game
from vecwrap.sources.game_factories import PETTINGZOO, MakeGame

_FUNCTIONS = "parallel_env", "env"  # of PettingZoo's modules; the first that is there is taken


def find_game(name: str, kwargs: Mapping[str, Any], where: str) -> MakeGame:
    """Find an id in PettingZoo's registry; of games that are there in both forms, the parallel one.

    Args:
        name: the id, as ``classic/connect_four-v3``.
        kwargs: the arguments to make it with.
        where: the place that it was written, for errors.
    """
    if not is_installed(PETTINGZOO):
        raise SpecError(f'{where} needs PettingZoo: pip install "vecwrap[games]" (with a game\'s own packages, as in '
                        '"pettingzoo[classic]").')  # fmt: skip
    import pettingzoo

    registries = getattr(pettingzoo, "parallel_registry", None), getattr(pettingzoo, "aec_registry", None)
    if None in registries:
        raise SpecError(
            f"{where}: the installed PettingZoo has no registry, which came with 1.27; give what makes the game, "
            "pettingzoo.classic.connect_four_v3.env for instance."
        )
    from pettingzoo.env_registry.helpers import find_spec

    for kind, registry in zip(("parallel", "aec"), registries, strict=True):
        try:
            return MakeGame(kind, find_spec(registry, name), kwargs)
        except Exception:  # of several kinds, all of which say that it is not in this registry
            continue
    known = sorted({*pettingzoo.parallel_registry, *pettingzoo.aec_registry})
    near = did_you_mean(name, known).replace('"', f'"{PETTINGZOO}:', 1)
    raise SpecError(f"{where}: PettingZoo has no such game.{near}")


def of_raw_game(make: Any) -> Any:
    """What PettingZoo's functions, which take any arguments, make the game with: ``raw_env``; else the same."""
    for _ in range(2):  # parallel_env calls env, which calls raw_env
        if isinstance(make, FunctionType) and inspect.getfullargspec(make)[:3] == ([], None, "kwargs"):
            seen = {**make.__globals__, **inspect.getclosurevars(make).nonlocals}
            make = seen.get("raw_env") or seen.get("env_fn") or make
    return make


def makes_games(make: Any) -> bool:
    """Whether it can be seen that a callable makes games: by its class, its module, or what it says that it returns."""
    make = getattr(make, "func", make)  # of a partial
    if isinstance(make, type):
        return is_game(make)
    if str(getattr(make, "__module__", "")).partition(".")[0] == PETTINGZOO:
        return True
    returns = getattr(make, "__annotations__", {}).get("return")
    return isinstance(returns, type) and is_game(returns)


def from_module(module: ModuleType) -> str | None:
    """The path of what makes games in one of PettingZoo's modules, or in one like it; None if there is nothing."""
    found = [name for name in _FUNCTIONS if makes_games(getattr(module, name, None))]
    return f"{module.__name__}:{found[0]}" if found else None


def refuse_in_pipeline(where: str, *, envs_per_engine: bool, several: bool) -> None:
    """Refuse what games cannot be combined with."""
    if envs_per_engine:
        raise PlanError(f"{where}: a game is not an engine; leave envs_per_engine out: its agents are rows.")
    if several:
        raise PlanError(f"{where}: expected one kind of game for all, got a list; build a vector of each.")


def why_not_around_games(name: str) -> str:
    """Why a wrapper of a ``gymnasium.Env`` cannot be put around a game, and what to do."""
    return (
        f'"{name}" wraps a gymnasium.Env of one agent, and a game has several: expected a wrapper of the whole vector '
        "(framestack, normalize, monitor, ...), which treats each agent's row by itself; or put one of PettingZoo's or "
        "SuperSuit's around the game, in what makes it."
    )
