"""``vecwrap time`` as users call it."""

import json
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.helpers.terminal_output import on_a_terminal
from vecwrap.cli import main
from vecwrap.tools.timing import Stopwatch

PIPELINE = (
    "CartPole-v1 n=2 seed=1 backend=dummy | time_limit:20 | framestack:2 | monitor:dir=runs/mine"
)
TOYS = """
import os
import signal

import gymnasium
import numpy as np
from gymnasium import spaces

calls = 0


class Careful(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(9)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {"action_mask": np.arange(9) == 7}

    def step(self, action):
        assert action == 7, "illegal"
        return np.zeros(1, np.float32), 1.0, False, False, {"action_mask": np.arange(9) == 7}


def counting(observations):
    global calls
    calls += 1
    return np.zeros(len(observations), np.int64)


def interrupting(observations):
    os.kill(os.getpid(), signal.SIGINT)
    return np.zeros(len(observations), np.int64)
"""


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    (tmp_path / "toys_of_time.py").write_text(TOYS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield
    sys.modules.pop("toys_of_time", None)


def timed(capsys, *arguments):
    assert main(["time", *arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


@pytest.mark.parametrize(
    ("columns", "bars"),
    [
        (120, True),
        (30, False),
        *(pytest.param(columns, False, marks=pytest.mark.full) for columns in (70, 40)),
    ],
)
def test_figures_stay_whole_where_the_terminal_is_narrow(columns, bars):
    said = on_a_terminal(
        "time", "CartPole-v1 n=2 backend=dummy | framestack:4", "--steps", "128", columns=columns
    )
    said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)
    lines = [line for line in said.splitlines() if "%" in line]
    figures = [re.search(r"  ([\d,]+\.\d) +(\d+\.\d)%", line) for line in lines]
    assert all(figures), said
    shares = [float(figure[2]) for figure in figures]
    assert len(shares) == 10
    assert sum(shares[:-1]) == pytest.approx(shares[-1], abs=0.5)
    assert ("█" in said) is bars
    assert max(map(len, lines)) <= columns


def test_the_parts_are_those_of_the_pipeline_inner_first_and_add_up(capsys):
    data = timed(capsys, PIPELINE, "--steps", "400")
    names = [part["name"] for part in data["parts"]]
    backend = ["wait", "copy", "send", "bookkeeping"]
    assert names == [
        "CartPole-v1",
        "time_limit",
        *backend,
        "framestack",
        "monitor",
        "interface",
        "random",
        "other",
    ]
    kinds = {part["name"]: part["kind"] for part in data["parts"]}
    assert (kinds["time_limit"], kinds["copy"], kinds["random"]) == ("wrapper", "backend", "policy")
    assert sum(part["microseconds"] for part in data["parts"]) == pytest.approx(
        data["microseconds"]
    )
    assert sum(part["share"] for part in data["parts"]) == pytest.approx(1.0)
    calls = {part["name"]: part["calls"] for part in data["parts"]}
    assert calls["random"] == data["vector_steps"]
    assert 150 <= data["vector_steps"] < 200  # without the first ones
    assert sorted(path.name for path in Path.cwd().iterdir() if path.name != "__pycache__") == [
        "toys_of_time.py"
    ]


def test_a_random_policy_takes_legal_actions(capsys):
    data = timed(capsys, "toys_of_time:Careful n=2 backend=dummy", "--steps", "100")
    assert {part["name"]: part["calls"] for part in data["parts"]}["random"] == data["vector_steps"]


def test_the_table_has_a_row_and_a_bar_for_each_part(capsys):
    assert main(["time", PIPELINE, "--steps", "100", "--set", "wrappers.framestack.k=5"]) == 0
    out = capsys.readouterr().out
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert {
        "time_limit",
        "framestack",
        "backend: wait",
        "backend: copy",
        "random",
        "other",
        "all",
    } <= lines.keys()
    assert "█" in out
    assert "100.0%" in lines["all"]
    assert "vector steps were timed." in out
    assert "\x1b" not in out


def test_a_learner_that_takes_the_workers_core_is_named(capsys, monkeypatch):
    remark = property(lambda watch: ["your learner's threads take your workers' core"])
    monkeypatch.setattr(Stopwatch, "remarks", remark)
    assert timed(capsys, PIPELINE, "--steps", "100")["remarks"] == Stopwatch.remarks.fget(None)
    assert main(["time", PIPELINE, "--steps", "100"]) == 0
    assert "your learner's threads take your workers' core" in capsys.readouterr().out


def test_with_a_batch_size_it_is_driven_by_whole_steps(capsys):
    data = timed(
        capsys, "CartPole-v1 n=4 batch_size=2 backend=dummy", "--steps", "200", "--policy", "zeros"
    )
    calls = {part["name"]: part["calls"] for part in data["parts"]}
    assert calls["zeros"] == data["vector_steps"] == calls["copy"]
    assert 18 <= data["vector_steps"] <= 50  # of 4 rows each


def test_a_policy_is_called_once_a_step_whether_it_is_timed_or_not(capsys):
    data = timed(capsys, PIPELINE, "--steps", "200", "--policy", "toys_of_time:counting")
    assert sys.modules["toys_of_time"].calls == 100
    assert data["vector_steps"] < 100


def test_it_ends_with_the_time_that_it_was_given(capsys):
    assert timed(capsys, PIPELINE, "--seconds", "0.05")["vector_steps"] > 0


def test_ctrl_c_shows_what_was_measured_or_says_that_nothing_was(capsys):
    assert main(["time", PIPELINE, "--policy", "toys_of_time:interrupting"]) == 1
    assert "ended before a step was timed" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["CartPole-v1 | framestak:4"], 'Did you mean "framestack"?'),
        ([PIPELINE, "--policy", "randm"], 'Did you mean "random"?'),
        ([PIPELINE, "--steps", "0"], "--steps"),
    ],
)
def test_a_mistake_is_one_message_and_status_2(arguments, said, capsys):
    assert main(["time", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_help_shows_an_example(capsys):
    assert main(["time", "--help"]) == 0
    assert "Example: vecwrap time" in capsys.readouterr().out
