"""The engines' tables: what is compared with ours does the same work."""

import numpy as np
import pytest

import vecwrap
from benchmarks import engines

N = 4


def test_the_chain_by_hand_counts_and_normalizes_as_ours_does():
    pytest.importorskip("envpool")
    plain = engines.PlainChain(engines.envpool_cheetah(N))
    ours = vecwrap.wrap(engines.envpool_cheetah(N), engines.CHAIN)
    np.testing.assert_allclose(plain.reset()[0], ours.reset()[0], rtol=1e-5)
    policy = engines.drawn(N, np.float64)
    games = 0
    for _ in range(1005):  # a game is over after 1000 steps
        actions = policy(None)
        by_hand = plain.step(actions)
        under_ours = ours.step(actions)
        np.testing.assert_allclose(by_hand[0], under_ours[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(by_hand[1], under_ours[1], rtol=1e-9)
        np.testing.assert_array_equal(by_hand[3], under_ours[3])
        assert ("episode" in by_hand[4]) == ("episode" in under_ours[4])
        if "episode" in by_hand[4]:
            games += by_hand[4]["_episode"].sum()
            for key in ("r", "l"):
                np.testing.assert_allclose(
                    by_hand[4]["episode"][key], under_ours[4]["episode"][key]
                )
    assert games == N
    plain.close()
    ours.close()


def test_pongs_are_preprocessed_inside_as_the_pipeline_says():
    pytest.importorskip("envpool")
    pytest.importorskip("ale_py")
    envpool = engines.envpool_pong(2)
    config = envpool.config
    inside = [config[key] for key in ("stack_num", "frame_skip", "noop_max", "img_height")]
    assert inside == [4, 4, 30, 84]
    assert config["episodic_life"]
    assert config["reward_clip"]
    ale = engines.ale_pong(2)
    assert ale.single_observation_space == envpool.observation_space
    assert ale.single_observation_space.shape == (4, 84, 84)
    envpool.close()
    ale.close()
