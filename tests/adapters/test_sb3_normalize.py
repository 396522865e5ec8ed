"""Wrappers that normalise, as Stable-Baselines3 uses its VecNormalize: synchronised, stored,
sampled, saved.
"""

import pickle
from copy import deepcopy
from functools import partial
from itertools import chain

import gymnasium
import numpy as np
import pytest
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecMonitor,
    VecNormalize,
    sync_envs_normalization,
)

import vecwrap
from tests.adapters.worlds import Cliff, Noted
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ArgumentError, CheckpointError, PlanError
from vecwrap.rows.statistics import RunningStatistics


def adapted(env, n, wrappers, **settings):
    return vecwrap.to_sb3(vecwrap.build(env, n, wrappers, backend="dummy", **settings))


def noted_cliff(members=False):
    return Noted(Cliff(members))


def by_hand(values, statistics, clip=10.0):
    """What a normaliser makes of values."""
    scaled = (values.astype(np.float64) - statistics.mean) / np.sqrt(statistics.var + 1e-8)
    return np.clip(scaled, -clip, clip).astype(np.float32)


def of(observation, key):
    return observation if key is None else observation[key]


class Doubled(VecEnvWrapper):
    """Changes observations, but not their space."""

    def on_step(self, step):
        step.observations = step.observations * 2
        if step.final_obs is not None:
            step.final_obs = step.final_obs * 2


# -- off-policy algorithms -------------------------------------------------------------------------


def check_replay_buffer(model, keys):
    """What is stored is what the environments gave, and what is sampled is normalised by the
    present statistics.
    """
    venv, buffer = model.get_env(), model.replay_buffer
    seen = venv.get_attr("seen")
    length, ends = buffer.pos, 0
    for i, steps in enumerate(seen):
        assert len(steps) == length
        for t, (observation, _, reward, following, terminated, truncated) in enumerate(steps):
            ends += terminated or truncated
            for key in keys:
                np.testing.assert_array_equal(
                    of(buffer.observations, key)[t, i], of(observation, key)
                )
                np.testing.assert_array_equal(
                    of(buffer.next_observations, key)[t, i], of(following, key)
                )
            assert buffer.rewards[t, i] == np.float32(reward)
            assert buffer.dones[t, i] == (terminated or truncated)
            assert buffer.timeouts[t, i] == (truncated and not terminated)
    assert ends > 5
    rows = np.arange(length)
    np.random.seed(0)  # noqa: NPY002  # SB3 draws from it which sub-environment each row is of
    sample = buffer._get_samples(rows, env=model.get_vec_normalize_env())
    np.random.seed(0)  # noqa: NPY002
    chosen = np.random.randint(0, high=buffer.n_envs, size=(length,))  # noqa: NPY002
    for key in keys:
        statistics = venv.obs_rms if key is None else venv.obs_rms.get(key)
        for stored, got in (
            (buffer.observations, sample.observations),
            (buffer.next_observations, sample.next_observations),
        ):
            raw = of(stored, key)[rows, chosen]
            expected = raw if statistics is None else by_hand(raw, statistics)
            np.testing.assert_array_equal(of(got, key).numpy(), expected)
    scaled = buffer.rewards[rows, chosen] / np.sqrt(venv.ret_rms.var + 1e-8)
    np.testing.assert_allclose(sample.rewards.numpy()[:, 0], np.clip(scaled, -10, 10), rtol=1e-6)


@pytest.mark.parametrize("n", [1, 3])
def test_an_off_policy_algorithm_stores_what_the_environment_gave(n):
    venv = adapted(noted_cliff, n, ["monitor", "normalize"])
    model = DQN(
        "MlpPolicy", venv, seed=2, learning_starts=20, train_freq=8, device="cpu", buffer_size=1_000
    )
    model.learn(90 * n)
    assert np.abs(venv.venv.vecwrap_env.get_original_obs()).max() < 10
    # Far outside of what is clipped.
    assert np.abs(model.replay_buffer.next_observations).max() > 1_000
    check_replay_buffer(model, [None])
    venv.close()


