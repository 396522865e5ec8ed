"""Decides when a video starts and ends, and which frames it takes, from one or several sub-environments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vecwrap.contract import StepResult
from vecwrap.parts.mosaic import Image, Mosaic
from vecwrap.parts.run_files import take_unused, write_whole
from vecwrap.parts.video_file import VideoFile

__all__ = ["Recorder", "VideoFolder"]


@dataclass
class VideoFolder:
    """The folder of the videos, and the contents of the ``.json`` next to each.

    Attributes:
        folder: the folder.
        name: the prefix of the file names.
        fps: frames per second.
        header: the facts common to all of them.
        paths: the videos so far.
    """

    folder: Path
    name: str
    fps: float
    header: dict[str, Any] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)

    def start(self, label: str, first: Image) -> VideoFile:
        """Start a video with its first picture."""
        file = take_unused(self.folder / f"{self.name}-{label}.mp4", lambda path: self._begin(path, first))
        self.paths.append(file.path)
        return file

    def describe(self, file: VideoFile, facts: Mapping[str, Any]) -> None:
        """Write the facts about a video."""
        content = {**self.header, **facts, "fps": self.fps, "size": list(file.size), "frames": file.frames}
        text = json.dumps(content, indent=2) + "\n"
        write_whole(file.path.with_suffix(".json"), lambda target: target.write(text.encode()))

    def _begin(self, path: Path, first: Image) -> VideoFile:
        if path.with_suffix(".json").exists():
            raise FileExistsError(f"{path.with_suffix('.json')} tells of a video that was moved away")
        return VideoFile(path, self.fps, first)


class Recorder:
    """Records one video at a time; the first of its sub-environments decides when it starts and ends.

    Args:
        folder: where the videos go.
        env_ids: the sub-environments in the videos.
        by: whether recordings start at episodes or at steps.
        trigger: called with the episode or step number; True starts a recording.
        length: how many pictures; None: until the episode ends.
        size: the maximum width and height of a picture.
        suffix: the suffix of the file names.

    Attributes:
        step: how many agent steps the first of them has taken.
        episode: the number of its current episode; -1 before the first.
    """

    def __init__(
        self,
        folder: VideoFolder,
        env_ids: tuple[int, ...],
        by: Literal["episodes", "steps"],
        trigger: Callable[[int], bool],
        length: int | None,
        size: tuple[int, int],
        suffix: str = "",
    ) -> None:
        self.step = 0
        self.episode = -1
        self._folder = folder
        self._env_ids = env_ids
        self._lead = env_ids[0]
        self._by = by
        self._trigger = trigger
        self._length = length
        self._size = size
        self._suffix = suffix
        self._said: tuple[int, bool] | None = None  # the trigger's last number and result
        self._looked_at = -1  # the last number at which a recording might have begun
        self._recording: _Recording | None = None

    def take(self, step: StepResult, rows: Mapping[int, int]) -> None:
        """Process a result: first the parts of running episodes, then those that open new ones.

        Args:
            step: the result.
            rows: the row of each sub-environment in it.
        """
        lead = rows.get(self._lead)
        if lead is not None and (not step.first[lead] or step.dones[lead]):
            self.step += int(step.acted[lead])
            self._maybe_begin("steps", self.step)
        if self._recording is not None:
            self._put(_last_frames(step, self._mine(rows)))
        if lead is not None:
            self._note_ends(step, lead)
        if self._recording is not None:
            self._put(_frames(step.frames, [(i, k) for i, k in self._mine(rows) if _opens(step, k)]))

    def count(self, step: StepResult, rows: Mapping[int, int]) -> None:
        """Count as ``take`` does, but record nothing."""
        lead = rows.get(self._lead)
        if lead is not None:
            self.step += int(step.acted[lead] and (not step.first[lead] or step.dones[lead]))
            self.episode += int(step.raw_first[lead])

    def wishes(self, about_to_reset: frozenset[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return whose frames are needed with every following result, and whose only if it opens an episode."""
        if self._recording is not None:
            return self._env_ids, ()
        if self._by == "steps":
            next_one = 0 if self._looked_at < 0 else self.step + 1
            return (self._env_ids, ()) if self._says(next_one) else ((), ())
        if not self._says(self.episode + 1):
            return (), ()
        return (self._env_ids, ()) if self._lead in about_to_reset else ((), (self._lead,))

    def go_on(self, step: int, episode: int) -> None:
        """Continue counting from here."""
        self.step, self.episode = step, episode
        self._looked_at = step if self._by == "steps" and episode >= 0 else -1

    def finish(self, reason: str) -> None:
        """End the recording, if there is one."""
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.end(reason, self.step, self.episode)

    def _note_ends(self, step: StepResult, lead: int) -> None:
        """End a recording that ends with the episode, and start one that starts with the next."""
        first = bool(step.first[lead])
        if self._length is None and (step.raw_dones[lead] or step.lost[lead]):
            self.finish("episode")
        if step.raw_first[lead]:
            if self._length is None:
                self.finish("reset")
            self.episode += 1
            self._maybe_begin("episodes", self.episode)
        if first:
            self._maybe_begin("steps", self.step)

    def _maybe_begin(self, by: str, number: int) -> None:
        if by != self._by or number == self._looked_at:
            return
        self._looked_at = number
        if self._recording is None and self._says(number):
            label = f"{by[:-1]}-{number:06d}{self._suffix}"
            began_at = self.step, self.episode
            self._recording = _Recording(self._folder, label, self._env_ids, self._length, self._size, began_at)

    def _says(self, number: int) -> bool:
        if self._said is None or self._said[0] != number:
            self._said = number, self._trigger(number)
        return self._said[1]

    def _mine(self, rows: Mapping[int, int]) -> list[tuple[int, int]]:
        return [(i, rows[i]) for i in self._env_ids if i in rows]

    def _put(self, frames: dict[int, Image]) -> None:
        assert self._recording is not None
        self._recording.put(frames, self.step, self.episode)
        if self._recording.full:
            self.finish("length")


