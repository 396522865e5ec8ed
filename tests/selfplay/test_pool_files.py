"""The files of a pool: damaged ones, several processes at once, and what a killed one leaves."""

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from tests.helpers.rock_paper_scissors import SEEN, weights
from vecwrap import OpponentPool
from vecwrap.errors import CheckpointError
from vecwrap.selfplay import pool_files
from vecwrap.selfplay.arrays import digest, form_of

ROOT = Path(__file__).resolve().parents[2]
MAKE = "tests.helpers.rock_paper_scissors:make"


@pytest.fixture
def pool(tmp_path):
    pool = OpponentPool(tmp_path / "pool", make=MAKE)
    pool.add(weights(1), facts={"steps": 10})
    pool.add(weights(2))
    return pool


class Spy:
    """Runs code where it is unpickled."""

    ran = False

    def __reduce__(self):
        return (setattr, (Spy, "ran", True))


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def packed(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def edited(data):
    """The same archive with another value in its array, and with the right checksums."""
    (array,) = np.load(io.BytesIO(data)).values()
    return npz(logits=array + 1)


DAMAGED = {
    "truncated": (lambda data: data[: len(data) // 2], "damaged or of another kind"),
    "empty": (lambda data: b"", "damaged or of another kind"),
    "text": (lambda data: b"hello", "damaged or of another kind"),
    "one bit": (
        lambda data: data.replace(b"\0\0\x80?", b"\0\0\x81?"),
        "damaged or of another kind .*CRC",
    ),
    "edited": (edited, "expected the digest [0-9a-f]{12}…, got"),
    "other shape": (
        lambda data: npz(logits=np.zeros(4, np.float32)),
        (
            r"expected the arrays that 000001\.json lists \(logits: \(3,\) float32\), got logits: "
            r"\(4,\) float32"
        ),
    ),
    "other dtype": (lambda data: npz(logits=np.zeros(3, np.int32)), "got logits: .* int32"),
    "other name": (lambda data: npz(weight=np.zeros(3, np.float32)), "got weight"),
    "more": (
        lambda data: npz(logits=np.zeros(3, np.float32), more=np.zeros(3)),
        "got logits.* more",
    ),
    "a npy": (lambda data: data[data.index(b"\x93NUMPY") :], "damaged or of another kind"),
    "pickled": (lambda data: pickle.dumps(Spy()), "damaged or of another kind"),
    "pickled array": (
        lambda data: npz(logits=np.array([Spy(), 1, 2], dtype=object)),
        "Object arrays cannot be loaded",
    ),
    "bomb": (lambda data: packed(logits=np.zeros(10**7, np.float32)), "its arrays are compressed"),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_arrays_that_are_not_those_that_were_added_are_refused(pool, how):
    change, said = DAMAGED[how]
    path = pool.dir / "members" / "000001.npz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CheckpointError, match=rf"000001\.npz: .*{said}") as caught:
        pool.policy("000001")
    assert "remove" in str(caught.value)
    assert not Spy.ran
    assert pool.policy("000002")(SEEN)[0] == 2  # the others are unharmed
    with pytest.raises(CheckpointError):
        pool.draw(np.random.default_rng(1), lambda members, rates: [1, 0])
    assert pool.draw(np.random.default_rng(1), "latest") == "000002"
    assert pool.add(weights(0)) == "000003"


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"digest": 3}',
        b'{"digest": "a", "arrays": {}, "x": 1}',
        b'{"digest": "a", "arrays": {"w": [[2], "what"]}}',
        b'{"digest": "a", "arrays": {"w": [[-2], "<f4"]}}',
        b'{"digest": "a", "arrays": {"w": [[2], "O"]}}',
        b"NaN",
    ],
)
def test_facts_that_are_none_are_refused(pool, data):
    (pool.dir / "members" / "000001.json").write_bytes(data)
    with pytest.raises(
        CheckpointError, match=r"000001\.json: expected a file of a pool as vecwrap writes it"
    ):
        OpponentPool(pool.dir)
    assert pool.policy("000001")(SEEN)[0] == 1  # which was read before


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{}", None),
        (b'{"format": 2}', "format: expected 1, got 2"),
        (b'{"keep": 0}', "keep: expected at least 1 or null, got 0"),
        (b'{"make": 3}', "Expected `str | null`, got `int` - at `\\$.make`"),
        (b'{"make": "os.system"}', 'make: expected an import path "module:function"'),
        (b"", "expected a file of a pool"),
        (b"3", "expected a file of a pool"),
    ],
)
def test_a_pool_file_that_is_none_is_refused(pool, data, said):
    (pool.dir / "pool.json").write_bytes(data)
    if said is None:
        assert OpponentPool(pool.dir).members == pool.members
        return
    with pytest.raises(ValueError, match=said):
        OpponentPool(pool.dir)


