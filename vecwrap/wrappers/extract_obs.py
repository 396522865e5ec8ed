"""One member of Dict observations."""

from __future__ import annotations

from gymnasium import spaces

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError
from vecwrap.rows.batch import Batch
from vecwrap.rows.members import check_keys


class ExtractObs(VecEnvWrapper):
    """Keep one member of Dict observations as the observation, and drop the rest.

    Args:
        env: what it wraps; its observations are a Dict.
        key: which member.

    Raises:
        PlanError: the observations are not a Dict, or have no such member.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> class Robot(gymnasium.Env):
        ...     observation_space = spaces.Dict(
        ...         camera=spaces.Box(0, 1, (8, 8)), goal=spaces.Discrete(4)
        ...     )
        ...     action_space = spaces.Discrete(2)
        >>> env = ExtractObs(vecwrap.build(Robot, n=1, backend="dummy"), "goal")
        >>> env.single_observation_space
        Discrete(4)
        >>> env.close()
    """

    def __init__(self, env: VecEnv, key: str) -> None:
        space = env.single_observation_space
        if not isinstance(space, spaces.Dict):
            raise PlanError(
                f"extract_obs: expected observations of a Dict space, got {space}; leave the "
                "wrapper out"
            )
        check_keys("extract_obs", space, (key,), "key")
        super().__init__(env, space[key])
        self._key = key

    def on_observations(self, observations: Batch) -> Batch:
        return observations[self._key]
