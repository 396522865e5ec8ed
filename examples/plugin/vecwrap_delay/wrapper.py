"""Rewards that are paid at an episode's end."""

from typing import Any

import numpy as np

import vecwrap

__all__ = ["DelayReward"]


class DelayReward(vecwrap.VecEnvWrapper):
    """Pay nothing until an episode ends, and then all of it.

    At an episode's end:
        The sum of its rewards is paid.

    Args:
        env: what it wraps.
        interest: how much of what is owed is added to it at each step.
    """

    def __init__(self, env: vecwrap.VecEnv, interest: float = 0.0) -> None:
        super().__init__(env)
        if interest < 0:
            raise vecwrap.PlanError(f"delay_reward: interest: expected 0 or more, got {interest}")
        self.interest = interest
        self._owed = np.zeros(env.num_envs)

    def on_step(self, step: vecwrap.StepResult) -> None:
        """Add up; pay where an episode ended; owe nothing where one begins."""
        owed = self._owed[step.rows]
        owed = np.where(step.acted, owed * (1 + self.interest) + step.rewards, owed)
        step.rewards = np.where(step.ended, owed, 0.0)
        self._owed[step.rows] = np.where(step.ended | step.first, 0.0, owed)

    def wrapper_state(self) -> dict[str, Any]:
        """Give what is owed."""
        return {"owed": self._owed.copy()}

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        """Owe that."""
        self._owed[:] = state["owed"]
