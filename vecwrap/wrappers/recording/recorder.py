"""Decides when a video starts and ends, and which frames of which sub-environments it takes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vecwrap.env.atomic_files import write_atomically
from vecwrap.env.picture import fit, tile
from vecwrap.rows.step_result import StepResult
from vecwrap.wrappers.recording.run_files import take_unused
from vecwrap.wrappers.recording.video_file import VideoFile

Image = NDArray[np.uint8]


@dataclass
class VideoFolder:
    """Where the videos of one wrapper go, and what all of them have in common."""

    folder: Path
    name: str  # the prefix of the file names
    fps: float
    header: dict[str, Any] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)

    def start(self, label: str, first: Image) -> VideoFile:
        file = take_unused(
            self.folder / f"{self.name}-{label}.mp4", lambda path: self._begin(path, first)
        )
        self.paths.append(file.path)
        return file

    def describe(self, file: VideoFile, facts: Mapping[str, Any]) -> None:
        content = {
            **self.header,
            **facts,
            "fps": self.fps,
            "size": list(file.size),
            "frames": file.frames,
        }
        text = json.dumps(content, indent=2) + "\n"
        write_atomically(file.path.with_suffix(".json"), lambda target: target.write(text.encode()))

    def _begin(self, path: Path, first: Image) -> VideoFile:
        if path.with_suffix(".json").exists():
            raise FileExistsError(
                f"{path.with_suffix('.json')} describes a video that was moved away"
            )
        return VideoFile(path, self.fps, first)


@dataclass
class Recorder:
    """Records one video at a time, of one or several sub-environments.

    ``step`` and ``episode`` are those of the first sub-environment, which decides when a video
    starts.
    """

    folder: Any  # a VideoFolder, or what writes videos in a thread of its own
    env_ids: tuple[int, ...]
    by: Literal["episodes", "steps"]
    trigger: Callable[[int], bool]
    length: int | None
    size: tuple[int, int]
    suffix: str
    label: str = ""  # of each file, instead of its number
    step: int = 0
    episode: int = -1
    _last_message: tuple[int, bool] | None = None  # the trigger's last number and result
    _looked_at: int = -1  # the last number at which a recording might have begun
    _recording: _Recording | None = None

    def take(self, step: StepResult, rows: Mapping[int, int], number: int, episode: int) -> None:
        """Process a result: first the rows of running episodes, then those that open new ones."""
        self.step = number
        self.episode = episode
        lead = rows.get(self.env_ids[0])
        if lead is not None and (not step.first[lead] or step.dones[lead]):
            self._maybe_begin("steps", self.step)
        if self._recording is not None:
            self._put(_last_frames(step, self._own_places(rows)))
        if lead is not None:
            self._note_ends(step, lead)
        if self._recording is not None:
            self._put(
                _frames(step.frames, [(i, k) for i, k in self._own_places(rows) if _opens(step, k)])
            )

    def wants_frames(
        self, about_to_reset: frozenset[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the rows that need every frame, and the rows that need only opening frames."""
        if self._recording is not None:
            return self.env_ids, ()
        if self.by == "steps":
            if self._looked_at < 0:
                next_one = 0
            else:
                next_one = self.step + 1
            if self._says(next_one):
                return (self.env_ids, ())
            return ((), ())
        if not self._says(self.episode + 1):
            return (), ()
        if self.env_ids[0] in about_to_reset:
            return (self.env_ids, ())
        return ((), (self.env_ids[0],))

    def go_on(self, step: int, episode: int) -> None:
        self.step = step
        self.episode = episode
        self._looked_at = step if self.by == "steps" and episode >= 0 else -1

    def finish(self, reason: str) -> None:
        recording = self._recording
        self._recording = None
        if recording is not None:
            recording.end(reason, self.step, self.episode)

    def stop(self) -> None:
        self.trigger = lambda number: False
        self._last_message = None
        with contextlib.suppress(Exception):
            self.finish("failed")

    def _note_ends(self, step: StepResult, lead: int) -> None:
        """End a recording that ends with the episode, and start one that starts with the next."""
        if self.length is None and (step.raw_dones[lead] or step.lost[lead]):
            self.finish("episode")
        if step.raw_first[lead]:
            if self.length is None:
                self.finish("reset")
            self.episode += 1
            self._maybe_begin("episodes", self.episode)
        if step.first[lead]:
            self._maybe_begin("steps", self.step)

    def _maybe_begin(self, by: str, number: int) -> None:
        if by != self.by or number == self._looked_at:
            return
        self._looked_at = number
        if self._recording is None and self._says(number):
            label = self.label or f"{by[:-1]}-{number:06d}{self.suffix}"
            self._recording = _Recording(
                self.folder, label, self.env_ids, self.size, self.step, self.episode
            )

    def _says(self, number: int) -> bool:
        if self._last_message is None or self._last_message[0] != number:
            self._last_message = number, self.trigger(number)
        return self._last_message[1]

    def _own_places(self, rows: Mapping[int, int]) -> list[tuple[int, int]]:
        return [(i, rows[i]) for i in self.env_ids if i in rows]

    def _put(self, frames: dict[int, Image]) -> None:
        assert self._recording is not None
        for picture in self._recording.add(frames):
            self._recording.write(picture, self.step, self.episode)
            if self._recording.frames == self.length:
                self.finish("length")
                return


