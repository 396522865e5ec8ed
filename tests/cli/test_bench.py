"""``vecwrap bench`` as users call it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from vecwrap.cli import main
from vecwrap.cli import measure as bench
from vecwrap.tools import bench as comparison

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = "CartPole-v1 n=2 backend=dummy | framestack:2 | monitor:dir=runs/mine"
QUICK = ["--rounds", "2", "--seconds", "0.002"]


@pytest.fixture(autouse=True)
def without_workers(monkeypatch, tmp_path):
    """Gymnasium's Async and our other backends start processes, which other tests do; files would be seen."""
    monkeypatch.chdir(tmp_path)
    ours, theirs = comparison.our_contenders, comparison.peer_contenders
    monkeypatch.setattr(comparison, "our_contenders", lambda spec: ours(spec)[:1])
    monkeypatch.setattr(
        comparison, "peer_contenders", lambda *args: [each for each in theirs(*args) if "Async" not in each.name]
    )


def test_the_table_shows_ours_the_ideal_and_the_peer_beside_each_other(capsys, tmp_path):
    assert main(["bench", PIPELINE, "--vs", "gymnasium", *QUICK]) == 0
    out = capsys.readouterr().out
    rows = [line.split("  ")[0] for line in out.splitlines()]
    assert "vecwrap dummy" in rows
    assert "Gymnasium Sync" in rows
    assert any(row.startswith("ideal: ") for row in rows)
    assert "vecwrap dummy is" in out
    assert "Gymnasium Sync: stacks in the sub-environments" in out
    assert list(tmp_path.iterdir()) == []  # the monitor's folder is left alone


def test_json_holds_every_sample_and_nothing_else_is_printed(capsys):
    changes = ["--n", "3", "--set", "wrappers.framestack.k=5"]
    assert main(["bench", PIPELINE, *changes, "--vs", "gymnasium", "--json", *QUICK]) == 0
    captured = capsys.readouterr()
    data = json.loads(captured.out)
    assert (data["rounds"], data["seconds"], captured.err) == (2, 0.002, "")
    assert "n=3" in data["results"][0]["title"]
    assert "framestack:k=5" in data["results"][0]["title"]
    by_name = {each["name"]: each for each in data["results"][0]["contenders"]}
    assert all(len(by_name[name]["rounds"]) == 2 for name in ("vecwrap dummy", "Gymnasium Sync"))
    assert {"cpu", "usable_cores", "python", "packages", "date", "load"} <= data["machine"].keys()


def test_a_peer_that_was_asked_for_and_cannot_take_part_is_a_finding(capsys):
    pipeline = "CartPole-v1 n=2 backend=dummy | framestack:2,axis=channel"
    assert main(["bench", pipeline, "--vs", "gymnasium", *QUICK]) == 1
    assert "Gymnasium Sync: Gymnasium cannot do the same work: its Frame" in capsys.readouterr().out


def test_a_peer_that_is_not_installed_is_told_with_the_line_that_installs_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", None)
    assert main(["bench", "CartPole-v1 n=2 backend=dummy", "--vs", "sb3", *QUICK]) == 1
    assert "SB3 DummyVecEnv: stable_baselines3 is not installed: pip install torch" in capsys.readouterr().out


def test_without_being_asked_for_it_is_none(capsys):
    assert main(["bench", "CartPole-v1 n=2 backend=dummy | framestack:2,padding=first", *QUICK]) == 0
    out = capsys.readouterr().out
    assert "SB3 DummyVecEnv: SB3 cannot do the same work" in out
    assert "Gymnasium Sync: stacks" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([PIPELINE, "--vs", "gymnasum"], 'Did you mean "gymnasium"?'),
        (["CartPole-v1 n=2 autoreset=episodic"], "expected same_step or next_step"),
        (["CartPole-v1 | framestak:4"], 'Did you mean "framestack"?'),
        ([PIPELINE, "--rounds", "0"], "--rounds"),
    ],
)
def test_a_mistake_is_one_message_and_status_2(arguments, said, capsys):
    assert main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_leave_no_folders(number, capsys, monkeypatch, tmp_path):
    before = signal.getsignal(number)
    seen = []

    def pressed(text):
        if text.startswith("round 1"):  # all are open
            seen.extend(tmp_path.glob("vecwrap-bench-*"))
            os.kill(os.getpid(), number)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(bench, "progress", lambda *args, **options: contextlib.nullcontext(pressed))
    assert main(["bench", PIPELINE, "--vs", "gymnasium", *QUICK]) == 128 + number
    assert "interrupted" in capsys.readouterr().out
    assert len(seen) >= 2
    assert list(tmp_path.glob("vecwrap-bench-*")) == []
    assert signal.getsignal(number) is before


def test_help_shows_an_example(capsys):
    assert main(["bench", "--help"]) == 0
    assert "Example: vecwrap bench" in capsys.readouterr().out


def test_no_peer_is_imported_before_it_is_asked_for():
    program = (
        "import sys; import vecwrap.cli.measure, benchmarks.peers\n"
        "assert not {'stable_baselines3', 'torch', 'envpool', 'ale_py', 'tianshou', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)
