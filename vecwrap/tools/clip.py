"""Recorded videos: shown in notebooks, and turned into animated images for papers and READMEs."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecwrap.env.picture import fit, load_cv2
from vecwrap.env.saving import write_whole
from vecwrap.errors import ClipError, paths_looked_at

__all__ = ["Clip"]

_ANIMATED = {".webp": "image/webp", ".gif": "image/gif"}
_UNIT = {".webp": 1, ".gif": 10}  # the format's time unit in milliseconds
_MOST = {".webp": 60.0, ".gif": 50.0}  # frames per second; browsers slow down GIFs with more


class Clip:
    """A video recorded by the wrapper ``video``, or an animated image made from one.

    As the value of a notebook cell it is played below the cell; the notebook then contains the video itself.

    Args:
        path: the ``.mp4``, ``.webp`` or ``.gif``.

    Attributes:
        path: the same.

    Raises:
        ClipError: there is no such file, or it is of another kind.

    Example:
        >>> from tempfile import mkdtemp
        >>> from vecwrap.wrappers.recording.video_file import VideoFile
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
        """Yield the frames one by one, each (height, width, 3) uint8.

        Raises:
            ClipError: the file cannot be read, or is not an ``.mp4``.
        """
        for _, frame in self._read():
            yield frame

    def save(
        self,
        path: str | PathLike[str],
        *,
        width: int | None = None,
        fps: float | None = None,
        start: float = 0.0,
        seconds: float | None = None,
    ) -> Clip:
        """Write an animated image that loops forever, at the speed of the video and without loss.

        All its frames are in memory while it is written.

        Args:
            path: a ``.webp`` file, or a ``.gif`` with at most 256 colours per frame; a missing folder is created.
            width: the maximum, in pixels; a wider video is scaled down.
            fps: the maximum frames per second; only every second, third, ... frame of the video is kept, so ``fps=24``
                keeps 20 of 60 per second. None: all, but at most 60, in a GIF 50.
            start: seconds to skip at the beginning.
            seconds: how many to keep; None: the rest.

        Returns:
            The new file.

        Raises:
            ClipError: invalid numbers, a file of another kind or that cannot be read or written, this is not an
                ``.mp4``, or no frames are left.
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
        most = min(fps or _MOST[kind], _MOST[kind])
        end = float("inf") if seconds is None else start + seconds
        chosen, began, due = [], [], start
        for when, frame in self._read():
            if when >= end - 1e-9:
                break
            if when >= due - 1e-9:
                chosen.append(frame if width is None else fit(frame, (width, 1 << 20)))
                began.append(when)
                due = when + 1 / most
        if not chosen:
            raise ClipError(f"clip: {self.path}: nothing is left from second {start:g} on")
        began.append(began[-1] + (began[-1] - began[-2] if len(began) > 1 else 1 / most))
        ticks = np.round((np.array(began) - began[0]) * 1000 / _UNIT[kind]).astype(int)
        durations = (np.diff(ticks) * _UNIT[kind]).tolist()  # from rounded times, so that errors do not accumulate
        options: dict[str, Any] = {"lossless": True, "method": 4} if kind == ".webp" else {}
        content = imageio.v3.imwrite(
            "<bytes>",
            np.stack(chosen),
            plugin="pillow",
            extension=kind,
            duration=durations if len(durations) > 1 else durations[0],  # Pillow takes no list for one frame
            loop=0,
            **options,
        )
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, lambda file: file.write(content))
        except OSError as error:
            raise ClipError(f"clip: {target} cannot be written: {error}; give another file") from error
        return Clip(target)

    def _read(self) -> Iterator[tuple[float, NDArray[np.uint8]]]:
        """Yield the frames, each with its time in seconds."""
        if self.path.suffix in _ANIMATED:
            raise ClipError(
                f"clip: {self.path}: expected an .mp4 video to read frames from, got an animated image; give the "
                "video that it was made from"
            )
        cv2 = load_cv2("clip")
        capture = cv2.VideoCapture(str(self.path))
        try:
            rate = float(capture.get(cv2.CAP_PROP_FPS)) if capture.isOpened() else 0.0
            if rate <= 0:
                raise ClipError(f"clip: {self.path} cannot be read as a video")
            for number in itertools.count():
                there, frame = capture.read()
                if not there:
                    return
                yield number / rate, cv2.cvtColor(frame, cv2.COLOR_BGR2RGB)
        finally:
            capture.release()

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
