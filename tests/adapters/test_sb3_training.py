"""Agents of Stable-Baselines3 that train through ``to_sb3``: shortened here, and whole in ``make
soak``.
"""

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import vecwrap

BACKENDS = ["dummy", "subprocess", "shmem"]


def adapted(env_id, n, wrappers, **settings):
    return vecwrap.to_sb3(vecwrap.build(env_id, n, wrappers, **settings))


# -- the same weights ------------------------------------------------------------------------------


def weights(venv, steps, n_steps):
    """What PPO has learnt after so many steps."""
    model = PPO("MlpPolicy", venv, seed=3, n_steps=n_steps, n_epochs=4, device="cpu")
    model.learn(steps)
    venv.close()
    return {name: value.numpy().copy() for name, value in model.policy.state_dict().items()}


def assert_same_weights(backends, steps, n_steps=256, **kwargs):
    expected = weights(make_vec_env("CartPole-v1", n_envs=4, env_kwargs=kwargs), steps, n_steps)
    for backend in backends:
        got = weights(
            adapted("CartPole-v1", 4, ["monitor"], backend=backend, env_kwargs=kwargs),
            steps,
            n_steps,
        )
        assert got.keys() == expected.keys()
        for name, value in expected.items():
            assert np.array_equal(got[name], value), (backend, name)
        print(
            f"{steps:,} steps on {backend}: {sum(value.size for value in got.values()):,} weights, "
            "all equal"
        )


@pytest.mark.parametrize(
    ("backends", "steps", "n_steps"),
    [(["shmem"], 512, 64), pytest.param(BACKENDS, 2_048, 256, marks=pytest.mark.full)],
)
def test_ppo_learns_bit_for_bit_what_it_learns_on_sb3s_own_environments(backends, steps, n_steps):
    # Some are cut off then, and bootstrapped by PPO.
    assert_same_weights(backends, steps, n_steps, max_episode_steps=40)


@pytest.mark.soak
@pytest.mark.parametrize(
    "kwargs", [{}, {"max_episode_steps": 40}], ids=["CartPole-v1", "cut off after 40 steps"]
)
def test_ppo_learns_bit_for_bit_the_same_in_20_000_steps(kwargs):
    assert_same_weights(BACKENDS, 20_000, **kwargs)


# -- CartPole --------------------------------------------------------------------------------------


def linear(start):
    return lambda left: start * left


def train_on_cartpole(steps):
    """PPO as SB3's zoo sets it up for CartPole; gives the mean return of 100 episodes."""
    settings = {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8}
    env = adapted("CartPole-v1", 8, ["monitor"], backend="dummy")
    model = PPO(
        "MlpPolicy",
        env,
        seed=0,
        learning_rate=linear(0.001),
        clip_range=linear(0.2),
        device="cpu",
        **settings,
    )
    model.learn(steps)
    env.close()
    env = adapted("CartPole-v1", 4, ["monitor"], backend="dummy", seed=1000)
    returns, lengths = evaluate_policy(model, env, 100, return_episode_rewards=True)
    env.close()
    assert returns == lengths  # 1 a step
    print(
        f"CartPole-v1, {steps:,} steps: mean return {np.mean(returns):.1f}, least "
        f"{np.min(returns):g}, of 100 episodes"
    )
    return np.mean(returns)


@pytest.mark.full
def test_ppo_on_cartpole_is_on_its_way():
    assert train_on_cartpole(6_000) > 100  # at random it is 22


@pytest.mark.soak
def test_ppo_on_cartpole_reaches_475():
    assert train_on_cartpole(100_000) >= 475


# -- normalised ------------------------------------------------------------------------------------


def train_on_pendulum(steps, folder, episodes, **settings):
    """PPO under normalize; evaluates with the statistics of the file, and with those of the
    environment itself.

    Returns:
        The mean returns before and after training.
    """
    wrappers = ["monitor", "normalize:gamma=0.9"]
    env = adapted("Pendulum-v1", 4, wrappers, backend="dummy")
    model = PPO(
        "MlpPolicy",
        env,
        seed=1,
        gamma=0.9,
        learning_rate=1e-3,
        n_steps=1024,
        device="cpu",
        **settings,
    )

    def score(stats):
        evaluation = adapted("Pendulum-v1", 4, wrappers, backend="dummy", stats=stats, seed=50)
        assert not evaluation.training
        mean, _ = evaluate_policy(model, evaluation, episodes)
        evaluation.close()
        return mean

    before = score(env.vecwrap_env)
    model.learn(steps)
    env.save(folder / "statistics.npz")
    after = score(folder / "statistics.npz")
    assert after == score(env.vecwrap_env)
    assert after != score_of_unsaved(model, wrappers, episodes)
    env.close()
    print(
        f"Pendulum-v1, {steps:,} steps under normalize: mean return {before:.0f} before, "
        f"{after:.0f} after"
    )
    return before, after


def score_of_unsaved(model, wrappers, episodes):
    """The score under statistics that have seen nothing: what comes of not saving them."""
    evaluation = adapted("Pendulum-v1", 4, wrappers, backend="dummy", seed=50)
    evaluation.training = False
    mean, _ = evaluate_policy(model, evaluation, episodes)
    evaluation.close()
    return mean


@pytest.mark.full
def test_the_statistics_of_a_file_evaluate_as_those_of_the_training(tmp_path):
    train_on_pendulum(4_096, tmp_path, episodes=4)


@pytest.mark.soak
def test_ppo_on_pendulum_improves_under_normalize_and_evaluates_with_saved_statistics(tmp_path):
    before, after = train_on_pendulum(
        100_000, tmp_path, episodes=20, use_sde=True, sde_sample_freq=4
    )
    assert before < -900
    assert after > -300
