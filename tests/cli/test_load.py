"""``vecwrap load``: a run's folder is shown, compared with what is installed, and run again."""

import csv
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from vecwrap.cli import main
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec

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
    return [(row["r"], row["l"], row["env"]) for row in csv.DictReader(Path(path).read_text().splitlines()[1:])]


def edit(name, old, new):
    path = Path("out", name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_it_says_what_the_run_was(capsys):
    before = contents()
    assert main(["load", "out"]) == 0
    said = capsys.readouterr().out
    facts = json.loads(before["run.json"])
    lines = dict(line.rstrip().split(maxsplit=1) for line in said.splitlines())
    for name in ("pipeline", "policy", "ended", "end"):
        assert lines[name] == facts[name]
    assert (lines["folder"], lines["seed"], lines["rebuilt_hash"]) == ("out", "5", facts["pipeline"])
    assert (lines["steps"], lines["episodes"], lines["restarts"]) == ("40", "4", "0")
    assert lines["statistics"] == "Normalize observations 42, returns 40"
    assert f"vecwrap {facts['versions']['vecwrap']}" in lines["versions"]
    assert "warning" not in said
    assert contents() == before


def test_json_says_the_same(capsys):
    assert main(["load", "out", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["seed"], data["policy"], data["end"], data["steps"]) == (5, "random", "finished", 40)
    assert data["pipeline"] == plan(PipelineSpec.from_dict(data["rebuilt"])).pipeline.hash
    assert data["installed"] == {}
    assert data["findings"] == []
    assert set(contents()) == set(data["files"])
    assert main(["load", "out", "--json", "--steps", "4"]) == 2


@pytest.mark.parametrize("arguments", [["--set", "n=3"], ["--eval"]])
def test_a_changed_pipeline_stands_beside_its_own_hash_and_the_runs_below(arguments, capsys):
    assert main(["explain", "out/pipeline.yaml", *arguments]) == 0
    own = capsys.readouterr().out.splitlines()[0].rpartition(" ")[2]
    assert main(["load", "out", *arguments]) == 0
    said = dict(line.rstrip().split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line)
    shown, of_the_run = said["rebuilt_hash"], said["pipeline"]
    assert (shown, of_the_run) == (own, json.loads(Path("out/run.json").read_text())["pipeline"])
    assert own != of_the_run


def test_other_versions_are_warnings(capsys):
    version = json.loads(Path("out/run.json").read_text())["versions"]["numpy"]
    edit("run.json", f'"numpy": "{version}"', '"numpy": "0.9", "no-such-package": "1.0"')
    assert main(["load", "out"]) == 0
    said = capsys.readouterr().out
    assert f"warning  numpy was 0.9, and {version} is installed" in said
    assert "warning  no-such-package was 1.0, and is not installed" in said
    assert said.count("warning") == 2
    assert main(["load", "out", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["installed"] == {"numpy": version, "no-such-package": None}


def test_what_check_finds_is_told(capsys):
    assert main(["run", "walk.yaml", "--set", "wrappers=[normalize, normalize]", "--steps", "4", "--out", "two"]) == 0
    capsys.readouterr()
    assert main(["load", "two"]) == 0
    assert "normalize_twice" in capsys.readouterr().out


def test_run_again_it_plays_the_same_games_and_leaves_the_runs_files_alone(capsys):
    before = contents()
    assert main(["load", "out", "--steps", "40"]) == 0
    assert "agent steps  40 in" in capsys.readouterr().out
    assert games("out/loaded/monitor.csv") == games("out/monitor.csv")
    assert main(["load", "out", "--eval", "--episodes", "3", "--policy", "zeros"]) == 0
    assert "toys_of_cli:Walk, n=1, dummy" in capsys.readouterr().out
    assert games("out/eval/monitor.csv") == [("10.0", "10", "0")] * 3
    assert contents() == before


def test_run_again_into_a_folder_of_its_own(capsys):
    assert main(["load", "out", "--steps", "20", "--out", "again", "--set", "seed=6"]) == 0
    facts = json.loads(Path("again/run.json").read_text())
    assert facts["seed"] == 6
    assert facts["pipeline"] == json.loads(Path("out/run.json").read_text())["pipeline"]
    assert not Path("out/loaded").exists()
    capsys.readouterr()
    assert main(["load", "again"]) == 0
    # It went on with the statistics of the first run: 42 observations, and then 22.
    assert "observations 64" in capsys.readouterr().out


@pytest.mark.parametrize("again", [["load", "out"], ["run", "out/pipeline.yaml"]])
def test_the_evaluation_goes_along_into_the_new_folder(again):
    assert main([*again, "--steps", "20", "--out", "again"]) == 0
    before = {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()}
    assert "/out" not in Path("again/pipeline.yaml").read_text()
    shutil.move("again", "moved")
    assert main(["load", "moved", "--eval", "--episodes", "3"]) == 0
    assert games("moved/eval/monitor.csv") == [("10.0", "10", "0")] * 3
    assert {path: path.read_bytes() for path in Path("out").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("run.json", '"pipeline": "', '"pipeline": "0', "out/run.json: expected a file of pipeline "),
        ("monitor.csv", '"pipeline": "', '"pipeline": "0', "out/monitor.csv: expected a file of pipeline "),
        ("pipeline.yaml", "gamma: 0.99", "gamma: 0.9", "out/run.json: expected a file of pipeline "),
        ("pipeline.yaml", "normalize", "normalise", 'unknown wrapper. Did you mean "normalize"?'),
        ("run.json", "{", "{{", "out/run.json: this is not JSON"),
        ("run.json", "{", "[" * 100_000, "out/run.json: this is not JSON"),
        ("run.json", '"versions": {', '"versions": 1, "then": {', "out/run.json: expected what `vecwrap run` writes"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(capsys, name, old, new, message):
    edit(name, old, new)
    assert main(["load", "out"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: ")
    assert message in said.err
    assert said.out == ""


def test_the_help_says_what_is_run_and_where_it_is_written(capsys):
    """And not what holds of ``vecwrap run`` alone."""
    assert main(["load", "--help"]) == 0
    said = " ".join(re.sub(r"[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    assert "20000" not in said
    assert "runs/NAME" not in said
    assert "Without this and --episodes, nothing is run." in said
    assert "in FOLDER/loaded, or FOLDER/eval with --eval." in said


def test_statistics_of_another_pipeline_are_refused(capsys):
    assert main(["run", "walk.yaml", "--set", "wrappers.normalize.gamma=0.5", "--steps", "4", "--out", "other"]) == 0
    Path("other/stats.npz").replace("out/stats.npz")
    assert main(["load", "out"]) == 2
    assert "out/stats.npz: expected a file of pipeline " in capsys.readouterr().err
    Path("out/stats.npz").write_bytes(b"PK")
    assert main(["load", "out"]) == 2
    assert "out/stats.npz: not a state that vecwrap saved" in capsys.readouterr().err


def test_a_newer_vecwrap_is_named_where_the_pipelines_differ(capsys):
    version = json.loads(Path("out/run.json").read_text())["versions"]["vecwrap"]
    edit("run.json", f'"vecwrap": "{version}"', '"vecwrap": "0.0.7"')
    edit("run.json", '"pipeline": "', '"pipeline": "0')
    assert main(["load", "out"]) == 2
    assert f"(vecwrap 0.0.7 wrote it and this is {version}, in which a wrapper may differ.)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--out", "zz"], ["--record"], ["--policy", "zeros"], ["--snapshot", "s.png"], ["--interval", "3"],
        ["--out", "zz", "--json"],
    ],
)  # fmt: skip
def test_options_of_a_run_that_are_given_without_one_are_refused(capsys, options):
    assert main(["load", "out", *options]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"error: load: {options[0]}: expected --steps or --episodes too")
    assert said.out == ""
    assert not Path("zz").exists()


@pytest.mark.parametrize(
    ("path", "words"), [(".", "one without pipeline.yaml"), ("nowhere", "none, seen from"), ("walk.yaml", "a file")]
)
def test_what_is_no_run_is_refused(capsys, path, words):
    assert main(["load", path]) == 2
    assert f"{path}: expected a run's folder, with pipeline.yaml, got {words}" in capsys.readouterr().err
