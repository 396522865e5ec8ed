"""Pools that a stranger made: each is refused with a CheckpointError, and nothing outside of its
folder is written.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.rock_paper_scissors import weights
from vecwrap import OpponentPool
from vecwrap.env.atomic_files import remove_temporary_files, write_atomically
from vecwrap.errors import CheckpointError

ROOT = Path(__file__).resolve().parents[2]
MAKE = "tests.helpers.rock_paper_scissors:make"
DEEP = "[" * 50_000 + "]" * 50_000


@pytest.fixture
def folder(tmp_path):
    pool = OpponentPool(tmp_path / "pool", make=MAKE, scripted=["random"])
    pool.add(weights(1))
    pool.record("000001", 1)
    pool.save()
    (tmp_path / "outside").mkdir()
    return pool.dir


def used(folder):
    pool = OpponentPool(folder, make=MAKE, scripted=["random"])
    pool.add(weights(2))
    pool.all_results()
    pool.policy("000001")


def with_dtype(text):
    def change(folder):
        path = folder / "members" / "000001.json"
        facts = json.loads(path.read_text())
        facts["arrays"]["logits"][1] = text
        path.write_text(json.dumps(facts))

    return change


def with_file(name, text):
    return lambda folder: (folder / name).write_text(text)


def with_file_for_folder(name):
    def change(folder):
        shutil.rmtree(folder / name)
        (folder / name).write_text("")

    return change


SPOILED = {
    "pool.json is deep": with_file("pool.json", DEEP),
    "a snapshot is deep": with_file(
        "members/000001.json", f'{{"digest": "", "arrays": {{"w": {DEEP}}}}}'
    ),
    "a scripted member is deep": with_file("scripted/random.json", f'{{"policy": {DEEP}}}'),
    "a table is deep": with_file("results/x.json", f'{{"results": {DEEP}}}'),
    "a table is not quite too deep": with_file(
        "results/x.json", f'{{"results": [{"[" * 800}{"]" * 800}]}}'
    ),
    "a dtype is code": with_dtype("f4,("),
    "a dtype is long": with_dtype("f4," * 10_000),
    "a dtype is a subarray": with_dtype("(2,3)f4"),
    "members is a file": with_file_for_folder("members"),
    "scripted is a file": with_file_for_folder("scripted"),
    "results is a file": with_file_for_folder("results"),
    "a snapshot is large": lambda folder: os.truncate(folder / "members" / "000001.json", 10**12),
    "a table is large": lambda folder: os.truncate(folder / "pool.json", 10**12),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_spoiled_pool_is_a_checkpoint_error(folder, how):
    SPOILED[how](folder)
    with pytest.raises(CheckpointError) as caught:
        used(folder)
    assert len(str(caught.value)) < 1_500


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("to", ["outside", "itself", "nowhere"])
@pytest.mark.parametrize(
    "name",
    [
        *("members", "scripted", "results", "pool.json"),
        *("members/000001.json", "members/000001.npz", "scripted/random.json"),
    ],
)
def test_no_link_in_a_pool_is_followed(folder, name, to):
    path = folder / name
    outside = folder.parent / "outside"
    if path.is_dir():
        shutil.copytree(path, outside / path.name)
        shutil.rmtree(path)
    else:
        shutil.copy(path, outside / path.name)
        path.unlink()
    path.symlink_to(
        {"outside": outside / path.name, "itself": path.name, "nowhere": outside / "made"}[to]
    )
    before = names(outside)
    with pytest.raises(CheckpointError):
        used(folder)
    assert names(outside) == before


@pytest.mark.parametrize("path", ["a" * 5_000, "a\0b", "a/" * 3_000], ids=["long", "nul", "deep"])
def test_a_folder_that_no_system_has_is_a_checkpoint_error(path):
    with pytest.raises(CheckpointError):
        used(path)


@pytest.mark.parametrize(
    "name", ["a" * 5_000, "\0", "../outside/000001", "000001/../000001", "", "/etc/passwd"]
)
def test_a_state_names_no_file_outside(folder, name):
    pool = OpponentPool(folder, make=MAKE)
    state = pool.state_dict()
    with pytest.raises(CheckpointError, match="expected a state as state_dict gave it"):
        pool.load_state_dict({**state, "snapshots": [*state["snapshots"], [name, ""]]})
    assert pool.members == ("random", "000001")


# -- what a killed process leaves ------------------------------------------------------------------

KILLED = """
import os, signal, sys
import numpy as np
from vecwrap import OpponentPool
from vecwrap.selfplay import pool_files

def kill(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

owner = {"create_exclusively": pool_files, "_publish": pool_files.PoolFolder}[sys.argv[2]]
setattr(owner, sys.argv[2], kill)
OpponentPool(sys.argv[1]).add({"logits": np.zeros(3, np.float32)})
"""


@pytest.mark.parametrize("where", ["create_exclusively", "_publish"])
def test_the_next_writer_removes_what_a_killed_one_left(folder, where):
    clean = names(folder)
    command = [sys.executable, "-c", KILLED, str(folder), where]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert names(folder) != clean
    pool = OpponentPool(folder)
    name = pool.add(weights(2))
    assert {*names(folder)} - {*clean} == {
        f"members/{name}.json",
        f"members/{name}.npz",
        *(
            f"results/{path.name}"
            for path in (folder / "results").iterdir()
            if f"results/{path.name}" not in clean
        ),
    }
    pool.policy(name)


def test_temporary_files_of_every_kind_are_removed(folder):
    for place in (".", "members", "scripted", "results"):
        (folder / place / ".0123456789abcdef.tmp").write_bytes(b"x")
        (folder / place / ".notes.tmp").write_bytes(b"x")
    OpponentPool(folder, make=MAKE).add(weights(2))
    assert [path.name for path in folder.rglob(".*")] == [".notes.tmp"] * 4


def test_a_file_that_is_being_written_is_not_removed(tmp_path):
    def write(file):
        file.write(b"half")
        remove_temporary_files(tmp_path)  # as another process would
        assert len(list(tmp_path.iterdir())) == 1
        file.write(b" and half")

    write_atomically(tmp_path / "whole", write)
    assert (tmp_path / "whole").read_bytes() == b"half and half"
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_arrays_whose_facts_are_about_to_be_written_are_not_removed(folder, monkeypatch):
    first = OpponentPool(folder, make=MAKE)
    publish = type(first._folder)._publish

    def other_adds_first(self, name, snapshot):
        monkeypatch.undo()
        assert [OpponentPool(folder).add(weights(move)) for move in (0, 2)] == ["000003", "000004"]
        publish(self, name, snapshot)

    monkeypatch.setattr(type(first._folder), "_publish", other_adds_first)
    assert first.add({"logits": np.full(3, 7.0, np.float32)}) == "000002"
    assert first.members == ("random", "000001", "000002", "000003", "000004")
    first.policy("000002")
