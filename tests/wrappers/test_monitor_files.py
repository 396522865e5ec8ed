"""Monitor files that others have edited, cut short, or write at the same time."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.backends import DummyBackend
from tests.helpers.stream_envs import ToyEnv
from tests.wrappers.test_monitor import play, read
from vecwrap.tools.plot import read_runs
from vecwrap.wrappers.monitor import Monitor

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from vecwrap.backends.dummy import Dummy
from vecwrap.testing import on
from tests.helpers.stream_envs import ToyEnv
from vecwrap.wrappers.monitor import Monitor
env = Monitor(on(Dummy)([lambda: ToyEnv((2,))] * 2), sys.argv[1], per_env=len(sys.argv) > 2)
env.reset()
print("ready", flush=True)
for line in sys.stdin:
    env.step([0, 0])
    print("stepped", flush=True)
"""


def monitor(folder, length=2, **arguments):
    return Monitor(DummyBackend([lambda: ToyEnv((length,))] * 2), str(folder), **arguments)


# -- edited, or cut short --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        (b"", 4),
        (b"7.5,2,12.5,1,0\r\n", 5),
        (b"7.5,2,12.5,1,0\r", 5),  # the rest of its end is missing
        (b"7.5,2,12.5,1,0", 5),  # as an editor leaves it
        (b"7.5,2,12.5,1,0,", 5),  # torn, but for its steps it is whole
        (b"7.5,2,12.5,1,0,1", 5),
        (b"7.5,2,12.5,1,", 4),  # torn
        (b"7.5,2,12.5", 4),
        (b"7", 4),
    ],
)
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_file_is_gone_on_with_whatever_ends_its_lines(newline, end, kept, tmp_path):
    path = tmp_path / "monitor.csv"
    with monitor(tmp_path, resume=True) as env:
        play(env, 4)
    before = path.read_bytes().replace(b"\n", newline)
    path.write_bytes(before + end.replace(b"\r\n", newline))
    for run in (1, 2):
        with monitor(tmp_path, resume=True) as env:
            play(env, 4)
        content = path.read_bytes()
        assert content.startswith(before)
        _, rows = read(path)
        assert len(rows) == kept + 4 * run
        assert all(row["l"] == "2" and row["lost"] == "0" and None not in row for row in rows)
        if not end.endswith(b"\r"):
            assert content.count(b"\r\n") == (content.count(b"\n") if newline == b"\r\n" else 0)
    sb3 = pytest.importorskip("stable_baselines3.common.monitor")
    assert len(sb3.load_results(str(tmp_path))) == kept + 8


def test_a_torn_info_is_dropped_with_its_row(tmp_path):
    """Nothing says that it is whole."""
    with monitor(tmp_path, resume=True, info_keys=("step",)) as env:
        play(env, 2)
    path = tmp_path / "monitor.csv"
    path.write_bytes(path.read_bytes() + b"7.5,12,12.5,1,0,12,1")
    with monitor(tmp_path, resume=True, info_keys=("step",)) as env:
        play(env, 2)
    assert [row["step"] for row in read(path)[1]] == ["2"] * 4


# -- agent steps -----------------------------------------------------------------------------------


def steps_in(path):
    return [int(row["steps"]) for row in read(path)[1]]


@pytest.mark.parametrize("per_env", [False, True])
def test_steps_are_those_of_all_sub_environments_also_of_games_that_still_run(per_env, tmp_path):
    lengths = (2, 5)
    make = [lambda length=length: ToyEnv((length,)) for length in lengths]
    with Monitor(DummyBackend(make), str(tmp_path), per_env=per_env) as env:
        env.reset()
        expected = []
        for step in range(1, 11):
            env.step([0, 0])
            expected += [(2 * step, i) for i, length in enumerate(lengths) if step % length == 0]
    rows = [row for path in env.paths for row in read(path)[1]]
    assert sorted((int(row["steps"]), int(row["env"])) for row in rows) == expected
    assert env.num_steps == 20


def test_steps_go_on_where_the_file_ends_or_where_a_loaded_state_was_saved(tmp_path):
    path = tmp_path / "monitor.csv"
    with monitor(tmp_path, resume=True) as env:
        play(env, 4)
    assert steps_in(path) == [4, 4, 8, 8]
    with monitor(tmp_path, resume=True) as env:
        play(env, 2)
        state = env.state_dict()
        play(env, 2)
    assert steps_in(path)[4:] == [12, 12, *[16, 16]]
    with monitor(tmp_path, resume=True) as env:
        env.load_state_dict(state)
        assert env.num_steps == 4
        play(env, 2)
    assert steps_in(path)[8:] == [8, 8]  # as TensorBoard has them


@pytest.mark.parametrize("info_keys", [(), ("step",)])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_an_older_file_without_the_column_is_gone_on_with_in_its_own_layout(
    newline, info_keys, tmp_path
):
    path = tmp_path / "monitor.csv"
    with monitor(tmp_path, info_keys=info_keys) as env:
        play(env, 4)
    old = [line.split(b",") for line in path.read_bytes().splitlines()[1:]]
    place = old[0].index(b"steps")
    table = newline.join(b",".join(cells[:place] + cells[place + 1 :]) for cells in old) + newline
    path.write_bytes(path.read_bytes().splitlines()[0] + newline + table)
    before = path.read_bytes()
    with monitor(tmp_path, resume=True, info_keys=info_keys) as env:
        play(env, 4)
    assert path.read_bytes().startswith(before)
    _, rows = read(path)
    assert len(rows) == 8
    assert all(
        [*row] == ["r", "l", "t", "env", "lost", *info_keys] and None not in row.values()
        for row in rows
    )
    assert all(row["step"] == "2" for row in rows if info_keys)
    (run,) = read_runs([tmp_path])
    assert run.runs[0].steps.tolist() == [2, 4, 6, 8, 10, 12, 14, 16]
    assert run.runs[0].unreadable == 0


# -- written by two processes ----------------------------------------------------------------------


@contextlib.contextmanager
def another_process(*arguments):
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "ready\n"
        yield process


@pytest.mark.parametrize("per_env", [False, True])
@pytest.mark.parametrize("resume", [False, True])
def test_beside_a_second_process_in_the_folder_no_row_is_lost(resume, per_env, tmp_path):
    writer = another_process(tmp_path, *["per_env"] * per_env)
    with writer as process, monitor(tmp_path, resume=resume, per_env=per_env) as env:
        with pytest.warns(RuntimeWarning, match="still writes into"):
            env.reset()
        for _ in range(4):
            env.step([0, 0])
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "stepped\n"
    rows = {path.name: len(read(path)[1]) for path in tmp_path.glob("*monitor.csv*")}
    assert sum(rows.values()) == 8
    assert len(rows) == (2 if per_env else 1) * (1 if resume else 2)
