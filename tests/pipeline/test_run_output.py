"""``out`` and ``config`` of build, load and wrap: where a run writes, and what its folder says of
the pipeline.
"""

import argparse
import enum
import json
import os
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import vecwrap
from vecwrap.cli import main
from vecwrap.errors import PlanError, SpecError
from vecwrap.live.folder import RunFolder
from vecwrap.pipeline import spec as spec_module
from vecwrap.tools.compare import compare, read_record
from vecwrap.tools.plot import read_runs
from vecwrap.wrappers.monitor import Monitor

LINE = "CartPole-v1 n=2 backend=dummy"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def facts(folder):
    return json.loads(Path(folder, "run.json").read_text())


def play(env, steps=60):
    with env:
        env.reset(seed=1)
        for _ in range(steps):
            env.step([0, 1])


# -- out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrappers",
    [
        ["framestack:2"],
        ["framestack:2", "monitor"],
        ["monitor", "framestack:2"],
        [{"monitor": {"dir": "runs/a"}}],
        [{"monitor": {"dir": "runs/b/../a/"}}],
        ["monitor:runs/a"],
        [Monitor],
    ],
)
def test_the_monitor_writes_there_and_a_missing_one_is_added(wrappers, here):
    env = vecwrap.build("CartPole-v1", 2, wrappers, backend="dummy", out="runs/a")
    assert [type(one) for one in env.chain].count(Monitor) == 1
    play(env)
    assert Path(os.path.realpath(env.find(Monitor).dir)) == here / "runs/a"
    assert sorted(path.name for path in Path("runs/a").iterdir()) == [
        "monitor.csv",
        "pipeline.yaml",
        "run.json",
    ]


def test_it_is_the_one_that_the_pipeline_would_have_named():
    """The hash, and so the stream, are those of the same pipeline with its monitor written out."""
    with (
        vecwrap.build(LINE, out="runs/a") as short,
        vecwrap.build(f"{LINE} | monitor:runs/b") as long,
    ):
        assert short.pipeline.hash == long.pipeline.hash


@pytest.mark.parametrize(
    "wrappers", [["monitor:runs/b"], [{"monitor": {"dir": "runs/b"}}, "framestack:2"]]
)
def test_a_monitor_that_writes_elsewhere_is_refused(wrappers):
    words = (
        r'out: expected the folder that the pipeline\'s monitor writes into, "runs/b" '
        r'\(wrappers\[0\] "monitor".*\), '
    )
    with pytest.raises(PlanError, match=words + 'got "runs/a"; leave one of the two out'):
        vecwrap.build("CartPole-v1", 2, wrappers, backend="dummy", out="runs/a")
    assert not Path("runs").exists()


def test_of_two_monitors_one_that_writes_there_is_enough():
    inner = {"monitor": {"dir": "runs/a"}}
    outer = {"monitor": {"dir": "runs/b", "stats_key": "shaped"}}
    with vecwrap.build(
        "CartPole-v1", 2, [inner, outer], backend="dummy", out="runs/a", config={"lr": 1}
    ) as env:
        env.reset(seed=1)
    assert [facts(f"runs/{name}")["pipeline"] for name in "ab"] == [env.pipeline.hash] * 2


@pytest.mark.parametrize("out", [3, "", ["runs"], True])
def test_what_is_no_folder_is_refused(out):
    with pytest.raises(SpecError, match="out: expected a folder for the run's files, got"):
        vecwrap.build(LINE, out=out)


@pytest.mark.parametrize("given", [{"out": "file/run"}, {"wrappers": ["monitor:file"]}])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(given):
    Path("file").write_text("")

    def make():
        raise AssertionError("it was started")

    with pytest.raises(
        PlanError, match=r'monitor: dir: expected a folder that files can be written to, got "file'
    ):
        vecwrap.build(make, n=1, backend="dummy", **given)


def test_a_pipeline_does_not_say_where_it_is_run():
    Path("p.yaml").write_text("env: CartPole-v1\nout: runs/a\n")
    with pytest.raises(
        SpecError, match=r"p.yaml:2: out: unknown key. It is not part of a pipeline: .*out=.*--out"
    ):
        vecwrap.load("p.yaml")
    with pytest.raises(SpecError, match="config: unknown key. It is not part of a pipeline"):
        vecwrap.build({"env": "CartPole-v1", "config": {}})


