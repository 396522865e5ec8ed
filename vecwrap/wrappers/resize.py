"""Resized images."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from vecwrap.env.picture import load_cv2
from vecwrap.errors import at_least
from vecwrap.rows import members

MAX_CHANNELS = 4  # that OpenCV resizes by area


class Resize(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Resize images by area, with OpenCV's ``INTER_AREA``.

    OpenAI Baselines, Stable-Baselines3 and ``atari`` resize images in the same way.

    Gymnasium's ``ResizeObservation`` takes its size as a tuple, which a one-line pipeline cannot
    express, supports only uint8 and up to four channels, and in 1.1 drops the axis of images with
    one channel, though its space has it.

    Args:
        env: what it wraps; its observations are images, (height, width) or (height, width,
            channels) of uint8 or float32, with the same bounds for every pixel, or a Dict with such
            images.
        height: in pixels.
        width: in pixels; None means the height.
        keys: which members of a Dict are such images; None means all.

    Raises:
        PlanError: observations that are not such images, a size below 1, or OpenCV cannot be
            imported.

    Example:
        >>> import ale_py, gymnasium
        >>> gymnasium.register_envs(ale_py)
        >>> env = Resize(gymnasium.make("PongNoFrameskip-v4"), 105, 80)
        >>> env.observation_space
        Box(0, 255, (105, 80, 3), uint8)
        >>> env.close()
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        height: int = 84,
        width: int | None = None,
        *,
        keys: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(env)
        self.height: int = at_least("resize: height", height, 1)
        self.width: int = at_least("resize: width", height if width is None else width, 1)
        self._cv2 = load_cv2("resize")
        images = members.choose(
            "resize",
            env.observation_space,
            keys,
            _is_image,
            "images, a Box of shape (height, width) or (height, width, channels), dtype uint8 or "
            "float32, with the same bounds for every pixel",
            "leave the wrapper out",
        )
        size = (self.height, self.width)
        resized = {
            key: spaces.Box(
                space.low.min(), space.high.max(), (*size, *space.shape[2:]), space.dtype.type
            )
            for key, space in images.items()
        }
        self._functions = dict.fromkeys(images, self._resized)
        self.observation_space = members.replaced(env.observation_space, resized)

    def observation(self, observation: Any) -> Any:
        return members.apply(self._functions, observation)

    def _resized(self, image: Any) -> Any:
        if image.ndim == 3 and image.shape[2] > MAX_CHANNELS:
            parts = range(0, image.shape[2], MAX_CHANNELS)
            return np.concatenate(
                [self._resized(image[:, :, i : i + MAX_CHANNELS]) for i in parts], axis=2
            )
        size = (self.width, self.height)
        resized = self._cv2.resize(
            np.ascontiguousarray(image), size, interpolation=self._cv2.INTER_AREA
        )
        # OpenCV's weights add up to 1.0000001, so a mean may leave the image's range.
        if resized.dtype == np.float32:
            np.clip(
                resized,
                np.fmin.reduce(image, axis=None),
                np.fmax.reduce(image, axis=None),
                out=resized,
            )
        # OpenCV drops an axis of one channel.
        return resized.reshape(self.height, self.width, *image.shape[2:])


def _is_image(space: Any) -> bool:
    return (
        isinstance(space, spaces.Box)
        and len(space.shape) in (2, 3)
        and space.dtype in (np.uint8, np.float32)
        and bool((space.low == space.low.min()).all() and (space.high == space.high.max()).all())
    )
