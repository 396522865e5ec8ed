"""Two frames of palette indices become one grey image, however many of their pixels differ."""

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest

from vecwrap.parts.atari_ticks import MANY, Direct, palette

gymnasium.register_envs(ale_py)


def naive(pooling, first, second):
    """By way of colours, as the emulator and OpenCV have them."""
    colours = palette()[first], palette()[second]
    if pooling == "grey of the maximum":
        return cv2.cvtColor(np.maximum(*colours), cv2.COLOR_RGB2GRAY)
    return np.maximum(*(np.round(each @ np.array([0.2989, 0.5870, 0.1140])) for each in colours)).astype(np.uint8)


@pytest.fixture(scope="module")
def game():
    with gymnasium.make("PongNoFrameskip-v4") as env:
        yield env


@pytest.mark.parametrize("pooling", ["grey of the maximum", "maximum of the greys"])
def test_pixels_that_differ_are_looked_up_in_pairs_whether_few_or_many(game, pooling):
    player = Direct(game, pooling)
    rng = np.random.default_rng(1)
    first, second = player._screens
    first[:] = rng.integers(0, 128, first.shape) * 2
    for number in (0, 1, 8, MANY - 1, MANY, MANY + 1, first.size):
        second[:] = first
        differ = rng.permutation(first.size)[:number]
        second.reshape(-1)[differ] ^= 2 * rng.integers(1, 128, number).astype(np.uint8)
        assert np.count_nonzero(first != second) == number
        for count in (1, 2):
            player._count = count
            before = first.copy(), second.copy()
            np.testing.assert_array_equal(player.grey(), naive(pooling, first, second if count == 2 else first))
            np.testing.assert_array_equal(before, (first, second))
