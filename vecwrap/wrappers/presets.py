"""Presets: several wrappers under one name; and this package's own, for continuous control."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any


class Preset:
    """Makes a preset from a function that returns wrappers, inner first.

    The wrappers may have any form that pipelines accept.

    A preset is used in pipelines like a wrapper, by name, by import path or as an object, and takes
    the function's arguments. The plan replaces it with its wrappers, and so does the pipeline of a
    built environment. A preset may contain other presets.

    Args:
        function: returns the wrappers; its docstring's first line says what they do.

    >>> @Preset
    ... def short_episodes(limit: int = 50) -> list[object]:
    ...     '''Cut episodes short, and record them.'''
    ...     return [{"time_limit": limit}, "monitor"]
    >>> short_episodes(limit=9)
    [{'time_limit': 9}, 'monitor']
    """

    def __init__(self, function: Callable[..., Sequence[Any]]) -> None:
        functools.update_wrapper(self, function)
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Sequence[Any]:
        return self._function(*args, **kwargs)


@Preset
def mujoco(*, gamma: float = 0.99, clip: float = 10.0) -> list[Any]:
    """Clip actions to their bounds; normalise observations and rewards by running statistics.

    As OpenAI Baselines does for MuJoCo environments, and later Stable-Baselines3's zoo. Works for
    any environment whose actions are a Box and whose observations are numbers.

    Args:
        gamma: the discount of the running return whose standard deviation rewards are divided by;
            use the agent's.
        clip: the largest absolute value of normalised observations and rewards.

    >>> import vecwrap
    >>> wrappers = ["mujoco:gamma=0.9"]
    >>> with vecwrap.build("Pendulum-v1", n=2, wrappers=wrappers, backend="dummy") as env:
    ...     observations, infos = env.reset(seed=1)
    >>> observations.shape, observations.dtype
    ((2, 3), dtype('float32'))
    """
    return ["clip_action", {"normalize": {"gamma": gamma, "clip_obs": clip, "clip_reward": clip}}]
