"""Rewards multiplied by a factor."""

from __future__ import annotations

import math
from typing import ClassVar

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError
from vecwrap.rows.step_result import StepResult


class ScaleReward(VecEnvWrapper):
    """Multiply rewards by a factor.

    Changes only the agent's rewards: ``raw_rewards``, and so a monitor's scores, remain the
    environment's own, wherever the monitor is in the chain.

    At an episode's end:
        The last reward is scaled like any other.

    Args:
        env: what it wraps.
        factor: what each reward is multiplied by.

    Raises:
        PlanError: the factor is not finite.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = ScaleReward(vecwrap.build("CartPole-v1", n=2, backend="dummy"), 0.1)
        >>> observations, infos = env.reset(seed=1)
        >>> observations, rewards, *rest = env.step([0, 1])
        >>> rewards
        array([0.1, 0.1])
        >>> env.close()
    """

    reads_observations: ClassVar[bool] = False

    def __init__(self, env: VecEnv, factor: float) -> None:
        super().__init__(env)
        if not math.isfinite(factor):
            raise PlanError(f"scale_reward: factor: expected a finite number, got {factor}")
        self._factor = factor

    def on_step(self, step: StepResult) -> None:
        step.rewards = step.rewards * self._factor
        if step.unplayed:
            step.change_unplayed(lambda rewards: rewards * self._factor)
