"""What can be inspected of an environment: its wrappers, its spaces and its description."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from vecwrap.errors import BackendError
from vecwrap.rows.columns import ARRAY_SPACES

Env = gymnasium.Env[Any, Any]


def chain_of(env: Env) -> list[Env]:
    """Return the wrappers of an environment, outermost first, down to the environment itself."""
    chain = [env]
    while isinstance(chain[-1], gymnasium.Wrapper):
        chain.append(chain[-1].env)
    return chain


def chain_of_game(game: Any) -> list[Any]:
    inner = next((vars(game)[name] for name in ("env", "aec_env") if name in vars(game)), None)
    if is_game(type(inner)):
        return [game, *chain_of_game(inner)]
    return [game]


def wrappers_of(env: Env) -> Iterator[gymnasium.Wrapper[Any, Any, Any, Any]]:
    return (wrapper for wrapper in chain_of(env) if isinstance(wrapper, gymnasium.Wrapper))


_GAMES = {("pettingzoo.utils.env", "AECEnv"), ("pettingzoo.utils.env", "ParallelEnv")}


def is_game(kind: type[Any]) -> bool:
    return any((base.__module__, base.__name__) in _GAMES for base in kind.__mro__)


def makes_games(make: Any) -> bool:
    """Return whether a callable's class, module or return annotation shows that it makes games."""
    make = getattr(make, "func", make)  # of a partial
    if isinstance(make, type):
        return is_game(make)
    if str(getattr(make, "__module__", "")).partition(".")[0] == "pettingzoo":
        return True
    returns = getattr(make, "__annotations__", {}).get("return")
    return isinstance(returns, type) and is_game(returns)


def game_path_of(module: ModuleType) -> str | None:
    """Return the path of what makes games in a module like PettingZoo's, or None."""
    for name in ("parallel_env", "env"):
        if makes_games(getattr(module, name, None)):
            return f"{module.__name__}:{name}"
    return None


def game_hint(env: Any) -> str:
    """Return a hint for a PettingZoo game or module that was given instead of its factory.

    The game may also have been given instead of a vector environment.
    """
    is_module = isinstance(env, ModuleType) and env.__name__.partition(".")[0] == "pettingzoo"
    if not (is_module or is_game(type(env))):
        return ""
    return (
        "vecwrap.build takes what makes a PettingZoo environment, and has its agents as rows: an "
        'id, "pettingzoo:classic/connect_four-v3", or a callable, '
        "pettingzoo.classic.connect_four_v3.env"
    )


def space_text(space: Any) -> str:
    """Describe a space's shape, dtype and bounds.

    Bounds that are infinite, or the dtype's own, are left out.
    """
    if isinstance(space, spaces.Dict):
        return (
            f"Dict({', '.join(f'{key}: {space_text(part)}' for key, part in space.spaces.items())})"
        )
    if isinstance(space, spaces.Tuple):
        return f"Tuple({', '.join(map(space_text, space.spaces))})"
    if isinstance(space, spaces.Discrete):
        return f"Discrete({space.n})"
    if isinstance(space, spaces.Box):
        low = _bound(space.low)
        high = _bound(space.high)
        if low is None or high is None or _whole_dtype(space):
            return short_text(space)
        return f"{short_text(space)} in [{low:g}, {high:g}]"
    if isinstance(space, (spaces.MultiBinary, spaces.MultiDiscrete)):
        return f"{space.shape} {space.dtype}"
    return type(space).__name__


def short_text(space: Any) -> str:
    """Describe a space in two or three words, if its members would be too long: ``Dict of 2``."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return f"{type(space).__name__} of {len(space.spaces)}"
    if isinstance(space, spaces.Box):
        return f"{space.shape} {space.dtype}"
    return space_text(space)


def space_data(space: Any) -> dict[str, Any]:
    """Return a space as plain data.

    Bounds are one number, or null if they differ or are infinite.
    """
    data: dict[str, Any] = {"type": type(space).__name__}
    if isinstance(space, spaces.Dict):
        return {
            **data,
            "members": {str(key): space_data(part) for key, part in space.spaces.items()},
        }
    if isinstance(space, spaces.Tuple):
        return {**data, "members": [space_data(part) for part in space.spaces]}
    if isinstance(space, ARRAY_SPACES):
        data |= {"shape": list(space.shape or ()), "dtype": str(space.dtype)}
    if isinstance(space, spaces.Discrete):
        data |= {"n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.Box):
        data |= {"low": _bound(space.low), "high": _bound(space.high)}
    return data


def bytes_of(space: Any) -> int | None:
    """Return the bytes of one observation; None if they vary."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces
        if isinstance(parts, dict):
            parts = tuple(parts.values())
        sizes = [bytes_of(part) for part in parts]
        if None in sizes:
            return None
        return sum(size for size in sizes if size is not None)
    if isinstance(space, ARRAY_SPACES):
        return int(np.prod(space.shape or (), dtype=np.int64)) * np.dtype(space.dtype).itemsize
    return None


def bytes_text(size: int | None) -> str:
    """Write a number of bytes in three digits: ``226 kB``."""
    if size is None:
        return "varies"
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount * 1000:,.0f} GB"


def _bound(bounds: Any) -> float | int | None:
    """The common bound of all elements, if there is one and it is finite."""
    if bounds.size == 0 or not (bounds == bounds.flat[0]).all() or not np.isfinite(bounds.flat[0]):
        return None
    value: float | int = bounds.flat[0].item()
    return value


def _whole_dtype(space: spaces.Box) -> bool:
    """Whether the bounds are those of the integer type itself."""
    dtype: np.dtype[Any] = np.dtype(space.dtype)
    if dtype.kind not in "iu":
        return False
    limits = np.iinfo(dtype)
    return bool((space.low == limits.min).all() and (space.high == limits.max).all())


