"""Tournaments: every pair in all seats, from fixed seeds; what they give is what a loop over the
raw game gives.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import vecwrap
from vecwrap import OpponentPool
from vecwrap.errors import ArgumentError
from vecwrap.selfplay.ratings import bradley_terry_by_seed
from vecwrap.selfplay.scripted import first_legal

FIRST = "vecwrap.selfplay.scripted:first_legal"
LAST = f"{__name__}:last_legal"
GAME = "pettingzoo:classic/tictactoe-v3"


def last_legal(observations, *, action_masks):
    return action_masks.shape[1] - 1 - action_masks[:, ::-1].argmax(axis=1)


def by_hand(players):
    """The reward of the player in seat 0."""
    from pettingzoo.classic.tictactoe.tictactoe import env

    game = env()
    game.reset(seed=0)
    total = 0.0
    for agent in game.agent_iter():
        seen, reward, terminated, truncated, _ = game.last()
        total += reward if agent == "player_1" else 0.0
        if terminated or truncated:
            game.step(None)
            continue
        policy = players[agent == "player_2"]
        game.step(int(policy(None, action_masks=seen["action_mask"][None])[0]))
    return total


def test_results_are_those_of_games_played_by_hand():
    played = vecwrap.tournament(
        GAME, OpponentPool(None, scripted=[FIRST, LAST]), games=3, backend="dummy"
    )
    names = dict(zip((LAST, FIRST), (last_legal, first_legal), strict=True))
    for row in played.results.rows():
        pair = [names[row.player], names[row.opponent]]
        result = by_hand(pair if row.seat == 0 else pair[::-1]) * (1 if row.seat == 0 else -1)
        assert (row.wins, row.draws, row.losses) == tuple(
            3 * (result == sign) for sign in (1, 0, -1)
        )
    assert len(played.results.rows()) == 2


def test_it_is_the_same_however_many_games_are_played_at_once_and_on_every_backend():
    def rows(**changes):
        return vecwrap.tournament(
            GAME, OpponentPool(None, scripted=["random", FIRST, LAST]), games=8, seed=3, **changes
        ).results.state()

    expected = rows(n=1, backend="dummy")
    assert sum(sum(row[3:]) for row in expected) == 3 * 2 * 8
    assert rows(n=7, backend="dummy") == expected
    assert rows(n=4, backend="shmem") == expected
    pool = OpponentPool(None, scripted=["random", FIRST])
    assert vecwrap.tournament(GAME, pool, games=8, seed=4, backend="dummy").results.state() != [
        row for row in expected if LAST not in row
    ]


def test_wrappers_inside_of_opponents_are_used_and_others_are_not(tmp_path):
    wrappers = ["extract_obs:observation", "opponents", {"monitor": {"dir": str(tmp_path)}}]
    pool = OpponentPool(None, scripted=["random", FIRST])
    vecwrap.tournament({"env": GAME, "wrappers": wrappers}, pool, games=2, backend="dummy")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_scripted_members_is_a_pool(kind):
    names = ["random", FIRST]
    expected = vecwrap.tournament(
        GAME, OpponentPool(None, scripted=names), games=3, backend="dummy"
    )
    played = vecwrap.tournament(GAME, kind(names), games=3, backend="dummy")
    assert played.results.rows() == expected.results.rows()


def test_errors_come_from_resampling_what_was_played_from_each_seed():
    names = ["random", FIRST, LAST]
    alone = [
        vecwrap.tournament(GAME, names, games=1, seed=5 + j, backend="dummy").results
        for j in range(4)
    ]
    played = vecwrap.tournament(GAME, names, games=4, seed=5, backend="dummy").ratings
    assert played.covariance.tolist() == bradley_terry_by_seed(alone).covariance.tolist()
    assert (played.anchor, played.resampled) == ("random", "4 seeds")


def test_games_of_three_are_played_from_every_seat():
    played = vecwrap.tournament(
        "pettingzoo:classic/texas_holdem-v4",
        OpponentPool(None, scripted=["random", FIRST]),
        games=2,
        backend="dummy",
        env_kwargs={"num_players": 3},
    )
    assert [(row.player, row.seat, row.games) for row in played.results.rows()] == [
        (player, seat, 2) for player in ("random", FIRST) for seat in range(3)
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"players": ["random"]}, "expected at least two players, got random"),
        ({"players": ["random", "rando"]}, 'there is no member "rando". Did you mean "random"'),
        ({"record": ("random", "000009")}, 'there is no member "000009"'),
        ({"games": 0}, "games: expected at least 1"),
        (
            {"players": "random"},
            r"players: expected a list of names, got \"random\"; write \[\"random\"\]",
        ),
        (
            {"anchor": "rndom"},
            'anchor: expected one of the players, got "rndom". Did you mean "random"',
        ),
        *(
            ({"pool": pool}, "pool: expected an OpponentPool, its folder, or a list")
            for pool in (3, None, {}, b"x", [3])
        ),
        *(
            ({"pool": pool}, "expected at least two players, got none")
            for pool in ([], "nowhere", Path("nowhere"))
        ),
        ({"pool": ["random"]}, "expected at least two players, got random"),
        ({"pipeline": "CartPole-v1"}, "expected games of several agents"),
    ],
)
def test_bad_arguments_are_refused_before_the_first_game(arguments, said):
    pool = OpponentPool(None, scripted=["random", FIRST])
    with pytest.raises(ArgumentError, match=said):
        vecwrap.tournament(**{"pipeline": GAME, "pool": pool, "backend": "dummy", **arguments})


def test_the_command_prints_and_writes_ratings(tmp_path, capsys, monkeypatch):
    from vecwrap.cli import main

    monkeypatch.chdir(tmp_path)
    pool = OpponentPool(tmp_path / "pool")
    pool.add("random")
    pool.add(FIRST)
    call = ["tournament", GAME, "--pool", "pool", "--games", "4", "--backend", "dummy"]
    assert main([*call, "--out", "out", "--record", f"random,{FIRST}"]) == 0
    said = capsys.readouterr().out
    assert "Elo points above random, with standard errors from resampling 4 seeds" in " ".join(
        said.split()
    )
    assert re.search(r"^player +rating  error  games  won  drawn  lost$", said, re.MULTILINE)
    assert "random,0.0,0.0,8,random,4 seeds" in (tmp_path / "out" / "ratings.csv").read_text()
    assert (tmp_path / "out" / "games.csv").read_text().startswith("player,opponent,seat,games")
    assert (tmp_path / "out" / "games.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((tmp_path / "out").glob("*.mp4"))) == 2
    assert main([*call, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["anchor"], data["resampled"]) == ("random", "4 seeds")
    assert sum(row["wins"] + row["draws"] + row["losses"] for row in data["results"]) == 8
    assert main(["tournament", GAME, "--pool", "nowhere"]) == 2
    assert 'expected the folder of a pool, got "nowhere"' in capsys.readouterr().err
    assert main([*call, "--no-imports"]) == 2
    assert "expected nothing to import" in capsys.readouterr().err


def test_ratings_recover_who_is_stronger():
    pool = OpponentPool(None, scripted=["random", FIRST, LAST])
    ratings = vecwrap.tournament(GAME, pool, games=60, backend="dummy").ratings
    assert ratings.players[int(np.argmin(ratings.points))] == "random"


def test_the_curve_of_ratings_is_over_the_steps_of_snapshots(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pool = OpponentPool(tmp_path / "pool", make=f"{__name__}:made", scripted=["random"])
    for steps in (900, 100):
        pool.add({"x": np.array(steps)}, facts={"steps": steps})
    played = vecwrap.tournament(GAME, pool, games=2, backend="dummy")
    assert played.steps == {"000002": 100, "000001": 900}
    drawn = []
    monkeypatch.setattr("vecwrap.tools.plot.save", lambda figure, path: drawn.append(figure))
    played.save(tmp_path / "out")
    (panel,) = drawn[-1].axes
    assert panel.get_xlabel() == "steps"
    assert panel.get_lines()[0].get_xdata().tolist() == [100, 900]


def made(arrays):
    return first_legal
