import math

import numpy as np
import pytest

from vecwrap.errors import VecwrapError
from vecwrap.tiles import tile


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
