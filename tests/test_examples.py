"""The examples run as they are, as plain scripts, and say something."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("script", [pytest.param(script, id=script.name) for script in SCRIPTS])
def test_a_script_runs_and_prints(script, tmp_path):
    command = [sys.executable, "-W", "error", str(script)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.strip()
    assert result.stderr == ""


def test_the_first_lines_of_a_script_say_what_it_shows():
    for script in SCRIPTS:
        assert script.read_text(encoding="utf-8").startswith('"""')


@pytest.mark.parametrize("mode", [[], ["--eval"]])
def test_every_pipeline_file_is_without_mistakes_also_for_its_evaluation(mode):
    pytest.importorskip("ale_py")
    files = sorted(str(path) for path in EXAMPLES.glob("*.yaml"))
    command = [sys.executable, "-m", "vecwrap", "check", "--strict", "--no-imports", *files, *mode]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr


def test_pong_from_the_file(tmp_path):
    pytest.importorskip("ale_py")
    command = [sys.executable, "-m", "vecwrap", "run", str(EXAMPLES / "pong.yaml")]
    command += ["--steps", "400", "--out", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "400" in result.stdout
    header = json.loads((tmp_path / "monitor.csv").read_text(encoding="utf-8").splitlines()[0].removeprefix("#"))
    assert (header["env_id"], header["step_unit"], header["frame_skip"]) == ("PongNoFrameskip-v4", "agent step", 4)
    import imageio.v3 as imageio

    assert imageio.imread(tmp_path / "tiles.png").shape == (630, 480, 3)
