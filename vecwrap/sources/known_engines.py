"""What is known of other libraries' engines, which do not declare it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorWrapper

__all__ = [
    "ends_with_lives",
    "is_of_ale",
    "reports_games",
    "resets_by_mask",
    "returns_fresh_arrays",
    "unwrapped",
]

FRESH = frozenset(
    {
        "gymnasium.envs.classic_control.cartpole.CartPoleVectorEnv.step",
        "ale_py.vector_env.AtariVectorEnv.step",
        "envpool.python.envpool.EnvPoolMixin.step",
    }
)
"""The ``step`` of engines that return arrays which they never write again."""

MASKED_RESETS = {
    "ale_py.vector_env.AtariVectorEnv.reset": ("ale-py", (0, 12)),
    "envpool.python.gymnasium_envpool.GymnasiumEnvPoolMixin.reset": ("envpool", (1, 2)),
}
"""The ``reset`` of engines that honour ``options["reset_mask"]``; the package and since when."""


def unwrapped(engine: Any) -> Any:
    """Return the engine within Gymnasium's vector wrappers."""
    while isinstance(engine, VectorWrapper):
        engine = engine.env
    return engine


def is_of_ale(engine: Any) -> bool:
    return type(unwrapped(engine)).__module__.partition(".")[0] == "ale_py"


def returns_fresh_arrays(engine: Any) -> bool:
    """Whether the arrays of a step are never written again, so that no copy is needed."""
    return _name_of(engine, "step") in FRESH


def resets_by_mask(engine: Any) -> bool:
    """Whether some rows can be reset alone."""
    if isinstance(engine, (SyncVectorEnv, AsyncVectorEnv)):
        return True
    known = MASKED_RESETS.get(_name_of(engine, "reset"))
    if known is None:
        return False
    package, since = known
    try:
        installed = version(package)
    except PackageNotFoundError:
        return False
    return tuple(int(part) for part in installed.split(".")[:2]) >= since


def reports_games(engine: Any) -> bool:
    """Whether infos have the game's own ``reward``, its end (``terminated``) and its length.

    EnvPool's Atari games have, which may clip rewards and end episodes with each lost life; a game
    of theirs then goes on through resets. (ale-py restarts the game when a life is lost.)
    """
    kinds = type(unwrapped(engine)).__mro__
    return any(kind.__module__.startswith("envpool.atari.") for kind in kinds)


def ends_with_lives(engine: Any) -> bool:
    """Whether it ends an episode with each lost life, and a masked reset would begin a new game."""
    return reports_games(engine) and bool(unwrapped(engine).config.get("episodic_life"))


def _name_of(engine: Any, method: str) -> str:
    """Where the method is defined: a class derived from a known one may do something else."""
    function = getattr(type(engine), method, None)
    module = getattr(function, "__module__", "")
    return f"{module}.{getattr(function, '__qualname__', '')}"
