"""Rollouts and transitions of games are those of a loop over the raw game, whoever waits, is away
or comes back.
"""

from functools import partial

import numpy as np
import pytest

import vecwrap
from tests.helpers.multi_agent_games import (
    Crowd,
    Guests,
    LingeringCrowd,
    Loop,
    Party,
    Returning,
    Turns,
    choose,
)
from tests.helpers.naive_steps import row_of
from vecwrap.rows.compare import assert_same

MODES = ["same_step", "next_step", "disabled", "episodic"]
NUM_GAMES = 2


def tictactoe():
    from pettingzoo.classic.tictactoe.tictactoe import env

    return env()


GAMES = {
    "turns": Turns,
    "guests": Guests,
    "returning": Returning,
    "party": Party,
    "crowd": Crowd,
    "lingering crowd": LingeringCrowd,
    "tictactoe": tictactoe,
}


class Chooses:
    """Moves as the loop does: what it does depends on how many moves of its agent there were."""

    def __init__(self, env):
        self.env = env

    def __call__(self, observations, state, episode_start):
        env = self.env
        moves = np.zeros(env.num_envs, int) if state is None else state
        moves = np.where(episode_start, 0, moves)
        actions = np.zeros(env.num_envs, int)
        for i in np.flatnonzero(env.to_move):
            seen = row_of(observations, i)
            actions[i] = choose(env.row_agents[i], moves[i], seen, env.single_action_space.n)
        return actions, {"moves": moves}, moves + env.to_move


def built(name, mode, seed=30):
    return vecwrap.build(GAMES[name], n=NUM_GAMES, autoreset=mode, backend="dummy", seed=seed)


def expected_of(name, found):
    """What the loop gives for each row, as far as it was found."""
    agents = len(found) // NUM_GAMES
    for game in range(NUM_GAMES):
        enough = [len(row) for row in found[game * agents : (game + 1) * agents]]
        loop = Loop(GAMES[name](), 30 + game).play(1000, enough=enough)
        yield from loop.values()


def same(found, expected, where):
    """Compare transitions; those that no action began have what came last, and flags."""
    for number, (one, other) in enumerate(zip(found, expected, strict=False)):
        before, reward, terminated, truncated, after, _ = other
        assert (one["before"] is None) == (before is None), f"{where}, {number}"
        assert one["flags"] == (terminated, truncated), f"{where}, {number}"
        assert_same(one["after"], after, f"{where}, {number}")
        if before is not None:
            assert_same(one["before"], before[0], f"{where}, {number}")
            assert (one["action"], one["reward"]) == (before[1], reward), f"{where}, {number}"
    assert len(found) <= len(expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("name", "n_steps"),
    [(name, 4) for name in GAMES]
    + [pytest.param(name, 50, marks=pytest.mark.full) for name in GAMES]
    + [("guests", 1), ("tictactoe", 1)],
)
def test_every_valid_step_is_a_transition_of_the_raw_game(name, mode, n_steps):
    with built(name, mode) as env:
        iterator = vecwrap.rollouts(env, Chooses(env), n_steps=n_steps)
        batches = [next(iterator) for _ in range(100 // n_steps)]
        found = [[] for _ in range(env.num_envs)]
    for batch in batches:
        following = batch.next_observations()
        for t, i in np.ndindex(batch.valid.shape):
            flags = bool(batch.terminations[t, i]), bool(batch.truncations[t, i])
            if not (batch.valid[t, i] or any(flags)):
                assert batch.rewards[t, i] == 0
                continue
            one = {"before": None, "flags": flags, "after": row_of(row_of(following, t), i)}
            if batch.valid[t, i]:
                one["before"] = row_of(row_of(batch.observations, t), i)
                one |= {"action": batch.actions[t, i], "reward": batch.rewards[t, i]}
            found[i].append(one)
    for i, expected in enumerate(expected_of(name, found)):
        same(found[i], expected, f"row {i}")
    assert sum(map(len, found)) > 60
    assert any(not batch.valid.all() for batch in batches)


@pytest.mark.parametrize("mode", MODES)
def test_moves_are_extras_of_the_step_that_took_them(mode):
    with built("tictactoe", mode) as env:
        iterator = vecwrap.rollouts(env, Chooses(env), n_steps=3)
        batches = [next(iterator) for _ in range(12)]
    most = 0
    for batch in batches:
        mine = batch.observations["observation"][:-1, ..., 0].sum(axis=(2, 3))
        assert (batch.extras["moves"] == mine)[batch.valid].all()
        most = max(most, batch.extras["moves"][batch.valid].max())
    assert most > 2


def test_ends_are_in_order_though_games_end_in_steps_that_others_take():
    with vecwrap.build(partial(Guests, 30), n=3, backend="dummy", seed=4) as env:
        batch = next(vecwrap.rollouts(env, Chooses(env), n_steps=40))
    assert batch.final_obs_index.tolist() == sorted(batch.final_obs_index.tolist())
    assert len(batch.final_obs) == len(batch.final_obs_index) > 10