def test_scripted_members_and_tables_that_are_none_are_refused(pool):
    (pool.dir / "results" / "0.json").write_text('{"results": [["a", "b", 0, 1, 1]]}')
    with pytest.raises(
        CheckpointError, match=r"0\.json: expected rows of player.*; remove the file"
    ):
        pool.all_results()
    (pool.dir / "scripted" / "x.json").write_text('{"policy": "import os"}')
    with pytest.raises(ValueError, match='expected "random" or the import path of a policy'):
        pool.refresh()
    assert pool.members == ("000001", "000002")


def test_pipes_and_folders_in_place_of_files_do_not_block(pool):
    path = pool.dir / "members" / "000001.npz"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match="not a regular file"):
        pool.policy("000001")
    path.unlink()
    path.mkdir()
    with pytest.raises(CheckpointError, match="damaged or of another kind"):
        pool.policy("000001")


def test_files_that_are_none_of_ours_are_left_alone(pool):
    (pool.dir / "members" / ".hidden.json").write_text("x")
    (pool.dir / "members" / "notes.txt").write_text("x")
    (pool.dir / "README").write_text("x")
    pool.refresh()
    assert pool.members == ("000001", "000002")


def test_the_arrays_are_what_numpy_reads_and_the_facts_are_json(pool):
    with np.load(pool.dir / "members" / "000001.npz", allow_pickle=False) as file:
        assert file["logits"].tolist() == [0, 1, 0]
    facts = json.loads((pool.dir / "members" / "000001.json").read_text())
    assert facts["arrays"] == {"logits": [[3], "<f4"]}
    assert facts["facts"] == {"steps": 10}
    assert sorted(path.name for path in pool.dir.iterdir()) == [
        "members",
        "pool.json",
        "results",
        "scripted",
    ]


def test_a_file_system_without_links_shows_a_name_before_its_contents(pool, monkeypatch):
    def no_links(*args, **kwargs):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    assert pool.add(weights(0)) == "000003"
    path = pool.dir / "members" / "000003.json"
    written = path.read_bytes()
    path.write_bytes(b"")
    other = OpponentPool(pool.dir)
    assert other.members == ("000001", "000002")
    path.write_bytes(written)
    other.refresh()
    assert other.members == ("000001", "000002", "000003")
    assert other.policy("000003")(SEEN)[0] == 0


def test_what_a_killed_process_left_is_completed_or_stepped_over(pool):
    for name in ("000003", "000004"):
        pool.add(weights(int(name)))
        (pool.dir / "members" / f"{name}.json").unlink()  # it was killed between the two files
    other = OpponentPool(pool.dir)
    assert other.members == ("000001", "000002")
    assert other.add(weights(3)) == "000003"  # the same arrays
    assert other.add(weights(0)) == "000005"
    assert other.members == ("000001", "000002", "000003", "000005")


def test_a_name_is_not_used_again_although_its_snapshot_was_deleted_meanwhile(tmp_path):
    pool = OpponentPool(tmp_path, make=MAKE, keep=1)
    for move in range(5):
        pool.add(weights(move))
    folder = pool_files.PoolFolder(tmp_path)
    assert folder.snapshot_names() == ["000004", "000005"]
    late = {"logits": np.ones(3)}
    # As a process that was asleep since there was one.
    assert folder.add_snapshot(2, "", late, {}) == "000006"
    assert sorted(path.name for path in (tmp_path / "members").glob("*.npz")) == [
        "000004.npz",
        "000005.npz",
        "000006.npz",
    ]


