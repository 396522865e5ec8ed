"""Rewards divided by the standard deviation of the discounted return."""

from __future__ import annotations

from typing import ClassVar

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.rows.normalizers import NormalizerHooks, RewardNormalizer


class NormalizeReward(NormalizerHooks, VecEnvWrapper):
    """Divide rewards by the standard deviation of the discounted return.

    OpenAI Baselines' ``VecNormalize`` scales rewards in the same way.

    Each sub-environment has a running return, ``return * gamma + reward``, which is counted at
    every action and restarts when its episode ends or is reset. A reward becomes ``reward / √(var +
    epsilon)``, clipped to ±``clip``, where ``var`` is the variance of all returns counted so far.
    The mean is not subtracted, because that would change the optimal behaviour. The statistics are
    updated while ``env.training`` is True (see ``env.train()`` and ``env.eval()``).

    Changes only the agent's rewards: ``raw_rewards``, and so a monitor's scores, remain the
    environment's own. ``env.get_original_reward()`` returns the rewards before normalisation, also
    through outer wrappers.

    At an episode's end:
        The last reward is counted, then the running return restarts.

    Args:
        env: what it wraps.
        gamma: the discount of the running return; use the agent's.
        clip: the largest absolute value.
        epsilon: added to the variance, to avoid division by 0.

    Attributes:
        rewards: holds the ``statistics`` of the returns, and the running ``returns``.

    Raises:
        PlanError: an argument out of range.
        NotFiniteError: during training, a reward to be counted is not finite.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = NormalizeReward(vecwrap.build("Pendulum-v1", n=2, backend="dummy"))
        >>> observations, infos = env.reset(seed=1)
        >>> for _ in range(100):
        ...     observations, rewards, *_ = env.step(env.action_space.sample())
        >>> bool((abs(rewards) < abs(env.get_original_reward())).all())
        True
        >>> env.close()
    """

    reads_observations: ClassVar[bool] = False

    def __init__(
        self, env: VecEnv, *, gamma: float = 0.99, clip: float = 10.0, epsilon: float = 1e-8
    ) -> None:
        super().__init__(env)
        self.rewards: RewardNormalizer = RewardNormalizer(
            "normalize_reward", env.num_envs, gamma=gamma, clip=clip, epsilon=epsilon
        )
        self._normalizers = {"": self.rewards}
