"""Play a few emulator ticks with one action, and pool their last two frames into one grey image.

Two players do the same thing. `ThroughStep` goes through ``env.step`` and works with whatever lies in between. A tick
costs it a colour frame, though only two frames of an agent step are looked at.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from vecwrap.atari_settings import Pooling
from vecwrap.errors import PlanError

__all__ = ["Image", "Player", "ThroughStep", "load_cv2"]

Image = NDArray[np.uint8]
Info = dict[str, Any]


class Player(Protocol):
    """What the Atari layer asks of the way to the emulator."""

    path: str

    def reset(self, seed: int | None, options: Info | None) -> Info:
        """Start a new game; its first frame is the only one of `grey`."""

    def play(self, action: Any, ticks: int) -> tuple[float, bool, bool, Info]:
        """Hold one action for so many ticks, or until the game ends; give reward, terminated, truncated, info."""

    def grey(self) -> Image:
        """Pool the last two frames, or the only one, of the latest `play` or `reset`: (height, width) uint8."""


class ThroughStep:
    """Goes through ``env.step``, so every wrapper in between has its say.

    Args:
        env: what lies inside the Atari layer.
        pooling: how two frames become one grey image.
    """

    path = "through env.step"

    def __init__(self, env: gymnasium.Env[Any, Any], pooling: Pooling) -> None:
        self._env = env
        self._cv2 = load_cv2()
        self._ale = env.unwrapped.ale  # type: ignore[attr-defined]
        shape = env.observation_space.shape
        assert shape is not None, "the Atari layer checks that the observations are images"
        self._grey_screens = pooling == "maximum of the greys" and len(shape) == 3
        self._frames = np.empty((2, *(shape[:2] if self._grey_screens else shape)), np.uint8)
        self._count = 0

    def reset(self, seed: int | None, options: Info | None) -> Info:
        """Start a new game; its first frame is the only one of `grey`."""
        observation, info = self._env.reset(seed=seed, options=options)
        if self._grey_screens and not np.array_equal(observation, self._ale.getScreenRGB()):
            raise PlanError(
                "atari: this lineage takes the emulator's own greys, but a wrapper inside it changes the colour "
                'observations, and that would be lost: make the environment with obs_type="grayscale", or put that '
                "wrapper outside of atari"
            )
        self._keep(0, observation)
        return info

    def play(self, action: Any, ticks: int) -> tuple[float, bool, bool, Info]:
        """Hold one action for so many ticks, or until the game ends; give reward, terminated, truncated, info."""
        total = 0.0
        for tick in range(ticks):
            observation, reward, terminated, truncated, info = self._env.step(action)
            self._keep(tick, observation)
            total += float(reward)
            if terminated or truncated:
                break
        return total, terminated, truncated, info

    def grey(self) -> Image:
        """Pool the last two frames, or the only one, of the latest `play` or `reset`: (height, width) uint8."""
        frame: Image = self._frames[0] if self._count == 1 else np.maximum(self._frames[0], self._frames[1])
        return frame if frame.ndim == 2 else self._cv2.cvtColor(frame, self._cv2.COLOR_RGB2GRAY)

    def _keep(self, tick: int, observation: Any) -> None:
        """Keep the frame of a tick (from 0). Every one is kept, because the game may end at the next."""
        if self._grey_screens:
            self._ale.getScreenGrayscale(self._frames[tick % 2])
        else:
            self._frames[tick % 2] = observation
        self._count = tick + 1


def load_cv2() -> Any:
    """Import OpenCV, which is slow and not always there, when it is first needed.

    Raises:
        PlanError: it cannot be imported; says which packages are missing.
    """
    try:
        return import_module("cv2")
    except ImportError as error:
        if any(library in str(error) for library in ("libGL", "libgthread", "libglib")):
            remedy = (
                "a system library is missing. On Debian and Ubuntu: apt-get install libgl1 libglib2.0-0. Or take the "
                "wheel that needs neither: pip uninstall opencv-python && pip install opencv-python-headless"
            )
        else:
            remedy = "pip install opencv-python (on a machine without a display: opencv-python-headless)"
        raise PlanError(f"atari resizes images with OpenCV, but `import cv2` failed ({error}): {remedy}") from error
