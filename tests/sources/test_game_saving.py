"""Saved states of games: a game that tells its state goes on from it as if it had never stopped;
others are reset.
"""

from functools import partial

import numpy as np
import pytest

import vecwrap
from tests.helpers.multi_agent_games import Party, Turns
from vecwrap.errors import CheckpointError
from vecwrap.rows.compare import assert_same, rows_of

MODES = ["same_step", "next_step", "disabled", "episodic"]


class SavedTurns(Turns):
    def state_dict(self):
        rng = self.rng.bit_generator.state
        return {"rng": rng, "time": self.time, "last_action": self.last_action}

    def load_state_dict(self, state):
        self.rng.bit_generator.state = state["rng"]
        self.time, self.last_action = state["time"], state["last_action"]


class SavedParty(Party):
    def state_dict(self):
        return {
            "rng": self.rng.bit_generator.state,
            "time": self.time,
            "banned": sorted(self.banned),
        }

    def load_state_dict(self, state):
        self.rng.bit_generator.state = state["rng"]
        self.time, self.banned = state["time"], set(state["banned"])


def ordered():
    from pettingzoo.utils import wrappers

    return wrappers.OrderEnforcingWrapper(SavedTurns())


GAMES = {"turns": SavedTurns, "party": SavedParty, "in wrappers": ordered}


def play(env, steps, seed):
    rng, single = np.random.default_rng(seed), env.single_observation_space
    for _ in range(steps):
        result = env.step(rng.integers(4, size=env.num_envs))
        yield rows_of(single, result, ("episode.t",))
        over = ~env.alive if env.possible_agents else result[2] | result[3]
        k = len(env.possible_agents) or 1
        over = over.reshape(-1, k).all(axis=1).repeat(k)
        if over.any() and env.core.autoreset.value in ("disabled", "episodic"):
            env.reset(options={"reset_mask": over})


OPPONENTS = ["opponents", "monitor"]


@pytest.mark.parametrize(
    ("game", "wrappers", "mode"),
    [
        *((game, [], mode) for game in GAMES for mode in MODES),
        ("turns", OPPONENTS, "next_step"),
        ("party", OPPONENTS, "same_step"),
        *(
            pytest.param(game, OPPONENTS, mode, marks=pytest.mark.full)
            for game in ("turns", "party", "in wrappers")
            for mode in MODES
            if (game, mode) not in (("turns", "next_step"), ("party", "same_step"))
        ),
    ],
)
def test_a_loaded_game_goes_on_as_if_it_had_never_stopped(game, mode, wrappers, tmp_path):
    make = partial(
        vecwrap.build, GAMES[game], n=3, backend="dummy", autoreset=mode, wrappers=wrappers
    )
    with make() as env, make() as other:
        env.reset(seed=5)
        for after in (3, 11):
            list(play(env, after, after))
            env.save(tmp_path / f"{after}.npz")
            env_alive = env.alive
            expected = list(play(env, 25, 1))
            other.load(tmp_path / f"{after}.npz")
            np.testing.assert_array_equal(other.alive, env_alive)
            assert_same(expected, list(play(other, 25, 1)))


def test_over_workers_it_is_the_same(tmp_path):
    with (
        vecwrap.build(SavedTurns, n=4, backend="shmem", workers=2, wrappers=["opponents"]) as env,
        vecwrap.build(
            SavedTurns, n=4, backend="subprocess", workers=3, wrappers=["opponents"]
        ) as other,
    ):
        env.reset(seed=5)
        list(play(env, 7, 1))
        env.save(tmp_path / "state.npz")
        other.load(tmp_path / "state.npz")
        assert_same(list(play(env, 20, 2)), list(play(other, 20, 2)))


def test_a_pool_goes_on_with_its_results_and_draws_as_before(tmp_path):
    def build():
        pool = vecwrap.OpponentPool(
            None, scripted=["random", "vecwrap.selfplay.scripted:first_legal"]
        )
        return vecwrap.build(
            "pettingzoo:classic/tictactoe-v3",
            n=4,
            backend="dummy",
            wrappers=[{"opponents": {"pool": pool, "sample": "pfsp"}}],
        )

    with build() as env, build() as other:
        env.reset(seed=5)
        for _ in range(30):
            env.step(env.action_masks().argmax(axis=1))
        env.save(tmp_path / "state.npz")
        other.load(tmp_path / "state.npz")
        assert other.chain[0].pool.results.state() == env.chain[0].pool.results.state() != []
        env.reset()  # tic-tac-toe does not tell its state
        other.reset()
        for _ in range(40):
            actions = env.action_masks().argmax(axis=1)
            one, two = env.step(actions), other.step(actions)
            assert_same(
                rows_of(env.single_observation_space, one, ()),
                rows_of(env.single_observation_space, two, ()),
            )


def test_games_that_do_not_tell_their_state_say_so():
    with vecwrap.build(Turns, n=2, backend="dummy") as env:
        env.reset(seed=1)
        state = env.state_dict()
        assert state["sub_envs"] is None
        assert "Turns offers no state_dict() and load_state_dict()" in state["sub_envs_missing"]


@pytest.mark.parametrize("key", ["agents", "class"])
def test_a_state_of_another_game_is_refused(key):
    with vecwrap.build(SavedTurns, n=1, backend="dummy") as env:
        env.reset(seed=1)
        state = env.state_dict()
        if key == "class":
            state["sub_envs"][0]["env"][0]["wrapper"] = "Other"
        else:
            state["sub_envs"][0]["env"][0]["state"]["attributes"]["__class__"] = 1
        with pytest.raises(CheckpointError):
            env.load_state_dict(state)
