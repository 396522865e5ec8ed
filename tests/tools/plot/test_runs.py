"""What files of a folder say together: the order of ends, steps of all sub-environments, seeds,
names.
"""

import random

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.tools.plot.files import random_rows, write_file
from tests.tools.plot.test_monitor_log import play
from vecwrap.errors import PlotError
from vecwrap.tools.plot import read_runs


def seed_of(place):
    (run,) = read_runs([place])
    (seed,) = run.runs
    return seed


def test_files_of_stable_baselines3_are_one_run_as_its_own_reader_takes_them(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3.common.monitor")
    pytest.importorskip("pandas")
    environments = [
        sb3.Monitor(gymnasium.make("CartPole-v1"), str(tmp_path / str(i))) for i in range(3)
    ]
    for _ in range(3):  # by turns, so that their episodes end in between each other
        for i, env in enumerate(environments):
            play(env, 60, seed=i)
    for env in environments:
        env.close()
    theirs = sb3.load_results(str(tmp_path))
    ours = seed_of(tmp_path)
    assert len(theirs) > 10
    assert ours.scores.tolist() == theirs["r"].tolist()
    assert ours.steps.tolist() == theirs["l"].cumsum().tolist()
    np.testing.assert_allclose(ours.minutes * 60, theirs["t"], atol=1e-6)
    assert (ours.env_id, ours.step_unit) == ("CartPole-v1", "steps")


@pytest.mark.parametrize("per_env", [False, True])
def test_both_layouts_of_ours(tmp_path, per_env):
    wrapper = {"monitor": {"dir": str(tmp_path), "per_env": per_env}}
    env = vecwrap.build("CartPole-v1", n=3, seed=1, backend="dummy", wrappers=[wrapper])
    env.reset()
    chance, episodes = random.Random(1), []
    for step in range(1, 151):
        *_, infos = env.step([chance.randrange(2) for _ in range(3)])
        over = np.flatnonzero(infos.get("_episode", []))
        # Each of the three acts in every step.
        episodes += [(infos["episode"]["r"][i], 3 * step) for i in over]
    env.close()
    seed = seed_of(tmp_path)
    assert len(episodes) > 10
    assert list(zip(seed.scores, seed.steps, strict=True)) == episodes
    assert seed.total_steps == episodes[-1][1]
    assert len(list(tmp_path.glob("*monitor.csv"))) == (3 if per_env else 1)
    assert (seed.step_unit, seed.pipeline) == ("agent steps", env.pipeline.hash)
    assert (np.diff(seed.minutes) >= 0).all()


def test_files_are_put_in_the_order_of_the_clock_though_they_began_at_other_times(tmp_path):
    write_file(
        tmp_path / "0.monitor.csv",
        [(1, 10, 5.0), (2, 10, 65.0)],
        t_start=1000,
        columns=["r", "l", "t"],
    )
    write_file(
        tmp_path / "1.monitor.csv",
        [(3, 7, 3.0), (4, 7, 30.0)],
        t_start=1030,
        columns=["r", "l", "t"],
    )
    seed = seed_of(tmp_path)
    assert seed.scores.tolist() == [1, 3, 4, 2]  # they ended at 1005, 1033, 1060, 1065
    assert seed.steps.tolist() == [10, 17, 24, 34]
    assert seed.along("episodes").tolist() == [1, 2, 3, 4]
    np.testing.assert_allclose(seed.along("minutes"), np.array([5, 33, 60, 65]) / 60)


def test_episodes_that_are_lost_or_no_number_have_no_score_but_their_steps_count(tmp_path):
    rows = [
        (1, 10, 1.0, 0, 0),
        (9, 100, 2.0, 1, 1),
        ("nan", 1000, 3.0, 1, 0),
        (2, 10, 4.0, 0, 0),
        (9, 5, 5.0, 0, 1),
    ]
    seed = seed_of(write_file(tmp_path / "monitor.csv", rows))
    assert (seed.scores.tolist(), seed.steps.tolist(), seed.total_steps) == (
        [1, 2],
        [10, 1120],
        1125,
    )
    assert (seed.lost, seed.not_finite, seed.unreadable) == (2, 1, 0)
    assert seed.along("episodes").tolist() == [1, 2]


def test_scores_that_nothing_can_be_reckoned_with_are_left_out(tmp_path):
    rows = [
        (1e308, 10, 1.0, 0, 0),
        (-1.7e308, 100, 2.0, 1, 0),
        ("inf", 1000, 3.0, 1, 0),
        (2e149, 10, 4.0, 0, 0),
    ]
    seed = seed_of(write_file(tmp_path / "monitor.csv", rows))
    assert (seed.scores.tolist(), seed.not_finite, seed.total_steps) == ([2e149], 3, 1120)


def test_a_folder_of_folders_is_a_run_of_several_seeds(tmp_path):
    rng = np.random.default_rng(1)
    for i in range(3):
        write_file(tmp_path / "ppo" / f"seed{i}" / "monitor.csv", random_rows(rng, 5 + i))
    (tmp_path / "ppo" / "plots").mkdir()
    (run,) = read_runs([tmp_path / "ppo"])
    assert (run.name, [len(seed.scores) for seed in run.runs]) == ("ppo", [5, 6, 7])


@pytest.mark.parametrize("differs", ["env_id", "pipeline"])
def test_folders_of_different_environments_or_pipelines_are_runs_of_their_own(tmp_path, differs):
    for name in ("a", "b"):
        write_file(tmp_path / name / "monitor.csv", [(1, 10, 1.0, 0, 0)], **{differs: name})
    assert [run.name for run in read_runs([tmp_path])] == ["a", "b"]


def test_what_lies_in_folders_below_is_no_part_of_a_run_with_files_of_its_own(tmp_path):
    write_file(tmp_path / "monitor.csv", [(1, 10, 1.0, 0, 0)])
    write_file(tmp_path / "eval" / "monitor.csv", [(9, 10, 1.0, 0, 0)])
    (tmp_path / "monitor.csv.1").write_text("an earlier run")
    (tmp_path / "progress.csv").write_text("time,steps\n")
    assert seed_of(tmp_path).scores.tolist() == [1]


def test_runs_of_one_name_are_seeds_of_one_curve(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x", "y", "z"):
        write_file(tmp_path / f"{name}.monitor.csv", [(1, 10, 1.0, 0, 0)])
    runs = read_runs(["ppo=x.monitor.csv", "z.monitor.csv", "ppo=y.monitor.csv"])
    assert [(run.name, [str(seed.path) for seed in run.runs]) for run in runs] == [
        ("ppo", ["x.monitor.csv", "y.monitor.csv"]),
        ("z", ["z.monitor.csv"]),
    ]


def test_an_equals_sign_in_the_name_of_a_folder_is_no_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_file(tmp_path / "lr=0.1" / "monitor.csv", [(1, 10, 1.0, 0, 0)])
    assert [run.name for run in read_runs(["lr=0.1"])] == ["lr=0.1"]
    assert [run.name for run in read_runs(["low=lr=0.1"])] == ["low"]


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (["runs/a", "runs/b"], ["a", "b"]),
        (["runs/a/monitor.csv"], ["a"]),
        (["runs/a/monitor.csv", "other/a"], ["runs/a", "other/a"]),
        (["runs/b", "x/0.monitor.csv"], ["b", "0"]),
        (["runs/a", "runs/a"], ["a"]),
        (["runs/a", "./runs/a"], ["a"]),
    ],
)
def test_runs_are_named_by_as_few_of_their_folders_as_tell_them_apart(
    tmp_path, monkeypatch, places, names
):
    monkeypatch.chdir(tmp_path)
    for path in (
        "runs/a/monitor.csv",
        "runs/b/monitor.csv",
        "other/a/monitor.csv",
        "x/0.monitor.csv",
    ):
        write_file(tmp_path / path, [(1, 10, 1.0, 0, 0)])
    assert [run.name for run in read_runs(places)] == names


