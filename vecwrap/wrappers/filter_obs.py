"""Some members of Dict observations."""

from __future__ import annotations

from gymnasium import spaces

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError
from vecwrap.rows.batch import Batch
from vecwrap.rows.members import check_keys


class FilterObs(VecEnvWrapper):
    """Keep some members of Dict observations, and drop the rest.

    They keep their order in the environment's space.

    Args:
        env: what it wraps; its observations are a Dict.
        keys: which members to keep.

    Raises:
        PlanError: the observations are not a Dict, a member does not exist, or no member is named.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> class Robot(gymnasium.Env):
        ...     observation_space = spaces.Dict(
        ...         arm=spaces.Discrete(2), eye=spaces.Discrete(3), goal=spaces.Discrete(4)
        ...     )
        ...     action_space = spaces.Discrete(2)
        >>> env = FilterObs(vecwrap.build(Robot, n=1, backend="dummy"), ("goal", "arm"))
        >>> env.single_observation_space
        Dict('arm': Discrete(2), 'goal': Discrete(4))
        >>> env.close()
    """

    def __init__(self, env: VecEnv, keys: tuple[str, ...]) -> None:
        space = env.single_observation_space
        if not isinstance(space, spaces.Dict):
            raise PlanError(
                f"filter_obs: expected observations of a Dict space, got {space}; leave the "
                "wrapper out"
            )
        keys = check_keys("filter_obs", space, keys)
        super().__init__(env, space)  # stores a copy, which may be changed
        for key in set(space.spaces) - set(keys):
            del self.single_observation_space.spaces[key]  # type: ignore[attr-defined]
        self.call_state.set_observation_space(self, self.single_observation_space)
        self._keys = tuple(self.single_observation_space.spaces)  # type: ignore[attr-defined]

    def on_observations(self, observations: Batch) -> Batch:
        return {key: observations[key] for key in self._keys}
