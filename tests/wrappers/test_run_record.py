"""What a run leaves beside its games: run.json and pipeline.yaml, however the run ends."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.helpers.backends import DummyBackend
from tests.helpers.stream_envs import ToyEnv
from vecwrap.errors import PlanError
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.recording import run_record

ROOT = Path(__file__).parents[2]
OF_A_RUN = ["monitor.csv", "pipeline.yaml", "run.json"]


def facts(folder, name="run.json"):
    return json.loads(Path(folder, name).read_text())


def build(folder, **settings):
    return vecwrap.build("CartPole-v1", 2, backend="dummy", out=folder, **settings)


def play(env, steps=30):
    env.reset(seed=1)
    for _ in range(steps):
        env.step([0, 1])


# -- how it ends -----------------------------------------------------------------------------------


def test_it_says_what_ran_and_how_it_went(tmp_path):
    with build(tmp_path / "run", seed=7) as env:
        assert not (tmp_path / "run").exists()  # built, but nothing has begun
        play(env)
        running = facts(tmp_path / "run")
        games = env.num_episodes
    ended = facts(tmp_path / "run")
    assert (running["end"], running["ended"], "steps" in running) == ("running", None, False)
    assert (ended["end"], ended["steps"], ended["episodes"], ended["restarts"]) == (
        "finished",
        60,
        games,
        0,
    )
    assert ended["started"] == running["started"] <= ended["ended"]
    assert (ended["pipeline"], ended["hash_version"], ended["seed"]) == (env.pipeline.hash, 1, 7)
    assert ended["versions"]["python"] == sys.version.split()[0]
    assert {name: ended["versions"][name] for name in ("vecwrap", "numpy", "gymnasium")} == {
        "vecwrap": vecwrap.__version__,
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
    }
    assert set(ended["machine"]) == {"name", "system", "cpus"}
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == OF_A_RUN


class Cancelled(BaseException):
    """As asyncio ends a task."""


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (ValueError("the loss is NaN"), "failed: ValueError: the loss is NaN"),
        (PlanError("give another"), "failed: give another"),
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(0), "finished"),
        (SystemExit(), "finished"),
        (SystemExit("no GPU"), "failed: SystemExit: no GPU"),
        (GeneratorExit(), "finished"),
        (Cancelled(), "interrupted: Cancelled"),
    ],
)
@pytest.mark.parametrize("leave", ["with", "finally", "closing"])
def test_the_exception_that_ends_it_is_how_it_ends(error, end, leave, tmp_path):
    env = build(tmp_path)
    play(env)
    with pytest.raises(type(error)):
        if leave == "with":
            with env:
                raise error
        elif leave == "closing":
            with closing(env):
                raise error
        else:
            try:
                raise error
            finally:
                env.close()
    assert facts(tmp_path)["end"] == end


def test_what_was_handled_before_it_began_is_not_its_end(tmp_path):
    """A second attempt, in the handler of the first one's exception."""
    try:
        raise OSError("the first attempt")
    except OSError:
        with build(tmp_path) as env:
            play(env)
    assert facts(tmp_path)["end"] == "finished"


def test_an_interrupt_that_the_program_handled_leaves_it_finished(tmp_path):
    with build(tmp_path) as env:
        play(env)
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
    assert facts(tmp_path)["end"] == "finished"


def test_one_that_is_given_up_says_so(tmp_path):
    env = build(tmp_path)
    play(env)
    env.find(Monitor).__del__()
    assert (
        facts(tmp_path)["end"] == "interrupted: the environment was given up without being closed"
    )
    env.close()
    assert facts(tmp_path)["end"].startswith("interrupted")


PROGRAM = """
import os, signal, sys
import vecwrap

def stop(number, frame):
    sys.exit(0)

env = vecwrap.build("CartPole-v1", 2, backend="dummy", out="run")
env.reset(seed=1)
env.step([0, 1])
{}
"""


