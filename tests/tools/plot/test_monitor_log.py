"""One monitor file, read: every library's format, files that were cut off, files that are none."""

import json
import random

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.tools.plot.files import write_file
from vecwrap.errors import PlotError
from vecwrap.tools.runs import read_monitor_file

HEAD = '#{"t_start": 5.0, "env_id": "Toy-v0"}\n'


def play(env, steps, seed):
    """Step one environment at random; give the score and length of each episode that ended."""
    chance = random.Random(seed)
    env.reset(seed=seed)
    episodes, score, length = [], 0.0, 0
    for _ in range(steps):
        _, reward, terminated, truncated, _ = env.step(chance.randrange(2))
        score, length = score + reward, length + 1
        if terminated or truncated:
            episodes.append((score, length))
            score, length = 0.0, 0
            env.reset()
    return episodes


def test_a_file_that_stable_baselines3s_monitor_wrote(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3.common.monitor")
    env = sb3.Monitor(gymnasium.make("CartPole-v1"), str(tmp_path / "sb3"))
    episodes = play(env, 300, seed=1)
    env.close()
    log = read_monitor_file(tmp_path / "sb3.monitor.csv")
    assert len(episodes) > 5
    assert list(zip(log.scores, log.lengths, strict=True)) == episodes
    np.testing.assert_allclose(log.ends, env.get_episode_times(), atol=0.01)
    assert (log.header["env_id"], log.header["t_start"]) == ("CartPole-v1", env.t_start)
    assert (log.lost.any(), log.unreadable) == (False, 0)


def test_one_that_stable_baselines3_appended_to_goes_on_from_the_time_before(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3.common.monitor")
    episodes = []
    for seed, override in ((1, True), (2, False)):
        env = sb3.Monitor(
            gymnasium.make("CartPole-v1"), str(tmp_path / "sb3"), override_existing=override
        )
        env.t_start -= 100 * seed  # as if it had gone on for longer
        episodes += play(env, 200, seed)
        env.close()
    path = tmp_path / "sb3.monitor.csv"
    lines = path.read_text().splitlines()
    written = [float(line.split(",")[2]) for line in lines[2:]]
    # The clock fell back.
    shortened = [
        *written[: len(written) // 2],
        *(t / 50 for t in written[len(written) // 2 :]),
    ]
    rows = [line.rsplit(",", 1)[0] + f",{t}" for line, t in zip(lines[2:], shortened, strict=True)]
    path.write_text("\n".join([*lines[:2], *rows, ""]))
    log = read_monitor_file(path)
    assert list(zip(log.scores, log.lengths, strict=True)) == episodes
    goes_on, before, offset = [], 0.0, 0.0
    for t in shortened:
        offset += max(before - t, 0.0)
        goes_on.append(t + offset)
        before = t
    np.testing.assert_allclose(log.ends, goes_on)
    assert (
        np.diff(log.ends) >= -1e-9
    ).all()  # sums of floats: where the clock fell back, to the last digit


def test_a_file_that_stable_baselines3s_vec_monitor_wrote(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3.common.vec_env")
    env = sb3.VecMonitor(
        sb3.DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 3), str(tmp_path / "all")
    )
    env.seed(1)
    env.reset()
    chance, episodes = random.Random(1), []
    for _ in range(100):
        *_, infos = env.step(np.array([chance.randrange(2) for _ in range(3)]))
        episodes += [
            (info["episode"]["r"], info["episode"]["l"]) for info in infos if "episode" in info
        ]
    env.close()
    log = read_monitor_file(tmp_path / "all.monitor.csv")
    assert len(episodes) > 5
    assert list(zip(log.scores, log.lengths, strict=True)) == episodes


def test_a_file_of_ours(tmp_path):
    env = vecwrap.build(
        "CartPole-v1",
        n=3,
        seed=1,
        backend="dummy",
        wrappers=[{"monitor": {"dir": str(tmp_path), "info_keys": ["x"]}}],
    )
    env.reset()
    episodes = []
    for step in range(100):
        *_, infos = env.step([step % 2, 0, 1])
        ended = np.flatnonzero(infos.get("_episode", []))
        episodes += [(infos["episode"]["r"][i], infos["episode"]["l"][i]) for i in ended]
    env.close()
    log = read_monitor_file(tmp_path / "monitor.csv")
    assert len(episodes) > 10
    assert list(zip(log.scores, log.lengths, strict=True)) == episodes
    assert log.header["step_unit"] == "agent step"
    assert log.header["pipeline"] == env.pipeline.hash


@pytest.mark.parametrize("hash_mark", ["#", "# "])  # both were written, by versions of two years
def test_a_file_of_baselines(tmp_path, hash_mark):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "0.0.monitor.csv"
    head = json.dumps({"t_start": 1523000000.5, "gym_version": "0.10.5", "env_id": "Toy-v0"})
    path.write_bytes(
        f"{hash_mark}{head} \nr,l,t,seed\r\n-21.0,3056,10.5,3\r\n-20,3300,22.25,3\r\n".encode()
    )
    log = read_monitor_file(path)
    frame = pandas.read_csv(path, skiprows=1)
    assert log.scores.tolist() == frame["r"].tolist() == [-21.0, -20.0]
    assert log.lengths.tolist() == frame["l"].tolist()
    assert log.ends.tolist() == frame["t"].tolist()
    assert log.header["t_start"] == 1523000000.5


def test_a_run_that_was_killed_loses_the_row_in_flight_and_no_other(tmp_path):
    path = write_file(tmp_path / "monitor.csv", [(1.5, 10, 0.25, 0, 0), (-22.5, 3000, 12.75, 1, 0)])
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        log = read_monitor_file(path)
        count = max(sum(end <= size for end in ends) - 2, 0)
        assert log.scores.tolist() == [1.5, -22.5][:count], size
        assert log.unreadable == 0


def test_lines_that_are_no_episode_are_counted_and_cost_no_other(tmp_path):
    path = write_file(
        tmp_path / "monitor.csv",
        [(1, 10, 1.0, 0, 0), (2, 20, 2.0, 0, 0)],
        columns=["r", "l", "t", "env", "lost"],
    )
    torn = "3.0,30,3.04.0,40,4.0,0,0"  # killed in the middle of a row, then appended to
    path.write_text(
        f"{path.read_text()}{torn}\nr,l,t,env,lost\n4,40,inf,0,0\n4,-1,4.0,0,0\n5,50,5.0,0,0\n"
    )
    log = read_monitor_file(path)
    assert (log.scores.tolist(), log.lengths.tolist(), log.unreadable) == (
        [1, 2, 5],
        [10, 20, 50],
        4,
    )


@pytest.mark.parametrize("row", ["4,1e30,4.0,0,0", "4,40,4.0,0,1e400"])
def test_numbers_beyond_counting_are_no_episode(tmp_path, row):
    path = write_file(
        tmp_path / "monitor.csv", [(1, 10, 1.0, 0, 0)], columns=["r", "l", "t", "env", "lost"]
    )
    path.write_text(f"{path.read_text()}{row}\n5,50,5.0,0,0\n")
    log = read_monitor_file(path)
    assert (log.scores.tolist(), log.lengths.tolist(), log.unreadable) == ([1, 5], [10, 50], 1)


def test_scores_that_are_no_numbers_and_lost_episodes_are_told(tmp_path):
    log = read_monitor_file(
        write_file(tmp_path / "monitor.csv", [("nan", 10, 1.0, 0, 0), (2, 20, 2.0, 1, 1)])
    )
    assert np.isnan(log.scores[0])
    assert log.lost.tolist() == [False, True]


def test_text_of_info_keys_may_hold_commas_quotes_and_lines(tmp_path):
    rows = [(1, 10, 1.0, 0, 0, 'a,"b"\nc'), (2, 20, 2.0, 0, 0, "")]
    path = write_file(
        tmp_path / "monitor.csv", rows, columns=("r", "l", "t", "env", "lost", "where")
    )
    assert read_monitor_file(path).scores.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "r,l,t\n1,2,3\n",
            'expected a monitor file, whose first line is "#" and JSON with t_start',
        ),
        ("#{}\nr,l,t\n", "t_start"),
        ("#[1]\nr,l,t\n", "t_start"),
        ('#{"t_start": "noon"}\nr,l,t\n', "t_start"),
        ('{"t_start": 5.0}\n{"r": 1.5, "l": 10, "t": 2.0}\n', "expected a monitor file"),
        ("# a comment\nr,l,t\n", "'# a comment'"),
        ('#{"t_start": ' + "[" * 100_000 + "\nr,l,t\n", "t_start"),
        ('#{"t_start": 1' + "0" * 400 + "}\nr,l,t\n", "t_start"),
        (HEAD + f"r,l,t,{'x' * 200_000}\n", "expected rows of CSV"),
        (HEAD + "r,l\n1,2\n", "expected the columns r, l and t in its second line"),
        (HEAD + "step,loss\n1,2\n", "missing: r, l, t"),
    ],
)
def test_what_is_no_monitor_file_is_refused_by_its_name(tmp_path, text, says):
    path = tmp_path / "monitor.csv"
    path.write_text(text)
    with pytest.raises(PlotError) as raised:
        read_monitor_file(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert says in str(raised.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(PlotError, match="No such file"):
        read_monitor_file(tmp_path / "monitor.csv")
