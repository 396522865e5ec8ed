"""Observations and rewards normalised by running statistics."""

from __future__ import annotations

from vecwrap.env.call_results import KeptByWrapper
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.rows.normalizers import NormalizerHooks, ObservationNormalizer, RewardNormalizer


class Normalize(NormalizerHooks, VecEnvWrapper):
    """Normalise observations and rewards; see ``normalize_obs`` and ``normalize_reward``.

    ``env.get_original_obs()`` and ``env.get_original_reward()`` return the values before
    normalisation, also through outer wrappers.

    At an episode's end:
        The running return restarts; the terminal observation is normalised, but not counted.

    Args:
        env: what it wraps; its observations are a Box of floats, or a Dict of such.
        gamma: the discount of the running return; use the agent's.
        clip_obs: the largest absolute value in an observation.
        clip_reward: the largest absolute value of a reward.
        epsilon: added to variances, to avoid division by 0.
        keys: which members of a Dict to normalise; None means all.
        integers: whether to normalise Boxes of integers too, such as images.

    Attributes:
        observations: holds the ``statistics`` of the observations.
        rewards: holds the ``statistics`` of the returns, and the running ``returns``.

    Raises:
        PlanError: observations that cannot be normalised, or an argument out of range.
        NotFiniteError: during training, an observation or a reward to be counted is not finite.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = Normalize(vecwrap.build("Pendulum-v1", n=2, backend="dummy"), gamma=0.9)
        >>> observations, infos = env.reset(seed=1)
        >>> env.single_observation_space
        Box(-10.0, 10.0, (3,), float32)
        >>> env.eval().training  # every statistic in the chain stands still
        False
        >>> env.close()
    """

    def __init__(
        self,
        env: VecEnv,
        *,
        gamma: float = 0.99,
        clip_obs: float = 10.0,
        clip_reward: float = 10.0,
        epsilon: float = 1e-8,
        keys: tuple[str, ...] | None = None,
        integers: bool = False,
    ) -> None:
        super().__init__(env)
        self.observations: ObservationNormalizer = ObservationNormalizer(
            "normalize", env, clip=clip_obs, epsilon=epsilon, keys=keys, integers=integers
        )
        self.rewards: RewardNormalizer = RewardNormalizer(
            "normalize", env.num_envs, gamma=gamma, clip=clip_reward, epsilon=epsilon
        )
        self._normalizers = {"observations": self.observations, "rewards": self.rewards}
        self.call_state.set_observation_space(self, self.observations.space)
        self.call_state.results.last_observations = KeptByWrapper(self.observations.all_returned)