@pytest.mark.parametrize(
    ("last", "end"),
    [
        ("", "interrupted: the program ended without closing the environment"),
        ("1 / 0", "failed: ZeroDivisionError: division by zero"),
        ("signal.raise_signal(signal.SIGINT)", "interrupted"),
        (
            "with env: signal.signal(signal.SIGTERM, stop); signal.raise_signal(signal.SIGTERM)",
            "interrupted",
        ),
        ("os.kill(os.getpid(), signal.SIGKILL)", "running"),
        ("os.fork() or os._exit(env.close() or 0); os.wait(); env.close()", "finished"),
    ],
)
def test_the_end_of_the_program_is_its_end(last, end, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    program = PROGRAM.format(last)
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert facts(tmp_path / "run")["end"] == end


def test_a_forked_child_writes_nothing(tmp_path):
    with build(tmp_path) as env:
        play(env)
        record = env.find(Monitor).record
        before = facts(tmp_path)
        pid = os.fork()
        if not pid:
            record.end("failed: in the child")
            record.prepare()
            record.begin()
            os._exit(0)
        os.waitpid(pid, 0)
        assert facts(tmp_path) == before
    assert facts(tmp_path)["end"] == "finished"


def test_restarts_are_counted(tmp_path):
    class Fragile(ToyEnv):
        def step(self, action):
            if action == 1:
                raise RuntimeError("it broke")
            return super().step(0)

    env = vecwrap.build(
        lambda: Fragile((50,)),
        2,
        backend="dummy",
        out=tmp_path,
        on_failure="restart",
        restart_backoff=0.0,
    )
    with env:
        env.reset(seed=1)
        for actions in ([0, 0], [1, 0], [0, 0], [0, 1], [0, 0]):
            env.step(actions)
    assert facts(tmp_path)["restarts"] == 2


def test_a_disk_that_is_full_at_the_end_is_a_warning(tmp_path, monkeypatch):
    def full(*arguments, **settings):
        raise OSError(28, "No space left on device")

    env = build(tmp_path)
    play(env)
    monkeypatch.setattr(run_record, "write_atomically", full)
    with pytest.warns(
        RuntimeWarning, match=r"run\.json cannot be written .*No space left on device"
    ):
        env.close()
    assert facts(tmp_path)["end"] == "running"


# -- a folder that is not empty --------------------------------------------------------------------


def test_an_earlier_run_is_moved_aside_as_a_whole(tmp_path):
    for seed in (1, 2, 3):
        with build(tmp_path, seed=seed) as env:
            play(env)
            env.save(tmp_path / "stats.npz")
    names = [f"{name}{end}" for name in (*OF_A_RUN, "stats.npz") for end in ("", ".1", ".2")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert [facts(tmp_path, name)["seed"] for name in ("run.json.1", "run.json.2", "run.json")] == [
        1,
        2,
        3,
    ]


def test_one_that_still_runs_ends_in_its_own_file(tmp_path):
    older = build(tmp_path, seed=1)
    play(older)
    newer = build(tmp_path, seed=2)
    with pytest.warns(RuntimeWarning, match="still writes into"):
        play(newer)
    newer.close()
    with pytest.raises(ValueError, match="too late"), older:
        raise ValueError("too late")
    assert facts(tmp_path)["end"] == "finished"
    assert facts(tmp_path, "run.json.1")["end"] == "failed: ValueError: too late"


def test_two_environments_of_one_program_have_a_record_each(tmp_path):
    with (
        build(tmp_path / "a", config={"lr": 1}) as one,
        build(tmp_path / "b", config={"lr": 2}) as other,
    ):
        play(one)
        play(other, 20)
    assert [facts(tmp_path / name)["config"]["lr"] for name in "ab"] == [1, 2]
    assert [facts(tmp_path / name)["steps"] for name in "ab"] == [60, 40]


def test_a_pipeline_file_of_the_users_stays_where_it_is(tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text("env: CartPole-v1\nn: 2\nbackend: dummy\nwrappers: [{monitor: {dir: .}}]\n")
    text = path.read_text()
    for _ in range(3):
        with vecwrap.load(path) as env:
            play(env)
    assert path.read_text() == text
    assert not (tmp_path / "pipeline.yaml.1").exists()
    assert facts(tmp_path)["kept"] == ["pipeline.yaml"]


@pytest.mark.parametrize("text", ['{"lr": 0.1}', "not JSON", "[]"])
def test_a_run_json_of_another_program_stays_as_it_is(text, tmp_path):
    (tmp_path / "run.json").write_text(text)
    env = build(tmp_path)
    with (
        env,
        pytest.warns(
            RuntimeWarning, match=r"run\.json is not a file of vecwrap, so it stays as it is"
        ),
    ):
        play(env)
    assert (tmp_path / "run.json").read_text() == text
    assert (tmp_path / "monitor.csv").exists()


def test_a_resumed_run_keeps_its_start_and_counts_all_sittings(tmp_path, monkeypatch):
    times = iter(f"2026-01-0{day}T00:00:00+00:00" for day in range(1, 8))
    monkeypatch.setattr(run_record, "now", lambda: next(times))
    monitor = {"monitor": {"dir": str(tmp_path), "resume": True}}
    games = 0
    for sitting in range(3):
        env = vecwrap.build("CartPole-v1", 2, [monitor], backend="dummy")
        play(env, 20 * (sitting + 1))
        games += env.num_episodes
        if sitting == 0:
            with pytest.raises(ValueError, match="the power went"), env:
                raise ValueError("the power went")
        env.close()
    said = facts(tmp_path)
    assert said["started"] == "2026-01-01T00:00:00+00:00"
    assert (said["resumed"], said["ended"], said["end"]) == (
        "2026-01-05T00:00:00+00:00",
        "2026-01-06T00:00:00+00:00",
        "finished",
    )
    assert [one["steps"] for one in said["earlier"]] == [40, 80]
    assert [one["end"] for one in said["earlier"]] == [
        "failed: ValueError: the power went",
        "finished",
    ]
    assert (said["steps"], said["episodes"]) == (40 + 80 + 120, games)


def test_what_a_loaded_state_had_played_is_not_played_again(tmp_path):
    with build(tmp_path / "first") as env:
        play(env)
        env.save(tmp_path / "state.npz")
    with build(tmp_path / "second") as env:
        env.load(tmp_path / "state.npz")
        env.reset(seed=1)
        env.step([0, 1])
        before = env.num_episodes
        assert env.num_steps == 62
    said = facts(tmp_path / "second")
    assert (said["steps"], said["episodes"]) == (2, before - facts(tmp_path / "first")["episodes"])


# -- chains without a pipeline ---------------------------------------------------------------------


def test_a_chain_that_was_assembled_by_hand_is_named(tmp_path):
    with Monitor(DummyBackend([lambda: ToyEnv((2,))] * 2), str(tmp_path)) as env:
        env.reset()
    said = facts(tmp_path)
    assert (said["pipeline"], said["end"]) == (None, "finished")
    assert said["settings"] == {"env": "ToyEnv", "n": 2, "wrappers": ["Monitor"]}
    assert not (tmp_path / "pipeline.yaml").exists()
