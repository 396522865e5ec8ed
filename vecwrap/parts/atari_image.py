"""Turns two screens of palette indices into the small grey image that an agent sees, without repeating work.

Most of an Atari screen does not change between agent steps. So the image is computed band by band, and only for bands
in which a pixel of either screen has changed: bit for bit the same, in a third of the time (Breakout) to five sixths of
it (Enduro).
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecwrap.contract import IntArray
from vecwrap.parts.atari_settings import Pooling
from vecwrap.parts.tiles import load_cv2

__all__ = ["Image", "PooledImage", "num_bands", "palette", "pooled_greys", "resized"]

Image = NDArray[np.uint8]

NTSC = """
    000000 4a4a4a 6f6f6f 8e8e8e aaaaaa c0c0c0 d6d6d6 ececec
    484800 69690f 86861d a2a22a bbbb35 d2d240 e8e84a fcfc54
    7c2c00 904811 a26221 b47a30 c3903d d2a44a dfb755 ecc860
    901c00 a33915 b55328 c66c3a d5824a e39759 f0aa67 fcbc74
    940000 a71a1a b83232 c84848 d65c5c e46f6f f08080 fc9090
    840064 97197a a8308f b846a2 c659b3 d46cc3 e07cd2 ec8ce0
    500084 68199a 7d30ad 9246c0 a459d0 b56ce0 c57cee d48cfc
    140090 331aa3 4e32b5 6848c6 7f5cd5 956fe3 a980f0 bc90fc
    000094 181aa7 2d32b8 4248c8 545cd6 656fe4 7580f0 8490fc
    001c88 183b9d 2d57b0 4272c2 548ad2 65a0e1 75b5ef 84c8fc
    003064 185080 2d6d98 4288b0 54a0c5 65b7d9 75cceb 84e0fc
    004030 18624e 2d8169 429e82 54b899 65d1ae 75e7c2 84fcd4
    004400 1a661a 328432 48a048 5cba5c 6fd26f 80e880 90fc90
    143c00 355f18 527e2d 6e9c42 87b754 9ed065 b4e775 c8fc84
    303800 505916 6d762b 88923e a0ab4f b7c25f ccd86e e0ec7c
    482c00 694d14 866a26 a28638 bb9f47 d2b656 e8cc63 fce070
"""
"""The NTSC console's colours in the emulator: one hue per row, by luminance; the last bit of the index is 0."""


class PooledImage:
    """The image of two screens, pooled, grey and small; it is kept, and only what has changed is recomputed.

    Args:
        shape: height and width of a screen, in pixels; the width is a multiple of 32.
        size: height and width of the image.
        pooling: how two screens become one grey image.
    """

    def __init__(self, shape: tuple[int, int], size: int, pooling: Pooling) -> None:
        height, self._width = shape
        self._size = size
        self._cv2 = load_cv2("atari")
        self._table = pooled_greys(pooling)
        bands = num_bands(height, size)
        self._rows = size // bands  # of the image, in a band
        self._seen = np.zeros((2, bands, height // bands * self._width), np.uint8)
        self._image = np.full((bands, self._rows, size), self._table[0])
        self._torn = False  # whether an interrupt may have left the image inconsistent with its screens

    def __call__(self, screens: Image) -> Image:
        """Return the image of these screens.

        Args:
            screens: (2, height, width) uint8, palette indices, contiguous; not kept.

        Returns:
            (size, size) uint8, fresh.
        """
        bands = screens.reshape(self._seen.shape)
        changed = np.arange(len(self._image)) if self._torn else self._changed(bands)
        if len(changed):
            new = bands.take(changed, axis=1)
            greys = self._table.take(new[0].astype(np.uint16) << 8 | new[1]).reshape(-1, self._width)
            small = resized(self._cv2, greys, len(changed) * self._rows, self._size)
            self._torn = True
            self._image[changed] = small.reshape(-1, self._rows, self._size)
            self._seen[:, changed] = new
            self._torn = False
        return self._image.reshape(self._size, self._size).copy()

    def _changed(self, bands: Image) -> IntArray:
        """The bands in which a pixel of either screen has changed; compared eight at a time, then 32."""
        differ = bands.view(np.uint64) != self._seen.view(np.uint64)
        on_either: IntArray = np.bitwise_or.reduce((differ[0] | differ[1]).view(np.uint32), axis=1)
        return on_either.nonzero()[0]


def resized(cv2: Any, image: Image, height: int, width: int) -> Image:
    """Resize a grey image by area, as all peers do."""
    small: Image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    return small


def num_bands(height: int, size: int) -> int:
    """Return how many bands a screen can be cut into that, resized separately, give the same image bit for bit.

    Each band has whole rows before and after resizing: five of a screen's 210 rows become two of 84. OpenCV splits the
    screen's rows at multiples of the scale, height / size, as doubles. If that is exact, a band is split the same alone
    as within the whole; otherwise there is one band.

    Args:
        height: of a screen.
        size: height of the image.

    >>> num_bands(210, 84), num_bands(210, 70), num_bands(210, 64)
    (42, 70, 1)
    """
    exact = Fraction(1 / (size / height)) == Fraction(height, size)
    return math.gcd(height, size) if exact else 1


@functools.cache
def palette() -> Image:
    """Return the RGB colour of each palette index: (256, 3) uint8."""
    colours = np.zeros((256, 3), np.uint8)
    colours[::2] = np.frombuffer(bytes.fromhex(NTSC), np.uint8).reshape(128, 3)
    colours.flags.writeable = False
    return colours


@functools.cache
def pooled_greys(pooling: Pooling) -> Image:
    """Return the pooled grey of each pair of palette indices: (65536,) uint8, at first index * 256 + second index."""
    colours = palette()
    table: Image
    if pooling == "grey of the maximum":
        cv2 = load_cv2("atari")
        table = cv2.cvtColor(np.maximum(colours[:, None], colours[None]), cv2.COLOR_RGB2GRAY)
    else:
        greys = np.round(colours @ np.array([0.2989, 0.5870, 0.1140])).astype(np.uint8)  # the emulator's own formula
        table = np.maximum.outer(greys, greys)
    table = table.reshape(-1)
    table.flags.writeable = False
    return table
