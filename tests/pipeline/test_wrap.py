"""Wrappers around vector environments that vecwrap did not build."""

import gymnasium
import numpy as np
import pytest

import vecwrap
from vecwrap.errors import PlanError, SpecError


def cartpoles(n=3):
    return gymnasium.make_vec("CartPole-v1", num_envs=n, vectorization_mode="vector_entry_point")


def test_the_same_wrappers_in_the_same_words():
    plain = cartpoles()
    with vecwrap.wrap(cartpoles(), ["framestack:2", "monitor"]) as env:
        observations, _ = env.reset(seed=4)
        expected, _ = plain.reset(seed=4)
        env.action_space.seed(1)
        returns, episodes = np.zeros(3), []
        reset_step = np.zeros(3, bool)
        for _ in range(100):
            np.testing.assert_array_equal(observations[:, -1], expected)
            actions = env.action_space.sample()
            observations, _, _, _, infos = env.step(actions)
            expected, rewards, terminations, truncations, _ = plain.step(actions)
            returns += rewards
            dones = terminations | truncations
            if dones.any():
                np.testing.assert_array_equal(infos["_episode"], dones)
                np.testing.assert_array_equal(infos["episode"]["r"][dones], returns[dones])
                episodes.extend(returns[dones])
                returns[dones] = 0
            assert (observations[reset_step, 0] == 0).all(), (
                "the stack begins anew with the episode"
            )
            reset_step = dones
        assert len(episodes) > 5
        assert (
            repr(env)
            == "<VecEnv CartPole-v1, n=3, dummy, next_step, wrappers FrameStack > Monitor>"
        )
    plain.close()


def test_an_environment_of_our_own_is_wrapped_as_it_is():
    inner = vecwrap.build("CartPole-v1", n=2, backend="dummy")
    with vecwrap.wrap(inner, "framestack:3") as env:
        assert env.unwrapped is inner
        assert env.reset(seed=1)[0].shape == (2, 3, 4)


def test_a_wrapper_of_the_sub_environments_is_refused_before_anything_is_made():
    with pytest.raises(
        PlanError,
        match=r"wrappers\[0\] .*time_limit.*wraps each sub-environment, and those are made",
    ):
        vecwrap.wrap(object(), ["time_limit:5"])


def test_an_unknown_wrapper_is_refused_before_anything_is_made():
    with pytest.raises(SpecError, match='Did you mean "framestack"'):
        vecwrap.wrap(object(), ["framestak:4"])


@pytest.mark.filterwarnings(
    "ignore:.*precision lowered by casting:UserWarning"
)  # EnvPool's own spaces
def test_envpools_gymnasium_interface():
    """Its stream as it comes, and the books of stack and monitor kept by hand beside it."""
    envpool = pytest.importorskip("envpool")
    engine, plain = (
        envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=7) for _ in range(2)
    )
    with vecwrap.wrap(engine, ["framestack:2", "monitor"]) as env:
        observations, _ = env.reset()
        expected, _ = plain.reset()
        previous, returns, over = np.zeros_like(expected), np.zeros(3), np.zeros(3, bool)
        rng, episodes = np.random.default_rng(0), 0
        for _ in range(150):
            np.testing.assert_array_equal(observations, np.stack([previous, expected], axis=1))
            actions = rng.integers(0, 2, 3)
            observations, rewards, terminations, truncations, infos = env.step(actions)
            previous = expected
            expected, their_rewards, their_terminations, *_ = plain.step(actions)
            np.testing.assert_array_equal(rewards, their_rewards)
            np.testing.assert_array_equal(terminations, their_terminations)
            previous = np.where(over[:, None], 0, previous)  # the step after an end only resets
            returns = np.where(over, 0, returns + rewards)
            over = terminations | truncations
            if over.any():
                episodes += over.sum()
                np.testing.assert_array_equal(infos["episode"]["r"][over], returns[over])
        assert episodes > 5
    plain.close()


@pytest.mark.parametrize(
    ("what", "got"),
    [
        (lambda: gymnasium.make("CartPole-v1"), "got TimeLimit; vecwrap.build makes"),
        (lambda: "CartPole-v1", 'got "CartPole-v1"; vecwrap.build makes'),
        (lambda: None, "got NoneType; vecwrap.build makes"),
    ],
)
def test_what_is_no_vector_environment_is_refused_with_what_makes_one(what, got):
    with pytest.raises(PlanError, match=f"wrap: expected a gymnasium.vector.VectorEnv, {got}"):
        vecwrap.wrap(what(), ["monitor"])


def test_the_seed_of_an_environment_of_our_own_is_used():
    first = []
    for _ in range(2):
        with vecwrap.wrap(
            vecwrap.build("CartPole-v1", n=2, backend="dummy"), ["monitor"], seed=3
        ) as env:
            first.append(env.reset()[0])
    with vecwrap.build("CartPole-v1", n=2, backend="dummy") as env:
        np.testing.assert_array_equal(env.reset(seed=3)[0], first[0])
    np.testing.assert_array_equal(first[0], first[1])


def test_what_an_environment_of_our_own_would_ignore_is_refused():
    with vecwrap.build("CartPole-v1", n=2, backend="dummy", autoreset="episodic") as env:
        with pytest.raises(
            PlanError, match="declares episodic, but got autoreset='disabled'; leave it out"
        ):
            vecwrap.wrap(env, autoreset="disabled")
        with pytest.raises(PlanError, match="got masked_resets=True; leave it out"):
            vecwrap.wrap(env, masked_resets=True)
        assert vecwrap.wrap(env, autoreset="episodic").unwrapped is env
