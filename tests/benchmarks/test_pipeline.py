"""``make bench PIPELINE=...``: a pipeline of a user's beside the peers."""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from benchmarks import comparison
from benchmarks.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = "CartPole-v1 n=2 backend=dummy | framestack:2 | monitor:dir=runs/mine"
QUICK = ["--rounds", "2", "--seconds", "0.002", "--out", "out"]


@pytest.fixture(autouse=True)
def without_workers(monkeypatch, tmp_path):
    """Gymnasium's Async and our other backends start processes, which other tests do; files would
    be seen.
    """
    monkeypatch.chdir(tmp_path)
    ours, theirs = comparison.our_contenders, comparison.peer_contenders
    monkeypatch.setattr(comparison, "our_contenders", lambda spec: ours(spec)[:1])
    monkeypatch.setattr(
        comparison,
        "peer_contenders",
        lambda *args: [each for each in theirs(*args) if "Async" not in each.name],
    )


def test_the_table_shows_ours_the_ideal_and_the_peer_beside_each_other(capsys, tmp_path):
    assert main([PIPELINE, "--vs", "gymnasium", *QUICK]) == 0
    out = capsys.readouterr().out
    rows = [line.split("  ")[0] for line in out.splitlines()]
    assert "vecwrap dummy" in rows
    assert "Gymnasium Sync" in rows
    assert any(row.startswith("ideal: ") for row in rows)
    assert "vecwrap dummy is" in out
    assert "Gymnasium Sync: stacks in the sub-environments" in out
    # The monitor's folder is left alone.
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_its_files_hold_every_sample(tmp_path):
    changes = ["--set", "n=3", "--set", "wrappers.framestack.k=5"]
    assert main([PIPELINE, *changes, "--vs", "gymnasium", *QUICK]) == 0
    data = json.loads((tmp_path / "out" / "bench.json").read_text(encoding="utf-8"))
    assert "n=3" in data["results"][0]["title"]
    assert "framestack:k=5" in data["results"][0]["title"]
    by_name = {each["name"]: each for each in data["results"][0]["contenders"]}
    assert all(len(by_name[name]["rounds"]) == 2 for name in ("vecwrap dummy", "Gymnasium Sync"))
    assert {"cpu", "usable_cores", "python", "packages", "date", "load"} <= data["machine"].keys()
    assert "| Gymnasium Sync |" in (tmp_path / "out" / "bench.md").read_text(encoding="utf-8")


def test_a_peer_that_cannot_take_part_has_a_line_that_says_why(capsys):
    pipeline = "CartPole-v1 n=2 backend=dummy | framestack:2,axis=channel"
    assert main([pipeline, "--vs", "gymnasium", *QUICK]) == 0
    assert "Gymnasium Sync: Gymnasium cannot do the same work: its Frame" in capsys.readouterr().out


def test_a_peer_that_is_not_installed_is_told_with_the_line_that_installs_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", None)
    assert main(["CartPole-v1 n=2 backend=dummy", "--vs", "sb3", *QUICK]) == 0
    assert (
        "SB3 DummyVecEnv: stable_baselines3 is not installed: pip install torch"
        in capsys.readouterr().out
    )


@pytest.mark.xdist_group("tianshou")  # which takes seconds to import
def test_the_default_is_every_peer(capsys, server_of_peers):
    pipeline = "CartPole-v1 n=2 backend=dummy | framestack:2,padding=first"
    assert main([pipeline, *QUICK]) == 0
    out = capsys.readouterr().out
    assert "SB3 DummyVecEnv: SB3 cannot do the same work" in out
    assert "EnvPool, 1 thread: EnvPool cannot do the same work" in out
    assert "Gymnasium Sync: stacks" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([PIPELINE, "--vs", "gymnasum"], 'Did you mean "gymnasium"?'),
        (["CartPole-v1 n=2 autoreset=episodic"], "expected same_step or next_step"),
        (["CartPole-v1 | framestak:4"], 'Did you mean "framestack"?'),
    ],
)
def test_a_mistake_is_one_message_and_status_2(arguments, said, capsys):
    assert main([*arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_ctrl_c_leaves_no_folders(capsys, monkeypatch, tmp_path):
    seen = []

    def pressed(text):
        if text.startswith("round 1"):  # all are open
            seen.extend(tmp_path.glob("vecwrap-bench-*"))
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = importlib.import_module("benchmarks.__main__")
    monkeypatch.setattr(
        program, "progress", lambda *args, **options: contextlib.nullcontext(pressed)
    )
    assert main([PIPELINE, "--vs", "gymnasium", *QUICK]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert len(seen) >= 2
    assert list(tmp_path.iterdir()) == []


def test_make_gives_the_pipeline_as_one_argument():
    line = "CartPole-v1 n=2 | framestack:2"
    command = [
        "make",
        "--dry-run",
        "--old-file",
        ".venv/.bench",
        "bench",
        f"PIPELINE={line}",
        "BENCH_ARGS=--vs sb3",
    ]
    done = subprocess.run(
        command, cwd=ROOT, check=True, timeout=120, capture_output=True, text=True
    )
    assert f"python -m benchmarks '{line}' --vs sb3" in done.stdout


def test_no_peer_is_imported_before_it_is_asked_for():
    program = (
        "import sys; import benchmarks.__main__\nassert not {'stable_baselines3', 'torch', "
        "'envpool', 'ale_py', 'tianshou', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)
