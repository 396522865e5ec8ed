"""What is known of other libraries' engines, which do not declare it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorWrapper

from vecwrap.errors import PlanError
from vecwrap.rows.step_result import Autoreset

__all__ = [
    "MAX_SEED",
    "declared_mode",
    "ends_with_lives",
    "is_at_least",
    "is_of_ale",
    "is_of_envpool",
    "refuse_lacking",
    "refuse_other_mode",
    "reports_games",
    "resets_by_mask",
    "returns_fresh_arrays",
    "rows_at_once",
    "unwrapped",
]

FRESH = frozenset(
    {
        "gymnasium.envs.classic_control.cartpole.CartPoleVectorEnv.step",
        "ale_py.vector_env.AtariVectorEnv.step",
        "envpool.python.envpool.EnvPoolMixin.step",
        "vecwrap.sources.gymnax_engine.GymnaxVectorEnv.step",
    }
)
"""The ``step`` of engines that return arrays which they never write again."""

MAX_SEED = 2**31 - 1
"""Of EnvPool and ale-py, whose seeds are C's int: larger ones count from 0 again."""

_RESET_OF_ENVPOOL = "envpool.python.gymnasium_envpool.GymnasiumEnvPoolMixin.reset"
MASKED_RESETS = {
    "ale_py.vector_env.AtariVectorEnv.reset": ("ale-py", (0, 12)),
    _RESET_OF_ENVPOOL: ("envpool", (1, 2)),
    "vecwrap.sources.gymnax_engine.GymnaxVectorEnv.reset": ("gymnax", (1, 0)),
}
"""The ``reset`` of engines that honour ``options["reset_mask"]``; the package and since when."""


def unwrapped(engine: Any) -> Any:
    """Return the engine within Gymnasium's vector wrappers."""
    while isinstance(engine, VectorWrapper):
        engine = engine.env
    return engine


def is_of_ale(engine: Any) -> bool:
    return type(unwrapped(engine)).__module__.partition(".")[0] == "ale_py"


def has_threads(engine: Any) -> bool:
    """Whether it steps in threads of its own, which a forked process does not have."""
    return is_of_ale(engine) or is_of_envpool(unwrapped(engine))


def returns_fresh_arrays(engine: Any) -> bool:
    """Whether the arrays of a step are never written again, so that no copy is needed."""
    return _name_of(engine, "step") in FRESH


def rows_at_once(engine: Any) -> int:
    """How many rows come from a step: ``batch_size`` of EnvPool and ale-py, else all."""
    inner = unwrapped(engine)
    number = 0  # which EnvPool takes for all
    if is_of_ale(inner):
        number = getattr(inner, "batch_size", 0)
    elif _name_of(inner, "recv") == "envpool.python.envpool.EnvPoolMixin.recv":
        number = inner.config["batch_size"]
    return int(number or engine.num_envs)


def resets_by_mask(engine: Any) -> bool:
    """Whether some rows can be reset alone."""
    if isinstance(engine, (SyncVectorEnv, AsyncVectorEnv)):
        return True
    known = MASKED_RESETS.get(_name_of(engine, "reset"))
    if known is None:
        return False
    return is_at_least(*known)


def is_at_least(package: str, since: tuple[int, int]) -> bool:
    """Whether a package is installed in this version or a newer one."""
    try:
        installed = version(package)
    except PackageNotFoundError:
        return False
    return tuple(int(part) for part in installed.split(".")[:2]) >= since


def is_of_envpool(engine: Any) -> bool:
    """Whether it is EnvPool's, whose ``reset`` warns that it ignores seeds: they are its make's."""
    return _name_of(engine, "reset") == _RESET_OF_ENVPOOL


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


def refuse_lacking(engine: Any, expected: str) -> None:
    needed = {
        "num_envs": ("num_envs",),
        "single_observation_space": ("single_observation_space", "observation_space"),
        "single_action_space": ("single_action_space", "action_space"),
        **{name: (name,) for name in ("reset", "step", "close")},
    }
    lacking = [
        name
        for name, either in needed.items()
        if all(getattr(engine, one, None) is None for one in either)
    ]
    if lacking:
        raise PlanError(
            f"{expected}, got {type(engine).__name__}, which has no {', '.join(lacking)}; set what "
            "is missing, or write one gymnasium.Env and let vecwrap.build vectorise it"
        )
    _refuse_players(engine)


def _refuse_players(engine: Any) -> None:
    """Raise PlanError for EnvPool's games of several players, whose rows are players."""
    engine = unwrapped(engine)
    if not is_of_envpool(engine):
        return
    number = engine.config["max_num_players"]
    if number > 1:
        raise PlanError(
            f"{type(engine).__name__}: expected a row for each sub-environment, got one for each "
            f"of {number} players; games of several agents are those of PettingZoo (docs/games.md)"
        )


def declared_mode(vector_env: Any, given: Autoreset | AutoresetMode | str | None) -> Autoreset:
    declared = (getattr(vector_env, "metadata", None) or {}).get("autoreset_mode")
    if declared is None and type(unwrapped(vector_env)).__module__.startswith("supersuit."):
        declared = AutoresetMode.SAME_STEP  # always, without saying so
    name = type(vector_env).__name__
    if declared is None:
        if given is None:
            raise PlanError(
                f'{name} does not declare its autoreset mode: expected metadata["autoreset_mode"], '
                'or wrap(..., autoreset="next_step") (or "same_step", "disabled"), got neither'
            )
        return Autoreset.parse(given)
    return Autoreset.parse(declared)


def refuse_other_mode(
    name: str, mode: Autoreset, given: Autoreset | AutoresetMode | str | None
) -> None:
    if given is not None and Autoreset.parse(given) is not mode:
        raise PlanError(f"{name} declares {mode.value}, but got autoreset={given!r}; leave it out")
