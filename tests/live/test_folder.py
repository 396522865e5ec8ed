"""A stranger's folder of a run: whatever lies in it, it is shown, with a line of trouble, and after
bounded work.
"""

import json
import os
import shutil

import pytest

from tests.live.test_server import write_run
from vecwrap.live import RunFolder, listing
from vecwrap.live import folder as folder_source
from vecwrap.live.page_source import curves


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(folder_source, "READ_PAUSE_FACTOR", 0)


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def write_pool(folder):
    (folder / "pool" / "results").mkdir(parents=True)
    (folder / "pool" / "pool.json").write_text('{"format": 1}')
    table = {"results": [["learner", "random", 0, 3, 1, 0]]}
    (folder / "pool" / "results" / "a.json").write_text(json.dumps(table))


def shown(source):
    """The state, as JSON can hold it, and its trouble, which is one line."""
    state = source.state(None)
    source.about()
    json.dumps(state, allow_nan=False)
    assert "\n" not in state["trouble"]
    return state, state["trouble"]


def episodes(state):
    return dict(state["figures"])["episodes"]


def replace_by_loop(path):
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def replace_by_pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize("replace", [replace_by_loop, replace_by_pipe])
@pytest.mark.parametrize(
    "name",
    [
        "pipeline.yaml",
        "monitor.csv",
        "run.json",
        "tiles.png",
        "videos/a.mp4",
        "pool/pool.json",
        "pool/results/a.json",
    ],
)
def test_a_link_in_a_circle_or_a_pipe_is_a_trouble_and_the_rest_is_shown(run, name, replace):
    write_pool(run)
    (run / "videos").mkdir()
    source = RunFolder(run)
    assert shown(source)[1] == ""
    replace(run / name)
    state, trouble = shown(source)
    assert (
        f"{run / name}: expected a file within the run's folder, got none that can be read"
        in trouble
    )
    assert episodes(state) == "40"


def test_json_nested_without_end_is_a_trouble(run):
    write_pool(run)
    source = RunFolder(run)
    for name in ("pool/results/a.json", "run.json"):
        whole = (run / name).read_text()
        (run / name).write_text("[" * 50_000 + "]" * 50_000)
        state, trouble = shown(source)
        assert name in trouble
        assert episodes(state) == "40"
        (run / name).write_text(whole)
    assert shown(source)[1] == ""


def test_a_folder_that_vanishes_is_a_trouble_until_it_is_back(run):
    source = RunFolder(run)
    state, _ = shown(source)
    run.rename(run.with_name("elsewhere"))
    gone, trouble = shown(source)
    assert trouble == f"{run}: cannot be read (No such file or directory)"
    assert gone["figures"] == state["figures"]
    run.with_name("elsewhere").rename(run)
    assert shown(source)[1] == ""


def test_a_folder_with_more_files_than_are_looked_at_shows_its_own_games(run, monkeypatch):
    monkeypatch.setattr(listing, "MAX_ENTRIES", 50)
    for i in range(100):
        (run / f"{i}.monitor.csv").write_bytes((run / "monitor.csv").read_bytes())
        (run / f"checkpoint-{i}").mkdir()
    looked_at = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda place: (looked_at.append(place), scandir(place))[1])
    state, trouble = shown(RunFolder(run))
    assert f"{run}: more than 50 files; not all of them are looked at" in trouble
    assert len(looked_at) <= 2 * 51
    assert episodes(state) == "40"


def test_more_files_or_bytes_than_are_read_are_a_trouble(run, monkeypatch):
    write_pool(run)
    source = RunFolder(run)
    monkeypatch.setattr(folder_source, "MAX_FILES", 3)
    for i in range(3):
        shutil.copy(run / "monitor.csv", run / f"{i}.monitor.csv")
    state, trouble = shown(source)
    assert "expected at most 3 files such as monitor.csv, got more" in trouble
    for i in range(3):
        (run / f"{i}.monitor.csv").unlink()
    monkeypatch.setattr(folder_source, "MAX_BYTES", 10)
    state, trouble = shown(source)
    assert "to read" in trouble
    assert state["title"] == "run"


@pytest.mark.parametrize("name", ["results", "videos", "run"])
def test_seeds_are_found_in_a_folder_of_any_name(tmp_path, name):
    for seed in (1, 2):
        write_run(tmp_path / name / f"seed {seed}")
    state, trouble = shown(RunFolder(tmp_path / name))
    assert (episodes(state), trouble) == ("80", "")


CELLS = [
    "nan",
    "inf",
    "-inf",
    "1e999",
    "1e308",
    "-1e308",
    "9" * 400,
    "",
    "\x1b[31m",
    "</script>",
    "0x1",
]


@pytest.mark.parametrize("cell", CELLS)
def test_cells_that_are_no_numbers_to_compute_with(run, cell):
    games = (run / "monitor.csv").read_text()
    for column in range(5):
        row = ["1", "2", "5", "0", "0"]
        row[column] = cell
        (run / "monitor.csv").write_text(f"{games}{','.join(row)}\n")
        source = RunFolder(run)
        state, trouble = shown(source)
        assert (int(episodes(state)) in (40, 41), trouble) == (True, "")
        json.dumps(curves(source.runs(), "minutes", 10), allow_nan=False)


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-1e999", "9" * 400, '"\\u001b[31m"', "[[]]", '{"\\n": null}']
)
def test_facts_of_any_kind(run, value):
    for key in ("seconds", "steps", "restarts", "end", "versions"):
        (run / "run.json").write_text(f'{{"end": "finished", "{key}": {value}}}')
        state, _ = shown(RunFolder(run))
        assert episodes(state) == "40"
        assert "\x1b" not in json.dumps(state, ensure_ascii=False)


def test_a_file_that_cannot_be_read_is_a_trouble(run, monkeypatch):
    """As without permission, which the superuser lacks never."""
    write_pool(run)
    source = RunFolder(run)
    scandir, opened = os.scandir, os.open

    def refuse(place, *arguments):
        if str(place).endswith(("pool", "monitor.csv")):
            raise PermissionError(13, "Permission denied", str(place))
        return (opened if arguments else scandir)(place, *arguments)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "open", refuse)
    _, trouble = shown(source)
    assert f"{run / 'pool'}: cannot be read (Permission denied)" in trouble
    assert f"{run / 'monitor.csv'}: cannot be read: Permission denied" in trouble


def test_files_that_are_replaced_while_they_are_read(run, monkeypatch):
    source = RunFolder(run)
    games, read_runs = (run / "monitor.csv").read_text(), folder_source.read_runs
    monkeypatch.setattr(
        folder_source,
        "read_runs",
        lambda places: ((run / "monitor.csv").write_text("torn"), read_runs(places))[1],
    )
    assert "expected a monitor file" in shown(source)[1]
    monkeypatch.undo()
    (run / "monitor.csv").write_text(games)
    source._next = 0.0
    state, trouble = shown(source)
    assert (episodes(state), trouble) == ("40", "")
