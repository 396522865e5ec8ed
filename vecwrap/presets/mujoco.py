"""The usual layers for continuous control."""

from typing import Any

from vecwrap.preset import Preset

__all__ = ["mujoco"]


@Preset
def mujoco(*, gamma: float = 0.99, clip: float = 10.0) -> list[Any]:
    """Clip actions to their bounds; normalise observations and rewards by running statistics.

    As OpenAI Baselines does for MuJoCo environments, and later Stable-Baselines3's zoo. Works for any environment whose
    actions are a Box and whose observations are numbers.

    Args:
        gamma: the discount of the running return whose standard deviation rewards are divided by; use the agent's.
        clip: the largest absolute value of normalised observations and rewards.

    >>> import vecwrap
    >>> with vecwrap.build("Pendulum-v1", n=2, wrappers=["mujoco:gamma=0.9"], backend="dummy") as env:
    ...     observations, infos = env.reset(seed=1)
    >>> observations.shape, observations.dtype
    ((2, 3), dtype('float32'))
    """
    return ["clip_action", {"normalize": {"gamma": gamma, "clip_obs": clip, "clip_reward": clip}}]
