"""One member of Dict observations."""

from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES, OPERATIONS, check_each_alone
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.errors import PlanError
from vecwrap.wrappers.extract_obs import ExtractObs

TREE = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (2, 3), np.uint8),
        "deep": spaces.Dict({"x": spaces.Discrete(5)}),
        "t": spaces.Text(3),
    }
)


def factories(space=TREE):
    return [lambda i=i: ToyEnv(index=i, observation_space=space) for i in range(3)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", ["image", "deep", "t"])
def test_equals_taking_the_member_of_each_observation(mode, key):
    make = factories()
    alone = [
        lambda m=m: gymnasium.wrappers.TransformObservation(
            m(), lambda observation: observation[key], TREE[key]
        )
        for m in make
    ]
    env = ExtractObs(DummyBackend(make, autoreset=mode), key)
    assert env.single_observation_space == TREE[key]
    assert check_each_alone(env, alone, OPERATIONS) > 8


def test_equals_vecextractdictobs_of_sb3():
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    space = spaces.Dict({key: TREE[key] for key in ("image",)} | {"y": spaces.Discrete(5)})
    peer = vec_env.VecExtractDictObs(vec_env.DummyVecEnv(factories(space)), "image")
    with ExtractObs(DummyBackend(factories(space)), "image") as env:
        assert env.single_observation_space == peer.observation_space
        assert_same(env.reset()[0], peer.reset())
        for _ in range(20):
            expected, _, dones, peer_infos = peer.step(np.zeros(3, int))
            observations, *_, infos = env.step([0, 0, 0])
            assert_same(observations, expected)
            for i in np.flatnonzero(dones):
                assert_same(infos["final_obs"][i], peer_infos[i]["terminal_observation"])


def test_the_wrapped_space_stays_as_it_was():
    inner = DummyBackend(factories())
    before = deepcopy(inner.single_observation_space)
    with ExtractObs(inner, "image") as env:
        assert env.single_observation_space is not inner.single_observation_space["image"]
        assert inner.single_observation_space == before


@pytest.mark.parametrize(
    ("space", "key", "message"),
    [
        (
            spaces.Discrete(3),
            "x",
            (
                "extract_obs: expected observations of a Dict space, got Discrete(3); leave the "
                "wrapper"
            ),
        ),
        (
            TREE,
            "imag",
            (
                "extract_obs: key: expected members of the observations, ['deep', 'image', 't'], "
                'got "imag". Did '
            ),
        ),
    ],
)
def test_a_missing_member_is_refused(space, key, message):
    with DummyBackend(factories(space)) as env, pytest.raises(PlanError) as error:
        ExtractObs(env, key)
    assert str(error.value).startswith(message)
