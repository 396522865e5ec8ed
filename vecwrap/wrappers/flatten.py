"""Observations as one vector each."""

from __future__ import annotations

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.rows.batch import Batch
from vecwrap.rows.members import flat, flat_box


class Flatten(VecEnvWrapper):
    """Flatten observations of any space of fixed size to one vector each.

    Arrays are raveled, Discrete and MultiDiscrete values become one-hot, and members of Dict and
    Tuple spaces are concatenated in the order of the space, as in
    ``gymnasium.spaces.utils.flatten``.

    Args:
        env: what it wraps.

    Raises:
        PlanError: observations without a flat form of fixed size (Graph, Sequence, custom spaces).

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = Flatten(vecwrap.build("FrozenLake-v1", n=2, backend="dummy"))
        >>> env.single_observation_space
        Box(0, 1, (16,), int64)
        >>> observations, infos = env.reset(seed=1)
        >>> observations
        array([[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
               [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]])
        >>> env.close()
    """

    def __init__(self, env: VecEnv) -> None:
        box = flat_box("flatten", env.single_observation_space)
        super().__init__(env, box)
        self._inner_space = env.single_observation_space
        self._dtype = box.dtype

    def on_observations(self, observations: Batch) -> Batch:
        return flat(self._inner_space, observations).astype(self._dtype, copy=False)
