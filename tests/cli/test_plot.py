"""``vecwrap plot`` through its entry point."""

import numpy as np
import pytest

from tests.tools.plot.files import random_rows, write_file
from vecwrap.cli import main
from vecwrap.tools.plot import read_runs

pytest.importorskip("matplotlib")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with two runs, one of which has a lost episode and a torn line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    rng = np.random.default_rng(1)
    write_file(
        tmp_path / "runs" / "a" / "monitor.csv",
        random_rows(rng, 150),
        step_unit="agent step",
        frame_skip=4,
    )
    rows = [*random_rows(rng, 30), (0.0, 5, 99.0, 0, 1), (1.0, 2)]
    write_file(tmp_path / "runs" / "b" / "monitor.csv", rows, step_unit="agent step", frame_skip=4)
    return tmp_path


def test_two_runs_are_drawn_and_counted(here, capsys):
    assert main(["plot", "runs/a", "runs/b", "--smooth", "10,100"]) == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert lines[0] == ["run", "seeds", "episodes", "steps", "minutes", "last", "100", "episodes"]
    assert (lines[1][:3], lines[2][:3]) == (["a", "1", "150"], ["b", "1", "30"])
    scores = read_runs(["runs/a"])[0].runs[0].scores[-100:]
    assert lines[1][-3:] == [f"{scores.mean():.2f}", "±", f"{scores.std():.2f}"]
    assert "b: left out episodes without a score, because the sub-environment was lost: 1" in said
    assert "b: left out lines that cannot be read as an episode: 1" in said
    assert "b: fewer than 100 episodes, so no mean of 100" in said
    assert lines[-1] == ["picture", "curves.png"]
    assert (here / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_window_of_the_table_and_the_curves_fits_the_shortest_run(here, capsys):
    assert main(["plot", "runs/a", "runs/b"]) == 0
    said = capsys.readouterr().out
    assert "last 10 episodes" in said.splitlines()[0]
    assert "no mean of" not in said
    scores = read_runs(["runs/a"])[0].runs[0].scores[-10:]
    assert said.splitlines()[1].split()[-3:] == [f"{scores.mean():.2f}", "±", f"{scores.std():.2f}"]


def test_the_table_has_seconds_where_no_run_took_two_minutes(here, capsys):
    (run,) = read_runs(["runs/b"])
    assert main(["plot", "runs/b"]) == 0
    head, row, *_ = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[4] == "seconds"
    assert row[4] == f"{60 * run.runs[0].minutes[-1]:.2f}"


def test_pictures_go_where_they_are_asked_for(here, capsys):
    assert (
        main(
            [
                "plot",
                "runs/a",
                "-o",
                "new/a.svg",
                "--out",
                "a.png",
                "--title",
                "Mine",
                "--x",
                "minutes",
            ]
        )
        == 0
    )
    assert "Mine" in (here / "new" / "a.svg").read_text()
    assert (here / "a.png").exists()
    assert not (here / "curves.png").exists()


def test_runs_of_one_name_are_one_curve(here, capsys):
    assert main(["plot", "both=runs/a", "both=runs/b", "--smooth", "100"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[1].split()[:3] == ["both", "2", "180"]
    assert "both: seeds with fewer than 100 episodes, not in the mean of 100: 1" in said


def test_steps_that_are_not_the_same_are_told(here, capsys):
    write_file(here / "sb3" / "monitor.csv", [(1, 10, 1.0)], columns=("r", "l", "t"))
    assert main(["plot", "runs/a", "sb3"]) == 0
    assert (
        "count steps differently, so compare over minutes or episodes (a: agent steps of 4 "
        "frames; sb3: steps)"
    ) in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["runs/c"], "runs/c: there is no such file or folder"),
        (
            ["runs/a", "--smooth", "ten"],
            '--smooth: expected comma-separated episode counts, such as 10,100, got "ten"',
        ),
        (["runs/a", "--smooth", "0"], "at least 1 episode"),
        (["runs/a", "--x", "frames"], "expected axes of steps, episodes, minutes"),
        (["runs/a", "--x", "stpes"], 'got "stpes". Did you mean "steps"?'),
        (["runs/a", "--x", ""], "expected at least one axis"),
        (["runs/a", "--smooth=-3"], "at least 1 episode, got -3"),
        (["missing", "--x", "stpes"], "expected axes"),  # before anything is read
        (["missing", "--smooth", "0"], "at least 1 episode"),
        (["runs/a", "-o", "a.gif"], "ends in .png or .svg"),
        (["empty"], "empty: expected at least one finished episode, got none. Run longer"),
        ([], "RUN"),
    ],
)
def test_a_call_that_cannot_be_used_is_one_message_and_status_2(here, capsys, arguments, says):
    (here / "empty").mkdir()
    (here / "empty" / "monitor.csv").write_text("")
    assert main(["plot", *arguments]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert ("Traceback" in said.err, said.out) == (False, "")
    assert not list(here.glob("*.png"))


def test_help_has_an_example(capsys):
    assert main(["plot", "--help"]) == 0
    assert "Example: vecwrap plot runs/" in capsys.readouterr().out


def test_a_run_of_ours_can_be_drawn_as_it_was_written(here, capsys):
    assert (
        main(["run", "CartPole-v1 n=2 seed=1 backend=dummy", "--steps", "600", "--out", "mine"])
        == 0
    )
    assert main(["plot", "mine"]) == 0
    (run,) = read_runs(["mine"])
    (seed,) = run.runs
    assert (run.name, seed.env_id) == ("mine", "CartPole-v1")
    assert seed.total_steps == seed.steps[-1] <= 600
    # It pays 1 a step.
    assert seed.scores.sum() <= seed.total_steps < seed.scores.sum() + seed.scores.max() * 2
