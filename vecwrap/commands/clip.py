"""``vecwrap clip``: turns a recorded video into an animated image."""

from pathlib import Path

from rich.console import Console
from rich.text import Text

from vecwrap.clip import Clip

__all__ = ["save_clip"]


def save_clip(
    video: Path,
    out: Path,
    console: Console,
    *,
    width: int | None,
    fps: float | None,
    start: float,
    seconds: float | None,
) -> None:
    """Write the animated image, and print its size.

    Raises:
        ClipError: as ``Clip.save``.
    """
    clip = Clip(video).save(out, width=width, fps=fps, start=start, seconds=seconds)
    console.print(Text(f"{clip.path}: {clip.path.stat().st_size / 1024:,.0f} KiB"))
