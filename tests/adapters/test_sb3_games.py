"""Games of several agents through ``to_sb3``: their agents are rows of an ordinary SB3 ``VecEnv``."""

import numpy as np
import pytest
from stable_baselines3 import PPO

import vecwrap
from tests.agents import Turns

pytestmark = pytest.mark.usefixtures("quick_workers")


def test_ppo_trains_one_policy_for_all_agents_of_a_cooperative_game():
    venv = vecwrap.to_sb3(
        vecwrap.build(
            "mpe2.simple_spread_v3:parallel_env",
            n=4,
            wrappers=["monitor"],
            backend="shmem",
            seed=1,
            env_kwargs={"max_cycles": 8},
        )
    )
    assert venv.num_envs == 12
    model = PPO("MlpPolicy", venv, n_steps=32, batch_size=64, n_epochs=1, seed=1, device="cpu").learn(1000)
    assert len(model.ep_info_buffer) == 100
    assert {episode["l"] for episode in model.ep_info_buffer} == {8}
    venv.close()


def test_waiting_rows_have_one_legal_action_and_no_illegal_one_is_played():
    contrib = pytest.importorskip("sb3_contrib")
    venv = vecwrap.to_sb3(
        vecwrap.build("pettingzoo:classic/tictactoe-v3", n=4, wrappers=["extract_obs:observation"], backend="dummy")
    )
    env = venv.vecwrap_env
    venv.reset()
    for _ in range(30):
        masks = np.stack(venv.env_method("action_masks"))
        assert (masks[~env.to_move].sum(axis=1) == 1).all()
        assert masks[~env.to_move, 0].all()
        np.testing.assert_array_equal(masks[env.to_move], env.action_masks()[env.to_move])
        venv.step(masks.argmax(axis=1))
    model = contrib.MaskablePPO("MlpPolicy", venv, n_steps=16, batch_size=32, n_epochs=1, seed=1, device="cpu")
    model.learn(256)
    venv.close()


def test_no_transition_crosses_games_even_where_agents_leave_early():
    """A row that rests ends, too, when the next game begins: with its own last observation."""
    venv = vecwrap.to_sb3(vecwrap.build(Turns, n=3, backend="dummy", seed=2))
    env = venv.vecwrap_env
    before, rested = venv.reset(), 0
    alive = env.alive
    for _ in range(200):
        observations, rewards, dones, infos = venv.step(np.zeros(12, int))
        assert dones[env.core.slots.first].all()
        for i in np.flatnonzero(dones & ~alive):
            rested += 1
            np.testing.assert_array_equal(infos[i]["terminal_observation"], before[i])
            assert rewards[i] == 0
            assert not infos[i]["TimeLimit.truncated"]
        before, alive = observations, env.alive
    assert rested > 10
    venv.close()


def test_a_normalised_game_whose_agents_leave_early_trains():
    venv = vecwrap.to_sb3(vecwrap.build(Turns, n=3, wrappers=["normalize", "monitor"], backend="dummy", seed=2))
    PPO("MlpPolicy", venv, n_steps=32, batch_size=64, n_epochs=1, seed=1, device="cpu").learn(800)
    venv.close()
