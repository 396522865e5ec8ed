"""Given arrays normalised and un-normalised by a chain's statistics, beside SB3's VecNormalize on
the same stream.
"""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import vecwrap
from tests.adapters.worlds import Cliff
from vecwrap.errors import ArgumentError
from vecwrap.wrappers.normalize import Normalize
from vecwrap.wrappers.normalize_obs import NormalizeObs
from vecwrap.wrappers.normalize_reward import NormalizeReward

N = 3
BOTH = [
    ["normalize:gamma=0.9"],
    ["normalize_obs", "normalize_reward:gamma=0.9"],
    ["normalize_reward:gamma=0.9", "normalize_obs"],
]


def beside_sb3(target, wrappers, theirs, **settings):
    """Both after the same steps."""
    env = vecwrap.to_sb3(vecwrap.build(target, N, wrappers, backend="dummy"))
    peer = VecNormalize(theirs, gamma=0.9, **settings)
    rng = np.random.default_rng(0)
    for venv in (env, peer):
        venv.seed(3)
        venv.reset()
    for _ in range(60):
        actions = [
            rng.uniform(-2, 2, (1,)) if target == "Pendulum-v1" else rng.integers(2)
            for _ in range(N)
        ]
        for venv in (env, peer):
            venv.step(np.array(actions, venv.action_space.dtype))
    return env, peer


class Halves:
    """What the wrappers of a chain give, under SB3's names."""

    def __init__(self, env):
        for wrapper in env.chain:
            if isinstance(wrapper, Normalize | NormalizeObs):
                self.normalize_obs, self.unnormalize_obs = (
                    wrapper.observations.normalize,
                    wrapper.observations.unnormalize,
                )
            if isinstance(wrapper, Normalize | NormalizeReward):
                self.normalize_reward, self.unnormalize_reward = (
                    wrapper.rewards.normalize,
                    wrapper.rewards.unnormalize,
                )


@pytest.mark.parametrize("wrappers", BOTH, ids=str)
def test_arrays_of_any_form_are_what_sb3_makes_of_them(wrappers):
    env, peer = beside_sb3("Pendulum-v1", wrappers, make_vec_env("Pendulum-v1", N))
    chain, rng = Halves(env.vecwrap_env), np.random.default_rng(1)
    for shape in ((3,), (N, 3), (7, N, 3), (0, 3)):
        for dtype in (np.float32, np.float64):
            raw = rng.normal(scale=3, size=shape).astype(dtype)
            before = raw.copy()
            for ours in (chain, env):
                got = ours.normalize_obs(raw)
                np.testing.assert_allclose(got, peer.normalize_obs(raw), rtol=1e-5, atol=1e-6)
                assert (got.dtype, got.shape) == (np.float32, shape)
                np.testing.assert_allclose(
                    ours.unnormalize_obs(raw), peer.unnormalize_obs(raw), rtol=1e-6, atol=1e-6
                )
                back, kept = ours.unnormalize_obs(got), abs(got) < 10
                np.testing.assert_allclose(back[kept], raw[kept], rtol=1e-4, atol=1e-5)
                assert (back.dtype, back.shape) == (np.float64, shape)
            np.testing.assert_array_equal(raw, before)
    for rewards in (
        -3.5,
        np.float32(-2),
        [1.0, -1e9, 1e9],
        rng.normal(size=(4, N)).astype(np.float32),
    ):
        given = np.asarray(rewards)
        for ours in (chain, env):
            got = ours.normalize_reward(rewards if ours is chain else given)
            np.testing.assert_allclose(got, peer.normalize_reward(given), rtol=1e-6)
            np.testing.assert_allclose(
                ours.unnormalize_reward(given), peer.unnormalize_reward(given), rtol=1e-6
            )
        assert chain.normalize_reward(rewards).dtype == np.float64
        np.testing.assert_array_equal(
            chain.unnormalize_reward(rewards), chain.unnormalize_reward(given)
        )
        assert abs(chain.normalize_reward(rewards)).max() <= 10
        assert env.normalize_reward(given).dtype == peer.normalize_reward(given).dtype == np.float32
    np.testing.assert_allclose(
        chain.normalize_obs([9.0, 9.0, 1e9]), peer.normalize_obs(np.array([9, 9, 1e9])), rtol=1e-5
    )
    assert chain.normalize_obs([0.0, 0.0, 1e9])[2] == 10  # clipped
    np.testing.assert_allclose(env.vecwrap_env.get_original_obs(), peer.get_original_obs())
    np.testing.assert_allclose(
        env.vecwrap_env.get_original_reward(), peer.get_original_reward(), rtol=1e-6
    )
    env.close()
    peer.close()


