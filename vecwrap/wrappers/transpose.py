"""Images with channels first."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.rows import members
from vecwrap.rows.batch import Batch


class Transpose(VecEnvWrapper):
    """Move the channels of images to the front: H×W×C becomes C×H×W, as PyTorch expects.

    Axes before these three stay where they are, so a stack k×H×W×C becomes k×C×H×W.

    Args:
        env: what it wraps; its observations are a Box of three or more axes, or a Dict of such
            Boxes.
        keys: which members of a Dict to transpose; None means all.

    Raises:
        PlanError: an unsupported observation space.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> class Camera(gymnasium.Env):
        ...     observation_space = spaces.Box(0, 255, (4, 6, 3), np.uint8)
        ...     action_space = spaces.Discrete(2)
        >>> env = Transpose(vecwrap.build(Camera, n=1, backend="dummy"))
        >>> env.single_observation_space
        Box(0, 255, (3, 4, 6), uint8)
        >>> env.close()
    """

    def __init__(self, env: VecEnv, *, keys: tuple[str, ...] | None = None) -> None:
        images = members.choose(
            "transpose",
            env.single_observation_space,
            keys,
            lambda space: members.is_box(space) and len(space.shape or ()) >= 3,
            "a Box of shape (height, width, channels)",
            "leave the wrapper out if there is no channel axis",
        )
        turned: dict[members.Key, Any] = {
            key: spaces.Box(
                np.moveaxis(box.low, -1, -3), np.moveaxis(box.high, -1, -3), dtype=box.dtype
            )
            for key, box in images.items()
        }
        self._functions = dict.fromkeys(images, _channels_first)
        super().__init__(env, members.replaced(env.single_observation_space, turned))

    def on_observations(self, observations: Batch) -> Batch:
        return members.apply(self._functions, observations)


def _channels_first(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(np.moveaxis(images, -1, -3))
