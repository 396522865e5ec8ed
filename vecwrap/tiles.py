"""Many frames as one image: rows = ⌈√n⌉, columns = ⌈n / rows⌉, black padding."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vecwrap.errors import VecwrapError

__all__ = ["tile"]


def tile(frames: Sequence[NDArray[np.uint8] | None]) -> NDArray[np.uint8]:
    """Lay frames out as one image, row by row, the first at the top left.

    Frames of unequal size are padded with black at the right and below to the largest; so are grey frames beside
    colour ones taken as colour. A place without a frame (None, or past the last) stays black.

    Args:
        frames: n frames, each (height, width, 3) or (height, width) uint8, or None.

    Returns:
        (rows * height, columns * width, 3) uint8, an array of its own.

    Raises:
        VecwrapError: where there is no frame at all, or one that is no image.

    >>> import numpy as np
    >>> tile([np.zeros((210, 160, 3), np.uint8)] * 8).shape  # three rows, three columns
    (630, 480, 3)
    """
    images = [None if frame is None else _colour(np.asarray(frame), i) for i, frame in enumerate(frames)]
    shapes = [image.shape for image in images if image is not None]
    if not shapes:
        raise VecwrapError("tile: expected at least one frame, got none. Is the render mode rgb_array?")
    height, width = max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)
    rows = math.isqrt(len(images) - 1) + 1  # ⌈√n⌉ without rounding errors
    columns = -(-len(images) // rows)
    canvas = np.zeros((rows * height, columns * width, 3), np.uint8)
    for i, image in enumerate(images):
        if image is not None:
            top, left = i // columns * height, i % columns * width
            canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
    return canvas


def _colour(frame: NDArray[np.uint8], i: int) -> NDArray[np.uint8]:
    """The frame with three channels: (height, width, 3)."""
    if frame.ndim == 2:
        frame = frame[:, :, None]
    if frame.ndim != 3 or frame.shape[2] not in (1, 3) or frame.dtype != np.uint8:
        raise VecwrapError(
            f"tile: frame {i}: expected (height, width, 3) or (height, width) uint8, got {frame.shape} {frame.dtype}."
        )
    return np.broadcast_to(frame, (*frame.shape[:2], 3))
