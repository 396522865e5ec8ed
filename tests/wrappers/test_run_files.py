import errno
import functools
import os
import stat
from pathlib import Path

import gymnasium
import pytest

from tests.helpers.backends import DummyBackend
from vecwrap.env.atomic_files import create_exclusively, write_atomically, written_atomically
from vecwrap.errors import PlanError
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.recording.run_files import (
    GrowingFile,
    is_in_use,
    make_folder,
    move_aside,
    take_unused,
)
from vecwrap.wrappers.video import Video


def test_a_folder_is_made_with_all_above_it_and_nothing_stays_in_it(tmp_path):
    for _ in range(2):
        make_folder(tmp_path / "a" / "b", "some_wrapper")
    assert not list((tmp_path / "a" / "b").iterdir())


def test_a_folder_that_cannot_be_written_names_the_wrapper(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        PlanError,
        match='some_wrapper: dir: expected a folder that files can be written to, got ".*file"',
    ):
        make_folder(tmp_path / "file", "some_wrapper")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="everything can be written to")
def test_a_folder_without_permission(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(PlanError, match="Permission denied"):
        make_folder(tmp_path, "some_wrapper")


@pytest.mark.parametrize("seen", [True, False])
def test_names_that_are_taken_are_counted_up(seen, tmp_path, monkeypatch):
    """Also those that others take between a look and the taking."""
    if not seen:
        monkeypatch.setattr(Path, "exists", lambda path: False)
    path = tmp_path / "a.b.npz"
    for name in ("a.b.npz", "a.b-1.npz", "a.b-2.npz"):
        assert take_unused(path, lambda path: path.touch(exist_ok=False) or path.name) == name


def write_new(path, write):
    with written_atomically(path, write) as growing:
        return take_unused(path, functools.partial(create_exclusively, growing))


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_replaces_none(links, tmp_path, monkeypatch):
    def refuse(*paths):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(Path, "exists", lambda path: False)  # it was not there yet when we looked
    path = tmp_path / "file"

    def write(file):
        file.write(b"ours")
        path.write_bytes(b"another's")  # who is quicker

    assert [write_new(path, write).name for _ in range(2)] == ["file-1", "file-2"]
    found = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    assert found == {"file": b"another's", "file-1": b"ours", "file-2": b"ours"}


def test_a_new_file_that_cannot_be_put_in_its_place_leaves_nothing(tmp_path, monkeypatch):
    def refuse(path, *others):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="Input/output error: '.*/file'$"):
        write_new(tmp_path / "file", lambda file: file.write(b"new"))
    assert not list(tmp_path.iterdir())


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, lambda file: file.write(b"old"))

    def fail(file):
        file.write(b"half of the new")
        file.flush()
        assert path.read_bytes() == b"old"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("file", b"old")]
    write_atomically(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"


def test_what_cannot_be_written_is_told_by_the_path_that_was_given(tmp_path):
    (tmp_path / "folder").mkdir()

    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def another(file):
        (tmp_path / "absent").read_text()

    for path, write, kind, named in (
        (
            tmp_path / "nowhere" / "file",
            lambda file: None,
            FileNotFoundError,
            tmp_path / "nowhere" / "file",
        ),
        (tmp_path / "folder", lambda file: None, IsADirectoryError, tmp_path / "folder"),
        (tmp_path / "file", full, OSError, tmp_path / "file"),
        (tmp_path / "file", another, FileNotFoundError, tmp_path / "absent"),
    ):
        with pytest.raises(kind) as error:
            write_atomically(path, write)
        assert str(error.value).endswith(f": '{named}'")
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


@pytest.mark.skipif(os.name == "nt", reason="permissions are POSIX's")
def test_others_may_read_it_as_far_as_any_new_file(tmp_path):
    (tmp_path / "ordinary").write_text("")
    write_atomically(tmp_path / "whole", lambda file: file.write(b""))
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_the_longest_name_that_there_may_be(tmp_path):
    path = tmp_path / ("a" * 255)
    write_atomically(path, lambda file: file.write(b"whole"))
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [(path.name, b"whole")]


def test_the_permissions_of_what_others_write_meanwhile_are_left_alone(tmp_path, monkeypatch):
    """The mask for new files is the whole process's, other threads' too."""
    monkeypatch.setattr(os, "umask", None)
    write_atomically(tmp_path / "whole", lambda file: file.write(b"whole"))
    assert (tmp_path / "whole").read_bytes() == b"whole"


class FullDisk:
    """Takes half of what it is given."""

    def __init__(self, raw):
        self._raw = raw

    def write(self, data):
        return self._raw.write(data[: len(data) // 2])

    def __getattr__(self, name):
        return getattr(self._raw, name)


def test_what_is_no_utf_8_is_written_as_an_escape(tmp_path):
    file = GrowingFile(tmp_path / "file")
    file.append("lvl \udc80\n")
    file.append("é\n")
    file.close()
    assert (tmp_path / "file").read_text(encoding="utf-8") == "lvl \\udc80\né\n"


def test_a_piece_for_which_there_was_no_room_takes_none_of_anothers_with_it(tmp_path):
    one, other = (GrowingFile(tmp_path / "file") for _ in range(2))
    one.append("one\n")
    other.append("other\n")
    one._raw, raw = FullDisk(one._raw), one._raw
    with pytest.raises(OSError, match="No space left"):
        one.append("two\n")
    other.append("more\n")
    one._raw = raw
    one.append("three\n")
    assert (tmp_path / "file").read_text() == "one\nother\nmore\nthree\n"
    one.close()
    other.close()


def test_a_growing_file_is_in_use_until_it_is_closed(tmp_path):
    assert not is_in_use(tmp_path / "file")
    one, other = (GrowingFile(tmp_path / "file") for _ in range(2))
    one.close()
    assert is_in_use(tmp_path / "file")
    other.close()
    assert not is_in_use(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    assert not is_in_use(tmp_path / "pipe")


def test_what_is_moved_aside_overwrites_nothing(tmp_path):
    """A file, a folder, a pipe, a link that leads nowhere, or into a circle; one of them may have
    the next name.
    """
    (tmp_path / "a.1").symlink_to("nowhere")
    (tmp_path / "a.2").mkdir()
    makers = [
        lambda path: path.write_text("file"),
        lambda path: (path / "within").mkdir(parents=True),
        os.mkfifo,
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.symlink_to("a"),
    ]
    for number, make in enumerate(makers, 3):
        make(tmp_path / "a")
        kind = (tmp_path / "a").lstat().st_mode
        assert move_aside(tmp_path / "a") == tmp_path / f"a.{number}"
        assert (tmp_path / f"a.{number}").lstat().st_mode == kind
    assert (tmp_path / "a.1").readlink() == Path("nowhere")
    with pytest.raises(FileNotFoundError):
        move_aside(tmp_path / "missing")
    assert not list(tmp_path.glob("missing*"))


@pytest.mark.parametrize("new", [True, False])
def test_a_piece_for_which_there_was_no_room_leaves_no_trace(new, tmp_path):
    file = GrowingFile(tmp_path / "file", new=new)
    file.append("one\n")
    raw, file._raw = file._raw, FullDisk(file._raw)
    with pytest.raises(OSError, match="No space left"):
        file.append("two\n")
    file._raw = raw
    file.append("three\n")
    file.close()
    assert (tmp_path / "file").read_text() == "one\nthree\n"


@pytest.mark.parametrize(
    ("wrapper", "settings"),
    [(Monitor, {"dir": "here"}), (Video, {"dir": "here", "every": 1})],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_wrappers_put_together_by_hand_write_where_they_were_made(
    wrapper, settings, tmp_path, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    make = functools.partial(
        gymnasium.make, "CartPole-v1", render_mode="rgb_array", max_episode_steps=3
    )
    with wrapper(DummyBackend([make]), **settings) as env:
        monkeypatch.chdir("elsewhere")
        env.reset(seed=1)
        for _ in range(4):
            env.step([0])
    assert list((tmp_path / "here").iterdir())
    assert not list((tmp_path / "elsewhere").iterdir())
