"""A run folder in the place of a pipeline: checked, compared with what is installed, run again."""

import csv
import json
import shutil
import sys
from pathlib import Path

import pytest

from vecwrap.cli import main
from vecwrap.env.state_file import read_state
from vecwrap.live import RunFolder

TOYS = Path(__file__).with_name("toys_of_cli.py")
PIPELINE = """\
env: toys_of_cli:Walk
n: 2
seed: 5
backend: dummy
wrappers: [normalize]
eval: {n: 1, seed: 9}
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A working directory with a folder that a run filled."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "toys_of_cli.py").write_text(TOYS.read_text())
    (folder / "walk.yaml").write_text(PIPELINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["run", "walk.yaml", "--steps", "40", "--out", "out"]) == 0
    sys.modules.pop("toys_of_cli", None)
    return folder


@pytest.fixture(autouse=True)
def here(filled, tmp_path, monkeypatch, capsys):
    """A copy of that directory for each test."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    capsys.readouterr()
    yield tmp_path
    sys.modules.pop("toys_of_cli", None)


def contents(folder="out"):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def games(path):
    return [
        (row["r"], row["l"], row["env"])
        for row in csv.DictReader(Path(path).read_text().splitlines()[1:])
    ]


def edit(name, old, new):
    path = Path("out", name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("command", ["check", "explain", "time"])
def test_other_commands_take_a_folder_too_and_leave_it_alone(command):
    before = contents()
    assert main([command, "out", *(["--steps", "200"] if command == "time" else [])]) == 0
    assert contents() == before
    assert not Path("out/loaded").exists()


def test_explain_shows_the_pipeline_of_the_run(capsys):
    pipeline = json.loads(Path("out/run.json").read_text())["pipeline"]
    assert main(["explain", "out"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(f"pipeline {pipeline}")
    assert main(["explain", "out", "--eval"]) == 0
    assert "n=1, seed=9" in capsys.readouterr().out


def test_other_versions_are_warnings():
    version = json.loads(Path("out/run.json").read_text())["versions"]["numpy"]
    edit("run.json", f'"numpy": "{version}"', '"numpy": "0.9", "no-such-package": "1.0"')
    with pytest.warns(RuntimeWarning) as warned:
        assert main(["check", "out"]) == 0
    assert [str(warning.message) for warning in warned] == [
        f"out: numpy was 0.9, and {version} is installed: the stream may differ",
        "out: no-such-package was 1.0, and is not installed",
    ]


def test_load_is_no_command_any_more(capsys):
    assert main(["load", "out", "--steps", "4"]) == 2
    said = capsys.readouterr().err
    assert "vecwrap run FOLDER --steps 20000" in said
    assert "vecwrap.load(FOLDER)" in said


def test_a_folder_of_an_earlier_version_is_run_watched_and_compared(capsys):
    """It has two more files, and no rate."""
    Path("out/progress.csv").write_text("time,steps\n1.0,40\n")
    Path("out/log.txt").write_text("seconds 1\n")
    facts = json.loads(Path("out/run.json").read_text())
    del facts["rate"]
    Path("out/run.json").write_text(json.dumps(facts))
    assert main(["run", "out", "--steps", "40"]) == 0
    assert games("out/loaded/monitor.csv") == games("out/monitor.csv")
    capsys.readouterr()
    assert main(["compare", "out", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["steps"], run["restarts"], run["steps_per_second"]) == (
        40,
        0,
        40 / facts["seconds"],
    )
    about = RunFolder(Path("out")).about()
    assert about["plan"] == Path("out/pipeline.yaml").read_text()


def test_run_again_it_plays_the_same_games_and_leaves_the_runs_files_alone(capsys):
    before = contents()
    assert main(["run", "out", "--steps", "40"]) == 0
    assert "agent steps  40 in" in capsys.readouterr().out
    assert games("out/loaded/monitor.csv") == games("out/monitor.csv")
    assert main(["run", "out", "--eval", "--episodes", "3", "--policy", "zeros"]) == 0
    assert "toys_of_cli:Walk, n=1, dummy" in capsys.readouterr().out
    assert games("out/eval/monitor.csv") == [("10.0", "10", "0")] * 3
    assert contents() == before


def test_run_again_into_a_folder_of_its_own():
    assert main(["run", "out", "--steps", "20", "--out", "again", "--set", "seed=6"]) == 0
    facts = json.loads(Path("again/run.json").read_text())
    assert facts["seed"] == 6
    assert facts["pipeline"] == json.loads(Path("out/run.json").read_text())["pipeline"]
    assert not Path("out/loaded").exists()
    # It went on with the statistics of the first run: 42 observations, and then 22.
    (normalize,) = (wrapper for wrapper in read_state("again/stats.npz")["statistics"] if wrapper)
    assert normalize["observations"]["count"] == pytest.approx(64, abs=0.01)


@pytest.mark.parametrize("again", [["run", "out"], ["run", "out/pipeline.yaml"]])
def test_the_evaluation_goes_along_into_the_new_folder(again):
    assert main([*again, "--steps", "20", "--out", "again"]) == 0
    before = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    assert "/out" not in Path("again/pipeline.yaml").read_text()
    shutil.move("again", "moved")
    assert main(["run", "moved", "--eval", "--episodes", "3"]) == 0
    assert games("moved/eval/monitor.csv") == [("10.0", "10", "0")] * 3
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "run.json",
            '"pipeline": "',
            '"pipeline": "0',
            "out/run.json: expected a file of pipeline ",
        ),
        (
            "monitor.csv",
            '"pipeline": "',
            '"pipeline": "0',
            "out/monitor.csv: expected a file of pipeline ",
        ),
        (
            "pipeline.yaml",
            "gamma: 0.99",
            "gamma: 0.9",
            "out/run.json: expected a file of pipeline ",
        ),
        ("pipeline.yaml", "normalize", "normalise", 'unknown wrapper. Did you mean "normalize"?'),
        ("run.json", "{", "{{", "out/run.json: this is not JSON"),
        ("run.json", "{", "[" * 100_000, "out/run.json: this is not JSON"),
        (
            "run.json",
            '"versions": {',
            '"versions": 1, "then": {',
            "out/run.json: expected what `vecwrap run` writes",
        ),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(capsys, name, old, new, message):
    edit(name, old, new)
    assert main(["run", "out", "--steps", "4"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: ")
    assert message in said.err
    assert said.out == ""


def test_statistics_of_another_pipeline_are_refused(capsys):
    assert (
        main(
            [
                "run",
                "walk.yaml",
                "--set",
                "wrappers.normalize.gamma=0.5",
                "--steps",
                "4",
                "--out",
                "other",
            ]
        )
        == 0
    )
    Path("other/stats.npz").replace("out/stats.npz")
    assert main(["run", "out", "--steps", "4"]) == 2
    assert "out/stats.npz: expected a file of pipeline " in capsys.readouterr().err
    Path("out/stats.npz").write_bytes(b"PK")
    assert main(["run", "out", "--steps", "4"]) == 2
    assert "out/stats.npz: not a state that vecwrap saved" in capsys.readouterr().err


def test_a_newer_vecwrap_is_named_where_the_pipelines_differ(capsys):
    version = json.loads(Path("out/run.json").read_text())["versions"]["vecwrap"]
    edit("run.json", f'"vecwrap": "{version}"', '"vecwrap": "0.0.7"')
    edit("run.json", '"pipeline": "', '"pipeline": "0')
    assert main(["run", "out", "--steps", "4"]) == 2
    assert (
        f"(vecwrap 0.0.7 wrote it and this is {version}, in which a wrapper may differ.)"
        in capsys.readouterr().err
    )
