"""One image of all sub-environments, returned by ``env.render()``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vecwrap.env import picture as tiles
from vecwrap.env.games import first_rows
from vecwrap.env.picture import Labels, load_cv2
from vecwrap.env.refusals import refuse_mode
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError
from vecwrap.rows.step_result import StepResult


class Tile(VecEnvWrapper):
    """Render all sub-environments as one image.

    ``env.render()`` returns it, whatever wrappers are outside this one: row by row, the first at
    the top left, with as few empty places as possible (8 are two rows of four). Frames of unequal
    size are padded with black. The image is scaled down to fit ``size``, for any n.
    (``get_images()`` still returns the single frames.)

    With ``labels``, a strip above each tile shows its index, and the score and length (in agent
    steps) of its game: the environment's own rewards, even if wrappers clip rewards or end episodes
    at lost lives. Lines divide the tiles. A game that ended in the last result has its final score
    and an orange line around it; in same-step mode the frame below is already the next game's
    first. Frames too small for words are enlarged by whole pixels. Small tiles show only the
    numbers, or only the index; tiny ones have no label.

    At an episode's end:
        With labels, the tile shows the final score and an orange line around it.

    Args:
        env: what it wraps; built with ``render_mode="rgb_array"``.
        labels: index, score and length above each tile.
        size: the maximum width and height of the image, in pixels.

    Raises:
        PlanError: an environment without ``rgb_array`` rendering, a size below 16, labels without
            OpenCV, or labels in games of several agents.

    Example:
        >>> import vecwrap
        >>> from vecwrap.testing import ToyEnv  # its frames are 4 pixels high and 6 wide
        >>> env = Tile(vecwrap.build(lambda: ToyEnv(render_mode="rgb_array"), n=5, backend="dummy"))
        >>> observations, infos = env.reset(seed=1)
        >>> env.render().shape
        (8, 18, 3)
        >>> env.close()
    """

    not_hashed: ClassVar[frozenset[str]] = frozenset({"labels", "size"})

    reads_observations: ClassVar[bool] = False

    def __init__(
        self, env: VecEnv, labels: bool = False, *, size: tuple[int, int] = tiles.MAX_PICTURE_PIXELS
    ) -> None:
        super().__init__(env)
        tiles.refuse_without_frames("tile", env)
        if min(size) < 16:
            raise PlanError(
                "tile: size: expected a width and a height of at least 16 pixels, got "
                f"{tuple(size)}"
            )
        if labels and env.possible_agents:
            raise PlanError(
                "tile: labels: expected False in games of several agents, which have several scores"
            )
        self._has_labels = labels
        self._size = (int(size[0]), int(size[1]))
        self._labels = Labels(env.num_envs)
        if labels:
            load_cv2("tile")

    def on_step(self, step: StepResult) -> None:
        if self._has_labels:
            self._labels.take(step)

    def render(self, mode: None = None) -> Any:
        refuse_mode(mode)
        return self.picture()

    def picture(self) -> NDArray[np.uint8]:
        frames = self.get_images(first_rows(self.call_state, self.core))
        if self._has_labels:
            return self._labels.picture(frames, self._size)
        return tiles.fit(tiles.tile(frames), self._size)

    def wrapper_state(self) -> dict[str, Any]:
        return self._labels.state()

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        self._labels.load(state)
