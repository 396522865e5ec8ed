import math

import numpy as np
import pytest

from vecwrap.env.picture import (
    DARK,
    GREY,
    LINE,
    MAX_PICTURE_PIXELS,
    MIN_LABEL_PIXELS,
    ORANGE,
    STRIP,
    enlarge,
    fit,
    grid,
    labelled,
    tile,
)
from vecwrap.errors import VecwrapError


def grey(value, height=4, width=6):
    return np.full((height, width, 3), value, np.uint8)


def expected_grid(n):
    """Of all grids with 1 to 3 times as many columns as rows: the fewest empty places, then the
    squarest.
    """
    shapes = [
        (r, c)
        for r in range(1, n + 1)
        for c in range(r, 3 * r + 1)
        if (r - 1) * c < n <= r * c and r * (c - 1) < n
    ]
    fewest = min(r * c for r, c in shapes)
    return min(
        (shape for shape in shapes if math.prod(shape) == fewest),
        key=lambda shape: shape[1] - shape[0],
    )


@pytest.mark.parametrize("n", [*range(1, 50), 64, 100, 128, 997, 1024])
def test_places_are_as_few_as_can_be_and_as_square(n):
    assert grid(n) == expected_grid(n)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8, 9, 10, 12, 15, 16, 18, 20, 24, 32, 64, 128])
def test_no_place_is_empty_where_the_number_allows_it(n):
    rows, columns = grid(n)
    assert rows * columns == n


@pytest.mark.parametrize("n", range(1, 30))
def test_tiles_are_in_their_places_and_the_rest_is_black(n):
    rows, columns = expected_grid(n)
    image = tile([grey(i + 1) for i in range(n)])
    assert image.shape == (rows * 4, columns * 6, 3)
    for i in range(rows * columns):
        part = image[i // columns * 4 :, i % columns * 6 :][:4, :6]
        assert (part == (i + 1 if i < n else 0)).all()


def test_unequal_frames_are_padded_with_black_at_the_right_and_below():
    image = tile([grey(1), grey(2, height=2, width=3)])
    assert image.shape == (4, 12, 3)
    assert (image[:2, 6:9] == 2).all()
    assert image[:, 6:].sum() == 2 * 2 * 3 * 3


def test_grey_frames_and_missing_frames():
    image = tile([np.full((2, 2), 7, np.uint8), None, np.full((2, 2, 1), 9, np.uint8)])
    assert (image[:, :2] == 7).all()
    assert (image[:, 2:4] == 0).all()
    assert (image[:, 4:] == 9).all()


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [None],
        [np.zeros((2, 2, 4), np.uint8)],
        [np.zeros((2, 2, 3), np.float64)],
        [np.zeros(3, np.uint8)],
    ],
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
        centres = (
            (np.arange(6) * patch + patch / 2).astype(int),
            (np.arange(8) * patch + patch / 2).astype(int),
        )
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


def test_labels_stand_above_the_frames_and_lines_between_them():
    frames = [
        np.random.default_rng(i).integers(0, 256, (40, 120, 3)).astype(np.uint8) for i in range(5)
    ]
    texts = [(f"#{i}  score {i}",) for i in range(5)]
    image = labelled(frames, texts, [i == 4 for i in range(5)], MAX_PICTURE_PIXELS)
    high, wide = STRIP + 40 + LINE, 120 + LINE
    assert image.shape == (2 * high + LINE, 3 * wide + LINE, 3)
    covered = np.zeros(image.shape[:2], bool)
    for i, frame in enumerate(frames):
        top, left = i // 3 * high + LINE, i % 3 * wide + LINE
        np.testing.assert_array_equal(
            image[top + STRIP : top + STRIP + 40, left : left + 120], frame
        )
        head = image[top : top + STRIP, left : left + 120]
        assert (head == DARK).all(axis=2).any()
        assert head.max() > 200
        # Smoothed text need not reach the colour itself.
        coloured = head.max(axis=2).astype(int) - head.min(axis=2)
        assert (coloured.max() > 100) == (i == 4)
        covered[top : top + high - LINE, left : left + 120] = True
        around = image[top - LINE : top + high, left - LINE : left + wide]
        lines = around[~covered[top - LINE : top + high, left - LINE : left + wide]]
        assert (lines == ORANGE).all() == (i == 4)
    empty = image[high + LINE :, 2 * wide + LINE :]
    assert (empty == 0).all()


def test_labels_take_the_longest_texts_that_can_be_read():
    texts = [("a rather long text above the first tile", "short")] * 2
    for width, used in ((400, 0), (120, 1)):
        frames = [grey(7, 40, width)] * 2
        image = labelled(frames, texts, [False] * 2, MAX_PICTURE_PIXELS)
        np.testing.assert_array_equal(
            image,
            labelled(
                frames, [text[used : used + 1] for text in texts], [False] * 2, MAX_PICTURE_PIXELS
            ),
        )


@pytest.mark.parametrize(
    ("frame", "size"), [((40, 20), (60, 100)), ((4, 6), (30, 30)), ((40, 60), (16, 16))]
)
def test_where_no_label_can_be_read_there_is_none(frame, size):
    frames = [grey(7, *frame)] * 4
    image = labelled(frames, [("#1000000",)] * 4, [False] * 4, size)
    assert image.shape[0] <= size[1]
    assert image.shape[1] <= size[0]
    assert {tuple(pixel) for pixel in image.reshape(-1, 3).tolist()} <= {(7, 7, 7), GREY}


def test_a_longer_label_does_not_change_the_size():
    frames = [grey(7, 210, 160)] * 4
    shapes = {
        labelled(frames, [("#1 " * k, "#1")] * 4, [False] * 4, MAX_PICTURE_PIXELS).shape
        for k in (1, 3, 9, 27)
    }
    assert len(shapes) == 1


def test_narrow_frames_are_enlarged_until_their_labels_can_be_read():
    image = labelled([grey(7, 4, 6)] * 2, [("#0", "#0")] * 2, [False] * 2, MAX_PICTURE_PIXELS)
    assert image.shape[1] >= 2 * MIN_LABEL_PIXELS
    assert (
        labelled(
            [grey(7, 4, 6)] * 2, [("#0", "#0")] * 2, [False] * 2, MAX_PICTURE_PIXELS, 900
        ).shape[1]
        >= 900
    )