class _Recording:
    """A video that is being recorded, whose file is opened for the first picture.

    A picture has one frame per tile.
    """

    def __init__(
        self,
        folder: Any,
        label: str,
        env_ids: tuple[int, ...],
        size: tuple[int, int],
        step: int,
        episode: int,
    ) -> None:
        self._folder = folder
        self._label = label
        self._size = size
        self._tiles: dict[int, Image | None] = dict.fromkeys(env_ids)
        self._new: set[int] = set()  # tiles whose frame is in no picture yet
        self._file: Any = None
        self._facts: dict[str, Any] = {
            "env_ids": list(env_ids),
            "steps": [step, step],
            "episodes": [episode, episode],
            "ended": None,
        }

    @property
    def frames(self) -> int:
        return 0 if self._file is None else self._file.frames

    def add(self, frames: Mapping[int, Image]) -> list[Image]:
        """Add one frame for some tiles; return the pictures that are complete.

        A picture is complete when every tile has a new frame, or before a tile would get a second
        one, so that none is skipped. A tile that has shown nothing yet shows its next frame.
        """
        complete = []
        if self._new.intersection(frames):
            for i, old in self._tiles.items():
                if old is None:
                    self._tiles[i] = frames.get(i)
            complete.append(self._picture())
        self._tiles.update(frames)
        self._new.update(frames)
        if len(self._new) == len(self._tiles):
            complete.append(self._picture())
        return complete

    def write(self, picture: Image, step: int, episode: int) -> None:
        if self._file is None:
            self._file = self._folder.start(self._label, picture)
            self._describe(None, step, episode)
        else:
            self._file.append(picture)

    def end(self, reason: str, step: int, episode: int) -> None:
        """Write what is left, and finish the file; an OSError if not everything was written."""
        try:
            if self._new and reason not in ("failed", "length"):
                self.write(self._picture(), step, episode)
            if self._file is not None:
                self._file.close()
        except BaseException:
            reason = "failed"
            raise
        finally:
            if self._file is not None:
                self._file.close()
                self._describe(reason, step, episode)

    def _picture(self) -> Image:
        self._new.clear()
        return fit(tile(list(self._tiles.values())), self._size)

    def _describe(self, ended: str | None, step: int, episode: int) -> None:
        assert self._file is not None
        self._facts["steps"][1] = step
        self._facts["episodes"][1] = episode
        self._folder.describe(self._file, {**self._facts, "ended": ended})


def _last_frames(step: StepResult, rows: list[tuple[int, int]]) -> dict[int, Image]:
    ended = [(i, k) for i, k in rows if step.first[k] and step.dones[k]]
    others = [(i, k) for i, k in rows if not _opens(step, k)]
    return {**_frames(step.final_frames, ended), **_frames(step.frames, others)}


def _opens(step: StepResult, k: int) -> bool:
    """Return whether a row opens an episode, also if a wrapper began the game within the step."""
    return bool(step.first[k] or step.raw_first[k])


def _frames(frames: Sequence[Any] | None, rows: list[tuple[int, int]]) -> dict[int, Image]:
    found: dict[int, Image] = {}
    for i, k in rows:
        frame = None
        if frames is not None:
            frame = frames[k]
        if isinstance(frame, Exception):
            raise frame
        if frame is not None:
            found[i] = np.asarray(frame)
    return found
