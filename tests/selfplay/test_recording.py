"""Who writes into a pool: a training, which says so; neither a command, nor an evaluation, nor a
loop that looks.
"""

import numpy as np
import pytest

import vecwrap
from vecwrap import OpponentPool
from vecwrap.cli import main

FIRST = "vecwrap.selfplay.scripted:first_legal"
GAME = "pettingzoo:classic/tictactoe-v3"


@pytest.fixture
def folder(tmp_path):
    """A pool with a training's results, which has not been bound to a game."""
    pool = OpponentPool(tmp_path / "pool", scripted=["random", FIRST])
    pool.record(FIRST, 1, seat=1)
    pool.save()
    return tmp_path / "pool"


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def play(env, steps=40):
    env.reset()
    for _ in range(steps):
        env.step(env.action_masks().argmax(axis=1))


def tictactoe(pool, **changes):
    wrappers = [{"opponents": {"pool": pool, "sample": "pfsp", **changes}}]
    return vecwrap.build(GAME, n=3, backend="dummy", seed=1, wrappers=wrappers)


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--steps", "150"],
        ["run", "--eval", "--episodes", "9"],
        ["check", "--twice", "--steps", "60"],
        ["time", "--steps", "40"],
    ],
    ids=" ".join,
)
def test_a_command_leaves_a_pool_as_it_was(folder, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = content(folder)
    line = (
        f"{GAME} n=2 backend=dummy | extract_obs:observation | "
        f"opponents:pool={folder},sample=pfsp | monitor:runs"
    )
    assert main([command[0], line, *command[1:]]) == 0
    assert content(folder) == before


def test_a_loop_that_does_not_say_that_it_trains_leaves_nothing(folder):
    before = content(folder)
    for pool in (str(folder), OpponentPool(folder)):
        with tictactoe(pool) as env:
            play(env)
            vecwrap.evaluate(
                env, lambda seen, *, action_masks: action_masks.argmax(axis=1), 6, progress=False
            )
            assert bool(env.pool.results.rows()) == (env.pool is pool), (
                "who made the pool sees what was played"
            )
    assert content(folder) == before


@pytest.mark.parametrize("says", ["current", "records"])
def test_a_training_says_so_and_its_games_are_recorded(folder, says):
    pool = OpponentPool(folder)
    with tictactoe(pool) as env:
        setattr(pool, says, True)  # if it is the present policy, no game is against it
        play(env)
        played = sum(row.games for row in pool.results.rows())
        assert played > 20
        env.eval()
        play(env)
    assert sum(row.games for row in pool.results.rows()) == played
    assert sum(row.games for row in OpponentPool(folder).all_results().rows()) == played + 1


def test_an_evaluation_of_an_older_state_does_not_take_back_what_was_played_since(folder, tmp_path):
    pool = OpponentPool(folder)
    pool.records = True
    with tictactoe(pool) as env:
        play(env, 10)
        env.save(tmp_path / "state.npz")
        play(env, 20)
    after = content(folder)
    with tictactoe(str(folder)) as env:
        env.load(tmp_path / "state.npz")
        env.eval()
        assert env.pool.results.rows()
        play(env, 10)
    assert content(folder) == after


def test_a_tournament_does_not_decide_which_game_a_pool_is_of(folder):
    before = content(folder)
    vecwrap.tournament(GAME, folder, games=1, backend="dummy", progress=False)
    assert content(folder) == before
    with tictactoe(OpponentPool(folder)) as env:
        assert np.shape(env.reset()[0]["observation"]) == (3, 3, 3, 2)
