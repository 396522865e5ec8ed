"""The folder of a pool: arrays in ``.npz``, facts in JSON.

Each file is written completely or not at all. Nothing is unpickled.

::

    pool.json               what all members share: how a policy is made, the spaces, ``keep``
    members/000012.json     one snapshot: its digest, the form of its arrays, facts; written after
                            its arrays
    members/000012.npz      its arrays, under a name that is never used for others
    scripted/random.json    one scripted member
    results/NAME.json       the table of one writer, who alone replaces it

So no process waits for another: a name is taken by creating the file, a reader finds a file whole
or not at all, and what was read of a snapshot never changes. What a killed process has left is
removed by the next one that writes; a file that is being written is locked, so that it is not taken
for one of those.

The folder may be a stranger's: sizes are looked at before anything is read, and links in it are not
followed.
"""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
import numpy as np

from vecwrap.env.atomic_files import (
    create_exclusively,
    remove_abandoned,
    remove_temporary_files,
    write_atomically,
    written_atomically,
)
from vecwrap.env.untrusted import MAX_JSON_BYTES, read_arrays, read_json
from vecwrap.errors import ArgumentError, CheckpointError, VecwrapError, text_of
from vecwrap.selfplay.arrays import Arrays, Form, digest, form_of, form_text
from vecwrap.selfplay.results import Row, read_rows

Fact: TypeAlias = bool | int | float | str | None
FORMAT = 1
_LABEL = r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,99}"
_NAME = rf"[0-9]{{1,20}}(-{_LABEL})?"
_DTYPE = re.compile(r"[<>|][biufcSU][0-9]{1,10}")
_EXPECTED_FILE = "a file of a pool as vecwrap writes it"
_FOLDERS = ("members", "scripted", "results")
_Read = TypeVar("_Read")


