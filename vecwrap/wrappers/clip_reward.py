"""Rewards clipped to their sign, or to bounds."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError
from vecwrap.rows.step_result import StepResult


class ClipReward(VecEnvWrapper):
    """Clip rewards: to their sign, or to the bounds given.

    Changes only the agent's rewards: ``raw_rewards``, and so a monitor's scores, remain the
    environment's own, wherever the monitor is in the chain. A row in which no action was completed
    and nothing was paid has reward 0, whatever ``low`` is.

    At an episode's end:
        The last reward is clipped like any other.

    Args:
        env: what it wraps.
        low: the lowest reward; None for no lower bound.
        high: the highest reward; None for no upper bound. Without either, rewards become their
            sign: -1, 0 or 1 (Mnih et al. 2015).

    Raises:
        PlanError: ``low`` is above ``high``, or a bound is not a number.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = ClipReward(vecwrap.build("Pendulum-v1", n=2, backend="dummy"))
        >>> observations, infos = env.reset(seed=1)
        >>> observations, rewards, *rest = env.step(env.action_space.sample())
        >>> rewards
        array([-1., -1.])
        >>> env.close()
    """

    reads_observations: ClassVar[bool] = False

    def __init__(self, env: VecEnv, low: float | None = None, high: float | None = None) -> None:
        super().__init__(env)
        for name, bound in (("low", low), ("high", high)):
            if bound is not None and math.isnan(bound):
                raise PlanError(f"clip_reward: {name}: expected a number or None, got nan")
        if low is not None and high is not None and low > high:
            raise PlanError(
                f"clip_reward: expected low <= high, got low={low} and high={high}; swap them"
            )
        self._low = low
        self._high = high

    def on_step(self, step: StepResult) -> None:
        if self._low is None and self._high is None:
            step.rewards = np.sign(step.rewards)
            if step.unplayed:
                step.change_unplayed(np.sign)
        else:
            # Or the agent was paid before its first action.
            counts = step.completed | (step.rewards != 0)
            step.rewards = np.where(
                counts, np.clip(step.rewards, self._low, self._high), step.rewards
            )
            step.change_unplayed(
                lambda paid: np.where(paid != 0, np.clip(paid, self._low, self._high), paid)
            )