def test_members_of_a_dict_that_are_not_normalised_are_stored_and_sampled_as_they_are():
    venv = adapted(partial(noted_cliff, True), 2, ["monitor", {"normalize": {"keys": ["place"]}}])
    model = DQN(
        "MultiInputPolicy",
        venv,
        seed=2,
        learning_starts=20,
        train_freq=8,
        device="cpu",
        buffer_size=1_000,
    )
    model.learn(120)
    check_replay_buffer(model, ["place", "gear", "wind"])
    venv.close()


def test_continuous_actions_and_truncations():
    make = partial(gymnasium.make, "Pendulum-v1", max_episode_steps=15)
    venv = adapted(lambda: Noted(make()), 1, ["monitor", "normalize_obs", "normalize_reward"])
    model = SAC(
        "MlpPolicy",
        venv,
        seed=2,
        learning_starts=100,
        train_freq=20,
        device="cpu",
        buffer_size=1_000,
    )
    model.learn(120)
    check_replay_buffer(model, [None])
    venv.close()


@pytest.mark.parametrize("wrapper", ["framestack:3", Doubled, "clip_reward"])
def test_wrappers_outside_of_the_normaliser_are_refused_where_it_matters(wrapper):
    make = partial(gymnasium.make, "Pendulum-v1", max_episode_steps=15)
    venv = adapted(make, 1, ["normalize", wrapper])
    PPO("MlpPolicy", venv, n_steps=16, batch_size=16, n_epochs=1, device="cpu").learn(32)
    what = "rewards" if wrapper == "clip_reward" else "observations"
    model = SAC("MlpPolicy", venv, device="cpu", buffer_size=100)
    with pytest.raises(PlanError, match=rf"asks for {what} as they were before .*outside of those"):
        model.learn(10)
    venv.close()
    venv = adapted(make, 1, [wrapper, "normalize"])  # the other way round
    SAC("MlpPolicy", venv, device="cpu", buffer_size=100).learn(10)
    venv.close()


def test_original_and_normalised_turn_into_each_other():
    venv = adapted("CartPole-v1", 3, ["normalize"])
    venv.seed(0)
    for observations in chain([venv.reset()], (venv.step(np.ones(3, int))[0] for _ in range(30))):
        original = venv.get_original_obs()
        np.testing.assert_array_equal(venv.normalize_obs(original), observations)
        np.testing.assert_array_equal(venv.normalize_obs(original[0]), observations[0])
        np.testing.assert_allclose(venv.unnormalize_obs(observations), original, atol=1e-5)
    rewards = venv.get_original_reward()
    assert rewards.dtype == np.float32
    np.testing.assert_array_equal(rewards, 1.0)
    np.testing.assert_allclose(venv.unnormalize_reward(venv.normalize_reward(rewards)), 1.0)
    venv.close()


def test_one_observation_without_axes_is_normalised_too():
    class Gauge(gymnasium.Env):
        observation_space, action_space = (
            gymnasium.spaces.Box(-9, 9, ()),
            gymnasium.spaces.Discrete(2),
        )

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.float32(self.np_random.normal()), {}

    venv = adapted(Gauge, 3, ["normalize_obs"])
    seen = venv.reset()
    originals = venv.get_original_obs()
    assert [float(venv.normalize_obs(one)) for one in originals] == seen.tolist()
    np.testing.assert_allclose(
        [float(venv.unnormalize_obs(one)) for one in seen], originals, rtol=1e-5
    )
    venv.close()


