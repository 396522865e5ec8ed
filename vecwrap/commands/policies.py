"""Policies for ``vecwrap run``: from a batch of observations to a batch of actions."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from vecwrap.errors import SpecError, VecwrapError, did_you_mean
from vecwrap.registry import import_target, is_import_path
from vecwrap.vec_env import VecEnv

__all__ = ["Policy", "find_policy"]

Policy: TypeAlias = Callable[[Any], Any]
_OWN = ("random", "zeros")


def find_policy(name: str, env: VecEnv) -> Policy:
    """Return the policy of a name.

    Args:
        name: ``random``, ``zeros`` (the action nearest to zero), or ``module:callable``; the callable takes batched
            observations and returns batched actions.
        env: the environment to act in.

    Raises:
        SpecError: the name cannot be resolved.
    """
    if name == "random":
        return lambda observations: env.action_space.sample()
    if name == "zeros":
        zeros = _zeros(env)
        return lambda observations: zeros
    if ":" not in name:
        raise SpecError(f"--policy: expected random, zeros or module:callable, got {name!r}.{did_you_mean(name, _OWN)}")
    return _guarded(name, _imported(name))


def _imported(name: str) -> Policy:
    module_name, _, attribute = name.partition(":")
    where = f"--policy {name}"
    if module_name.endswith(".py") and Path(module_name).is_file():
        module_path = ".".join(Path(module_name).with_suffix("").parts)
        raise SpecError(
            f"{where}: expected module:callable, got a file name; leave out .py: {module_path}:{attribute}."
        )
    if is_import_path(name):
        try:
            importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            raise SpecError(f"{where}: there is no module {error.name!r} in {Path.cwd()} or installed.") from error
        except (Exception, SystemExit) as error:
            raise SpecError(f"{where}: importing {module_name} raised {type(error).__name__}: {error}") from error
    return import_target(name, where)


def _guarded(name: str, policy: Policy) -> Policy:
    def act(observations: Any) -> Any:
        try:
            return policy(observations)
        except (Exception, SystemExit) as error:
            raise VecwrapError(f"--policy {name} raised {type(error).__name__}: {error}") from error

    return act


def _zeros(env: VecEnv) -> Any:
    space = env.single_action_space
    out: Any = create_empty_array(space, env.num_envs)
    return concatenate(space, [_nearest_to_zero(space)] * env.num_envs, out)


def _nearest_to_zero(space: spaces.Space[Any]) -> Any:
    """The element of the space that is nearest to zero."""
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    if isinstance(space, spaces.Discrete):
        return np.clip(np.int64(0), space.start, space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return np.clip(np.zeros(space.shape, space.dtype), space.start, space.start + space.nvec - 1)
    if isinstance(space, spaces.MultiBinary):
        return np.zeros(space.shape, space.dtype)
    if isinstance(space, spaces.Dict):
        return {key: _nearest_to_zero(member) for key, member in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_nearest_to_zero(member) for member in space.spaces)
    raise SpecError(f"--policy zeros: the action space {space} contains no zero. Use --policy random.")