@pytest.mark.parametrize("broken", ["npz", "json"])
def test_a_file_that_cannot_be_written_leaves_the_pool_as_it_was(pool, monkeypatch, broken):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(
            pool_files,
            "_write_npz" if broken == "npz" else "_json_of",
            lambda *args: full() if broken == "npz" else full,
        )
        with pytest.raises(
            CheckpointError, match="No space left on device; its members are as they were"
        ):
            pool.add(weights(0))
    assert pool.members == OpponentPool(pool.dir).members == ("000001", "000002")
    assert not list((pool.dir / "members").glob(".*"))
    assert pool.add(weights(0)) == "000003"


ADDING = """
import sys, time
import numpy as np
from pathlib import Path
from vecwrap import OpponentPool

folder, me, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
pool = OpponentPool(folder / "pool", make="tests.helpers.rock_paper_scissors:make", keep=KEEP)
print("ready", flush=True)
while not (folder / "go").exists():
    time.sleep(0.001)
for k in range(count):
    name = pool.add({"logits": np.full(1000, 1000 * me + k)}, facts={"me": me, "k": k})
    pool.record(name, 1)
    pool.policy(pool.draw(np.random.default_rng(k)))
    pool.save()
    print(name)
"""


def add_at_once(folder, processes, count, keep):
    """Let processes add to one folder; return the names that each was given."""
    arguments = [sys.executable, "-c", ADDING.replace("KEEP", repr(keep)), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(
            [*arguments, str(me), str(count)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        for me in range(processes)
    ]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    (folder / "go").touch()
    names = [process.communicate(timeout=120)[0].split() for process in started]
    assert [process.returncode for process in started] == [0] * processes
    return names


def test_two_processes_that_add_at_once_lose_nothing(tmp_path):
    names = add_at_once(tmp_path, 2, 40, None)
    pool = OpponentPool(tmp_path / "pool")
    assert len(pool) == 80
    assert sorted(pool.members) == sorted(names[0] + names[1])
    for me, mine in enumerate(names):
        assert mine == sorted(mine)
        assert [pool.facts(name) for name in mine] == [{"me": me, "k": k} for k in range(40)]
        for k, name in enumerate(mine):
            pool.policy(name)
            with np.load(pool.dir / "members" / f"{name}.npz") as file:
                assert (file["logits"] == 1000 * me + k).all()
    assert sum(row.games for row in pool.all_results().rows()) == 80
    assert not list(pool.dir.rglob(".*"))


def test_two_processes_that_add_and_delete_at_once_keep_the_newest(tmp_path):
    names = add_at_once(tmp_path, 2, 30, 3)
    newest = sorted(names[0] + names[1])[-3:]
    pool = OpponentPool(tmp_path / "pool")
    assert list(pool.members) == newest
    assert len(list((pool.dir / "members").glob("*.json"))) == 6
    assert len(list((pool.dir / "members").glob("*.npz"))) == 6
    for name in newest:
        pool.policy(name)


arrays = st.dictionaries(
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8),
    st_numpy.arrays(
        st.sampled_from(["<f4", ">f8", "<i8", "u1", "?", "<c16", "<U3"]),
        st_numpy.array_shapes(min_dims=0, max_side=3),
    ),
    min_size=1,
    max_size=4,
)


@given(arrays)
def test_any_arrays_come_back_as_they_were(tmp_path_factory, values):
    received = []
    pool = OpponentPool(
        tmp_path_factory.mktemp("pool"), make=lambda arrays: received.append(arrays) or print
    )
    pool.policy(pool.add(values))
    assert digest(received[0]) == digest(values)
    assert form_of(received[0]) == form_of(values)


@given(arrays, st.data())
def test_a_digest_is_of_names_forms_and_values(values, data):
    name = data.draw(st.sampled_from(sorted(values)))
    assert digest(dict(reversed(values.items()))) == digest(values)
    assert digest({name: np.array(array, order="F") for name, array in values.items()}) == digest(
        values
    )
    renamed = {f"{key}x" if key == name else key: array for key, array in values.items()}
    reshaped = {**values, name: values[name][None]}
    swapped = {**values, name: values[name].astype(values[name].dtype.newbyteorder())}
    assert digest(renamed) != digest(values) != digest(reshaped)
    assert (digest(swapped) == digest(values)) == (values[name].dtype.itemsize == 1)


def test_a_member_of_an_archive_that_is_no_array_is_refused(pool):
    path = pool.dir / "members" / "000001.npz"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "x")
    with pytest.raises(CheckpointError, match="000001"):
        pool.policy("000001")