@pytest.mark.parametrize("members", [False, True])
def test_originals_are_given_though_the_statistics_were_replaced_since(members):
    wrappers = [{"normalize": {"keys": ["place"]} if members else {}}]
    venv, training = (adapted(partial(Cliff, members), 2, wrappers) for _ in range(2))
    raw = DummyVecEnv([partial(Cliff, members)] * 2)
    for env, seed in ((venv, 3), (training, 4), (raw, 3)):
        env.seed(seed)
        env.reset()
    training.step(np.ones(2, int))
    for replace in (
        lambda: sync_envs_normalization(training, venv),
        lambda: setattr(venv, "norm_reward", False),
        lambda: setattr(venv, "ret_rms", training.ret_rms),
    ):
        venv.step(np.ones(2, int))
        expected, rewards, *_ = raw.step(np.ones(2, int))
        replace()
        for key in ("place", "gear", "wind") if members else (None,):
            np.testing.assert_array_equal(of(venv.get_original_obs(), key), of(expected, key))
        np.testing.assert_array_equal(venv.get_original_reward(), rewards)
    venv.close()
    training.close()


def test_originals_are_given_after_a_load():
    venv = adapted(Cliff, 2, ["normalize"])
    venv.reset()
    saved = venv.vecwrap_env.state_dict()
    original = venv.get_original_obs()
    for _ in range(3):
        venv.step(np.ones(2, int))
    venv.vecwrap_env.load_state_dict(saved)
    np.testing.assert_array_equal(venv.get_original_obs(), original)
    np.testing.assert_array_equal(venv.get_original_reward(), np.zeros(2))
    venv.close()


# -- evaluation ------------------------------------------------------------------------------------


def assert_same_statistics(got, expected):
    for name in ("obs_rms", "ret_rms"):
        one, other = getattr(got, name), getattr(expected, name)
        for a, b in zip(
            *(each.values() if isinstance(each, dict) else [each] for each in (one, other)),
            strict=True,
        ):
            np.testing.assert_array_equal(a.mean, b.mean)
            np.testing.assert_array_equal(a.var, b.var)
            assert a.count == b.count


@pytest.mark.parametrize("members", [False, True])
def test_eval_callback_brings_the_statistics_of_the_training_into_the_evaluation(members, tmp_path):
    wrappers = ["monitor", {"normalize": {"keys": ["wind", "place"]} if members else {}}]
    venv, evaluation = (adapted(partial(Cliff, members), 2, wrappers) for _ in range(2))
    evaluation.training = False
    assert not evaluation.vecwrap_env.training
    callback = EvalCallback(
        evaluation,
        n_eval_episodes=3,
        eval_freq=32,
        log_path=tmp_path,
        best_model_save_path=tmp_path,
        verbose=0,
    )
    model = PPO(
        "MultiInputPolicy" if members else "MlpPolicy",
        venv,
        n_steps=32,
        batch_size=32,
        device="cpu",
    )
    model.learn(192, callback)
    assert_same_statistics(evaluation, venv)  # the last evaluation was after the last step
    count = venv.obs_rms["place"].count if members else venv.obs_rms.count
    assert count > 150
    assert len(np.load(tmp_path / "evaluations.npz")["results"]) == 3
    assert (tmp_path / "best_model.zip").exists()
    for env in (venv, evaluation):
        env.close()


def test_what_is_shared_stays_shared_through_eval_callback():
    venv = adapted(Cliff, 2, ["monitor", "normalize"])
    evaluation = adapted(Cliff, 1, ["monitor", "normalize"], stats=venv.vecwrap_env)
    model = PPO("MlpPolicy", venv, n_steps=32, batch_size=32, device="cpu")
    model.learn(128, EvalCallback(evaluation, n_eval_episodes=2, eval_freq=32, verbose=0))
    before = venv.obs_rms.count
    venv.step(np.zeros(2, int))
    assert venv.obs_rms.count > before
    assert_same_statistics(evaluation, venv)
    venv.close()
    evaluation.close()


