"""Ratings and the win matrix on the page: against the pool's own figures, and against a count of
the files' rows.
"""

import csv
import json

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("plotly")

import vecwrap
from tests.live.test_server import EVIL, ask, first_state, write_run
from vecwrap.live import RunFolder, page_of, serve
from vecwrap.live import folder as folder_source
from vecwrap.live.leaderboard import MAX_PLAYERS, leaderboard, results_of
from vecwrap.selfplay.results import Results, Row
from vecwrap.tools.plot import read_runs

pytest.importorskip("uvicorn")
pytest.importorskip("plotly")

PLAYED = [
    Row("learner", "random", 0, 6, 1, 3),
    Row("learner", "random", 1, 5, 0, 5),
    Row("learner", "000001", 0, 3, 2, 5),
    Row("learner", "current", 0, 1, 1, 1),
    Row("000001", "random", 0, 8, 0, 2),
]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(folder_source, "READ_PAUSE_FACTOR", 0)


def pool_with(rows, folder=None):
    pool = vecwrap.OpponentPool(folder, scripted=["random"])
    pool.results.add(rows)
    return pool


def test_ratings_are_the_pools_and_scores_those_of_the_games():
    found = leaderboard(Results(PLAYED))
    ratings = pool_with(PLAYED).ratings()
    assert found["anchor"] == ratings.anchor == "random"
    players = {name: rest for name, *rest in found["players"]}
    for name, points, error in zip(ratings.players, ratings.points, ratings.errors, strict=True):
        assert players[name][:2] == [round(float(points), 1), round(float(error), 1)]
    assert players["current"][:2] == [None, None]
    assert players["learner"][2:] == [6 + 5 + 3 + 1, 1 + 2 + 1, 3 + 5 + 5 + 1]
    assert players["random"][2:] == [3 + 5 + 2, 1, 6 + 5 + 8]
    names = [name for name, *_ in found["players"]]
    assert names[:3] == sorted(
        ratings.players, key=lambda name: -ratings.points[ratings.players.index(name)]
    )
    rows = {names[i]: dict(zip(names, cells, strict=True)) for i, cells in found["matrix"]}
    assert sorted(rows) == ["000001", "learner"]  # whose results were recorded
    assert rows["learner"]["random"] == [round((6 + 0.5 + 5) / 20, 3), 20]
    assert rows["000001"]["learner"] == [round((5 + 1) / 10, 3), 10]
    assert rows["learner"]["learner"] == [None, 0]


def test_of_many_players_those_are_shown_who_played_most():
    rows = [Row("learner", f"{i:06}", 0, i, 0, 1) for i in range(1, 101)]
    found = leaderboard(Results(rows))
    shown = {name for name, *_ in found["players"]}
    assert shown == {"learner", *(f"{i:06}" for i in range(102 - MAX_PLAYERS, 101))}
    assert found["left_out"] == 101 - MAX_PLAYERS
    assert len(json.dumps(found)) < 20_000


def test_without_games_there_is_none():
    assert leaderboard(Results()) is None
    assert leaderboard(Results([Row("learner", "current", 0, 1, 0, 0)]))["anchor"] == ""