def test_an_evaluation_has_a_folder_of_its_own():
    Path("p.yaml").write_text(
        "env: CartPole-v1\nn: 2\nbackend: dummy\nwrappers: [{monitor: {dir: runs/a}}]\n"
    )
    play(vecwrap.load("p.yaml"))
    with (
        vecwrap.load("p.yaml", mode="eval") as beside,
        vecwrap.load("p.yaml", mode="eval", out="runs/e") as own,
    ):
        beside.reset(seed=1)
        own.reset(seed=1)
        assert facts("runs/a")["end"] == "finished"
        assert [facts(name)["end"] for name in ("runs/a/eval", "runs/e")] == ["running"] * 2
    assert [facts(name)["end"] for name in ("runs/a/eval", "runs/e")] == ["finished"] * 2
    with pytest.raises(PlanError, match="leave one of the two out"):
        vecwrap.load("p.yaml", out="runs/b")


def test_to_sb3_ends_it_too():
    pytest.importorskip("stable_baselines3")
    venv = vecwrap.to_sb3(vecwrap.build(LINE, out="runs/a"))
    venv.reset()
    venv.step([0, 1])
    assert facts("runs/a")["end"] == "running"
    venv.close()
    assert (facts("runs/a")["end"], facts("runs/a")["steps"]) == ("finished", 2)


# -- config ----------------------------------------------------------------------------------------


class Kind(enum.Enum):
    RELU = "relu"


def test_a_config_is_kept_as_plain_data():
    config = {
        "lr": np.float32(0.5),
        "steps": np.int64(3),
        "anneal": np.bool_(True),
        "net": (64, 64),
        "kind": Kind.RELU,
        "path": Path("data"),
        "nested": {"beta": [0.9, None]},
    }
    play(vecwrap.build(LINE, out="runs/a", config=config))
    assert facts("runs/a")["config"] == {
        "lr": 0.5,
        "steps": 3,
        "anneal": True,
        "net": [64, 64],
        "kind": "relu",
        "path": "data",
        "nested": {"beta": [0.9, None]},
    }


@dataclass
class Hyper:
    lr: float = 0.1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"net": np.zeros(2)},
            r"config\.net: expected numbers, text, lists and dicts.* its tolist\(\)",
        ),
        (
            {"act": {"fn": print}},
            r"config\.act\.fn: expected numbers, text, .*; give its name, as text",
        ),
        (
            {"lr": [1.0, float("nan")]},
            r'config\.lr\[1\]: expected a finite number, .* got nan; write it as text: "nan"',
        ),
        ({"lr": np.float64("inf")}, r"config\.lr: expected a finite number"),
        ({1: 2}, "config: expected text as the name of a setting, got 1"),
        ({"a": {1: 2}}, r"config\.a: expected text as the name of a setting, got 1"),
        (
            argparse.Namespace(lr=1),
            r"config: expected a mapping of names to values, got .*Pass vars\(\.\.\.\) of it",
        ),
        (Hyper(), r"config: expected a mapping .*Pass vars\(\.\.\.\) of it"),
        ([("lr", 1)], "config: expected a mapping of names to values, got"),
        ("lr=1", "config: expected a mapping of names to values, got"),
    ],
)
def test_what_json_cannot_hold_is_refused_before_anything_starts(config, message):
    def make():
        raise AssertionError("it was started")

    with pytest.raises(SpecError, match=message):
        vecwrap.build(make, n=1, backend="dummy", out="runs/a", config=config)
    assert not Path("runs").exists()


def test_a_config_without_a_folder_is_refused():
    with pytest.raises(
        PlanError, match='config: expected a run folder .* got none; give out="runs/NAME"'
    ):
        vecwrap.build(f"{LINE} | monitor", config={"lr": 1})
    with pytest.raises(PlanError, match="config: expected a run folder"):
        vecwrap.wrap(gymnasium.make_vec("CartPole-v1", 2), config={"lr": 1})
    play(vecwrap.build(f"{LINE} | monitor:runs/a", config={"lr": 1}))
    assert facts("runs/a")["config"] == {"lr": 1}


