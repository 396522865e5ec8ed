"""``vecwrap compare`` through its entry point, over runs of ``vecwrap run``."""

import json

import numpy as np
import pytest

from tests.tools.plot.files import random_rows, write_file
from vecwrap.cli import main
from vecwrap.errors import install_command
from vecwrap.tools.compare import compare
from vecwrap.tools.plot import read_runs

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two pipelines, one with two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    for name, line in {
        "short/1": "CartPole-v1 n=2 seed=1 | time_limit:20",
        "short/2": "CartPole-v1 n=2 seed=2 | time_limit:20",
        "long": "CartPole-v1 n=3 seed=1 | time_limit:50",
    }.items():
        assert main(["run", line, "--steps", "1500", "--out", str(folder / name)]) == 0
    return folder


@pytest.fixture
def here(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    capsys.readouterr()
    return tmp_path


def test_runs_are_compared_in_a_table_and_a_picture(runs, here, capsys):
    assert main(["compare", f"{runs}/short", f"{runs}/long", "--last", "20"]) == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    head = [
        "run",
        "seeds",
        "episodes",
        "steps",
        "last",
        "20",
        "episodes",
        "IQM",
        "of",
        "seeds",
        "steps/s",
        "restarts",
    ]
    assert lines[0] == head
    short, long = compare(read_runs([f"{runs}/short", f"{runs}/long"]), 20)
    for line, each in ((lines[1], short), (lines[2], long)):
        shown = (
            f"{each.last_return.value:.2f} [{each.last_return.low:.2f}, "
            f"{each.last_return.high:.2f}]"
        ).split()
        assert line[:7] == [
            each.name,
            str(len(each.scores)),
            f"{each.episodes:,}",
            f"{each.steps:,}",
            *shown,
        ]
        assert line[-2:] == [f"{each.steps_per_second:,.0f}", "0"]
    assert (short.steps, long.steps) == (3000, 1500)
    assert ["wrappers.time_limit.max_episode_steps", "20", "50"] in lines
    assert ["n", "2", "3"] in lines
    assert ["seed", "1,", "2", "1"] in lines
    assert not any(line[:1] == ["env"] for line in lines)
    assert "intervals: 95 %, from resampling seeds or the episodes of one seed" in said
    assert lines[-1] == ["picture", "compare.png"]
    assert (here / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_json_has_the_figures_and_draws_only_what_is_asked_for(runs, here, capsys):
    assert main(["compare", f"{runs}/short", f"l={runs}/long", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not (here / "compare.png").exists()
    short, long = compare(read_runs([f"{runs}/short", f"l={runs}/long"]))
    first, second = found["runs"]
    assert first["scores"] == short.scores.tolist()
    assert first["iqm"] == vars(short.iqm)
    assert (first["resampled"], second["resampled"]) == ("seeds", "episodes")
    assert second["last_return"] == vars(long.last_return)
    assert (second["name"], second["iqm"], second["restarts"]) == ("l", None, 0)
    assert first["seeds"] == [f"{runs}/short/1", f"{runs}/short/2"]
    assert found["pipelines_differ"]["wrappers.time_limit.max_episode_steps"] == [["20"], ["50"]]
    assert found["versions_differ"] == {}
    assert main(["compare", f"{runs}/long", "--json", "-o", "new/a.svg"]) == 0
    assert (here / "new" / "a.svg").exists()


def test_what_is_left_out_or_unknown_is_said(here, capsys):
    write_file(here / "a" / "monitor.csv", [*random_rows(np.random.default_rng(1), 30), (1.0, 2)])
    write_file(here / "b" / "monitor.csv", [])
    assert main(["compare", "a", "b", "--last", "100"]) == 0
    said = capsys.readouterr().out
    assert "a: left out lines that cannot be read as an episode: 1" in said
    assert "a: seeds with fewer than 100 episodes, of which all count: 1" in said
    assert "b: seeds without a finished episode, left out: 1" in said
    assert "b: no pipeline.yaml beside its monitor files, so its pipeline is not compared" in said
    (row,) = [line.split() for line in said.splitlines() if line.startswith("b ")]
    assert row == ["b", "0", "0", "0", "-", "-", "-", "-"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: there is no such file or folder"),
        (["."], ".: expected monitor files (*monitor.csv) in it or in its folders, got none"),
        (
            ["a", "b"],
            "expected runs of one environment, because returns of different ones cannot be "
            "compared, got a: Toy-v0; b: Pong-v5",
        ),
        (["a", "-o", "a.jpg"], 'expected a picture that ends in .png or .svg, got "a.jpg"'),
    ],
)
def test_bad_input_is_one_message(arguments, message, here, capsys):
    if arguments != ["."]:
        write_file(here / "a" / "monitor.csv", random_rows(np.random.default_rng(1), 3))
        write_file(
            here / "b" / "monitor.csv", random_rows(np.random.default_rng(1), 3), env_id="Pong-v5"
        )
    assert main(["compare", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {message}")
    assert captured.out == ""


def test_without_matplotlib_there_is_a_table_all_the_same(here, capsys, monkeypatch):
    monkeypatch.setattr("vecwrap.cli.curves.is_installed", lambda name: name != "matplotlib")
    write_file(here / "a" / "monitor.csv", random_rows(np.random.default_rng(1), 3))
    assert main(["compare", "a"]) == 0
    assert (
        f"no picture, which needs matplotlib: {install_command('plot')}" in capsys.readouterr().out
    )
    assert not (here / "compare.png").exists()
