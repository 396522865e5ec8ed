"""Observations cast to another dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError
from vecwrap.rows import members
from vecwrap.rows.batch import Batch
from vecwrap.rows.columns import ARRAY_SPACES
from vecwrap.rows.members import Key


class Dtype(VecEnvWrapper):
    """Cast observations to a dtype.

    A Box keeps its bounds, Discrete and MultiBinary become a Box, MultiDiscrete stays one if the
    dtype is an integer type and becomes a Box otherwise. Floats cast to integers lose their
    fractional part.

    Args:
        env: what it wraps; its observations are arrays, or a Dict of them.
        dtype: NumPy's name of an integer or float type: ``"float32"``, ``"uint8"``, ...
        keys: which members of a Dict to cast; None means all.

    Raises:
        PlanError: an unsupported observation space, an unknown dtype, or one that cannot hold the
            bounds.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = Dtype(vecwrap.build("CartPole-v1", n=2, backend="dummy"), "float64")
        >>> observations, infos = env.reset(seed=1)
        >>> observations.dtype
        dtype('float64')
        >>> env.close()
    """

    def __init__(self, env: VecEnv, dtype: str, *, keys: tuple[str, ...] | None = None) -> None:
        self._dtype = _read(dtype)
        chosen = members.choose(
            "dtype",
            env.single_observation_space,
            keys,
            lambda space: isinstance(space, ARRAY_SPACES),
            "a Box, Discrete, MultiDiscrete or MultiBinary",
            "the wrapper flatten, placed inside this one, turns most spaces into a Box",
        )
        cast: dict[Key, Any] = {
            key: _cast(space, self._dtype, key) for key, space in chosen.items()
        }
        self._functions = dict.fromkeys(chosen, lambda values: values.astype(self._dtype))
        super().__init__(env, members.replaced(env.single_observation_space, cast))

    def on_observations(self, observations: Batch) -> Batch:
        return members.apply(self._functions, observations)


def _read(name: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(name)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "iuf":
        raise PlanError(
            f'dtype: expected an integer or float type of NumPy, such as "float32", got "{name}"'
        )
    return dtype


def _cast(space: spaces.Space[Any], dtype: np.dtype[Any], key: Key) -> spaces.Space[Any]:
    """Return the space after the cast; whatever the values are, the dtype must hold the bounds."""
    low, high = _bounds(space)
    limits: Any
    if dtype.kind == "f":
        limits = np.finfo(dtype)
    else:
        limits = np.iinfo(dtype)
    bounds = np.stack([low, high])
    if bounds.dtype.kind == "f":
        bounds = bounds.astype(np.float64)  # float32 cannot represent 2**31 - 1, to compare with
    held = (bounds >= limits.min) & (bounds <= limits.max)
    if dtype.kind == "f":
        held |= np.isinf(bounds)
    if not held.all():
        raise PlanError(
            f"dtype: {members.name_of(key)}: expected bounds that {dtype} can hold, {limits.min} "
            f"to {limits.max}, got {space}; use a larger dtype, or put scale_obs inside this "
            "wrapper"
        )
    if isinstance(space, spaces.MultiDiscrete) and dtype.kind in "iu":
        return spaces.MultiDiscrete(space.nvec, dtype=dtype, start=space.start)
    return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)


def _bounds(space: Any) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start), np.asarray(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8)
