"""Frames of several sub-environments as a sequence of pictures in which every frame is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from vecwrap.parts.tiles import fit, tile

__all__ = ["Mosaic"]

Image = NDArray[np.uint8]


class Mosaic:
    """Collects a frame per tile into a picture; a tile without a new frame keeps the old one.

    A picture is complete when every tile has a new frame, or before a tile would get a second one: so none is skipped,
    even if an episode's last frame and the next one's first come in the same step, or rows arrive one by one. A tile
    that has shown nothing yet shows its next frame.

    Args:
        env_ids: the sub-environments of the tiles, in order.
        size: the maximum width and height of a picture, in pixels; a larger one is scaled down.

    >>> mosaic = Mosaic([0], (640, 480))
    >>> [picture.shape for picture in mosaic.put({0: np.zeros((210, 160, 3), np.uint8)})]
    [(210, 160, 3)]
    """

    def __init__(self, env_ids: Sequence[int], size: tuple[int, int]) -> None:
        self._tiles: dict[int, Image | None] = dict.fromkeys(env_ids)
        self._new: set[int] = set()
        self._size = size

    def put(self, frames: Mapping[int, Image]) -> Iterator[Image]:
        """Add one frame for some tiles; yield the pictures that are complete."""
        if self._new.intersection(frames):
            for i, frame in frames.items():
                if self._tiles[i] is None:
                    self._tiles[i] = frame
            yield from self.rest()
        self._tiles.update(frames)
        self._new.update(frames)
        if len(self._new) == len(self._tiles):
            yield from self.rest()

    def rest(self) -> Iterator[Image]:
        """Yield the incomplete picture, if there is one."""
        if self._new:
            self._new.clear()
            yield fit(tile(list(self._tiles.values())), self._size)
