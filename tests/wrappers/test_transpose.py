"""Images with their channels first."""

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES, OPERATIONS, check_each_alone
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.errors import PlanError
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.transpose import Transpose

IMAGE = spaces.Box(0, 255, (4, 5, 3), np.uint8)
LOW = np.arange(60, dtype=np.float32).reshape(4, 5, 3)
TREE = spaces.Dict(
    {"image": IMAGE, "other": spaces.Box(0, 255, (2, 3, 1), np.uint8), "x": spaces.Discrete(5)}
)


def factories(space):
    return [lambda i=i: ToyEnv(index=i, observation_space=space) for i in range(3)]


@pytest.mark.parametrize("mode", MODES)
def test_equals_a_transpose_of_each_image(mode):
    make = factories(IMAGE)
    space = spaces.Box(0, 255, (3, 4, 5), np.uint8)
    alone = [
        lambda m=m: gymnasium.wrappers.TransformObservation(
            m(), lambda image: image.transpose(2, 0, 1), space
        )
        for m in make
    ]
    env = Transpose(DummyBackend(make, autoreset=mode))
    assert env.single_observation_space == space
    assert check_each_alone(env, alone, OPERATIONS) > 8


@pytest.mark.parametrize("keys", [None, ("image", "other")], ids=["box", "dict"])
def test_equals_vectransposeimage_of_sb3(keys):
    """SB3 guesses which members of a Dict are images; here they are named."""
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    space = IMAGE if keys is None else TREE
    peer = vec_env.VecTransposeImage(vec_env.DummyVecEnv(factories(space)))
    with Transpose(DummyBackend(factories(space)), keys=keys) as env:
        assert env.single_observation_space == peer.observation_space
        assert_same(dict(enumerate([env.reset()[0]])), dict(enumerate([plain(peer.reset())])))
        for _ in range(20):
            expected, _, dones, peer_infos = peer.step(np.zeros(3, int))
            observations, *_, infos = env.step([0, 0, 0])
            assert_same(observations, plain(expected))
            for i in np.flatnonzero(dones):
                assert_same(infos["final_obs"][i], plain(peer_infos[i]["terminal_observation"]))


def plain(observations):
    return dict(observations) if isinstance(observations, dict) else observations


def test_bounds_go_along_and_the_wrapped_space_stays_as_it_was():
    inner = DummyBackend(factories(spaces.Box(LOW, LOW + 300, dtype=np.float32)))
    before = deepcopy(inner.single_observation_space)
    with Transpose(inner) as env:
        assert_same(env.single_observation_space.low, LOW.transpose(2, 0, 1))
        assert env.reset()[0].flags.c_contiguous
        assert inner.single_observation_space == before


@pytest.mark.parametrize("dtype", [">i2", ">f4", ">f8"])
def test_the_space_has_the_byte_order_of_the_arrays(dtype):
    space = spaces.Box(0, 200, (4, 5, 3), np.dtype(dtype))
    with Transpose(DummyBackend([lambda: ToyEnv(index=0, observation_space=space)])) as env:
        observations, _ = env.reset(seed=1)
        assert (
            observations.dtype
            == env.single_observation_space.dtype
            == env.observation_space.dtype
            == np.dtype(dtype)
        )
        assert env.observation_space.contains(observations)


def test_axes_before_the_image_stay_where_they_are():
    with (
        Transpose(FrameStack(DummyBackend(factories(IMAGE)), 2)) as env,
        FrameStack(DummyBackend(factories(IMAGE)), 2) as raw,
    ):
        assert env.single_observation_space.shape == (2, 3, 4, 5)
        assert_same(env.reset()[0], raw.reset()[0].transpose(0, 1, 4, 2, 3))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            spaces.Box(0, 1, (84, 84)),
            "transpose: expected observations of a Box of shape (height, width, channels), got B",
        ),
        (
            TREE,
            (
                "transpose: observations['x']: expected a Box of shape (height, width, channels), "
                "got Discrete(5); name "
            ),
        ),
    ],
)
def test_what_has_no_channel_axis_is_refused(space, message):
    with DummyBackend(factories(space)) as env, pytest.raises(PlanError) as error:
        Transpose(env)
    assert str(error.value).startswith(message)
