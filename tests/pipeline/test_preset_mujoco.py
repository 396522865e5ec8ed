"""The preset mujoco on a real environment, against Gymnasium's ClipAction under Stable-Baselines3's
VecNormalize.
"""

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import vecwrap
from tests.helpers.stream_envs import assert_same

pytest.importorskip("mujoco")

LIMIT = 30


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # MuJoCo writes MUJOCO_LOG.TXT where it stands


def built(*wrappers, n=2, backend="dummy", **settings):
    keywords = {"max_episode_steps": LIMIT}
    return vecwrap.build(
        "HalfCheetah-v5", n, list(wrappers), backend=backend, env_kwargs=keywords, **settings
    )


def some_actions(steps=100, n=2):
    """Some inside and some outside of the bounds."""
    return np.random.default_rng(3).normal(scale=1.5, size=(steps, n, 6)).astype(np.float32)


def test_equals_clipaction_of_gymnasium_under_vecnormalize_of_sb3():
    """On the same stream. SB3 keeps rewards as float32; all statistics are of float64 in both."""

    def make():
        return gymnasium.wrappers.ClipAction(
            gymnasium.make("HalfCheetah-v5", max_episode_steps=LIMIT)
        )

    peer = VecNormalize(DummyVecEnv([make, make]), gamma=0.9)
    peer.seed(5)
    ends = 0
    with built("mujoco:gamma=0.9") as env:
        assert env.single_action_space == peer.action_space
        np.testing.assert_allclose(env.reset(seed=5)[0], peer.reset(), rtol=1e-5, atol=1e-6)
        for actions in some_actions():
            observations, rewards, terminations, truncations, infos = env.step(actions)
            expected, expected_rewards, dones, peer_infos = peer.step(actions)
            np.testing.assert_allclose(observations, expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(rewards, expected_rewards, rtol=1e-4, atol=1e-5)
            assert (terminations | truncations).tolist() == dones.tolist()
            for i in np.flatnonzero(dones):
                ends += 1
                final = peer_infos[i]["terminal_observation"]
                np.testing.assert_allclose(infos["final_obs"][i], final, rtol=1e-5, atol=1e-6)
    assert ends == 6


def test_is_clip_action_and_normalize_in_name_and_stream():
    with built("mujoco") as preset, built("clip_action", "normalize") as parts:
        assert preset.pipeline.hash == parts.pipeline.hash
        assert (
            preset.pipeline.wrapper_names
            == parts.pipeline.wrapper_names
            == ("clip_action", "normalize")
        )
        preset.reset(seed=1)
        parts.reset(seed=1)
        for actions in some_actions(LIMIT + 5):
            one, other = preset.step(actions), parts.step(actions)
            assert_same(one[:4], other[:4])


def test_observations_and_rewards_are_clipped_to_10_unless_told_otherwise():
    with built("mujoco") as env:
        assert env.single_observation_space.high.max() == 10
    with built("mujoco:clip=0.5") as env:
        env.reset(seed=1)
        rows = [env.step(actions) for actions in some_actions(LIMIT + 5)]
    assert max(np.abs(observations).max() for observations, *_ in rows) == 0.5
    assert max(np.abs(row[1]).max() for row in rows) == 0.5


@pytest.mark.parametrize("backend", ["subprocess", "shmem"])
def test_gives_the_same_stream_on_every_backend(backend):
    with built("mujoco") as expected, built("mujoco", backend=backend, workers=2) as env:
        assert_same(env.reset(seed=1)[0], expected.reset(seed=1)[0])
        for actions in some_actions(LIMIT + 5):
            assert_same(env.step(actions)[:4], expected.step(actions)[:4])