def test_members_of_a_dict():
    wrappers = [{"normalize": {"keys": ["place"], "gamma": 0.9}}]
    theirs = DummyVecEnv([lambda: Cliff(True)] * N)
    env, peer = beside_sb3(lambda: Cliff(True), wrappers, theirs, norm_obs_keys=["place"])
    chain = Halves(env.vecwrap_env)
    original = env.vecwrap_env.get_original_obs()
    for ours in (chain, env):
        got, expected = ours.normalize_obs(original), peer.normalize_obs(original)
        assert list(got) == list(original)
        for key in got:
            np.testing.assert_allclose(got[key], expected[key], rtol=1e-5)
            np.testing.assert_allclose(ours.unnormalize_obs(got)[key], original[key], rtol=1e-4)
        assert got["gear"] is original["gear"] or (got["gear"] == original["gear"]).all()
    one = {key: value[0] for key, value in original.items()}
    np.testing.assert_array_equal(chain.normalize_obs(one)["place"], got["place"][0])
    with pytest.raises(
        ArgumentError,
        match=r"normalize: observations\['place'\]: expected a dict with this key, got dict",
    ):
        chain.normalize_obs({"gear": original["gear"]})
    with pytest.raises(
        ArgumentError, match=r"normalize: observations\['place'\]: expected a dict .* got ndarray"
    ):
        chain.normalize_obs(original["place"])
    env.close()
    peer.close()


def test_the_last_axes_are_those_of_one_observation():
    with vecwrap.build("Pendulum-v1", n=1, wrappers=["normalize_obs"], backend="dummy") as env:
        for wrong in (np.zeros((N, 1)), np.zeros(()), np.zeros((3, 4))):
            for function in (Halves(env).normalize_obs, Halves(env).unnormalize_obs):
                with pytest.raises(
                    ArgumentError,
                    match=(
                        r"normalize_obs: observations: expected an array of shape \(\.\.\., "
                        r"3\), got"
                    ),
                ):
                    function(wrong)


def test_what_the_chain_shows_is_what_its_wrappers_make_of_the_originals():
    """Through outer wrappers too, and nothing is counted."""
    wrappers = ["normalize_obs:clip=5", "normalize_reward", "monitor"]
    with vecwrap.build("Pendulum-v1", n=N, wrappers=wrappers, backend="dummy") as env:
        env.reset(seed=1)
        for _ in range(30):
            observations, rewards, *_ = env.step(env.action_space.sample())
            np.testing.assert_array_equal(
                Halves(env).normalize_obs(env.get_original_obs()), observations
            )
            np.testing.assert_array_equal(
                Halves(env).normalize_reward(env.get_original_reward()), rewards
            )
        kept = abs(rewards) < 10
        np.testing.assert_allclose(
            Halves(env).unnormalize_reward(rewards)[kept], env.get_original_reward()[kept]
        )
        kept = abs(observations) < 5
        back = Halves(env).unnormalize_obs(observations)
        np.testing.assert_allclose(back[kept], env.get_original_obs()[kept], rtol=1e-3, atol=1e-4)
        count = env.find(NormalizeObs).observations.statistics[None].count
        Halves(env).normalize_obs(np.zeros((9, 3)))
        assert env.find(NormalizeObs).observations.statistics[None].count == count


def test_images_of_integers_and_single_numbers():
    class Pixels(gymnasium.Env):
        observation_space = spaces.Box(0, 255, (2, 2), np.uint8)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.np_random.integers(0, 255, (2, 2), np.uint8), {}

        def step(self, action):
            return self.reset()[0], 1.0, False, False, {}

    with vecwrap.build(
        Pixels, n=2, wrappers=["normalize_obs:integers=true"], backend="dummy"
    ) as env:
        env.reset(seed=1)
        observations = env.step([0, 1])[0]
        original = env.get_original_obs()
        np.testing.assert_array_equal(Halves(env).normalize_obs(original), observations)
        np.testing.assert_allclose(Halves(env).unnormalize_obs(observations), original, atol=1e-3)


def test_without_such_a_wrapper_there_is_no_original():
    with vecwrap.build("Pendulum-v1", n=1, wrappers=["monitor"], backend="dummy") as env:
        with pytest.raises(
            LookupError, match="no wrapper that normalises observations: normalize or normalize_obs"
        ):
            env.get_original_obs()
        with pytest.raises(
            LookupError, match="no wrapper that normalises rewards: normalize or normalize_reward"
        ):
            env.get_original_reward()


def test_the_three_wrappers_reach_their_statistics_by_the_same_names():
    with (
        vecwrap.build(
            "Pendulum-v1", n=2, wrappers=["normalize_obs", "normalize_reward"], backend="dummy"
        ) as apart,
        vecwrap.build("Pendulum-v1", n=2, wrappers=["normalize"], backend="dummy") as together,
    ):
        for env in (apart, together):
            env.reset(seed=1)
            env.step(np.ones((2, 1)))
        one, other, whole = (
            apart.find(NormalizeObs),
            apart.find(NormalizeReward),
            together.find(Normalize),
        )
        np.testing.assert_array_equal(
            one.observations.statistics[None].mean, whole.observations.statistics[None].mean
        )
        assert other.rewards.statistics.var == whole.rewards.statistics.var
        np.testing.assert_array_equal(other.rewards.returns, whole.rewards.returns)
        names = [*one.wrapper_statistics(), *other.wrapper_statistics()]
        assert names == list(whole.wrapper_statistics()) == ["observations", "returns"]
