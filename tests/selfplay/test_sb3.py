"""Self-play in Stable-Baselines3: masked PPO through ``opponents``, and the callback that adds
snapshots.
"""

import numpy as np
import pytest

import vecwrap
from vecwrap.errors import ArgumentError

contrib = pytest.importorskip("sb3_contrib")
from vecwrap.selfplay.sb3 import SelfPlayCallback  # noqa: E402

SETTINGS = {
    "n_steps": 32,
    "batch_size": 128,
    "n_epochs": 4,
    "learning_rate": 1e-3,
    "seed": 1,
    "device": "cpu",
}


def tictactoe(n=16, **opponents):
    wrappers = ["extract_obs:observation", "flatten", {"opponents": opponents}, "monitor"]
    return vecwrap.build(
        "pettingzoo:classic/tictactoe-v3", n=n, backend="dummy", seed=1, wrappers=wrappers
    )


@pytest.mark.full
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
    model = contrib.MaskablePPO("MlpPolicy", vecwrap.to_sb3(env), **{**SETTINGS, "n_epochs": 1})
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
    np.testing.assert_array_equal(
        again.policy("000001").predict(seen, deterministic=True)[0], first
    )
    assert {"000001", "random"} <= set(pool.ratings().players)
    assert "current" not in pool.ratings().players
    env.close()


def test_snapshots_are_added_by_score(tmp_path):
    pool = vecwrap.OpponentPool(tmp_path / "pool", scripted=["random"])
    env = tictactoe(pool=pool)
    model = contrib.MaskablePPO("MlpPolicy", vecwrap.to_sb3(env), **{**SETTINGS, "n_epochs": 1})
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
    tag = vecwrap.build(
        "mpe2.simple_tag_v3:parallel_env",
        n=1,
        backend="dummy",
        agents=["agent_0"],
        wrappers=wrappers,
    )
    model = contrib.MaskablePPO("MlpPolicy", vecwrap.to_sb3(tag), **SETTINGS)
    with pytest.raises(ArgumentError, match="expected opponents with the learner's own spaces"):
        model.learn(1, callback=SelfPlayCallback())
    tag.close()


def test_games_that_opponents_end_before_the_first_move_are_rated_logged_and_reported(tmp_path):
    """Ann resigns in 40 % of these games, bob is knocked out of 30 %, and else moves once."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.monitor import load_results

    from tests.selfplay.test_unplayed import FIRST, Table

    pool = vecwrap.OpponentPool(tmp_path / "pool", scripted=[FIRST])
    chain = [{"opponents": {"pool": pool, "seat": "bob"}}, {"monitor": {"dir": str(tmp_path)}}]
    env = vecwrap.build(Table, n=4, backend="dummy", seed=1, wrappers=chain)
    venv = vecwrap.to_sb3(env)
    reported, games = [], 0

    class Look(SelfPlayCallback):
        def _on_step(self):
            nonlocal games
            games += sum(info.get("games_ended", 0) for info in self.locals["infos"])
            reported.extend(info["episode"] for info in self.locals["infos"] if "episode" in info)
            return super()._on_step()

    model = PPO("MlpPolicy", venv, n_steps=16, batch_size=64, n_epochs=1, device="cpu", seed=1)
    model.learn(128, callback=Look(64))
    env.close()
    results = load_results(str(tmp_path))
    recorded = sum(row.games for row in pool.results.rows())
    at_first = len(results) - games  # within the reset, before the callback knows of the pool
    assert len(results) == recorded
    assert 0 <= at_first < 40 < 300 < games
    assert len(reported) == 128  # each step ends a game of each row, and reports the last
    assert {episode["l"] for episode in reported} == {0, 1}
    assert results["l"].eq(0).mean() == pytest.approx(0.7, abs=0.08)
    assert results["r"].mean() == pytest.approx(0.4 * 1.25 - 0.3 * 0.75 + 0.3 * 0.75, abs=0.2)
    assert (np.sign(results["result"]) == results["result"]).all()