def test_a_run_without_an_episode_is_read(tmp_path):
    (tmp_path / "monitor.csv").write_text("")
    seed = seed_of(tmp_path)
    assert (len(seed.scores), seed.total_steps) == (0, 0)


def test_headers_that_disagree_say_nothing(tmp_path):
    write_file(
        tmp_path / "0.monitor.csv", [(1, 10, 1.0, 0, 0)], step_unit="agent step", frame_skip=4
    )
    write_file(tmp_path / "1.monitor.csv", [(1, 10, 1.0, 0, 0)], step_unit="frame", frame_skip=4)
    assert (seed_of(tmp_path).step_unit, seed_of(tmp_path).env_id) == ("steps", "Toy-v0")


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("nowhere", "there is no such file or folder"),
        (".", "expected monitor files"),
        ("a=nowhere", "nowhere: there is no"),
    ],
)
def test_places_without_monitor_files_are_refused(tmp_path, monkeypatch, place, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(PlotError, match=says):
        read_runs([place])


def test_nothing_is_refused_too():
    with pytest.raises(PlotError, match="got none"):
        read_runs([])


def test_a_folder_that_would_count_as_two_seeds_is_refused(tmp_path):
    for name in ("a", "b"):
        write_file(tmp_path / name / "monitor.csv", random_rows(np.random.default_rng(1), 3))
    places = [f"both={tmp_path}", f"both={tmp_path / 'a'}"]
    with pytest.raises(PlotError, match="^both: expected each seed once, got .*a twice; leave one"):
        read_runs(places)
    assert [
        len(run.runs) for run in read_runs([f"one={tmp_path / 'a'}", f"other={tmp_path / 'a'}"])
    ] == [1, 1]
    assert len(read_runs([tmp_path / "a", tmp_path / "a"])) == 1


# -- the column of agent steps ---------------------------------------------------------------------

WITH_STEPS = ("r", "l", "t", "env", "lost", "steps")


def test_steps_are_those_that_the_file_says_and_those_of_lost_episodes_count(tmp_path):
    rows = [
        (1, 10, 1.0, 0, 0, 15),
        (9, 10, 2.0, 1, 1, 27),
        (2, 30, 3.0, 1, 0, 70),
        (9, 5, 4.0, 0, 1, 81),
    ]
    seed = seed_of(write_file(tmp_path / "monitor.csv", rows, columns=WITH_STEPS))
    assert (seed.steps.tolist(), seed.total_steps) == ([15, 70], 81)


@pytest.mark.parametrize("steps", ["", "x", "-3", "1e5", "1" * 30])
def test_a_row_that_does_not_say_its_steps_adds_its_length(tmp_path, steps):
    rows = [(1, 10, 1.0, 0, 0, 15), (1, 20, 2.0, 1, 0, steps), (1, 30, 3.0, 1, 0, 100)]
    assert seed_of(
        write_file(tmp_path / "monitor.csv", rows, columns=WITH_STEPS)
    ).steps.tolist() == [15, 35, 100]
    rows[0] = (1, 10, 1.0, 0, 0, steps)
    assert seed_of(
        write_file(tmp_path / "monitor.csv", rows, columns=WITH_STEPS)
    ).steps.tolist() == [10, 30, 100]


def test_beside_a_file_without_the_column_the_lengths_of_all_are_added_up(tmp_path):
    write_file(
        tmp_path / "0.monitor.csv",
        [(1, 10, 1.0, 0, 0, 20), (1, 10, 3.0, 0, 0, 60)],
        columns=WITH_STEPS,
    )
    write_file(tmp_path / "1.monitor.csv", [(1, 25, 2.0, 1, 0)])
    write_file(tmp_path / "2.monitor.csv", [], columns=WITH_STEPS)
    assert seed_of(tmp_path).steps.tolist() == [10, 35, 45]


def test_steps_never_decrease_although_a_run_went_on_from_an_earlier_state(tmp_path):
    rows = [
        (1, 10, 1.0, 0, 0, 10),
        (1, 10, 2.0, 0, 0, 20),
        (1, 10, 3.0, 0, 0, 15),
        (1, 10, 4.0, 0, 0, 25),
    ]
    assert seed_of(
        write_file(tmp_path / "monitor.csv", rows, columns=WITH_STEPS)
    ).steps.tolist() == [10, 20, 20, 25]
