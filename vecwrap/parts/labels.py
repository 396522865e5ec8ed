"""The labels on each sub-environment's picture: index, score, length, and whether its game has just ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecwrap.contract import StepResult
from vecwrap.parts import tiles

__all__ = ["READABLE", "Labels"]

READABLE = 110  # pixels of width that a label needs


class Labels:
    """Keeps the score and length of each game, from the environment's own rewards and ends.

    Args:
        num_envs: n.
    """

    def __init__(self, num_envs: int) -> None:
        self._scores = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._ended = np.zeros(num_envs, dtype=np.bool_)  # the label is about a game that is over

    def take(self, step: StepResult) -> None:
        """Keep score."""
        rows, live = step.rows, step.live
        begun = self._ended[rows] & live  # the label was about the previous game
        scores = np.where(begun, 0.0, self._scores[rows]) + step.raw_rewards
        lengths = np.where(begun, 0, self._lengths[rows]) + step.acted
        over = step.raw_dones | (step.lost & ~begun)
        anew = step.raw_first & ~over
        self._scores[rows] = np.where(anew, 0.0, scores)
        self._lengths[rows] = np.where(anew, 0, lengths)
        self._ended[rows] = over | (self._ended[rows] & ~live)

    def picture(
        self, frames: Sequence[NDArray[np.uint8] | None], size: tuple[int, int], width: int = READABLE
    ) -> NDArray[np.uint8]:
        """Lay frames out as one image, with a label on each.

        Args:
            frames: n frames, each (height, width, 3) or (height, width) uint8, or None.
            size: the maximum width and height of the image, in pixels.
            width: narrower tiles are enlarged by whole pixels to this width, if there is room.

        Returns:
            (height, width, 3) uint8, a fresh array.
        """
        _, columns = tiles.grid(len(frames))
        image = tiles.fit(tiles.enlarge(tiles.tile(frames), width * columns, size), size)
        texts = [
            (f"#{i}  score {score:g}  {length} steps", f"#{i}  {score:g}  {length}", f"#{i}")
            for i, (score, length) in enumerate(
                zip(np.round(self._scores, 2).tolist(), self._lengths.tolist(), strict=True)
            )
        ]
        return tiles.caption(image, texts, self._ended.tolist())

    def state(self) -> dict[str, Any]:
        """Give all that is needed to go on, as fresh copies."""
        return {"scores": self._scores.copy(), "lengths": self._lengths.copy(), "ended": self._ended.copy()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on with what ``state`` gave."""
        self._scores[:] = state["scores"]
        self._lengths[:] = state["lengths"]
        self._ended[:] = state["ended"]
