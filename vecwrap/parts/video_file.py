"""One video, written to disk frame by frame as it comes, and playable up to wherever it was cut off."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from vecwrap.errors import PlanError
from vecwrap.parts.run_files import seen_from_here
from vecwrap.parts.tiles import fit

__all__ = ["VideoFile", "check_ffmpeg", "count_frames"]

# A fragment a second, each of them whole by itself: whatever ends the writing, all but the last of them can be played.
_FRAGMENTS = ["-movflags", "frag_keyframe+empty_moov+default_base_moof", "-flush_packets", "1"]
_ENCODER = ["-preset", "veryfast", "-crf", "18", "-threads", "1", "-bf", "0"]


def check_ffmpeg() -> None:
    """See whether videos can be written at all.

    Raises:
        PlanError: imageio's ffmpeg plug-in is missing, or finds no ffmpeg.
    """
    try:
        import imageio_ffmpeg

        imageio_ffmpeg.get_ffmpeg_exe()
    except (ImportError, RuntimeError) as error:
        raise PlanError(
            f'video: imageio\'s ffmpeg plug-in cannot be used: {error}; pip install "imageio[ffmpeg]", or point '
            "IMAGEIO_FFMPEG_EXE to an ffmpeg"
        ) from error


class VideoFile:
    """An ``.mp4`` (H.264) in the making. Nothing is kept in memory: every frame goes to ffmpeg at once.

    The first frame gives the size. Sides that are odd are padded with a line of black, for H.264 wants even ones; so
    are later frames that are smaller, and larger ones are scaled down. No frame is ever stretched.

    Args:
        path: where; a file that is there is overwritten.
        fps: frames a second.
        first: the first frame, (height, width, 3) uint8, which is written.

    Attributes:
        path: where.
        size: width and height.
        frames: how many were written.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, fps: float, first: NDArray[np.uint8]) -> None:
        import imageio.v2

        self.path = path
        self.frames = 0
        height, width = first.shape[:2]
        self.size = width + width % 2, height + height % 2
        path.open("wb").close()  # says at once, and in words, where that cannot be done
        with warnings.catch_warnings():  # ffmpeg is started by a fork that executes it at once, in a group of its own
            warnings.simplefilter("ignore", DeprecationWarning)
            self._writer: Any = imageio.v2.get_writer(
                path,
                format="FFMPEG",
                mode="I",
                fps=fps,
                codec="libx264",
                pixelformat="yuv420p",
                macro_block_size=1,
                ffmpeg_log_level="error",
                output_params=[*_ENCODER, "-g", str(max(1, round(fps))), *_FRAGMENTS],
            )
            self.append(first)

    def append(self, frame: NDArray[np.uint8]) -> None:
        """Write a frame, (height, width, 3) uint8.

        Raises:
            OSError: it cannot be written any more.
        """
        try:
            self._writer.append_data(self._padded(frame))
        except (OSError, StopIteration) as error:  # StopIteration: ffmpeg was ended within an earlier frame, by Ctrl-C
            reason = str(error).splitlines()[0] if str(error) else "it was interrupted"
            raise OSError(
                f"{seen_from_here(self.path)}: ffmpeg takes no more frames ({reason}). Is the disk full?"
            ) from None
        self.frames += 1

    def close(self) -> None:
        """Finish the file.

        Raises:
            OSError: not all that was written arrived in it.
        """
        if self._writer.closed:
            return
        self._writer.close()
        arrived = count_frames(self.path)
        if arrived != self.frames:
            expected, self.frames = self.frames, arrived
            raise OSError(f"{seen_from_here(self.path)}: {arrived} of {expected} frames arrived. Is the disk full?")

    def _padded(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        width, height = self.size
        if frame.shape == (height, width, 3):
            return frame
        frame = fit(frame, self.size)
        canvas = np.zeros((height, width, 3), np.uint8)
        canvas[: frame.shape[0], : frame.shape[1]] = frame
        return canvas


def count_frames(path: Path) -> int:
    """How many frames are in the whole fragments of a file; of one that was cut off, some more can be played.

    Raises:
        OSError: the file cannot be read.
    """
    total = announced = 0
    with path.open("rb") as file:
        for name, begin, end in _boxes(file, 0, file.seek(0, 2)):
            if name == b"moof":  # says how many frames are in the mdat after it
                announced = sum(_samples(file, *track) for kind, *track in _boxes(file, begin, end) if kind == b"traf")
            elif name == b"mdat":
                total, announced = total + announced, 0
    return total


def _samples(file: BinaryIO, begin: int, end: int) -> int:
    """The number of samples of a track in a fragment: in each trun it follows version and flags."""
    total = 0
    for name, run, _ in _boxes(file, begin, end):
        if name == b"trun":
            file.seek(run + 4)
            total += struct.unpack(">I", file.read(4))[0]
    return total


def _boxes(file: BinaryIO, begin: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Name, begin and end of each box between two places that is there as a whole (ISO/IEC 14496-12, section 4.2)."""
    while begin + 8 <= end:
        file.seek(begin)
        length, name = struct.unpack(">I4s", file.read(8))
        if length < 8 or begin + length > end:  # cut off; ffmpeg writes a fragment a second, none of 4 GB
            return
        yield name, begin + 8, begin + length
        begin += length