# -- what the folder says of the pipeline ----------------------------------------------------------


def test_the_folder_rebuilds_the_pipeline_wherever_it_is_moved():
    env = vecwrap.build(
        "Pendulum-v1", 2, ["time_limit:9", "normalize"], backend="dummy", out="runs/a", seed=3
    )
    with env:
        env.reset()
        for _ in range(10):
            env.step(np.zeros((2, 1), np.float32))
        env.save("runs/a/stats.npz")
    Path("runs/a").rename("moved")
    before = Path("moved/run.json").read_text()
    with vecwrap.load("moved") as again:
        again.reset()
        assert again.pipeline.hash == env.pipeline.hash
        assert again.find(Monitor).dir == Path("moved/loaded").absolute()
    assert Path("moved/run.json").read_text() == before
    with vecwrap.load("moved", mode="eval", out="runs/e") as evaluation:
        evaluation.reset()
    assert facts("runs/e")["end"] == "finished"


def make_hop():
    return gymnasium.make("CartPole-v1", max_episode_steps=7)


def shift(env, by):
    return gymnasium.wrappers.TransformReward(env, by)


def test_what_no_file_can_hold_is_named_and_load_says_which_part_it_is():
    wrappers = ["time_limit:5", {f"{__name__}:shift": {"by": lambda reward: reward + 1}}]
    play(
        vecwrap.build(
            lambda: gymnasium.make("CartPole-v1"), 2, wrappers, backend="dummy", out="runs/a"
        )
    )
    said = facts("runs/a")
    assert not Path("runs/a/pipeline.yaml").exists()
    assert said["settings"]["n"] == 2
    assert [*said["settings"]["wrappers"][0]] == ["time_limit"]
    assert len(said["missing"]) == 2
    with pytest.raises(
        SpecError, match="runs/a: the pipeline of this run cannot be built .*: env: .*; .*shift"
    ) as got:
        vecwrap.load("runs/a")
    assert "Build it with the program's own call" in str(got.value)


def test_a_callable_of_a_module_is_written():
    play(vecwrap.build(make_hop, 2, backend="dummy", out="runs/a"))
    with vecwrap.load("runs/a") as env:
        assert env.pipeline.env == f"{__name__}:make_hop"


def test_wrapped_vectors_are_named():
    same_step = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
    vector = gymnasium.make_vec(
        "CartPole-v1", 2, vectorization_mode="sync", vector_kwargs=same_step
    )
    play(vecwrap.wrap(vector, ["framestack:2", "monitor"], out="runs/a", config={"lr": 1}))
    said = facts("runs/a")
    assert (said["pipeline"], said["config"], said["end"], said["steps"]) == (
        None,
        {"lr": 1},
        "finished",
        120,
    )
    assert said["settings"]["n"] == 2
    assert [next(iter(one), one) for one in said["settings"]["wrappers"]] == [
        "framestack",
        "monitor",
    ]
    assert not Path("runs/a/pipeline.yaml").exists()
    with pytest.raises(
        SpecError,
        match=r"env: .* is a vector environment of the program that ran, given to vecwrap\.wrap",
    ):
        vecwrap.load("runs/a")
    with pytest.raises(PlanError, match="leave one of the two out"):
        vecwrap.wrap(gymnasium.make_vec("CartPole-v1", 2), ["monitor:runs/b"], out="runs/a")


def test_a_hash_of_another_version_is_not_compared(monkeypatch):
    play(vecwrap.build(LINE, out="runs/a"))
    said = facts("runs/a")
    text = Path("runs/a/monitor.csv").read_text().replace(said["pipeline"], "0123456789ab")
    Path("runs/a/monitor.csv").write_text(text)
    Path("runs/a/run.json").write_text(json.dumps({**said, "pipeline": "0123456789ab"}))
    with pytest.raises(SpecError, match="expected a file of pipeline"):
        vecwrap.load("runs/a")
    monkeypatch.setattr(f"{spec_module.__name__}.HASH_VERSION", 1)
    Path("runs/a/run.json").write_text(
        json.dumps({**said, "pipeline": "0123456789ab", "hash_version": 0})
    )
    vecwrap.load("runs/a").close()