class _Recording:
    """A video that is being recorded; its file is opened for the first picture."""

    def __init__(
        self,
        folder: VideoFolder,
        label: str,
        env_ids: tuple[int, ...],
        length: int | None,
        size: tuple[int, int],
        began_at: tuple[int, int],
    ) -> None:
        self._folder = folder
        self._label = label
        self._env_ids = env_ids
        self._length = length
        self._mosaic = Mosaic(env_ids, size)
        self._file: VideoFile | None = None
        self._began_at = began_at  # step and episode

    @property
    def full(self) -> bool:
        """Whether it has all its pictures."""
        return self._file is not None and self._file.frames == self._length

    def put(self, frames: dict[int, Image], step: int, episode: int) -> None:
        """Add frames; write the pictures that they complete."""
        self._write(self._mosaic.put(frames), step, episode)

    def end(self, reason: str, step: int, episode: int) -> None:
        """Write what is left, and finish the file.

        Raises:
            OSError: not everything was written.
        """
        try:
            if reason != "failed":
                self._write(self._mosaic.rest(), step, episode)
            if self._file is not None:
                self._file.close()
        except BaseException:
            reason = "failed"
            raise
        finally:
            if self._file is not None:
                self._file.close()
                self._describe(reason, step, episode)

    def _write(self, pictures: Iterable[Image], step: int, episode: int) -> None:
        for picture in pictures:
            if self.full:
                return
            if self._file is None:
                self._file = self._folder.start(self._label, picture)
                self._describe(None, step, episode)
            else:
                self._file.append(picture)

    def _describe(self, ended: str | None, step: int, episode: int) -> None:
        assert self._file is not None
        self._folder.describe(
            self._file,
            {
                "env_ids": list(self._env_ids),
                "steps": [self._began_at[0], step],
                "episodes": [self._began_at[1], episode],
                "ended": ended,
            },
        )


def _last_frames(step: StepResult, rows: list[tuple[int, int]]) -> dict[int, Image]:
    """The frames of running episodes; the last frame of one that ended in this step."""
    ended = [(i, k) for i, k in rows if step.first[k] and step.dones[k]]
    others = [(i, k) for i, k in rows if not _opens(step, k)]
    return {**_frames(step.final_frames, ended), **_frames(step.frames, others)}


def _opens(step: StepResult, k: int) -> bool:
    """Whether a row's observation opens an episode, including a game that a layer has started within the step."""
    return bool(step.first[k] or step.raw_first[k])


def _frames(frames: Sequence[Any] | None, rows: list[tuple[int, int]]) -> dict[int, Image]:
    """The frames of these rows that have one."""
    found: dict[int, Image] = {}
    if frames is None:
        return found
    for i, k in rows:
        frame = frames[k]
        if isinstance(frame, Exception):
            raise frame
        if frame is not None:
            found[i] = np.asarray(frame)
    return found