class Shared(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What all members share; None if it is not known yet."""

    format: int = FORMAT
    make: str | None = None
    keep: int | None = None
    observation_space: str | None = None
    action_space: str | None = None
    pipeline: str | None = None


class Snapshot(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What is known of a snapshot besides its arrays."""

    digest: str
    arrays: Form
    facts: dict[str, Fact] = {}

    def __post_init__(self) -> None:
        for shape, dtype in self.arrays.values():
            # NumPy raises a TypeError for no dtype, and evaluates what is not of this form
            if (
                min(shape, default=0) < 0
                or not _DTYPE.fullmatch(dtype)
                or np.dtype(dtype).str != dtype
            ):
                raise ValueError(
                    f"expected the form of an array, got {str(shape)[:100]} {dtype[:100]}"
                )


class Scripted(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """A scripted member: ``random`` or an import path."""

    policy: str


class Table(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The results that one writer has counted."""

    results: list[list[Any]]


class State(msgspec.Struct, kw_only=True, frozen=True):
    """What a pool's ``state_dict`` returns."""

    # Names and digests.
    snapshots: list[tuple[Annotated[str, msgspec.Meta(pattern=rf"\A{_NAME}\Z")], str]]
    scripted: list[str]
    results: list[Any]
    rates: list[Any]
    writer: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]


def check_shared(where: str, known: Sequence[Shared]) -> Shared:
    """Merge shared settings; CheckpointError if they disagree.

    Of ``keep``, the first value counts.
    """
    merged = Shared()
    for key in ("keep", "make", "observation_space", "action_space", "pipeline"):
        values = [getattr(shared, key) for shared in known]
        first = next((value for value in values if value is not None), None)
        setattr(merged, key, first)
        for value in values:
            if key != "keep" and value not in (None, first):
                remedy = "give another folder"
                if key == "make":
                    remedy = "leave make out, or correct pool.json"
                raise CheckpointError(
                    f"{where}: {key}: expected a pool of {first}, got one of {value}; {remedy}"
                )
    return merged


def restored(
    folder: PoolFolder | None, saved: State, keep: int | None, where: str
) -> dict[str, Snapshot]:
    """Return a state's snapshots that are still in the folder; its members must be there."""
    digests = dict(saved.snapshots)
    snapshots = {}
    for name, saved_digest in digests.items():
        with contextlib.suppress(FileNotFoundError):
            if folder is not None:
                snapshots[name] = folder.read_snapshot(name)
        if name in snapshots and snapshots[name].digest != saved_digest:
            raise CheckpointError(
                f"{where}: {name}: the state knows another snapshot of this name; give the pool "
                "that it was saved with"
            )
    members = list(digests)[-(keep or len(digests)) :]
    if missing := [name for name in members if name not in snapshots]:
        raise CheckpointError(
            f"{where}: the state knows {', '.join(missing)[:500]}, which the folder no longer has; "
            "put the files back, or resume with a new pool"
        )
    return snapshots


class PoolFolder:
    """Reads and writes the files of one pool; ``write_shared`` creates a missing folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._existed = False  # once the folder was there, it must not vanish

    def exists(self) -> bool:
        """Whether the folder is there; CheckpointError if it was and is no longer."""
        with self._reading():
            exists = os.path.lexists(self.path / "pool.json")
        if self._existed and not exists:
            raise CheckpointError(
                f"{self.path}: the pool's folder was removed while it was in use. Policies that "
                "were loaded and results that were counted are still in memory (state_dict holds "
                "the results); put the folder back, or give another pool"
            )
        self._existed = exists
        return exists

    def read_shared(self) -> Shared:
        if not self.exists():
            return Shared()
        path = self.path / "pool.json"
        shared = read_json(path, Shared, _EXPECTED_FILE)
        if shared.format != FORMAT:
            raise CheckpointError(
                f"{path}: format: expected {FORMAT}, got {shared.format}; it was written by "
                "another version of vecwrap"
            )
        if shared.keep is not None and shared.keep < 1:
            raise CheckpointError(f"{path}: keep: expected at least 1 or null, got {shared.keep}")
        return shared

    def write_shared(self, shared: Shared) -> None:
        with self._writing():
            for folder in _FOLDERS:
                self._folder(folder).mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / "pool.json", _json_of(shared), to_disk=True, follow=False)
        self._existed = True

    def snapshot_names(self) -> list[str]:
        return sorted(filter(is_name, self._stems("members")), key=sort_key)

    def scripted_members(self) -> set[str]:
        return {scripted.policy for _, scripted in self._read_all("scripted", Scripted)}

    def tables(self, *, without: str) -> list[Row]:
        """Return the rows of all writers but one."""
        rows = []
        for path, table in self._read_all("results", Table):
            if path.stem != without:
                try:
                    rows += read_rows(table.results, str(path))
                except TypeError as error:
                    raise CheckpointError(f"{error}; remove the file") from None
        return rows

    def write_table(self, writer: str, rows: list[list[Any]]) -> None:
        with self._writing():
            write_atomically(
                self._folder("results") / f"{writer}.json",
                _json_of(Table(results=rows)),
                follow=False,
            )

    def read_snapshot(self, name: str) -> Snapshot:
        """Return what is known of a snapshot; FileNotFoundError if there is none of this name."""
        path = self._folder("members") / f"{name}.json"
        with self._reading():
            # a file system without links shows the name a moment before the contents
            if path.lstat().st_size == 0:
                raise FileNotFoundError(path)
        return read_json(path, Snapshot, _EXPECTED_FILE)

    def read_arrays(self, name: str, snapshot: Snapshot) -> Arrays:
        """Return a snapshot's arrays, which are those that were added."""
        path = self._folder("members") / f"{name}.npz"
        try:
            arrays = _read_npz(path)
        except FileNotFoundError:
            self.exists()  # raises if the whole folder is gone
            raise CheckpointError(
                f"{self.path}: {name}: its file was deleted, by hand or by a process that keeps "
                "fewer; the others can still be drawn. Raise keep, or put the file back"
            ) from None
        if form_of(arrays) != snapshot.arrays:
            raise CheckpointError(
                f"{path}: expected the arrays that {name}.json lists "
                f"({form_text(snapshot.arrays)}), got {form_text(form_of(arrays))}; the file was "
                "replaced. Put the right one back, or remove both"
            )
        if digest(arrays) != snapshot.digest:
            raise CheckpointError(
                f"{path}: expected the digest {snapshot.digest[:12]}…, got {digest(arrays)[:12]}…; "
                "the file was changed since it was written. Put the right one back, or remove it "
                "and its .json"
            )
        return arrays

    def add_snapshot(self, number: int, label: str, arrays: Arrays, facts: dict[str, Fact]) -> str:
        """Write a snapshot under this number, or the next that is free; return its name.

        The same arrays under the same number are the same snapshot: a run that is resumed adds it
        again.
        """
        snapshot = Snapshot(digest=digest(arrays), arrays=form_of(arrays), facts=facts)
        members = self._folder("members")
        with (
            self._writing(),
            written_atomically(
                members / "new.npz", lambda file: _write_npz(file, arrays), to_disk=True
            ) as new,
        ):
            while True:
                name = f"{number:06d}"
                if label:
                    name += f"-{label}"
                try:
                    create_exclusively(new, members / f"{name}.npz")
                    break
                except FileExistsError:
                    if self._holds(name, snapshot):
                        break
                    number += 1
            others = self.snapshot_names()
            if not others or number >= sort_key(others[0])[0]:
                self._publish(name, snapshot)
                return name
        # other processes added and deleted so many snapshots that the name has been used before
        self.remove_snapshot(name)
        return self.add_snapshot(sort_key(others[-1])[0] + 1, label, arrays, facts)

    def _publish(self, name: str, snapshot: Snapshot) -> None:
        """Let a snapshot be found, whose arrays are there."""
        members = self._folder("members")
        facts_file = written_atomically(members / "new.json", _json_of(snapshot), to_disk=True)
        with facts_file as new, contextlib.suppress(FileExistsError):
            create_exclusively(new, members / f"{name}.json")

    def add_scripted(self, policy: str) -> None:
        with self._writing():
            path = self._folder("scripted") / f"{quote(policy, safe='')}.json"
            write_atomically(path, _json_of(Scripted(policy=policy)), follow=False)

    def remove_snapshot(self, name: str) -> None:
        """Remove a snapshot; its facts first, so that nobody finds it without its arrays."""
        for kind in ("json", "npz"):
            with self._writing(), contextlib.suppress(FileNotFoundError):
                (self._folder("members") / f"{name}.{kind}").unlink()

    def remove_abandoned(self) -> None:
        """Remove what killed processes left: temporary files, and arrays without their facts.

        Arrays under the next number stay: a run that is resumed adds the same ones, and then writes
        their facts.
        """
        for folder in (self.path, *map(self._folder, _FOLDERS)):
            remove_temporary_files(folder)
        members = self._folder("members")
        with self._reading():
            arrays = [
                path for path in members.iterdir() if path.suffix == ".npz" and is_name(path.stem)
            ]
        numbers = [sort_key(name)[0] for name in self.snapshot_names()]
        next_number = 1 + max(numbers, default=0)
        for path in arrays:
            facts = path.with_suffix(".json")
            if sort_key(path.stem)[0] != next_number and not os.path.lexists(facts):
                remove_abandoned(path, unless=partial(os.path.lexists, facts))

    def _holds(self, name: str, snapshot: Snapshot) -> bool:
        try:
            return digest(_read_npz(self._folder("members") / f"{name}.npz")) == snapshot.digest
        except (CheckpointError, FileNotFoundError):
            return False

    def _folder(self, name: str) -> Path:
        """The path of a folder of the pool's; CheckpointError if it is a link."""
        path = self.path / name
        with self._reading():
            if path.is_symlink():
                raise CheckpointError(
                    f"{path}: expected a folder of a pool, got a link, which is not followed; put "
                    "the folder there"
                )
        return path

    def _read_all(self, folder: str, kind: type[_Read]) -> Iterator[tuple[Path, _Read]]:
        for stem in self._stems(folder):
            path = self._folder(folder) / f"{stem}.json"
            try:
                yield path, read_json(path, kind, _EXPECTED_FILE)
            except FileNotFoundError:  # removed a moment ago
                self.exists()

    def _stems(self, folder: str) -> list[str]:
        """The names of the JSON files in a folder, except files that are being written.

        The name of a file that is being written begins with a dot.
        """
        if self.exists():
            with contextlib.suppress(FileNotFoundError), self._reading():
                names = [path.name for path in self._folder(folder).iterdir()]
                return sorted(
                    name.removesuffix(".json")
                    for name in names
                    if name.endswith(".json") and name[0] != "."
                )
            self.exists()  # raises if the whole folder is gone
        return []

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, VecwrapError):
            raise
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            raise CheckpointError(
                f"{str(self.path)[:500]}: expected the folder of a pool, got: {_reason(error)}; "
                "give another folder"
            ) from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except VecwrapError:
            raise
        except (OSError, ValueError) as error:
            self.exists()
            raise CheckpointError(
                f"{str(self.path)[:500]}: expected a folder that a pool can be written to, got: "
                f"{_reason(error)}; its members are as they were. Make room, or give another folder"
            ) from error


def _reason(error: BaseException) -> str:
    """The system's own words, or else the message."""
    return str(getattr(error, "strerror", None) or text_of(error))[:500]


def is_name(name: str) -> bool:
    """Whether a snapshot can have this name: a number, and maybe a label."""
    return re.fullmatch(_NAME, name) is not None


def sort_key(name: str) -> tuple[int, str]:
    """Return what snapshots are sorted by: their number, then the name with its label."""
    number = name.partition("-")[0]
    if not number.isdecimal():
        return 0, name
    return int(number), name


def refuse_description(label: str, facts: dict[Any, Any], where: str) -> None:
    """Refuse a label that cannot be part of a file name, and facts that JSON would change."""
    if label and not re.fullmatch(_LABEL, label):
        raise ArgumentError(
            f'{where}: label: expected at most 100 letters, digits and "_.-", got "{label}"'
        )
    for key, value in facts.items():
        if type(key) is not str or type(value) not in (bool, int, float, str, type(None)):
            raise ArgumentError(
                f"{where}: facts: expected numbers and text by name, got {key!r}: "
                f"{type(value).__name__}"
            )


def _json_of(value: Any) -> Any:
    data = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
    if len(data) > MAX_JSON_BYTES:  # which no reader would take
        raise ArgumentError(
            f"pool: expected facts and results of at most {MAX_JSON_BYTES:,} bytes, got "
            f"{len(data):,}"
        )
    return lambda file: file.write(data)


def _write_npz(file: Any, arrays: Arrays) -> None:
    """Write arrays of any names, some of which ``np.savez`` takes for its own arguments."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _read_npz(path: Path) -> Arrays:
    try:
        return read_arrays(path, follow=False)
    except FileNotFoundError:
        raise
    except Exception as error:  # many kinds, for a file of another kind, or a damaged one
        raise CheckpointError(
            f"{path}: expected the arrays of a snapshot, got a file that is damaged or of another "
            f"kind ({text_of(error)[:300]}); put the right one back, or remove it and its .json"
        ) from None