# -- who reads it ----------------------------------------------------------------------------------


def test_compare_says_what_differs_in_pipeline_and_config():
    play(vecwrap.build(LINE, out="runs/a", config={"lr": 0.1, "gamma": 0.9}))
    play(vecwrap.build(f"{LINE} | time_limit:9", out="runs/b", config={"lr": 0.2, "gamma": 0.9}))
    play(
        vecwrap.build(
            lambda: gymnasium.make("CartPole-v1"),
            2,
            backend="dummy",
            out="runs/c",
            config={"lr": 0.1},
        )
    )
    first, second, third = compare([read_runs([f"runs/{name}"])[0] for name in "abc"])
    assert first.settings["config.lr"], second.settings["config.lr"] == (("0.1",), ("0.2",))
    assert first.settings["wrappers"] == ("monitor",)
    assert second.settings["wrappers"] == ("time_limit | monitor",)
    assert "lambda" in third.settings["env"][0]
    assert (first.steps, first.restarts, first.ends) == (120, 0, ())


def test_the_command_prints_what_differs(capsys):
    for name, lr in (("a", 0.1), ("b", 0.2)):
        play(vecwrap.build(LINE, out=f"runs/{name}", config={"lr": lr, "gamma": 0.9}))
    assert main(["compare", "runs/a", "runs/b"]) == 0
    printed = capsys.readouterr().out
    assert "config.lr" in printed
    assert "gamma" not in printed


def test_the_page_has_plan_end_and_restarts():
    with vecwrap.build(LINE, out="runs/a") as env:
        env.reset(seed=1)
        for _ in range(60):
            env.step([0, 1])
        assert RunFolder(Path("runs/a")).state(None)["status"] == "running"
    os.utime("runs/a/run.json", (1e9, 1e9))  # long ago: closed is closed
    os.utime("runs/a/monitor.csv", (1e9, 1e9))
    page = RunFolder(Path("runs/a"))
    state = page.state(None)
    assert state["status"] == "finished"
    assert ["restarts", "0"] in state["figures"]
    assert page.about()["plan"] == Path("runs/a/pipeline.yaml").read_text()
    assert ["vecwrap", vecwrap.__version__] in page.about()["versions"]


def test_the_page_shows_what_it_was_where_no_file_can_hold_it():
    play(vecwrap.build(lambda: gymnasium.make("CartPole-v1"), 2, backend="dummy", out="runs/a"))
    plan = RunFolder(Path("runs/a")).about()["plan"]
    assert "lambda" in plan
    assert "wrappers" in plan


def test_a_killed_run_is_said_to_have_no_end():
    with vecwrap.build(LINE, out="runs/a") as env:
        env.reset(seed=1)
        assert read_record(Path("runs/a")).end == "has not ended, or was killed"
        for name in ("run.json", "monitor.csv", "pipeline.yaml"):
            os.utime(f"runs/a/{name}", (1e9, 1e9))
        assert "ago: killed, or slow" in RunFolder(Path("runs/a")).state(None)["status"]


def test_the_command_uses_the_same_record(capsys):
    """Twice without --out: the second run moves the first one's files aside, as a training's."""
    for _ in range(2):
        assert main(["run", LINE, "--steps", "20", "--policy", "zeros"]) == 0
    capsys.readouterr()
    assert facts("runs/CartPole-v1")["end"] == "finished"
    assert facts("runs/CartPole-v1")["policy"] == "zeros"
    assert Path("runs/CartPole-v1/run.json.1").exists()
    assert main(["run", LINE, "--steps", "20", "--out", "runs/CartPole-v1"]) == 2


def test_a_preset_is_put_around_a_vector_with_a_folder_too():
    vector = gymnasium.make_vec("Pendulum-v1", num_envs=2, vectorization_mode="sync")
    with vecwrap.wrap(vector, ["mujoco"], out="runs/a") as env:
        env.reset(seed=1)
    assert Path("runs/a/run.json").exists()
