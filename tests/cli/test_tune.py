"""``vecwrap tune`` as users call it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.polling import until
from vecwrap.cli import main, measure
from vecwrap.cli.measure import read_seconds
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.tools import tune
from vecwrap.tools.tune import candidates

PIPELINE = "CartPole-v1 n=2 seed=1 backend=dummy | framestack:2 | monitor:dir=runs/mine"
SLOW = """
import time

import gymnasium


class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        open("stepped", "w").close()
        time.sleep(1000)
"""


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Two candidates and short samples; the budget itself is large, for a machine may be busy."""
    monkeypatch.chdir(tmp_path)
    short = "import vecwrap.tools.tune as tune; tune.MAX_SAMPLE_SECONDS = 0.02\nanswer("
    monkeypatch.setattr(tune, "_BOOTSTRAP", tune._BOOTSTRAP.replace("answer(", short))
    tried = tune.candidates

    def few(*given):
        return [each for each in tried(*given) if each.name in ("dummy", "shmem, workers=1")]

    monkeypatch.setattr(tune, "candidates", few)
    return tmp_path


def test_the_table_ends_in_lines_that_can_be_pasted(quick, capsys, monkeypatch):
    monkeypatch.setattr(tune, "backend_options", lambda: {"dummy": frozenset()})
    assert main(["tune", PIPELINE, "--budget", "2min"]) == 0
    out = capsys.readouterr().out
    rows = {line.split("  ")[0]: line for line in out.splitlines()}
    assert "the pipeline has it now" in rows["dummy"]
    pasted = next(line.strip() for line in out.splitlines() if line.startswith("    backend: "))
    assert PipelineSpec.from_yaml(f"env: CartPole-v1\n{pasted}").backend.name == "dummy"
    assert "for reference, without framestack, monitor" in rows["Gymnasium SyncVectorEnv"]
    assert "Gymnasium AsyncVectorEnv" in rows
    assert list(quick.iterdir()) == []  # the monitor's folder is left alone


@pytest.mark.full
def test_a_pipeline_that_no_line_can_hold_gets_lines_of_a_file_alone(quick, capsys, monkeypatch):
    (quick / "listing.py").write_text(
        "from dataclasses import dataclass\n"
        "from vecwrap.backends.dummy import Dummy\n"
        "from vecwrap.env.options import Options\n\n\n"
        "class Listing(Dummy):\n"
        "    @dataclass(frozen=True)\n"
        "    class Options(Options):\n"
        "        names: tuple = ()\n"
    )
    (quick / "mine.yaml").write_text(
        "env: CartPole-v1\nn: 2\nbackend: {name: 'listing:Listing', names: [a, b]}\n"
    )
    # What it has now.
    monkeypatch.setattr(tune, "candidates", lambda *given: candidates(*given)[:1])
    assert main(["tune", "mine.yaml", "--budget", "2min"]) == 0
    sys.modules.pop("listing", None)
    out = capsys.readouterr().out
    pasted = next(line.strip() for line in out.splitlines() if line.startswith("    backend: "))
    assert PipelineSpec.from_yaml(f"env: CartPole-v1\n{pasted}").backend.options == {
        "names": ["a", "b"]
    }
    assert "in one line" not in out


@pytest.mark.full
def test_json_holds_every_sample(quick, capsys):
    assert main(["tune", PIPELINE, "--budget", "2min", "--n", "3", "--json"]) == 0
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert (data["n"], captured.err) == (3, "")
    assert [each["name"] for each in data["candidates"] if each["rates"]] == [
        "dummy",
        "shmem, workers=1",
    ]
    assert all(
        len(each["rates"]) >= 3 and min(each["rates"]) > 0
        for each in data["candidates"]
        if each["rates"]
    )
    assert data["recommendation"]["lines"][0].startswith("backend: ")
    assert [each["name"] for each in data["references"]] == [
        "Gymnasium SyncVectorEnv",
        "Gymnasium AsyncVectorEnv",
    ]
    assert all(each["left_out"] == ["framestack", "monitor"] for each in data["references"])


