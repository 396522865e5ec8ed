"""How Stable-Baselines3 interprets images: it guesses from an image's shape which axis holds the channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.parts.members import Key, name_of
from vecwrap.vec_env import VecEnv
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.transpose import Transpose

__all__ = ["misread_images"]

FIRST, LAST = 0, 2
_USUAL = (1, 3, 4)  # channels of an image: grey, RGB, and one more
_SKIP = "VecTransposeImage(vecwrap.to_sb3(env), skip=True)"


def misread_images(env: VecEnv) -> Iterator[str]:
    """Report each image whose channels SB3 would look for in the wrong axis, or that it would not recognise.

    To SB3, an image is a Box of uint8 from 0 to 255 with three axes. The shortest axis holds the channels: the first,
    or else the last, which ``VecTransposeImage`` then moves to the front.

    Args:
        env: the environment to pass to SB3.

    Yields:
        One sentence for each, with the remedy.
    """
    space = env.single_observation_space
    boxes: list[tuple[Key, Any]] = [*space.spaces.items()] if isinstance(space, spaces.Dict) else [(None, space)]
    for key, box in boxes:
        if not _holds_pixels(box):
            continue
        shape, name = box.shape, name_of(key)
        if len(shape) == 2:
            yield (
                f"{name} of shape {shape} are no images for Stable-Baselines3, which wants three axes: its CnnPolicy "
                "refuses them, its MlpPolicy does not scale them; the layer framestack:1 (or :4) puts an axis in front"
            )
        elif len(shape) == 4:
            yield (
                f"{name} of shape {shape} are no images for Stable-Baselines3, which wants three axes: its CnnPolicy "
                "refuses them, its MlpPolicy does not scale them; stack them along their channels: "
                "framestack: {k: ..., axis: channel}"
            )
        elif len(shape) == 3:
            yield from _misread(name, shape, _channels_axis(env, key))


def _misread(name: str, shape: tuple[int, ...], axis: int | None) -> Iterator[str]:
    read = FIRST if int(np.argmin(shape)) == 0 else LAST
    kinds = {FIRST: "channels first", LAST: "channels last"}
    if axis is None and (shape[read] in _USUAL and shape[read] == min(shape) and shape[FIRST] != shape[LAST]):
        return
    if axis == read:
        return
    is_really = "may be otherwise" if axis is None else f"are {kinds[axis]}"
    remedy = f"where they are channels first, {_SKIP} says so"
    if axis == FIRST:
        remedy = f"{_SKIP} says what they are"
    elif axis == LAST:
        remedy = f"add the layer transpose, and {_SKIP} says what they are then"
    yield (
        f"{name} of shape {shape} {is_really}, but Stable-Baselines3, which goes by the shortest axis, reads them as "
        f"{kinds[read]}: {shape[read]} channels; {remedy}"
    )


def _channels_axis(env: VecEnv, key: Key) -> int | None:
    """The axis in which the layers have put the channels; None if unknown."""
    for layer in env.layers:
        if isinstance(layer, Transpose) and key in layer._functions:
            return FIRST
        if isinstance(layer, FrameStack) and key in layer._stacks:
            if layer.axis == "new":  # of images without an axis of channels
                return FIRST
            return FIRST if layer.channels == "first" else LAST
    return None


def _holds_pixels(space: spaces.Space[Any]) -> bool:
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and not np.any(space.low != 0)
        and not np.any(space.high != 255)
    )
