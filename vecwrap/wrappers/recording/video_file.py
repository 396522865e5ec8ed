"""One video, written frame by frame as frames arrive, and playable up to where it was cut off."""

from __future__ import annotations

import os
import subprocess
import tempfile
import weakref
from fractions import Fraction
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from vecwrap.env.picture import fit
from vecwrap.errors import PlanError
from vecwrap.wrappers.recording.run_files import relative_to_cwd

# One self-contained fragment per second: however the writing ends, all but the last of them can be
# played.
_FRAGMENTS = ["-movflags", "frag_keyframe+empty_moov+default_base_moof", "-flush_packets", "1"]
_ENCODER = ["-preset", "veryfast", "-crf", "18", "-threads", "1", "-bf", "0"]
_open: weakref.WeakSet[VideoFile] = weakref.WeakSet()


def check_ffmpeg() -> None:
    try:
        import imageio_ffmpeg

        imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise PlanError(
            f"video: imageio's ffmpeg plug-in cannot be used: {error}; pip install "
            '"imageio[ffmpeg]", or point IMAGEIO_FFMPEG_EXE to an ffmpeg'
        ) from error


class VideoFile:
    """An ``.mp4`` (H.264) being written; every frame goes to ffmpeg at once.

    What cannot be written is an OSError. The first frame determines the size, with even sides as
    H.264 requires; later ones are padded or scaled down.
    """

    def __init__(self, path: Path, fps: float, first: NDArray[np.uint8]) -> None:
        import imageio_ffmpeg

        self.path = path
        self.frames = 0
        self.closed = False
        height, width = first.shape[:2]
        self.size = width + width % 2, height + height % 2
        path.open("xb").close()  # fails at once, with a clear error, if that is impossible
        rate = str(Fraction(fps).limit_denominator())
        frames = [
            "-f",
            "rawvideo",
            "-pix_fmt",
            "rgb24",
            "-s",
            "{}x{}".format(*self.size),
            "-r",
            rate,
            "-i",
            "-",
        ]
        video = [
            "-an",
            "-c:v",
            "libx264",
            "-pix_fmt",
            "yuv420p",
            *_ENCODER,
            "-g",
            str(max(1, round(fps))),
            *_FRAGMENTS,
        ]
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- what ffmpeg complains of
        self._ffmpeg = subprocess.Popen(
            [
                imageio_ffmpeg.get_ffmpeg_exe(),
                "-y",
                "-v",
                "error",
                *frames,
                *video,
                str(path.absolute()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            bufsize=0,  # so that a forked copy has no buffered data to write
            process_group=0,  # Ctrl-C does not reach it
        )
        assert self._ffmpeg.stdin is not None
        self._pipe = self._ffmpeg.stdin
        _open.add(self)
        self.append(first)

    def append(self, frame: NDArray[np.uint8]) -> None:
        if self._pipe.closed:
            raise self._refusal("it was interrupted")
        rest = np.ascontiguousarray(self._padded(frame)).data.cast("B")
        try:
            while rest:
                rest = rest[self._pipe.write(rest) :]
        except OSError as error:
            raise self._refusal(str(error)) from None
        except BaseException:  # an interrupt: half a frame was sent, and nothing can follow it
            self._ffmpeg.kill()
            self._pipe.close()
            raise
        self.frames += 1

    def _refusal(self, reason: str) -> OSError:
        return OSError(
            f"{relative_to_cwd(self.path)}: ffmpeg cannot write it ({reason}). Is the disk full?"
        )

    def close(self) -> None:
        """Finish the file; raises if ffmpeg could not write all of it."""
        if self.closed:
            return
        self.closed = True
        self._end()
        with self._said:
            self._said.seek(0)
            said = self._said.read().decode(errors="replace")
        status = self._ffmpeg.returncode
        # ffmpeg 4 exits with 0 if only the end cannot be written.
        if status or "Error writing" in said:
            raise self._refusal(said.partition("\n")[0] or f"exit status {status}")

    def _end(self) -> None:
        """Let ffmpeg write what it has; it exits when its input ends."""
        try:
            self._pipe.close()
            self._ffmpeg.wait()
        except BaseException:
            self._ffmpeg.kill()
            self._ffmpeg.wait()
            raise

    def abandon(self) -> None:
        """Leave the file to the parent of this fork, so that ffmpeg can end.

        ffmpeg waits until no process holds its input open.
        """
        self.closed = True
        self._pipe.close()
        self._said.close()
        self._ffmpeg.returncode = 0  # it is not a child of this process

    def __del__(self) -> None:
        if hasattr(self, "_pipe") and not self.closed:
            self._end()
            self._said.close()

    def _padded(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        width, height = self.size
        if frame.shape == (height, width, 3):
            return frame
        frame = fit(frame, self.size)
        canvas = np.zeros((height, width, 3), np.uint8)
        canvas[: frame.shape[0], : frame.shape[1]] = frame
        return canvas


def _abandon_all() -> None:
    for file in list(_open):
        file.abandon()


os.register_at_fork(after_in_child=_abandon_all)
