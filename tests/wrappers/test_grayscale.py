"""Grey images, against OpenCV by hand, Stable-Baselines3's and Gymnasium's."""

import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import GrayscaleObservation
from stable_baselines3.common.atari_wrappers import WarpFrame

from tests.helpers.fake_atari import Game
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.errors import PlanError
from vecwrap.wrappers.grayscale import Grayscale

FRAMES = np.random.default_rng(2).integers(256, size=(3, 7, 9, 3), dtype=np.uint8)


def test_equals_the_formula_rounded_and_sb3():
    env, peer = Grayscale(Game(frames=FRAMES)), WarpFrame(Game(frames=FRAMES), 9, 7)
    observation, _ = env.reset()
    expected = np.round(FRAMES[0] @ [0.299, 0.587, 0.114])
    assert np.abs(observation - expected).max() <= 1  # OpenCV rounds the weights to 15 bits
    assert_same(observation, peer.reset()[0][:, :, 0])
    assert_same(env.step(0)[0], peer.step(0)[0][:, :, 0])
    assert env.observation_space == spaces.Box(0, 255, (7, 9), np.uint8)


def test_grey_images_keep_their_greys_and_gymnasiums_do_not():
    greys = np.broadcast_to(np.arange(256, dtype=np.uint8)[:, None, None], (256, 2, 3))
    assert_same(Grayscale(Game(frames=[greys])).reset()[0], greys[..., 0])
    theirs = GrayscaleObservation(Game(frames=[greys])).reset()[0]
    assert np.count_nonzero(theirs != greys[..., 0]) == 8 * 2  # why it is not used


def test_keep_dim_keeps_an_axis_of_one_channel():
    env = Grayscale(Game(frames=FRAMES), keep_dim=True)
    assert env.observation_space == spaces.Box(0, 255, (7, 9, 1), np.uint8)
    assert_same(env.reset()[0], Grayscale(Game(frames=FRAMES)).reset()[0][:, :, None])


def test_keys_of_a_dict_and_floats_and_views():
    camera = spaces.Box(0, 1, (4, 5, 3), np.float32)
    env = Grayscale(
        ToyEnv(observation_space=spaces.Dict(camera=camera, speed=spaces.Discrete(3))),
        keys=("camera",),
    )
    observation, _ = env.reset()
    assert env.observation_space == spaces.Dict(
        camera=spaces.Box(0, 1, (4, 5), np.float32), speed=spaces.Discrete(3)
    )
    assert observation["speed"] == env.env.observe()["speed"]
    assert_same(
        observation["camera"], cv2.cvtColor(env.env.observe()["camera"], cv2.COLOR_RGB2GRAY)
    )
    upside_down = Grayscale(
        gymnasium.wrappers.TransformObservation(
            Game(frames=FRAMES), lambda o: o[::-1], Game(frames=FRAMES).observation_space
        )
    )
    assert_same(upside_down.reset()[0], cv2.cvtColor(FRAMES[0][::-1].copy(), cv2.COLOR_RGB2GRAY))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (4, 5), np.uint8),
        spaces.Box(0, 1, (4, 5, 3), np.float64),
        spaces.Discrete(3),
    ],
)
def test_a_space_that_it_cannot_serve_is_refused(space):
    with pytest.raises(
        PlanError,
        match=r"^grayscale: expected observations of images, a Box of shape \(height, width, ",
    ):
        Grayscale(ToyEnv(observation_space=space))