@pytest.mark.full
def test_of_an_evaluation_the_lines_are_for_its_section(quick, capsys, monkeypatch):
    monkeypatch.setattr(tune, "backend_options", lambda: {"dummy": frozenset()})
    (quick / "mine.yaml").write_text("env: CartPole-v1\nn: 3\nbackend: dummy\neval:\n  n: 2\n")
    assert main(["tune", "mine.yaml", "--eval", "--budget", "2min"]) == 0
    lines = [line.removeprefix("    ") for line in capsys.readouterr().out.splitlines()]
    start = lines.index("eval:")
    assert lines[start : start + 3] == [
        "eval:",
        "  backend: dummy",
        "in one line: eval.backend=dummy",
    ]
    assert main(["tune", "mine.yaml", "--eval", "--budget", "2min", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recommendation"]["lines"] == [
        "eval:",
        "  backend: dummy",
    ]


def test_statistics_that_cannot_be_read_are_told_before_anything_is_measured(quick, capsys):
    (quick / "mine.yaml").write_text(
        "env: Pendulum-v1\nn: 2\nstats: none.npz\nwrappers: [normalize]\n"
    )
    assert main(["tune", "mine.yaml", "--budget", "2min"]) == 2
    assert capsys.readouterr().err.startswith(
        f"error: mine.yaml:3: stats: {quick / 'none.npz'}: no such file"
    )


def test_sigterm_ends_it_as_ctrl_c_does(capsys, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(measure, "search", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    assert main(["tune", PIPELINE]) == 128 + signal.SIGTERM
    assert "interrupted; nothing is left running" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_sigterm_that_is_ignored_from_the_start_stays_ignored(capsys, monkeypatch):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    monkeypatch.setattr(
        measure, "search", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM) or 1 / 0
    )
    try:
        with pytest.raises(ZeroDivisionError):
            main(["tune", PIPELINE])
    finally:
        signal.signal(signal.SIGTERM, before)


def test_ctrl_c_leaves_nothing_running(tmp_path):
    (tmp_path / "slow_of_tune.py").write_text(SLOW)
    mark = f"VECWRAP_TEST_MARK={tmp_path.name}-{os.getpid()}"
    name, _, value = mark.partition("=")
    command = [
        sys.executable,
        "-m",
        "vecwrap",
        "tune",
        "slow_of_tune:Slow",
        "--n",
        "2",
        "--budget",
        "10min",
    ]
    environment = {**os.environ, name: value, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
    ) as process:
        assert until(lambda: (tmp_path / "stepped").exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        assert len(marked(mark)) >= 2
        for _ in range(2):  # as a terminal and a launcher do
            os.killpg(process.pid, signal.SIGINT)
        said, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert "interrupted; nothing is left running" in said
    assert errors == ""
    assert until(lambda: not marked(mark))


def marked(mark):
    """The processes whose environment holds the mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["CartPole-v1 | framestak:4"], 'Did you mean "framestack"?'),
        (
            [PIPELINE, "--budget", "soon"],
            "--budget: expected seconds, as in 60s, or 2min, got 'soon'",
        ),
        ([PIPELINE, "--budget", "0"], "--budget"),
        ([PIPELINE, "--budget", "1e3s"], "--budget"),
    ],
)
def test_a_mistake_is_one_message_and_status_2(arguments, said, capsys):
    assert main(["tune", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_an_environment_that_cannot_be_made_is_rows_that_say_why_and_status_1(quick, capsys):
    (quick / "broken_of_tune.py").write_text("def make():\n    raise RuntimeError('no licence')\n")
    sys.path.insert(0, str(quick))
    try:
        assert main(["tune", "broken_of_tune:make", "--n", "2", "--budget", "2min"]) == 1
    finally:
        sys.path.remove(str(quick))
    out = capsys.readouterr().out
    assert "no licence" in out
    assert "No candidate could be measured" in out


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60.0), ("2min", 120.0), ("0.5h", 1800.0), ("7", 7.0)]
)
def test_budgets_are_read(text, seconds):
    assert read_seconds(text) == seconds


def test_help_shows_an_example(capsys):
    assert main(["tune", "--help"]) == 0
    assert "Example: vecwrap tune" in capsys.readouterr().out


def test_engines_are_tried_when_asked_for_and_what_they_change_is_said(quick, capsys):
    pipeline = "CartPole-v1 n=2 | time_limit:50 | monitor"
    assert main(["tune", pipeline, "--engines", "--budget", "2min", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rates = {row["name"]: row["rate"] for row in found["candidates"]}
    assert rates["engine envpool"] > 0
    assert rates["engine vector_entry_point"] > 0
    refused = {row["name"]: row["failed"] for row in found["candidates"] if not row["rate"]}
    assert "plays Atari games, got CartPole-v1" in refused["engine ale"]
    changes = found["engines_change"]["engine envpool"]
    assert "autoreset: next_step instead of same_step" in changes
    assert "time_limit: of the engine" in changes
    if "engine" in found["recommendation"]["lines"][0]:
        assert PipelineSpec.from_yaml("\n".join(["env: A", *found["recommendation"]["lines"]]))
    assert main(["tune", pipeline, "--budget", "2min", "--json"]) == 0
    assert "envpool" not in capsys.readouterr().out
