"""Self-play in Stable-Baselines3: masked PPO through ``opponents``, and the callback that adds snapshots."""

import numpy as np
import pytest

import vecwrap
from vecwrap.errors import ArgumentError

contrib = pytest.importorskip("sb3_contrib")
from vecwrap.adapters.sb3_selfplay import SelfPlayCallback  # noqa: E402

SETTINGS = {"n_steps": 32, "batch_size": 128, "n_epochs": 4, "learning_rate": 1e-3, "seed": 1, "device": "cpu"}


def tictactoe(n=16, **opponents):
    wrappers = ["extract_obs:observation", "flatten", {"opponents": opponents}, "monitor"]
    return vecwrap.build("pettingzoo:classic/tictactoe-v3", n=n, backend="dummy", seed=1, wrappers=wrappers)


def test_masked_ppo_learns_against_a_random_player():
    env = tictactoe(pool=["random"])
    model = contrib.MaskablePPO("MlpPolicy", vecwrap.to_sb3(env), **SETTINGS)
    before = vecwrap.evaluate(env, model, episodes=200, seed=7).returns.mean()
    model.learn(8000)
    after = vecwrap.evaluate(env, model, episodes=200, seed=7).returns.mean()
    assert after > before + 0.3
    env.close()


def test_snapshots_are_added_by_steps_rated_and_never_change(tmp_path):
    pool = vecwrap.OpponentPool(tmp_path / "pool", scripted=["random"])
    env = tictactoe(pool=pool, current=0.3)
    model = contrib.MaskablePPO("MlpPolicy", vecwrap.to_sb3(env), **SETTINGS)
    callback = SelfPlayCallback(1000)
    model.learn(1024, callback=callback)
    assert callback.snapshots == ["000001", "000002"]
    assert pool.facts("000001") == {"steps": 1008}
    assert pool.current is model
    seen = np.random.default_rng(1).random((5, 18), np.float32)
    first = pool.policy("000001").predict(seen, deterministic=True)[0]
    learnt = {name: array.clone() for name, array in model.policy.state_dict().items()}
    model.learn(1024, callback=callback, reset_num_timesteps=False)
    assert any((array != learnt[name]).any() for name, array in model.policy.state_dict().items())
    np.testing.assert_array_equal(pool.policy("000001").predict(seen, deterministic=True)[0], first)
    again = vecwrap.OpponentPool(tmp_path / "pool", make=pool._makers._make)
    np.testing.assert_array_equal(again.policy("000001").predict(seen, deterministic=True)[0], first)
    assert {"000001", "random"} <= set(pool.ratings().players)
    assert "current" not in pool.ratings().players
    env.close()


def test_snapshots_are_added_by_score(tmp_path):
    pool = vecwrap.OpponentPool(tmp_path / "pool", scripted=["random"])
    env = tictactoe(pool=pool)
    model = contrib.MaskablePPO("MlpPolicy", vecwrap.to_sb3(env), **SETTINGS)
    callback = SelfPlayCallback(None, win_rate=0.0, games=30)
    model.learn(1024, callback=callback)
    assert len(callback.snapshots) >= 3
    for name in callback.snapshots[:-1]:
        assert sum(row.games for row in pool.results.rows() if row.player == name) >= 30
    env.close()


def test_it_says_what_is_missing():
    with pytest.raises(ArgumentError, match="expected every=STEPS, win_rate=SCORE"):
        SelfPlayCallback(None)
    env = vecwrap.build("CartPole-v1", n=1, backend="dummy")
    model = contrib.MaskablePPO("MlpPolicy", vecwrap.to_sb3(env), **SETTINGS)
    with pytest.raises(ArgumentError, match="expected the wrapper opponents in the chain"):
        model.learn(32, callback=SelfPlayCallback(10))
    env.close()


def test_a_model_that_cannot_sit_where_its_opponents_do_is_refused():
    wrappers = [{"opponents": {"pool": ["random"]}}]
    tag = vecwrap.build("mpe2.simple_tag_v3:parallel_env", n=1, backend="dummy", agents=["agent_0"], wrappers=wrappers)
    model = contrib.MaskablePPO("MlpPolicy", vecwrap.to_sb3(tag), **SETTINGS)
    with pytest.raises(ArgumentError, match="expected opponents with the learner's own spaces"):
        model.learn(1, callback=SelfPlayCallback())
    tag.close()
