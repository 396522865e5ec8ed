"""A package that adds a wrapper: installed as its users install it, and used through every door."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parents[1] / "examples" / "plugin"
LINE = "CartPole-v1 n=2 backend=dummy | clip_reward | delay_reward:0.1"
COMMANDS = """
import contextlib, io, json, sys
from vecwrap.cli import main

said = []
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(arguments)
    said.append([status, out.getvalue() + err.getvalue()])
print(json.dumps(said))
"""
LAWS = """
import numpy as np, vecwrap
from vecwrap.testing import check_wrapper

check_wrapper("delay_reward", steps=20)
check_wrapper("time_limit:9 | delay_reward:0.1", steps=12)
with vecwrap.build("CartPole-v1 n=2 seed=1 backend=dummy | delay_reward | monitor") as env:
    env.reset()
    paid, infos = 0.0, {}
    while "episode" not in infos:
        _, rewards, _, _, infos = env.step([0, 1])
        paid += rewards
    ended = infos["_episode"]
    assert (paid[ended] == infos["episode"]["r"][ended]).all() and (paid[~ended] == 0).all()
print("good")
"""


def python(site, *arguments):
    """What a fresh interpreter prints that has these folders on its path."""
    path = os.pathsep.join(filter(None, [*map(str, site), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, *arguments]
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "120"}
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def commands(site, *calls):
    """The exit status of each command, and what it said."""
    return json.loads(python(site, "-c", COMMANDS, json.dumps(calls)))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder for sys.path with the package in it; built without a network."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(
        PLUGIN,
        folder / "source",
        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"),
    )
    options = [
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(folder / "site"),
    ]
    python(
        [], "-m", "pip", "--disable-pip-version-check", "install", *options, str(folder / "source")
    )
    return folder / "site"


def test_its_name_shows_up(installed):
    listed, schema, checked, explained = commands(
        [installed],
        ["list", "delay_reward"],
        ["schema"],
        ["check", LINE, "--json"],
        ["explain", LINE],
    )
    said = " ".join(listed[1].split())
    assert said.startswith("delay_reward wrapper, runs in the parent ")
    assert "interest: float" in said
    assert "At an episode's end: the sum of its rewards is paid." in said
    assert "Pay nothing until an episode ends, and then all of it." in schema[1]
    assert "how much of what is owed is added to it at each step." in said
    assert json.loads(checked[1]) == []
    assert [status for status, _ in (listed, schema, checked, explained)] == [0, 0, 0, 0]
    assert "at an episode's end: the sum of its rewards is paid." in explained[1]


def test_its_wrapper_keeps_the_laws_and_does_what_it_says(installed):
    assert python([installed], "-c", LAWS) == "good\n"


def test_without_it_there_is_no_such_name_and_one_that_two_packages_claim_is_refused(
    installed, tmp_path
):
    ((status, said),) = commands([], ["list", "delay_reward"])
    assert status == 2
    assert 'there is no wrapper, backend or finding "delay_reward"' in said
    rival = tmp_path / "rival-1.0.dist-info"
    rival.mkdir()
    (rival / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 1.0\n")
    (rival / "entry_points.txt").write_text("[vecwrap.wrappers]\ndelay_reward = rival:Delay\n")
    (status, said), others, listed = commands(
        [installed, tmp_path], ["explain", LINE], ["explain", "CartPole-v1 n=1"], ["list"]
    )
    assert status == 2
    assert "vecwrap-delay (vecwrap_delay.wrapper:DelayReward)" in said
    assert "rival (rival:Delay)" in said
    assert others[0] == listed[0] == 0  # what does not use the name is not harmed
    assert listed[1].count("is claimed by") == 1
