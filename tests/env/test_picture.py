import math

import numpy as np
import pytest

from vecwrap.env.picture import caption, enlarge, fit, tile
from vecwrap.errors import VecwrapError


def grey(value, height=4, width=6):
    return np.full((height, width, 3), value, np.uint8)


@pytest.mark.parametrize("n", range(1, 30))
def test_rows_are_the_root_of_n_rounded_up_and_columns_what_is_left(n):
    rows = math.ceil(math.sqrt(n))
    columns = math.ceil(n / rows)
    image = tile([grey(i + 1) for i in range(n)])
    assert image.shape == (rows * 4, columns * 6, 3)
    for i in range(rows * columns):
        part = image[i // columns * 4 :, i % columns * 6 :][:4, :6]
        assert (part == (i + 1 if i < n else 0)).all()


def test_unequal_frames_are_padded_with_black_at_the_right_and_below():
    image = tile([grey(1), grey(2, height=2, width=3)])
    assert image.shape == (8, 6, 3)
    assert (image[4:6, :3] == 2).all()
    assert image[4:].sum() == 2 * 2 * 3 * 3


def test_grey_frames_and_missing_frames():
    image = tile([np.full((2, 2), 7, np.uint8), None, np.full((2, 2, 1), 9, np.uint8)])
    assert (image[:2, :2] == 7).all()
    assert (image[:2, 2:] == 0).all()
    assert (image[2:, :2] == 9).all()


@pytest.mark.parametrize(
    "frames", [[], [None], [np.zeros((2, 2, 4), np.uint8)], [np.zeros((2, 2, 3), np.float64)], [np.zeros(3, np.uint8)]]
)
def test_what_is_no_image_is_refused(frames):
    with pytest.raises(VecwrapError, match="tile: "):
        tile(frames)


@pytest.mark.parametrize("size", [(50, 40), (200, 10), (60, 40), (1, 1)])
def test_an_image_that_is_too_large_is_scaled_down_as_little_as_needed(size):
    image = fit(grey(7, height=40, width=60), size)
    height, width = image.shape[:2]
    assert width <= size[0]
    assert height <= size[1]
    assert width == size[0] or height == size[1]
    assert abs(width * 40 - height * 60) <= 60  # within a pixel
    assert (image == 7).all()


@pytest.mark.parametrize("size", [(60, 44), (36, 40), (25, 100), (13, 13)])
def test_no_pixel_is_left_out_of_a_smaller_image(size):
    for at in range(0, 40 * 60, 7):
        image = np.zeros((40, 60, 3), np.uint8)
        image[at // 60, at % 60] = 255
        image = fit(image.repeat(2, axis=0).repeat(2, axis=1), size)
        assert image.max() > 0, at


def test_scaling_keeps_what_is_where():
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (6, 8, 3)).astype(np.uint8)  # patches of 30 by 30 pixels
    image = coarse.repeat(30, axis=0).repeat(30, axis=1)
    for size in [(200, 200), (100, 100), (80, 60)]:
        small = fit(image, size)
        patch = small.shape[0] / 6
        centres = (np.arange(6) * patch + patch / 2).astype(int), (np.arange(8) * patch + patch / 2).astype(int)
        np.testing.assert_array_equal(small[np.ix_(*centres)], coarse)


def test_an_image_that_fits_is_left_alone():
    image = grey(7)
    assert fit(image, (6, 4)) is image


def test_pixels_are_repeated_as_often_as_needed_and_as_there_is_room():
    image = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    assert enlarge(image, 3, (100, 100)) is image
    larger = enlarge(image, 7, (100, 100))
    assert larger.shape == (6, 9, 3)
    assert (larger[::3, ::3] == image).all()
    assert (larger[1::3, 2::3] == image).all()
    assert enlarge(image, 70, (100, 5)).shape == (4, 6, 3)


def test_captions_take_the_longest_texts_that_can_be_read():
    wide, narrow = np.zeros((200, 800, 3), np.uint8), np.zeros((200, 120, 3), np.uint8)
    texts = [("a rather long text on the first tile", "short")] * 2
    assert (caption(wide, texts) == caption(wide, [text[:1] for text in texts])).all()
    assert (caption(narrow, texts) == caption(narrow, [text[1:] for text in texts])).all()
    assert wide.max() == 0  # a new image
    assert caption(wide, texts).max() > 200