@dataclass
class EnvDescription:
    """A sub-environment's description of itself, sent in the start-up handshake.

    ``name`` is the name of the environment's class.
    """

    observation_space: Any
    action_space: Any
    metadata: dict[str, Any]
    render_mode: str | None
    spec: Any
    name: str
    why_no_masked_resets: str = ""  # if no row of it can be reset alone
    agents: tuple[str, ...] = ()  # of a game, in the order of its rows
    padding: str = ""  # what was padded to make their spaces equal
    # Of each, if they were padded for opponents who take it off again.
    own_spaces: tuple[tuple[Any, Any], ...] = ()
    monitor: str = ""  # the wrapper of another library that reports infos["episode"]
    why_no_state: str = ""  # of an engine that cannot be saved

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any]) -> EnvDescription:
        return cls(
            getattr(env, "observation_space", None),
            getattr(env, "action_space", None),
            dict(env.metadata or {}),
            env.render_mode,
            env.spec,
            type(env.unwrapped).__name__,
            monitor=next(filter(None, map(_monitor, chain_of(env))), ""),
        )

    @property
    def registration(self) -> tuple[str, int | None]:
        if self.spec is None:
            return (self.name, None)
        return (str(self.spec.id), self.spec.max_episode_steps)

    def check(self, index: int) -> None:
        for what in ("observation_space", "action_space"):
            space = getattr(self, what)
            if not isinstance(space, spaces.Space):
                raise BackendError(
                    f"sub-environment {index} ({self.name}): expected {what} to be a "
                    f"gymnasium.spaces.Space, got {space!r}; set self.{what} in the environment's "
                    "__init__",
                    env_ids=(index,),
                )


# By module and name, so that nothing is imported.
_MONITORS = {
    ("stable_baselines3.common.monitor", "Monitor"): "Stable-Baselines3's Monitor",
    ("gymnasium.wrappers.common", "RecordEpisodeStatistics"): "Gymnasium's RecordEpisodeStatistics",
}


def _monitor(wrapper: Env) -> str:
    for kind in type(wrapper).__mro__:
        if monitor := _MONITORS.get((kind.__module__, kind.__name__)):
            if getattr(wrapper, "_stats_key", "episode") == "episode":  # Gymnasium's takes another
                return monitor
            return ""
    return ""


def joint_description(descriptions: Sequence[tuple[int, EnvDescription]]) -> EnvDescription:
    """Merge descriptions into the first one, with the joint observation space.

    The spec is None if ids or time limits differ.
    """
    first_index, first = descriptions[0]
    for index, other in descriptions:
        other.check(index)
        for what in ("observation_space", "action_space"):
            both = getattr(first, what), getattr(other, what)
            if not same_space(*both) and (what == "action_space" or joint_space(both) is None):
                raise BackendError(
                    f"all sub-environments need the same {what}: sub-environment {first_index} "
                    f"has {both[0]}, sub-environment {index} has {both[1]}; wrap them so that "
                    "they agree, or build a vector of each",
                    env_ids=(first_index, index),
                )
    joint = replace(
        first,
        observation_space=joint_space([each.observation_space for _, each in descriptions]),
        monitor=next((each.monitor for _, each in descriptions if each.monitor), ""),
    )
    registrations = dict.fromkeys(each.registration for _, each in descriptions)
    if len(registrations) == 1:
        return joint
    names = dict.fromkeys(name for name, _ in registrations)
    return replace(joint, spec=None, name=", ".join(names))


def refuse_outside(
    joint: EnvDescription, descriptions: Sequence[tuple[int, EnvDescription]]
) -> None:
    """Raise BackendError if recreated sub-environments do not fit the description of all."""
    for index, made in descriptions:
        if (
            joint_description([(0, joint), (index, made)]).observation_space
            != joint.observation_space
        ):
            raise BackendError(
                f"sub-environment {index} was recreated with other bounds: its observations were "
                f"within {joint.observation_space}, now they are in {made.observation_space}",
                env_ids=(index,),
            )


def same_space(one: Any, other: Any) -> bool:
    """Return whether two spaces are equal.

    Large bounds that both spaces share are not compared number by number.
    """
    if one is other:
        return True
    if type(one) is type(other) is spaces.Box and one.low is other.low and one.high is other.high:
        return bool(one.dtype == other.dtype)
    return bool(one == other)


def joint_space(parts: Sequence[Any]) -> Any:
    """Return the smallest space that contains all parts, or None if not only bounds differ."""
    first = parts[0]
    if all(same_space(part, first) for part in parts[1:]):
        return first
    if any(type(part) is not type(first) for part in parts):
        return None
    if isinstance(first, spaces.Box):
        if any((part.shape, part.dtype) != (first.shape, first.dtype) for part in parts):
            return None
        low = np.minimum.reduce([part.low for part in parts])
        high = np.maximum.reduce([part.high for part in parts])
        return spaces.Box(low, high, dtype=first.dtype.type)
    if isinstance(first, spaces.Discrete):
        start = min(part.start for part in parts)
        return spaces.Discrete(max(part.start + part.n for part in parts) - start, start=start)
    if isinstance(first, spaces.Dict) and all(
        part.spaces.keys() == first.spaces.keys() for part in parts
    ):
        members = {key: joint_space([part.spaces[key] for part in parts]) for key in first.spaces}
        if None in members.values():
            return None
        return spaces.Dict(members)
    if isinstance(first, spaces.Tuple) and all(
        len(part.spaces) == len(first.spaces) for part in parts
    ):
        within = [joint_space(same) for same in zip(*(part.spaces for part in parts), strict=True)]
        if None in within:
            return None
        return spaces.Tuple(within)
    return None