def about(page):
    return json.loads(ask(page, "about")[2])


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A run of tic-tac-toe against two opponents, which was watched; its folder, and the page's
    last word.
    """
    pytest.importorskip("pettingzoo")
    folder = tmp_path_factory.mktemp("run")
    pool = vecwrap.OpponentPool(None, scripted=["random"])
    chain = [
        "extract_obs:observation",
        {"opponents": {"pool": pool, "seat": "random"}},
        f"monitor:{folder}",
    ]
    with vecwrap.build(
        "pettingzoo:classic/tictactoe-v3", n=4, backend="dummy", wrappers=chain
    ) as env:
        env.reset(seed=1)
        page = page_of(env, 0)
        rng = np.random.default_rng(1)
        for _ in range(100):
            env.step([rng.choice(np.flatnonzero(mask)) for mask in env.action_masks()])
        state = first_state(page)
        who, seats = (
            env.find(vecwrap.selfplay.opponents.Opponents).opponents,
            env.find(vecwrap.selfplay.opponents.Opponents).seats,
        )
        live = about(page)["leaderboard"]
        results = pool.all_results()
    return folder, state, live, results, who, seats


def test_a_live_run_shows_its_pool_and_who_plays_whom(played):
    _, state, live, results, who, seats = played
    assert live == leaderboard(results)
    for game in range(4):
        for seat in range(2):
            row = state["rows"][2 * game + seat]
            assert row["agent"] == f"player_{seat + 1}"
            assert row["plays"] == (
                f"against {who[game]}" if seat in seats[game] else f"played by {who[game]}"
            )


def test_a_finished_run_shows_the_results_in_its_monitor_file(played):
    folder, _, live, results, *_ = played
    with (folder / "monitor.csv").open() as file:
        next(file)
        games = [
            (row["opponent"], int(row["seat"]), np.sign(float(row["result"])))
            for row in csv.DictReader(file)
        ]
    read = {row[1:3]: row[3:] for row in results_of(read_runs([folder])).rows()}
    assert read == {
        key: tuple(games.count((*key, sign)) for sign in (1, 0, -1))
        for key in {game[:2] for game in games}
    }
    page = serve(RunFolder(folder), 0)
    assert about(page)["leaderboard"] == live == leaderboard(results)
    page.close()


def test_a_pool_within_the_folder_counts_for_more(tmp_path):
    folder = write_run(tmp_path / "run")
    pool = pool_with(PLAYED, folder / "pool")
    pool.save()
    page = serve(RunFolder(folder), 0)
    assert about(page)["leaderboard"] == leaderboard(Results(PLAYED))
    pool.record("random", 1.0)
    pool.save()
    assert (
        about(page)["leaderboard"]
        == leaderboard(pool.all_results())
        != leaderboard(Results(PLAYED))
    )
    page.close()


def test_runs_without_opponents_have_no_leaderboard(tmp_path):
    page = serve(RunFolder(write_run(tmp_path / "run")), 0)
    assert about(page)["leaderboard"] is None
    page.close()


def test_a_pool_that_leads_out_of_the_folder_is_not_read(tmp_path):
    folder = write_run(tmp_path / "run")
    pool_with(PLAYED, folder / "pool").save()
    (table,) = (folder / "pool" / "results").iterdir()
    table.rename(tmp_path / "table.json")
    table.symlink_to(tmp_path / "table.json")
    page = serve(RunFolder(folder), 0)
    assert about(page)["leaderboard"] is None
    assert "out of it" in first_state(page)["trouble"]
    page.close()


@pytest.mark.parametrize("cells", [",0,", "a,-1,1", "a,x,1", "a,0,nan", "a,1000,1", "\x00"])
def test_lines_that_are_no_results_are_left_out(tmp_path, cells):
    file = tmp_path / "monitor.csv"
    rows = [f"{EVIL},0,1.0", cells, f"{EVIL},1,-1.0"]
    file.write_text(
        "\n".join(
            [
                '#{"t_start": 0}',
                "r,l,t,env,lost,opponent,seat,result",
                *(f"1,2,3,0,0,{row}" for row in rows),
                "",
            ]
        )
    )
    assert results_of(read_runs([file])).rows() == [
        Row("learner", EVIL, 0, 1, 0, 0),
        Row("learner", EVIL, 1, 0, 0, 1),
    ]


# -- ratings over steps ----------------------------------------------------------------------------


def test_ratings_are_over_the_steps_of_snapshots_whose_facts_say_them():
    rows = [
        Row("000001", "random", 0, 6, 1, 3),
        Row("000002", "random", 0, 8, 1, 1),
        Row("000003", "random", 0, 9, 0, 1),
    ]
    facts = {
        "000003": {"steps": 100},
        "000001": {"steps": 2000.5},
        "000002": {"note": "x"},
        "random": {},
    }
    ratings = pool_with(rows).ratings()
    places = [ratings.players.index(name) for name in ("000003", "000001")]
    assert leaderboard(Results(rows), facts)["over_steps"] == [
        [steps, round(float(ratings.points[i]), 1), round(float(ratings.errors[i]), 1), name]
        for steps, name, i in zip((100, 2000.5), ("000003", "000001"), places, strict=True)
    ]
    assert leaderboard(Results(rows))["over_steps"] == []


@pytest.mark.parametrize("steps", ["many", True, None, -1, float("nan"), float("inf"), 10**400])
def test_what_is_no_number_of_steps_is_no_place_in_the_chart(steps):
    rows = [Row("000001", "random", 0, 6, 1, 3)]
    assert (
        leaderboard(Results(rows), {"000001": {"steps": steps}, "000009": {"steps": 5}})[
            "over_steps"
        ]
        == []
    )


def test_a_folder_and_a_running_training_give_the_same_ratings_over_steps(tmp_path):
    pool = vecwrap.OpponentPool(
        tmp_path / "pool", make="tests.helpers.rock_paper_scissors:make", scripted=["random"]
    )
    for steps in (300, 700):
        name = pool.add({"logits": np.full(3, steps, np.float32)}, facts={"steps": steps})
        pool.record("random", 1, player=name)
    pool.save()
    write_run(tmp_path)
    page = serve(RunFolder(tmp_path))
    try:
        found = about(page)["leaderboard"]["over_steps"]
    finally:
        page.close()
    live = leaderboard(pool.all_results(), {name: pool.facts(name) for name in pool.members})
    assert found == live["over_steps"]
    assert [steps for steps, *_ in found] == [300, 700]
