"""One action for several steps."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from vecwrap.errors import PlanError, at_least, one_of
from vecwrap.sources.declares import Declares
from vecwrap.sources.raw_rewards import float_reward
from vecwrap.wrappers.emulator.lineages import check_skip


class FrameSkip(Declares, gymnasium.Wrapper[Any, Any, Any, Any]):
    """Hold each action for ``frame_skip`` steps, or until the episode ends, and sum the rewards.

    The maximum is over the last two observations of *this* agent step, or its only one, and each
    step gets a copy of the action. (Gymnasium's ``MaxAndSkipObservation`` and Stable-Baselines3's
    ``MaxAndSkipEnv`` pool frames of earlier agent steps if an episode ends within a skip, and an
    environment that writes into its action changes theirs.)

    At an episode's end:
        The agent step ends early, and pools only its own frames.

    Args:
        env: what it wraps. An Atari game that skips frames by itself, such as ``ALE/Pong-v5``, is
            made without a skip.
        frame_skip: how many steps; with 1 there is no pooling.
        pooling: ``"none"``: the agent sees the last observation; ``"max"``: the element-wise
            maximum of the last two, for games such as Atari's that draw some objects only in every
            other frame (Mnih et al. 2015).

    Raises:
        PlanError: an argument out of range, an environment that skips by itself, or pooling without
            a Box.

    Example:
        >>> import gymnasium
        >>> env = FrameSkip(gymnasium.make("CartPole-v1"), 4)
        >>> observation, info = env.reset(seed=1)
        >>> observation, reward, terminated, truncated, info = env.step(1)
        >>> reward
        4.0
        >>> env.close()
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        frame_skip: int = 4,
        *,
        pooling: Literal["none", "max"] = "none",
    ) -> None:
        super().__init__(env)
        _check(frame_skip, pooling)
        check_skip(env, "frame_skip")
        space = env.observation_space
        if pooling == "max" and not isinstance(space, spaces.Box):
            raise PlanError(
                f'frame_skip: pooling: "max" expects observations of a Box, got {space}; leave '
                "pooling out"
            )
        self.frame_skip = frame_skip
        self.pooling = pooling

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total = 0.0
        earlier = latest = None
        for _ in range(self.frame_skip):
            observation, reward, terminated, truncated, info = self.env.step(deepcopy(action))
            total += float_reward(reward)
            if self.pooling == "max":  # at every step, because the episode may end at the next
                earlier = latest
                latest = np.array(observation)
            if terminated or truncated:
                break
        if earlier is not None and latest is not None:
            observation = np.maximum(earlier, latest)
        return observation, total, bool(terminated), bool(truncated), info

    @classmethod
    def environment_kwargs(cls, env_spec: EnvSpec, *args: Any, **kwargs: Any) -> dict[str, Any]:
        _check(*args, **kwargs)
        if env_spec.entry_point == "ale_py.env:AtariEnv":
            return {"frameskip": 1}
        return {}


def _check(frame_skip: int = 4, pooling: str = "none") -> None:
    at_least("frame_skip: frame_skip", frame_skip, 1)
    one_of("frame_skip: pooling", pooling, ("none", "max"))