def test_statistics_go_to_and_from_sb3s_own_normaliser():
    theirs = VecNormalize(make_vec_env("CartPole-v1", n_envs=2, seed=1))
    theirs.reset()
    for _ in range(50):
        theirs.step(np.ones(2, int))
    ours = adapted("CartPole-v1", 2, ["monitor", "normalize"])
    sync_envs_normalization(theirs, ours)
    assert_same_statistics(ours, theirs)
    ours.training = theirs.training = False
    ours.seed(3)
    theirs.seed(3)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    for _ in range(40):
        (observations, rewards, dones, _), others = (
            ours.step(np.ones(2, int)),
            theirs.step(np.ones(2, int)),
        )
        np.testing.assert_array_equal(observations, others[0])
        np.testing.assert_allclose(rewards, others[1], rtol=1e-6)
        np.testing.assert_array_equal(dones, others[2])
    other = VecNormalize(make_vec_env("CartPole-v1", n_envs=2))
    sync_envs_normalization(ours, other)
    assert_same_statistics(other, theirs)
    ours.close()


def test_a_pickle_of_sb3s_normaliser_goes_around_an_environment_of_ours(tmp_path):
    theirs = VecNormalize(make_vec_env("CartPole-v1", n_envs=2, seed=1))
    theirs.reset()
    theirs.step(np.ones(2, int))
    theirs.save(tmp_path / "statistics.pkl")
    venv = VecNormalize.load(tmp_path / "statistics.pkl", adapted("CartPole-v1", 2, ["monitor"]))
    assert_same_statistics(venv, theirs)
    venv.close()


def test_an_evaluation_that_is_not_normalised_in_the_same_way_is_refused():
    venv = adapted("CartPole-v1", 1, ["normalize"])
    other = adapted("CartPole-v1", 1, ["normalize_reward"])
    with pytest.raises(
        CheckpointError, match="obs_rms: expected statistics of nothing, got those of observations"
    ):
        sync_envs_normalization(venv, other)
    with pytest.raises(
        CheckpointError, match="obs_rms: expected statistics of observations, got those of nothing"
    ):
        sync_envs_normalization(other, venv)
    of_others = adapted("Pendulum-v1", 1, ["normalize"])
    with pytest.raises(CheckpointError, match=r"expected statistics of shape \(4,\), got \(3,\)"):
        sync_envs_normalization(of_others, venv)
    with pytest.raises(AssertionError, match="expected the eval env to be a VecEnvWrapper"):
        sync_envs_normalization(venv, adapted("CartPole-v1", 1, []))


# -- switches --------------------------------------------------------------------------------------


def test_training_false_freezes_the_chain():
    venv = adapted("CartPole-v1", 2, ["normalize"])
    venv.reset()
    assert venv.training
    venv.training = False
    before = venv.obs_rms.count
    venv.step(np.ones(2, int))
    assert venv.obs_rms.count == before
    venv.training = True
    venv.step(np.ones(2, int))
    assert venv.obs_rms.count == before + 2
    venv.close()


def test_without_norm_reward_rewards_are_those_that_came():
    venv, other = (adapted(Cliff, 2, ["normalize"]) for _ in range(2))
    reference = VecMonitor(DummyVecEnv([Cliff, Cliff]))
    other.norm_reward = False
    for env in (venv, other, reference):
        env.seed(4)
        env.reset()
    for _ in range(20):
        normalised, raw, expected = (
            env.step(np.ones(2, int))[1] for env in (venv, other, reference)
        )
        np.testing.assert_array_equal(raw, expected)
    assert (normalised < 3).all()
    other.norm_reward = True
    assert (other.step(np.ones(2, int))[1] < 3).all()
    without = adapted(Cliff, 1, ["normalize_obs"])
    assert not without.norm_reward
    without.norm_reward = False
    with pytest.raises(ArgumentError, match="no wrapper normalises rewards here"):
        without.norm_reward = True


