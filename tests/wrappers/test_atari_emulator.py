"""Two screens of palette indices become one small grey image, whatever of them has changed since
the last.
"""

import sys

import cv2
import numpy as np
import pytest

from vecwrap.wrappers.emulator.play import PooledImage, num_bands, palette

SHAPE = 210, 160
POOLINGS = "grey of the maximum", "maximum of the greys"


def naive(pooling, screens, size):
    """By way of colours, as the emulator and OpenCV have them, and from the whole screens."""
    colours = palette()[screens[0]], palette()[screens[1]]
    if pooling == "grey of the maximum":
        grey = cv2.cvtColor(np.maximum(*colours), cv2.COLOR_RGB2GRAY)
    else:
        grey = np.maximum(
            *(np.round(each @ np.array([0.2989, 0.5870, 0.1140])) for each in colours)
        ).astype(np.uint8)
    return cv2.resize(grey, (size, size), interpolation=cv2.INTER_AREA)


def random_screens(rng, shape=SHAPE):
    return rng.integers(0, 128, (2, *shape), dtype=np.uint8) * 2


@pytest.mark.parametrize("size", [84, 64, 1, 7, 42, 105, 182, 210, 420])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_image_is_that_of_the_whole_screens_whatever_has_changed(pooling, size):
    image, rng = PooledImage(SHAPE, size, pooling), np.random.default_rng(1)
    screens = random_screens(rng)
    for number in (0, 1, 2, 8, 100, 5000, 0, screens.size, 1, 1, 1):
        pixels = rng.permutation(screens.size)[:number]
        screens.reshape(-1)[pixels] = rng.integers(0, 128, number) * 2
        before = screens.copy()
        made = image(screens)
        np.testing.assert_array_equal(made, naive(pooling, screens, size))
        np.testing.assert_array_equal(before, screens)
        assert made.dtype == np.uint8


def test_a_black_game_has_an_image_too():
    black = np.zeros((2, *SHAPE), np.uint8)
    np.testing.assert_array_equal(
        PooledImage(SHAPE, 84, POOLINGS[0])(black), naive(POOLINGS[0], black, 84)
    )


def test_every_single_pixel_counts_on_either_screen():
    """One at a time, each in turn set and set back, so that nothing else can have made the band
    anew.
    """
    image, rng = PooledImage(SHAPE, 84, POOLINGS[0]), np.random.default_rng(2)
    screens = np.zeros((2, *SHAPE), np.uint8)
    plain = image(screens)
    for pixel in rng.permutation(screens.size)[:1000]:
        screens.reshape(-1)[pixel] = 14
        made = image(screens)
        np.testing.assert_array_equal(made, naive(POOLINGS[0], screens, 84))
        assert (made != plain).any(), np.unravel_index(pixel, screens.shape)
        screens.reshape(-1)[pixel] = 0
        np.testing.assert_array_equal(image(screens), plain)


def test_images_are_the_callers_to_keep():
    image, rng = PooledImage(SHAPE, 84, POOLINGS[0]), np.random.default_rng(3)
    screens = random_screens(rng)
    first = image(screens)
    kept = first.copy()
    image(random_screens(rng))
    np.testing.assert_array_equal(first, kept)
    first[:] = 0
    np.testing.assert_array_equal(image(screens), kept)


def interrupted_before_line(number, function, *arguments):
    """Call it, with Ctrl-C as its line of this number (from 0) is to be run; whether it has so
    many.
    """
    lines = iter(range(number))

    def trace(frame, event, _):
        if (
            frame.f_code is function.__call__.__code__
            and event == "line"
            and next(lines, None) is None
        ):
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        function(*arguments)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def test_an_interrupt_at_any_time_leaves_no_stale_band():
    """Before each line in turn; then the same screens come again, or those from before."""
    rng = np.random.default_rng(5)
    number = 0
    while True:
        for again in (False, True):
            image = PooledImage(SHAPE, 84, POOLINGS[0])
            before, screens = random_screens(rng), random_screens(rng)
            image(before)
            interrupted = interrupted_before_line(number, image, screens)
            for shown in (screens, before) if again else (before, screens):
                np.testing.assert_array_equal(
                    image(shown), naive(POOLINGS[0], shown, 84), f"line {number}"
                )
        if not interrupted:
            break
        number += 1
    assert number > 8


@pytest.mark.parametrize("height", [210, 240])
def test_bands_are_resized_as_within_the_whole(height):
    """For every size of image that is cut at all: any band alone gives its rows of the whole."""
    rng = np.random.default_rng(4)
    grey = rng.integers(0, 256, (height, 160), dtype=np.uint8)
    cut = []
    for size in range(1, 2 * height):
        bands = num_bands(height, size)
        assert height % bands == size % bands == 0
        if bands == 1:
            continue
        cut.append(size)
        whole = cv2.resize(grey, (size, size), interpolation=cv2.INTER_AREA).reshape(
            bands, -1, size
        )
        for chosen in ([0], [bands - 1], sorted(rng.permutation(bands)[: bands // 2 + 1])):
            some = grey.reshape(bands, -1, 160)[chosen].reshape(-1, 160)
            rows = len(chosen) * size // bands
            alone = cv2.resize(some, (size, rows), interpolation=cv2.INTER_AREA)
            np.testing.assert_array_equal(
                alone.reshape(len(chosen), -1, size), whole[chosen], f"size {size}"
            )
    assert 84 in cut or height != 210
    assert len(cut) > 5
