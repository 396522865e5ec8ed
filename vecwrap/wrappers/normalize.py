"""Observations and rewards normalised by running statistics."""

from __future__ import annotations

from typing import Any

from vecwrap.batch import Batch
from vecwrap.contract import FloatArray, StepResult
from vecwrap.parts.normalizers import ObservationNormalizer, RewardNormalizer
from vecwrap.running import RunningStatistics
from vecwrap.vec_env import VecEnv
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["Normalize"]


class Normalize(VecEnvWrapper):
    """Normalise observations and rewards; see ``normalize_obs`` and ``normalize_reward`` for details.

    ``env.get_original_obs()`` and ``env.get_original_reward()`` return the values before normalisation, also through
    outer layers.

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
        >>> from vecwrap.backends.dummy import DummyBackend
        >>> env = Normalize(DummyBackend([lambda: gymnasium.make("Pendulum-v1")] * 2), gamma=0.9)
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
        self.observations = ObservationNormalizer(
            "normalize",
            env.single_observation_space,
            env.num_envs,
            clip=clip_obs,
            epsilon=epsilon,
            keys=keys,
            integers=integers,
        )
        self.rewards = RewardNormalizer("normalize", env.num_envs, gamma=gamma, clip=clip_reward, epsilon=epsilon)
        self._set_observation_space(self.observations.space)

    def on_step(self, step: StepResult) -> None:
        """Count, then normalise; if observations or rewards cannot be counted, neither are."""
        observations = self.observations.to_count(step, self.training)
        rewards = self.rewards.to_count(step, self.training)
        self.observations.on_step(step, observations)
        self.rewards.on_step(step, rewards)

    def layer_statistics(self) -> dict[str, RunningStatistics]:
        """The statistics of both halves themselves."""
        return {**self.observations.layer_statistics(), **self.rewards.layer_statistics()}

    def use_statistics(self, statistics: dict[str, RunningStatistics]) -> None:
        """Use other statistics."""
        self.observations.use_statistics(statistics)
        self.rewards.use_statistics(statistics)

    def layer_state(self) -> dict[str, Any]:
        """Return the state of both halves."""
        return {"observations": self.observations.state(), "rewards": self.rewards.state()}

    def load_layer_state(self, state: dict[str, Any]) -> None:
        """Take in what ``layer_state`` gave."""
        self.observations.load(state["observations"])
        self.rewards.load(state["rewards"])

    def _original_observations(self) -> Batch:
        return self.observations.original()

    def _original_rewards(self) -> FloatArray:
        return self.rewards.original()
