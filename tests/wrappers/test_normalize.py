"""Both halves together are the two halves one after the other."""

from copy import deepcopy

import numpy as np
import pytest
from gymnasium import spaces

from tests.helpers.backends import DummyBackend
from tests.helpers.call_events import MODES, OPERATIONS, calls_of
from tests.helpers.stream_envs import ToyEnv, assert_same
from vecwrap.errors import NotFiniteError, PlanError
from vecwrap.wrappers.clip_reward import ClipReward
from vecwrap.wrappers.normalize import Normalize
from vecwrap.wrappers.normalize_obs import NormalizeObs
from vecwrap.wrappers.normalize_reward import NormalizeReward
from vecwrap.wrappers.transpose import Transpose

IMAGE = spaces.Box(0, 255, (2, 3, 1), np.uint8)
TREE = spaces.Dict({"a": spaces.Box(0, 300, (2,), np.float64), "b": spaces.Discrete(5)})


def backend(space, mode="same_step"):
    make = [lambda i=i: ToyEnv(index=i, observation_space=space) for i in range(3)]
    return DummyBackend(make, autoreset=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("space", "keys"), [(IMAGE, None), (TREE, ("a",))], ids=["image", "dict"])
def test_equals_its_two_halves(mode, space, keys):
    together = Normalize(
        backend(space, mode),
        gamma=0.9,
        clip_obs=2,
        clip_reward=0.5,
        epsilon=1e-3,
        keys=keys,
        integers=True,
    )
    halves = NormalizeReward(
        NormalizeObs(backend(space, mode), clip=2, epsilon=1e-3, keys=keys, integers=True),
        gamma=0.9,
        clip=0.5,
        epsilon=1e-3,
    )
    with together, halves:
        assert together.single_observation_space == halves.single_observation_space
        for one, other in zip(
            calls_of(together, OPERATIONS), calls_of(halves, OPERATIONS), strict=True
        ):
            for (_, event), (_, expected) in zip(one, other, strict=True):
                assert_same(event.observation, expected.observation)
                assert event.reward == expected.reward
        assert_same(together.get_original_obs(), halves.get_original_obs())
        assert_same(together.get_original_reward(), halves.get_original_reward())


def test_original_through_outer_wrappers():
    env = ClipReward(Transpose(Normalize(backend(IMAGE), integers=True)))
    with env, backend(IMAGE) as raw:
        for one in (env, raw):
            one.reset()
            observations, rewards, *_ = one.step([0, 1, 2])
        assert_same(env.get_original_obs(), observations)
        assert_same(env.get_original_reward(), rewards)


def test_original_is_what_came_to_the_innermost_of_several():
    env = Normalize(Normalize(backend(IMAGE), integers=True))
    with env, backend(IMAGE) as raw:
        for one in (env, raw):
            one.reset()
            observations, rewards, *_ = one.step([0, 1, 2])
        assert_same(env.get_original_obs(), observations)
        assert_same(env.get_original_reward(), rewards)


def test_evaluation_freezes_both_halves():
    with Normalize(backend(TREE), keys=("a",)) as env:
        env.reset()
        env.step([0, 1, 2])
        before = deepcopy(env.wrapper_state())
        env.eval()
        for _ in range(10):
            env.step([0, 1, 2])
        after = env.wrapper_state()
        for half in ("observations", "rewards"):
            assert str(after[half]["statistics"]) == str(before[half]["statistics"])


@pytest.mark.parametrize("half", ["observations", "rewards"])
def test_what_is_not_finite_in_one_half_keeps_the_other_from_being_counted(half):
    class Spoilt(ToyEnv):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            if action == 2 and half == "observations":
                observation = {**observation, "a": np.full(2, np.nan)}
            return observation, np.inf if action == 2 and half == "rewards" else reward, *rest

    make = [lambda i=i: Spoilt(index=i, observation_space=TREE) for i in range(2)]
    with Normalize(DummyBackend(make), keys=("a",)) as env:
        env.reset()
        env.step([0, 0])
        before = str(env.wrapper_state())
        with pytest.raises(NotFiniteError, match="nothing was counted"):
            env.step([0, 2])
        assert str(env.wrapper_state()) == before


def test_going_on_after_a_load_equals_never_having_stopped():
    with (
        Normalize(backend(TREE), keys=("a",)) as env,
        Normalize(backend(TREE), keys=("a",)) as other,
    ):
        for one in (env, other):
            one.reset()
        for _ in range(4):
            env.step([0, 1, 2])
            other.env.step([0, 1, 2])
        other.load_wrapper_state(env.wrapper_state())
        for _ in range(30):
            assert_same(env.step([0, 1, 2])[:2], other.step([0, 1, 2])[:2])


def test_equals_vecnormalize_of_sb3():
    """On the same stream; SB3 gives rewards as float32."""
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    make = [lambda i=i: ToyEnv(index=i, observation_space=TREE) for i in range(3)]
    peer = vec_env.VecNormalize(
        vec_env.DummyVecEnv(make), norm_obs_keys=["a"], clip_obs=1.5, clip_reward=2.0
    )
    with Normalize(backend(TREE), keys=("a",), clip_obs=1.5, clip_reward=2.0) as env:
        peer.reset()
        env.reset()
        for step in range(60):
            actions = np.array([step % 3, 1, 0])
            expected, expected_rewards, *_ = peer.step(actions)
            observations, rewards, *_ = env.step(actions)
            np.testing.assert_allclose(observations["a"], expected["a"], rtol=1e-6, atol=1e-6)
            np.testing.assert_array_equal(observations["b"], expected["b"])
            np.testing.assert_allclose(rewards, expected_rewards, rtol=1e-6)


@pytest.mark.parametrize(
    ("space", "arguments", "message"),
    [
        (
            IMAGE,
            {},
            (
                "normalize: expected observations of a Box of floats, got Box(0, 255, (2, 3, 1), "
                "uint8); the wrapper"
            ),
        ),
        (
            IMAGE,
            {"integers": True, "clip_obs": 0},
            "normalize: clip_obs: expected a number above 0, got 0",
        ),
        (
            IMAGE,
            {"integers": True, "clip_reward": 0},
            "normalize: clip_reward: expected a number above 0, got 0",
        ),
    ],
)
def test_what_cannot_be_normalized_is_refused(space, arguments, message):
    with backend(space) as env, pytest.raises(PlanError) as error:
        Normalize(env, **arguments)
    assert str(error.value).startswith(message)
