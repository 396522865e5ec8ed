"""A Minari data set that grows by whole episodes, whatever ends the program meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from vecwrap.env.atomic_files import remove_temporary_files, write_atomically
from vecwrap.errors import PlanError, install_command, is_installed, one_line, truncate
from vecwrap.rows.infos import columns
from vecwrap.wrappers.recording.run_files import relative_to_cwd

# Minari's arrow format writes batches of 32768 rows, and its reader takes an episode's first batch
# for all of it; an episode of k steps has k + 1 rows.
MAX_STEPS = 32_767
_MAX_ELEMENTS = 2**31 - 1  # of one array in a file of Arrow's
_STAGING = ".recording-"
_METADATA = "metadata.json"
_INFOS = "vecwrap_infos"  # in the data set's metadata: the form of every info


def check_installed() -> None:
    if not is_installed("minari") or not is_installed("pyarrow"):
        raise PlanError(
            "record_trajectories needs Minari and pyarrow, which are not installed: "
            f"{install_command('minari')}"
        )


def max_steps_of(*members: spaces.Space[Any]) -> int:
    """The most steps that an episode of these spaces can have in a file."""
    sizes = [size for space in members for size in _leaf_sizes(space)]
    return min(MAX_STEPS, _MAX_ELEMENTS // max(sizes, default=1) - 1)


def _leaf_sizes(space: spaces.Space[Any]) -> list[int]:
    if isinstance(space, spaces.Dict):
        return [size for member in space.values() for size in _leaf_sizes(member)]
    if isinstance(space, spaces.Tuple):
        return [size for member in space for size in _leaf_sizes(member)]
    return [max(1, int(np.prod(space.shape or ())))]


@dataclass
class RecordedEpisode:
    """An episode of k steps, or a piece of one: k + 1 observations and infos, k of the others."""

    observations: list[Any]
    infos: list[dict[str, Any]]
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminations: list[bool] = field(default_factory=list)
    truncations: list[bool] = field(default_factory=list)
    seed: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # for the episode's metadata


class MinariDataSet:
    """The folder ``data`` of a data set, to which episodes are added one by one.

    An episode is encoded by Minari in a hidden folder, and moved into the data set as a whole; it
    counts once the data set's metadata, which is replaced as a whole, says so. Several recorders
    may write to one data set: a lock on its folder lets one after the other add.
    """

    def __init__(
        self,
        folder: Path,
        dataset_id: str,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        env_spec: EnvSpec | None,
    ) -> None:
        from minari.serialization import serialize_space

        self.folder = folder
        self.unrecorded: set[str] = set()  # names of infos that have no place in the data set
        self._observation_space = observation_space
        self._action_space = action_space
        self._fixed = {
            "dataset_id": dataset_id,
            "data_format": "arrow",
            "jpeg_encoding": False,
            "observation_space": serialize_space(observation_space),
            "action_space": serialize_space(action_space),
        }
        self._env_spec = _env_spec_text(env_spec)
        self._staging: Path | None = None
        self._lock: int | None = None
        self._storage: Any = None

    def check(self) -> None:
        """Raise PlanError if there is a data set in the folder that these episodes do not fit."""
        if not (self.folder / _METADATA).exists():
            return
        where = f'record_trajectories: "{relative_to_cwd(self.folder)}"'
        try:
            found = self._metadata()
            fitting = {key: found.get(key) for key in self._fixed}
        except (OSError, ValueError, AttributeError) as error:
            raise PlanError(
                f"{where}: expected a Minari data set, got {_METADATA} that cannot be read "
                f"({one_line(error)}); give another dir or dataset_id"
            ) from error
        for key, value in self._fixed.items():
            if fitting[key] != value:
                raise PlanError(
                    f"{where}: expected a data set whose {key} is {truncate(str(value), 100)}, got "
                    f"{truncate(str(fitting[key]), 100)}; give another dir or dataset_id"
                )

    def open(self) -> None:
        """Create the data set if there is none; its folder exists."""
        import minari
        from minari.dataset.minari_storage import MinariStorage

        with self._locked():
            self.check()
            remove_temporary_files(self.folder)
            _remove_abandoned_staging(self.folder)
            self._staging = self.folder / f"{_STAGING}{secrets.token_hex(8)}"
            self._staging.mkdir()
            self._lock = _lock(self._staging, fcntl.LOCK_EX)
            self._storage = MinariStorage.new(
                self._staging,
                self._observation_space,
                self._action_space,
                data_format="arrow",
                jpeg_encoding=False,
            )
            # Minari writes the hidden folder's own metadata three times an episode; nobody reads it
            self._storage.update_metadata = _ignore
            if not (self.folder / _METADATA).exists():
                metadata = json.loads((self._staging / _METADATA).read_text(encoding="utf-8"))
                if self._env_spec is not None:
                    metadata["env_spec"] = self._env_spec
                metadata["minari_version"] = minari.__version__
                self._write_metadata({**metadata, **self._fixed, "dataset_size": 0.0})

    def add(self, episodes: Sequence[RecordedEpisode], info_keys: tuple[str, ...] | None) -> None:
        """Add episodes; all of them are in the data set when this returns.

        Args:
            episodes: at least one, each of one step or more.
            info_keys: names of infos to record; None means all.
        """
        with self._locked():
            metadata = self._metadata()
            size = float(metadata.get("dataset_size", 0.0))
            for episode in episodes:
                number = int(metadata["total_episodes"])
                infos = self._infos(episode.infos, metadata, info_keys)
                size += self._place(episode, infos, number) / 1e6
                metadata["total_episodes"] = number + 1
                metadata["total_steps"] += len(episode.rewards)
            metadata["dataset_size"] = round(size, 6)  # MB, as Minari gives it
            self._write_metadata(metadata)

    def close(self) -> None:
        if self._staging is not None:
            shutil.rmtree(self._staging, ignore_errors=True)
            self._staging = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _place(self, episode: RecordedEpisode, infos: dict[str, Any], number: int) -> int:
        """Write an episode's folder under its number; return how many bytes are in it."""
        from minari.data_collector.episode_buffer import EpisodeBuffer

        assert self._staging is not None
        buffer = EpisodeBuffer(
            id=number,
            seed=episode.seed,
            observations=_stacked(self._observation_space, episode.observations),
            actions=_stacked(self._action_space, episode.actions),
            rewards=episode.rewards,
            terminations=episode.terminations,
            truncations=episode.truncations,
            infos=infos,
        )
        staged = self._staging / str(number)
        try:
            self._storage.update_episodes([buffer])
            self._storage.update_episode_metadata([episode.facts], [number])
            placed = self.folder / str(number)
            if placed.exists():  # what a killed process moved here, and did not count any more
                shutil.rmtree(placed)
            staged.rename(placed)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        return sum(path.stat().st_size for path in placed.iterdir())

    def _infos(
        self,
        rows: Sequence[dict[str, Any]],
        metadata: dict[str, Any],
        info_keys: tuple[str, ...] | None,
    ) -> dict[str, Any]:
        """Return infos by name as Minari takes them: lists of numbers or texts, and arrays.

        All episodes of a data set need the same names and types, or Minari cannot read them
        together: those of the first one, which the metadata keeps.
        """
        flat = [dict(_flat(row)) for row in rows]
        if info_keys is not None:
            flat = [{key: row[key] for key in info_keys if key in row} for row in flat]
        found = columns(flat)
        masks = {f"_{name}" for name in found if f"_{name}" in found}
        values = {name: column for name, column in found.items() if name not in masks}
        forms = metadata.get(_INFOS)
        if forms is None:
            every = {name: _form(column) for name, column in values.items()}
            forms = {name: form for name, form in every.items() if form is not None}
            for name in info_keys or ():
                forms.setdefault(name, ["float64", []])
            metadata[_INFOS] = forms
        fitting = {
            name: column
            for name, column in values.items()
            if name in forms and _fits(column, forms[name])
        }
        self.unrecorded |= values.keys() - fitting.keys()
        written: dict[str, Any] = {}
        absent = [False] * len(rows)
        for name, (dtype, shape) in forms.items():
            mask = absent
            if name in fitting:
                mask = found[f"_{name}"].tolist()
            written[name] = _encoded(fitting.get(name), dtype, shape, len(rows))
            written[f"_{name}"] = mask
        return written

    def _metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = json.loads((self.folder / _METADATA).read_text(encoding="utf-8"))
        return metadata

    def _write_metadata(self, metadata: Mapping[str, Any]) -> None:
        text = json.dumps(metadata)
        write_atomically(self.folder / _METADATA, lambda file: file.write(text.encode()))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = _lock(self.folder, fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(lock)


def _ignore(metadata: Mapping[str, Any]) -> None:
    """Write nothing."""


def _lock(folder: Path, kind: int) -> int:
    """Lock a folder, as far as its file system has locks; closing the descriptor ends that."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:  # a file system without locks
        pass
    return descriptor


def _remove_abandoned_staging(folder: Path) -> None:
    for staging in folder.glob(f"{_STAGING}*"):
        with contextlib.suppress(OSError):  # somebody records there
            lock = _lock(staging, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(staging, ignore_errors=True)
            os.close(lock)


def _env_spec_text(spec: EnvSpec | None) -> str | None:
    """The spec as Minari reads it again, which it must, or None."""
    if spec is None:
        return None
    try:
        text = spec.to_json()
        EnvSpec.from_json(text)
    except Exception:  # arguments that JSON does not have
        return None
    return text


def _stacked(space: spaces.Space[Any], values: Sequence[Any]) -> Any:
    """Lay values of a space out as Minari takes them: arrays with a leading axis of time."""
    if isinstance(space, spaces.Dict):
        return {
            key: _stacked(member, [value[key] for value in values])
            for key, member in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            _stacked(member, [value[k] for value in values])
            for k, member in enumerate(space.spaces)
        )
    if isinstance(space, spaces.Text):
        return list(values)
    return np.array(values, dtype=space.dtype)


def _flat(info: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in info.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", value


def _form(column: Any) -> list[Any] | None:
    """Return dtype and shape of one value, as JSON has them; None if it cannot be recorded."""
    if column.dtype.kind in "biuf" and column.size:
        return [str(column.dtype), list(column.shape[1:])]
    if column.dtype == object and all(value is None or type(value) is str for value in column):
        return ["str", []]
    return None


def _fits(column: Any, form: list[Any]) -> bool:
    own = _form(column)
    if own is None or own[1] != form[1]:
        return False
    if "str" in (own[0], form[0]):
        return bool(own[0] == form[0])
    return np.can_cast(own[0], form[0], "safe")


def _encoded(column: Any, dtype: str, shape: Sequence[int], num_rows: int) -> Any:
    """Return a column in its form, zeros or empty texts if it is absent."""
    if dtype == "str":
        if column is None:
            return [""] * num_rows
        return [value or "" for value in column]
    if column is None:
        column = np.zeros((num_rows, *shape), dtype)
    if shape:
        return column.astype(dtype)
    return list(column.astype(dtype))
