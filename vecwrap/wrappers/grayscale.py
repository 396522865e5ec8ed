"""Grey images instead of colour ones."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from vecwrap.env.picture import load_cv2
from vecwrap.rows import members


class Grayscale(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Turn RGB images grey: 0.299 R + 0.587 G + 0.114 B, rounded, as OpenCV's ``RGB2GRAY``.

    These are the greys of OpenAI Baselines, Stable-Baselines3 and ``atari``. (Gymnasium's
    ``GrayscaleObservation`` uses other weights, 0.2125, 0.7154 and 0.0721, and truncates.)

    Args:
        env: what it wraps; its observations are images, (height, width, 3) uint8 or float32, or a
            Dict of such.
        keep_dim: whether the images keep an axis of one channel, (height, width, 1).
        keys: which members of a Dict are such images; None means all.

    Raises:
        PlanError: observations that are not such images, or OpenCV cannot be imported.

    Example:
        >>> import ale_py, gymnasium
        >>> gymnasium.register_envs(ale_py)
        >>> env = Grayscale(gymnasium.make("PongNoFrameskip-v4"))
        >>> env.observation_space
        Box(0, 255, (210, 160), uint8)
        >>> env.close()
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        keep_dim: bool = False,
        keys: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(env)
        self.keep_dim = keep_dim
        self._cv2 = load_cv2("grayscale")
        images = members.choose(
            "grayscale",
            env.observation_space,
            keys,
            _is_colour_image,
            "images, a Box of shape (height, width, 3) and dtype uint8 or float32",
            "leave the wrapper out",
        )
        grey_spaces = {
            key: spaces.Box(
                space.low.min(),
                space.high.max(),
                space.shape[:2] + (1,) * keep_dim,
                space.dtype.type,
            )
            for key, space in images.items()
        }
        self._functions = dict.fromkeys(images, self._grey)
        self.observation_space = members.replaced(env.observation_space, grey_spaces)

    def observation(self, observation: Any) -> Any:
        return members.apply(self._functions, observation)

    def _grey(self, image: Any) -> Any:
        grey = self._cv2.cvtColor(np.ascontiguousarray(image), self._cv2.COLOR_RGB2GRAY)
        if self.keep_dim:
            return grey[:, :, None]
        return grey


def _is_colour_image(space: Any) -> bool:
    return (
        isinstance(space, spaces.Box)
        and len(space.shape) == 3
        and space.shape[2] == 3
        and space.dtype in (np.uint8, np.float32)
    )
