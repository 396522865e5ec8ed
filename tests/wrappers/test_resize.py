"""Resized images, against OpenCV by hand, Stable-Baselines3's and Gymnasium's."""

import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import ResizeObservation
from stable_baselines3.common.atari_wrappers import WarpFrame

from tests.helpers.fake_atari import Game
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.errors import PlanError
from vecwrap.wrappers.grayscale import Grayscale
from vecwrap.wrappers.resize import Resize

RANDOM = np.random.default_rng(2)
FRAMES = RANDOM.integers(256, size=(3, 21, 16, 3), dtype=np.uint8)


def test_halving_gives_the_means_of_the_areas():
    observation, _ = Resize(Game(frames=FRAMES[:, :20]), 10, 8).reset()
    means = FRAMES[0, :20].reshape(10, 2, 8, 2, 3).mean(axis=(1, 3))
    assert np.abs(observation - means).max() <= 0.5


def test_equals_gymnasium():
    env, peer = Resize(Game(frames=FRAMES), 9, 7), ResizeObservation(Game(frames=FRAMES), (9, 7))
    assert (
        env.observation_space == peer.observation_space == spaces.Box(0, 255, (9, 7, 3), np.uint8)
    )
    assert_same(env.reset()[0], peer.reset()[0])
    assert_same(env.step(0)[0], peer.step(0)[0])


@pytest.mark.parametrize("wrappers", [lambda env: Resize(Grayscale(env, keep_dim=True), 7, 5)])
def test_grayscale_then_resize_equals_sb3(wrappers):
    env, peer = wrappers(Game(frames=FRAMES)), WarpFrame(Game(frames=FRAMES), 5, 7)
    assert env.observation_space == peer.observation_space
    assert_same(env.reset()[0], peer.reset()[0])


@pytest.mark.parametrize("shape", [(21, 16), (21, 16, 1), (21, 16, 2), (21, 16, 9)])
def test_any_number_of_channels(shape):
    frame = RANDOM.integers(256, size=shape, dtype=np.uint8)
    env = Resize(Game(frames=[frame]), 6)
    assert env.observation_space == spaces.Box(0, 255, (6, 6, *shape[2:]), np.uint8)
    each = (
        [
            cv2.resize(frame[..., i].copy(), (6, 6), interpolation=cv2.INTER_AREA)
            for i in range(frame.shape[-1])
        ]
        if (frame.ndim == 3)
        else [cv2.resize(frame, (6, 6), interpolation=cv2.INTER_AREA)]
    )
    assert_same(env.reset()[0], np.stack(each, -1).reshape(6, 6, *shape[2:]))


def test_keys_of_a_dict_and_floats():
    camera = spaces.Box(0, 1, (4, 6), np.float32)
    env = Resize(
        ToyEnv(observation_space=spaces.Dict(camera=camera, speed=spaces.Discrete(3))),
        2,
        3,
        keys=("camera",),
    )
    observation, _ = env.reset()
    assert env.observation_space == spaces.Dict(
        camera=spaces.Box(0, 1, (2, 3), np.float32), speed=spaces.Discrete(3)
    )
    assert_same(
        observation["camera"], env.env.observe()["camera"].reshape(2, 2, 3, 2).mean(axis=(1, 3))
    )


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (4,), np.uint8),
        spaces.Box(0, 1, (4, 5), np.int64),
        spaces.Box(np.array([[0.0, 1.0]], np.float32), np.float32(3)),
        spaces.Discrete(3),
    ],
)
def test_a_space_that_it_cannot_serve_is_refused(space):
    with pytest.raises(
        PlanError,
        match=r"^resize: expected observations of images, a Box of shape \(height, width\)",
    ):
        Resize(ToyEnv(observation_space=space))


@pytest.mark.parametrize(("size", "name"), [((0,), "height"), ((4, 0), "width")])
def test_a_size_below_1_is_refused(size, name):
    with pytest.raises(PlanError, match=f"^resize: {name}: expected at least 1, got 0$"):
        Resize(Game(frames=FRAMES), *size)


class White(gymnasium.Env):
    """Every pixel is as bright as can be."""

    action_space = spaces.Discrete(2)

    def __init__(self, height, width, high):
        self.observation_space = spaces.Box(0, high, (height, width, 3), np.float32)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.high.copy(), {}


@pytest.mark.parametrize("high", [1.0, 255.0])
def test_what_is_resized_stays_in_the_space(high):
    for height, width in RANDOM.integers(85, 260, size=(40, 2)):
        env = Resize(White(int(height), int(width), high), 84, 84)
        observation, _ = env.reset()
        assert env.observation_space.contains(observation), (height, width, observation.max())
        assert (np.abs(observation - high) < 1e-4 * high).all()
