"""Videos that a page requests: the stepping thread copies frames, another thread writes them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from vecwrap.errors import printable, text_of, truncate
from vecwrap.rows.step_result import StepResult
from vecwrap.wrappers.recording.recorder import Image, Recorder, VideoFolder
from vecwrap.wrappers.recording.run_files import make_folder, relative_to_cwd
from vecwrap.wrappers.recording.video_file import VideoFile, check_ffmpeg

MAX_WAITING = 256_000_000  # bytes of frames that wait to be written
UNLIMITED_PIXELS = (2**30, 2**30)  # pixels
VIDEO_NAME = "watched"


class Recording:
    """The next whole episode of a row, as a video."""

    def __init__(self, row: int, folder: Path, fps: float, env_id: str) -> None:
        self.row = row
        self.path: Path | None = None  # once there is a file
        self.frames = 0
        self.over = False
        self._why = ""  # it failed, or was cut off
        self._folder = VideoFolder(folder, VIDEO_NAME, fps, {"env_id": env_id, "pipeline": None})
        self._recorder = Recorder(
            self,
            (row,),
            "episodes",
            lambda number: number == 0,
            None,
            UNLIMITED_PIXELS,
            "",
            label=f"env-{row}",
        )
        self._episode = -1
        self._steps = 0
        self._lock = threading.Lock()  # between the stepping thread and the end of the page
        self._queue: SimpleQueue[Callable[[VideoFile], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def wants_frames(self, about_to_reset: frozenset[int]) -> tuple[set[int], set[int]]:
        """Return the rows that need every frame, and the rows that need only opening frames."""
        if self.over:
            return set(), set()
        always, opening = self._recorder.wants_frames(about_to_reset)
        return set(always), set(opening)

    def take(self, step: StepResult) -> None:
        """Have the row's frames written; called by the stepping thread."""
        with self._lock:
            rows = {i: k for k, i in enumerate(step.env_ids.tolist()) if i == self.row}
            if self.over or not rows:
                return
            k = rows[self.row]
            self._steps += int(
                step.acted[k] and (step.terminations[k] or step.truncations[k] or not step.first[k])
            )
            try:
                self._recorder.take(step, rows, self._steps, self._episode)
            except Exception as error:
                self._why = self._why or text_of(error)
                self._recorder.stop()
                self.close()
            self._episode += int(step.raw_first[k])

    def finish(self) -> None:
        """End the video as it is, and wait until the file is written.

        The run, or its page, has ended.
        """
        with self._lock:
            if not self.over:
                self._why = "the run ended first"
                self._recorder.finish("closed")
                self.close()
        if self._thread is not None:
            self._thread.join(5)

    def status_text(self) -> str:
        """Return how far it is, and where."""
        if self._why:
            said = f"stopped: {truncate(printable(self._why), 300)}"
        elif self.over:
            said = "being written"
            if self._is_written:
                said = f"{self.frames} frames"
        elif not self.frames:
            return "will begin with its next episode"
        else:
            said = f"{self.frames} frames so far"
        if self.path is None:
            return said
        return f"{said}, {printable(str(relative_to_cwd(self.path)))}"

    @property
    def file(self) -> Path | None:
        """The video, once it can be played to its end."""
        return self.path if self.over and self._is_written else None

    @property
    def _is_written(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    # -- a folder and a file, as the recorder knows them -------------------------------------------

    def start(self, label: str, first: Image) -> Recording:
        self.frames = 1
        self._thread = threading.Thread(
            target=self._work, args=(label, first), name="vecwrap: video", daemon=True
        )
        self._thread.start()
        return self

    def append(self, frame: Image) -> None:
        """Write a frame; an OSError if that cannot be done, or not as fast as frames come."""
        if self._why:
            raise OSError(self._why)
        if self._queue.qsize() * frame.nbytes > MAX_WAITING:
            raise OSError("frames come faster than they can be written")
        self.frames += 1
        self._queue.put(lambda file: file.append(frame))

    def describe(self, file: Any, facts: Mapping[str, Any]) -> None:
        known = dict(facts)
        self._queue.put(lambda file: self._folder.describe(file, known))
        if known["ended"] is not None:
            self._queue.put(None)

    def close(self) -> None:
        self.over = True
        self._queue.put(VideoFile.close)

    def _work(self, label: str, first: Image) -> None:
        file: VideoFile | None = None
        try:
            check_ffmpeg()
            make_folder(self._folder.folder, "video")
            file = self._folder.start(label, first)
            self.path = file.path
            while (do := self._queue.get()) is not None:
                do(file)
        except Exception as error:  # a full disk, say
            self._why = self._why or text_of(error)
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