def test_settings_of_the_wrappers_are_told_and_cannot_be_set():
    venv = adapted(Cliff, 1, ["normalize:gamma=0.9,clip_obs=5.0,clip_reward=3.0,epsilon=1e-4"])
    expected = {
        "norm_obs": True,
        "clip_obs": 5.0,
        "clip_reward": 3.0,
        "epsilon": 1e-4,
        "gamma": 0.9,
    }
    for name, value in expected.items():
        assert getattr(venv, name) == value
        with pytest.raises(AttributeError, match=name):
            setattr(venv, name, value)
    rewards = adapted(Cliff, 1, ["normalize_reward"])
    assert not rewards.norm_obs
    assert rewards.clip_obs is None
    for env in (venv, rewards):
        env.close()


def test_norm_reward_does_not_undo_what_other_wrappers_did():
    venv = adapted(Cliff, 2, ["normalize_reward", "clip_reward"])
    venv.norm_reward = False
    venv.reset()
    with pytest.raises(PlanError, match="put normalize_reward .* outside of those"):
        venv.step(np.ones(2, int))
    venv.close()


def test_what_resets_told_is_told_as_without_normalising():
    def play(wrappers):
        venv = adapted("CartPole-v1", 3, wrappers)
        assert isinstance(venv, VecNormalize) == ("normalize" in wrappers)
        venv.seed(5)
        venv.reset()
        told = [deepcopy(venv.reset_infos)]
        for _ in range(40):
            venv.step(np.zeros(3, dtype=np.int64))
            told.append(deepcopy(venv.reset_infos))
        venv.close()
        return told

    expected = play([{"seed_each_episode": {"seeds": list(range(50, 90)), "replace": True}}])
    assert expected[0] != expected[-1]
    assert all(info["episode_seed"] >= 50 for told in expected for info in told)
    assert (
        play([{"seed_each_episode": {"seeds": list(range(50, 90)), "replace": True}}, "normalize"])
        == expected
    )


# -- files -----------------------------------------------------------------------------------------


def test_checkpoints_of_the_statistics_are_read_by_build(tmp_path):
    venv = adapted(Cliff, 2, ["monitor", "normalize"])
    model = PPO("MlpPolicy", venv, n_steps=32, batch_size=32, device="cpu")
    model.learn(64, CheckpointCallback(32, tmp_path, save_vecnormalize=True))
    later = adapted(
        Cliff, 1, ["monitor", "normalize"], stats=tmp_path / "rl_model_vecnormalize_64_steps.pkl"
    )
    assert_same_statistics(later, venv)
    assert not later.training
    loaded = PPO.load(tmp_path / "rl_model_64_steps", env=later, device="cpu")
    loaded.predict(later.reset())
    with pytest.raises(pickle.UnpicklingError):  # it holds no pickle
        VecNormalize.load(tmp_path / "rl_model_vecnormalize_64_steps.pkl", venv)
    with pytest.raises(
        TypeError, match=r"not pickled: save\(path\) writes its state, build\(stats=path\) reads it"
    ):
        pickle.dumps(venv)
    venv.close()
    later.close()


# -- what SB3 does not know ------------------------------------------------------------------------


def test_two_normalisers_of_the_same_are_refused():
    wrappers = [{"normalize_obs": {"keys": ["wind"]}}, {"normalize_obs": {"keys": ["place"]}}]
    with (
        vecwrap.build(partial(Cliff, True), 1, wrappers, backend="dummy") as env,
        pytest.raises(
            PlanError, match=r"one wrapper that normalises observations.*got NormalizeObs, Nor"
        ),
    ):
        vecwrap.to_sb3(env)


class Whitened(VecEnvWrapper):
    """Keeps statistics of its own kind."""

    def wrapper_statistics(self):
        return {"mine": RunningStatistics()}


def test_statistics_that_sb3_cannot_synchronise_are_told():
    with (
        vecwrap.build("CartPole-v1", 1, [Whitened], backend="dummy") as env,
        pytest.warns(
            UserWarning, match="does not know the statistics of Whitened.*build that with stats=env"
        ),
    ):
        vecwrap.to_sb3(env)
