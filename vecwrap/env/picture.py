"""Many frames as one image, in a grid; with labels and lines; notebooks, and OpenCV."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecwrap.errors import ArgumentError, PlanError, VecwrapError
from vecwrap.rows.saved import put
from vecwrap.rows.step_result import FloatArray, IntArray, StepResult
from vecwrap.sources.factories import has_no_render_mode

MAX_PICTURE_PIXELS = (1920, 1080)  # the default maximum width and height of a picture, in pixels
MIN_LABEL_PIXELS = 110  # pixels of width that a label needs
WHITE = (255, 255, 255)
ORANGE = (255, 165, 0)
GREY = (96, 96, 96)
DARK = (24, 24, 24)
# font scales; below the smallest, text is unreadable
LARGEST = 0.6
SMALLEST = 0.28
# pixels: the height of a label, and the width of the lines between tiles
STRIP = 18
LINE = 3


def refuse_without_frames(wrapper: str, env: Any) -> None:
    if env.render_mode == "rgb_array":
        return
    if why := has_no_render_mode(env.metadata, env.core.env_id):
        raise PlanError(
            f"{wrapper}: expected an environment that draws pictures; {why}; leave {wrapper} out"
        )
    raise PlanError(
        f'{wrapper}: expected an environment built with render_mode="rgb_array", got '
        f'{env.render_mode!r}; for example build(..., render_mode="rgb_array")'
    )


def grid(num_tiles: int) -> tuple[int, int]:
    """Return the rows and columns of a grid of tiles.

    Few places are empty, and there are at most three times as many columns as rows.
    """
    wide = [(rows, -(-num_tiles // rows)) for rows in range(1, math.isqrt(num_tiles - 1) + 2)]
    allowed = [(rows, columns) for rows, columns in wide if rows <= columns <= 3 * rows]
    return min(allowed, key=lambda shape: (shape[0] * shape[1] - num_tiles, shape[1] - shape[0]))


def tile(frames: Sequence[NDArray[np.uint8] | None]) -> NDArray[np.uint8]:
    """Tile frames, (height, width[, 3]) uint8, into one image (height, width, 3), row by row.

    Smaller frames are padded with black.
    """
    images, height, width = _coloured(frames)
    rows, columns = grid(len(images))
    canvas = np.zeros((rows * height, columns * width, 3), np.uint8)
    for i, image in enumerate(images):
        if image is not None:
            top = i // columns * height
            left = i % columns * width
            canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
    return canvas


def fit(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Scale an image down to fit into a width and height; return an image that fits unchanged.

    By area averaging to a whole fraction, then by interpolation for the rest, which is less than a
    half: averaging alone would take ten times as long, and interpolation alone would leave some
    pixels out.
    """
    height, width = image.shape[:2]
    scale = min(size[0] / width, size[1] / height)
    if scale >= 1:
        return image
    cv2 = load_cv2("tile")
    smaller = max(1, int(width * scale)), max(1, int(height * scale))
    fraction = min(width // smaller[0], height // smaller[1])
    scaled: NDArray[np.uint8] = image
    if fraction > 1:
        scaled = cv2.resize(
            scaled, (width // fraction, height // fraction), interpolation=cv2.INTER_AREA
        )
    if scaled.shape[1::-1] != smaller:
        scaled = cv2.resize(scaled, smaller, interpolation=cv2.INTER_LINEAR)
    return scaled


def enlarge(image: NDArray[np.uint8], width: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Repeat pixels until the image is ``width`` wide or would outgrow ``size``.

    Pixels are repeated equally often in both directions.
    """
    times = min(-(-width // image.shape[1]), size[0] // image.shape[1], size[1] // image.shape[0])
    if times <= 1:
        return image
    return image.repeat(times, axis=0).repeat(times, axis=1)


def labelled(
    frames: Sequence[NDArray[np.uint8] | None],
    texts: Sequence[Sequence[str]],
    marks: Sequence[bool],
    size: tuple[int, int],
    least: int = 0,
) -> NDArray[np.uint8]:
    """Tile frames into one image of at most ``size``, with a label above each and lines between.

    Narrow frames are enlarged until the labels are readable and the image is ``least`` wide. Of
    each tile's texts, the longest first, those are used that all are readable at one font size;
    marked tiles have orange lines.
    """
    images, height, width = _coloured(frames)
    rows, columns = grid(len(images))
    strip = STRIP if rows * STRIP <= size[1] / 3 else 0
    room = (size[0] - LINE) // columns - LINE, (size[1] - LINE) // rows - LINE - strip
    if min(room) < 2 * LINE:
        return fit(tile(frames), size)
    cells = []
    for image in images:
        cell = np.zeros((height, width, 3), np.uint8)
        if image is not None:
            cell[: image.shape[0], : image.shape[1]] = image
        cells.append(fit(enlarge(cell, max(-(-least // columns), MIN_LABEL_PIXELS), room), room))
    height, width = cells[0].shape[:2]
    heads = None
    if strip:
        heads = _heads(texts, marks, width)
    strip = STRIP if heads is not None else 0
    high = strip + height + LINE
    wide = width + LINE
    canvas = np.zeros((rows * high + LINE, columns * wide + LINE, 3), np.uint8)
    for colour, chosen in ((GREY, False), (ORANGE, True)):  # orange lines over grey ones
        for i in range(len(cells)):
            if bool(marks[i]) == chosen:
                top = i // columns * high
                left = i % columns * wide
                canvas[top : top + high + LINE, left : left + wide + LINE] = colour
    for i, cell in enumerate(cells):
        top = i // columns * high + LINE
        left = i % columns * wide + LINE
        if heads is not None:
            canvas[top : top + strip, left : left + width] = heads[i]
        canvas[top + strip : top + strip + height, left : left + width] = cell
    return canvas


def _heads(
    texts: Sequence[Sequence[str]], marks: Sequence[bool], width: int
) -> list[NDArray[np.uint8]] | None:
    """The labels, (STRIP, width, 3) each; None if none of their texts could be read."""
    cv2 = load_cv2("tile")
    for lines in zip(*texts, strict=True):
        longest = max(
            cv2.getTextSize(line, cv2.FONT_HERSHEY_SIMPLEX, 1.0, 1)[0][0] for line in lines
        )
        scale = min(LARGEST, (width - 6) / max(longest, 1))
        if scale >= SMALLEST:
            break
    else:
        return None
    heads = []
    for line, marked in zip(lines, marks, strict=True):
        head = np.full((STRIP, width, 3), DARK, np.uint8)
        colour = ORANGE if marked else WHITE
        base = STRIP // 2 + int(11 * scale)
        cv2.putText(head, line, (3, base), cv2.FONT_HERSHEY_SIMPLEX, scale, colour, 1, cv2.LINE_AA)
        heads.append(head)
    return heads


def game_labels(scores: FloatArray, lengths: IntArray) -> list[tuple[str, str, str]]:
    """Return each sub-environment's possible labels: its index, and its game's score and length."""
    games = zip(np.round(scores, 2).tolist(), lengths.tolist(), strict=True)
    return [
        (f"#{i}  score {score:g}  {length} steps", f"#{i}  {score:g}  {length}", f"#{i}")
        for i, (score, length) in enumerate(games)
    ]


def _coloured(
    frames: Sequence[NDArray[np.uint8] | None],
) -> tuple[list[NDArray[np.uint8] | None], int, int]:
    """The frames with three channels, and the height and width of the largest."""
    images: list[NDArray[np.uint8] | None] = [None] * len(frames)
    for i, frame in enumerate(frames):
        if frame is not None:
            images[i] = _colour(np.asarray(frame), i)
    shapes = [image.shape for image in images if image is not None]
    if not shapes:
        raise VecwrapError(
            "tile: expected at least one frame, got none. Is the render mode rgb_array?"
        )
    return images, max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)


def _colour(frame: NDArray[np.uint8], i: int) -> NDArray[np.uint8]:
    if frame.ndim == 2:
        frame = frame[:, :, None]
    if frame.ndim != 3 or frame.shape[2] not in (1, 3) or frame.dtype != np.uint8:
        raise VecwrapError(
            f"tile: frame {i}: expected (height, width, 3) or (height, width) uint8, got "
            f"{frame.shape} {frame.dtype}."
        )
    return np.broadcast_to(frame, (*frame.shape[:2], 3))


class Labels:
    """The score and length of each game, from the environment's own rewards, as labels of tiles."""

    def __init__(self, num_envs: int) -> None:
        self._scores = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._ended = np.zeros(num_envs, dtype=np.bool_)  # the label is about a game that is over

    def take(self, step: StepResult) -> None:
        rows = step.rows
        live = step.observed
        begun = self._ended[rows] & live  # the label was about the previous game
        scores = np.where(begun, 0.0, self._scores[rows]) + step.raw_rewards
        lengths = np.where(begun, 0, self._lengths[rows]) + step.acted
        over = step.raw_dones | (step.lost & ~begun)
        anew = (step.raw_first | step.opens_absent) & ~over
        self._scores[rows] = np.where(
            anew, np.where(step.paid_on_joining, step.raw_rewards, 0.0), scores
        )
        self._lengths[rows] = np.where(anew, 0, lengths)
        self._ended[rows] = over | (self._ended[rows] & ~live)

    def picture(
        self, frames: Sequence[NDArray[np.uint8] | None], size: tuple[int, int], least: int = 0
    ) -> NDArray[np.uint8]:
        """Tile frames into an image of at most ``size``, at least ``least`` wide, with labels."""
        return labelled(
            frames, game_labels(self._scores, self._lengths), self._ended.tolist(), size, least
        )

    def state(self) -> dict[str, Any]:
        return {
            "scores": self._scores.copy(),
            "lengths": self._lengths.copy(),
            "ended": self._ended.copy(),
        }

    def load(self, state: dict[str, Any]) -> None:
        put(self._scores, state["scores"], "scores")
        put(self._lengths, state["lengths"], "lengths")
        put(self._ended, state["ended"], "ended")


def display_image(image: NDArray[np.uint8]) -> None:
    if not in_notebook():
        raise ArgumentError(
            "show: expected a Jupyter notebook, whose cell it draws below. Elsewhere: build(..., "
            'render_mode="human") opens a window, env.picture() gives the image as an array'
        )
    _, content = load_cv2("show").imencode(".png", np.ascontiguousarray(image[..., ::-1]))
    display: Any = import_module("IPython.display")
    display.display(display.Image(data=bytes(content)))


def in_notebook() -> bool:
    if "IPython" in sys.modules:
        shell: Any = sys.modules["IPython"].get_ipython()
    else:
        shell = None
    return getattr(shell, "kernel", None) is not None


def load_cv2(wrapper: str) -> Any:
    """Import OpenCV when a wrapper needs it; raise PlanError with a remedy if the import fails.

    The import is slow, and OpenCV is not always installed.
    """
    try:
        return import_module("cv2")
    except ImportError as error:
        remedy = (
            "pip install opencv-python (on a machine without a display: opencv-python-headless)"
        )
        if any(library in str(error) for library in ("libGL", "libgthread", "libglib")):
            remedy = (
                "a system library is missing. On Debian and Ubuntu: apt-get install libgl1 "
                "libglib2.0-0. Or take the wheel that needs neither: pip uninstall opencv-python "
                "&& pip install opencv-python-headless"
            )
        raise PlanError(
            f"{wrapper} changes images with OpenCV, but `import cv2` failed ({error}): {remedy}"
        ) from error
