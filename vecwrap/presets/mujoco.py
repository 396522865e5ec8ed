"""What continuous control is trained with."""

from typing import Any

from vecwrap.preset import Preset

__all__ = ["mujoco"]


@Preset
def mujoco(*, gamma: float = 0.99, clip: float = 10.0) -> list[Any]:
    """Clip actions to their bounds; normalise observations and rewards by running statistics.

    As OpenAI Baselines trains on MuJoCo's environments, and Stable-Baselines3's zoo after it. Works for every
    environment whose actions are a Box and whose observations are numbers.

    Args:
        gamma: the discount of the running return that rewards are divided by the spread of; the agent's own.
        clip: the largest absolute value of normalised observations and rewards.

    >>> import vecwrap
    >>> with vecwrap.build("Pendulum-v1", n=2, wrappers=["mujoco:gamma=0.9"], backend="dummy") as env:
    ...     observations, infos = env.reset(seed=1)
    >>> observations.shape, observations.dtype
    ((2, 3), dtype('float32'))
    """
    return ["clip_action", {"normalize": {"gamma": gamma, "clip_obs": clip, "clip_reward": clip}}]
