"""Recorded videos: shown in notebooks, and turned into the animated pictures that papers and READMEs take."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecwrap.errors import ClipError, paths_looked_at
from vecwrap.parts.opencv import load_cv2
from vecwrap.parts.tiles import fit
from vecwrap.whole_file import write_whole

__all__ = ["Clip"]

_ANIMATED = {".webp": "image/webp", ".gif": "image/gif"}
_UNIT = {".webp": 1, ".gif": 10}  # milliseconds that the format counts in
_MOST = {".webp": 60.0, ".gif": 50.0}  # frames a second; browsers slow down a GIF that has more
_WITHOUT_LOSS: dict[str, dict[str, Any]] = {".webp": {"lossless": True, "method": 4}, ".gif": {}}


class Clip:
    """A video that the layer ``video`` recorded, or an animated picture made of one.

    Notebooks play it below a cell of which it is the value; the picture is in the notebook then, not its path.

    Args:
        path: the ``.mp4``, ``.webp`` or ``.gif``.

    Attributes:
        path: the same.

    Raises:
        ClipError: there is no such file, or it is of another kind.

    Example:
        >>> from tempfile import mkdtemp
        >>> from vecwrap.parts.video_file import VideoFile
        >>> folder, frame = Path(mkdtemp()), np.zeros((40, 60, 3), np.uint8)
        >>> video = VideoFile(folder / "black.mp4", 20, frame)
        >>> video.append(frame)
        >>> video.close()
        >>> clip = Clip(folder / "black.mp4")
        >>> [frame.shape for frame in clip.frames()]
        [(40, 60, 3), (40, 60, 3)]
        >>> clip.save(folder / "black.webp").path.name
        'black.webp'
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.suffix not in (".mp4", *_ANIMATED):
            raise ClipError(f'clip: expected a file .mp4, .webp or .gif, got "{self.path}"')
        with paths_looked_at(ClipError):
            there = self.path.is_file()
        if not there:
            raise ClipError(f"clip: {self.path}: no such file")

    def frames(self) -> Iterator[NDArray[np.uint8]]:
        """Give the frames one by one, each (height, width, 3) uint8.

        Raises:
            ClipError: the file cannot be read, or is no ``.mp4``.
        """
        _, frames = self._read()
        yield from frames

    def save(
        self,
        path: str | PathLike[str],
        *,
        width: int | None = None,
        fps: float | None = None,
        start: float = 0.0,
        seconds: float | None = None,
    ) -> Clip:
        """Write an animated picture that repeats for ever, at the speed of the video and without loss.

        All its frames are in memory while it is written.

        Args:
            path: a file ``.webp``, or ``.gif`` with at most 256 colours a frame; its folder is made where it is
                missing.
            width: the greatest, in pixels; a wider video is scaled down.
            fps: frames a second at most; every second, third, ... frame of the video is taken, so ``fps=24`` leaves 20
                of 60 a second. None: all, but no more than 60, in a GIF 50.
            start: seconds to leave out at the beginning.
            seconds: how many to take; None: all that follow.

        Returns:
            The new file.

        Raises:
            ClipError: numbers that make no sense, a file of another kind or that cannot be read or written, this is no
                ``.mp4``, or nothing is left.
        """
        import imageio.v3

        target = Path(path)
        kind = target.suffix
        if kind not in _ANIMATED:
            raise ClipError(f'clip: expected a file .webp or .gif to write, got "{target}"')
        if not (start >= 0 and (seconds is None or seconds > 0) and (fps is None or fps > 0)):
            raise ClipError("clip: expected a start of 0 or more, and seconds and fps above 0")
        if width is not None and width < 1:
            raise ClipError(f"clip: width: expected at least 1 pixel, got {width}")
        rate, frames = self._read()
        chosen, began = [], []
        for when, frame in _thinned(frames, rate, min(fps or _MOST[kind], _MOST[kind]), start, seconds):
            chosen.append(frame if width is None else fit(frame, (width, 1 << 20)))
            began.append(when)
        if not chosen:
            raise ClipError(f"clip: {self.path}: nothing is left from second {start:g} on")
        began.append(began[-1] + (began[-1] - began[-2] if len(began) > 1 else 1 / rate))
        ticks = np.round((np.array(began) - began[0]) * 1000 / _UNIT[kind]).astype(int)
        durations = (np.diff(ticks) * _UNIT[kind]).tolist()  # of rounded times, so that nothing adds up
        content = imageio.v3.imwrite(
            "<bytes>",
            np.stack(chosen),
            plugin="pillow",
            extension=kind,
            duration=durations if len(durations) > 1 else durations[0],  # Pillow takes no list for one frame
            loop=0,
            **_WITHOUT_LOSS[kind],
        )
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, lambda file: file.write(content))
        except OSError as error:
            raise ClipError(f"clip: {target} cannot be written: {error}; give another file") from error
        return Clip(target)

    def _read(self) -> tuple[float, Iterator[NDArray[np.uint8]]]:
        """How many frames a second there are, and the frames."""
        if self.path.suffix in _ANIMATED:
            raise ClipError(
                f"clip: {self.path}: expected a video .mp4 to read frames from, got an animated picture; give the "
                "video that it was made of"
            )
        cv2 = load_cv2("clip")
        capture = cv2.VideoCapture(str(self.path))
        rate = float(capture.get(cv2.CAP_PROP_FPS)) if capture.isOpened() else 0.0
        if rate <= 0:
            raise ClipError(f"clip: {self.path} cannot be read as a video")
        return rate, _frames(cv2, capture)

    def _repr_html_(self) -> str:
        """The clip itself, for notebooks."""
        content = base64.b64encode(self.path.read_bytes()).decode()
        if self.path.suffix in _ANIMATED:
            return f'<img src="data:{_ANIMATED[self.path.suffix]};base64,{content}" alt="{escape(self.path.name)}">'
        return (
            f'<video controls loop autoplay muted style="max-width: 100%" title="{escape(self.path.name)}" '
            f'src="data:video/mp4;base64,{content}"></video>'
        )

    def __repr__(self) -> str:
        return f'Clip("{self.path}")'


def _frames(cv2: Any, capture: Any) -> Iterator[NDArray[np.uint8]]:
    try:
        while True:
            there, frame = capture.read()
            if not there:
                return
            yield cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
    finally:
        capture.release()


def _thinned(
    frames: Iterator[NDArray[np.uint8]], rate: float, most: float, start: float, seconds: float | None
) -> Iterator[tuple[float, NDArray[np.uint8]]]:
    """Some of the frames, with the second at which each is shown."""
    end = float("inf") if seconds is None else start + seconds
    due = start
    for number, frame in enumerate(frames):
        when = number / rate
        if when >= end - 1e-9:
            return
        if when >= due - 1e-9:
            due = when + 1 / most
            yield when, frame
