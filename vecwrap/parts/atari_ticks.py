"""Play a few emulator ticks with one action, and make one small grey image of their last two frames.

Two players do the same thing, bit for bit. `ThroughStep` goes through ``env.step`` and works with any wrappers in
between; it pays for a colour frame at each tick, though only two frames of an agent step are used. `Direct` accesses
the emulator: it keeps the screens as palette indices, from which `PooledImage` makes the image.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal, Protocol

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from vecwrap.env_chain import wrappers_of
from vecwrap.errors import PlanError
from vecwrap.parts.atari_image import Image, PooledImage, palette, resized
from vecwrap.parts.atari_settings import Pooling
from vecwrap.parts.tiles import load_cv2
from vecwrap.tap import Tap

__all__ = ["Direct", "Player", "ThroughStep", "obstacle"]

Info = dict[str, Any]
Path = Literal["direct", "through env.step"]

TRANSPARENT = (OrderEnforcing, PassiveEnvChecker, TimeLimit, Tap)
"""Wrappers that do not change a step; `Direct` does the work of TimeLimit and Tap itself."""

PAL_HEIGHT = 250


class Player(Protocol):
    """The Atari layer's interface to the emulator."""

    path: Path

    def reset(self, seed: int | None, options: Info | None) -> Info:
        """Start a new game; its first frame is the only one of `image`."""

    def play(self, action: Any, ticks: int) -> tuple[float, bool, bool, Info]:
        """Hold one action for some ticks, or until the game ends; return reward, terminated, truncated, info."""

    def image(self) -> Image:
        """Pool the last two frames, or the only one, of the latest `play` or `reset`: (size, size) uint8, fresh."""


class ThroughStep:
    """Goes through ``env.step``, so every wrapper in between takes effect.

    Args:
        env: what lies inside the Atari layer.
        size: height and width of the image.
        pooling: how two frames become one grey image.
    """

    path: Path = "through env.step"

    def __init__(self, env: gymnasium.Env[Any, Any], size: int, pooling: Pooling) -> None:
        self._env = env
        self._size = size
        self._cv2 = load_cv2("atari")
        self._ale: Any = env.unwrapped.ale  # type: ignore[attr-defined]
        shape = env.observation_space.shape
        assert shape is not None, "the Atari layer checks that the observations are images"
        self._grey_screens = pooling == "maximum of the greys" and len(shape) == 3
        self._frames = np.empty((2, *(shape[:2] if self._grey_screens else shape)), np.uint8)
        self._count = 0

    def reset(self, seed: int | None, options: Info | None) -> Info:
        """Start a new game; its first frame is the only one of `image`."""
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
        """Hold one action for some ticks, or until the game ends; return reward, terminated, truncated, info."""
        total = 0.0
        for tick in range(ticks):
            observation, reward, terminated, truncated, info = self._env.step(action)
            self._keep(tick, observation)
            total += float(reward)
            if terminated or truncated:
                break
        return total, terminated, truncated, info

    def image(self) -> Image:
        """Pool the last two frames, or the only one, of the latest `play` or `reset`: (size, size) uint8, fresh."""
        frame: Image = self._frames[0] if self._count == 1 else np.maximum(self._frames[0], self._frames[1])
        grey = frame if frame.ndim == 2 else self._cv2.cvtColor(frame, self._cv2.COLOR_RGB2GRAY)
        return resized(self._cv2, grey, self._size, self._size)

    def _keep(self, tick: int, observation: Any) -> None:
        """Keep the frame of a tick (from 0). Each one is kept, because the game may end at the next."""
        if self._grey_screens:
            self._ale.getScreenGrayscale(self._frames[tick % 2])
        else:
            self._frames[tick % 2] = observation
        self._count = tick + 1


class Direct:
    """Accesses the emulator itself; `obstacle` returns the reason if that is not possible.

    Args:
        env: what lies inside the Atari layer.
        size: height and width of the image.
        pooling: how two frames become one grey image.
    """

    path: Path = "direct"

    def __init__(self, env: gymnasium.Env[Any, Any], size: int, pooling: Pooling) -> None:
        self._env = env
        self._game: Any = env.unwrapped
        self._ale: Any = env.unwrapped.ale  # type: ignore[attr-defined]
        shape = self._ale.getScreenDims()
        self._screens = np.empty((2, *shape), np.uint8)
        self._each_screen = tuple(self._screens)
        self._image = PooledImage(shape, size, pooling)
        self._count = 0
        # inner first, as the result of a step passes them
        self._watchers: list[Any] = [layer for layer in wrappers_of(env) if isinstance(layer, (TimeLimit, Tap))][::-1]
        self._time_limits: list[Any] = [layer for layer in self._watchers if isinstance(layer, TimeLimit)]
        self._fresh = self._ale.getFloat("repeat_action_probability") == 0.0 and any(
            isinstance(layer, OrderEnforcing) and not layer.has_reset for layer in wrappers_of(env)
        )

    def reset(self, seed: int | None, options: Info | None) -> Info:
        """Start a new game; its first frame is the only one of `image`."""
        with _as_it_was_loaded(self._game) if self._fresh else contextlib.nullcontext():
            info = self._env.reset(seed=seed, options=options)[1]
        self._fresh = False
        self._ale.getScreen(self._screens[0])
        self._count = 1
        if not np.array_equal(palette()[self._screens[0]], self._ale.getScreenRGB()):
            raise PlanError(
                "atari: expected the NTSC palette, got colours that are not in it: give atari direct=False, and please "
                f"report the game, {self._game.spec}"
            )
        return info

    def play(self, action: Any, ticks: int) -> tuple[float, bool, bool, Info]:
        """Hold one action for some ticks, or until the game ends; return reward, terminated, truncated, info."""
        ale, held = self._ale, self._game._action_set[action]
        total = 0
        for tick in range(self._ticks_left(ticks)):
            total += ale.act(held)
            ale.getScreen(self._each_screen[tick % 2])  # at each tick, because the game may end at the next
            if ale.game_over():
                break
        self._count = tick + 1
        terminated, truncated = ale.game_over(with_truncation=False), ale.game_truncated()
        for watcher in self._watchers:
            if isinstance(watcher, Tap):
                watcher.record(float(total), terminated or truncated)
            else:
                watcher._elapsed_steps += self._count
                truncated = truncated or watcher._elapsed_steps >= watcher._max_episode_steps
        return float(total), terminated, truncated, self._game._get_info()

    def image(self) -> Image:
        """Pool the last two frames, or the only one, of the latest `play` or `reset`: (size, size) uint8, fresh."""
        if self._count == 1:
            self._screens[1] = self._screens[0]
        return self._image(self._screens)

    def _ticks_left(self, ticks: int) -> int:
        """How many of these ticks the time limits allow; a step past the end is one tick, as through ``env.step``."""
        if not self._time_limits:
            return ticks
        left: list[int] = [limit._max_episode_steps - limit._elapsed_steps for limit in self._time_limits]
        return max(1, min(ticks, *left))


@contextlib.contextmanager
def _as_it_was_loaded(game: Any) -> Iterator[None]:
    """Skip reloading the cartridge, which takes 84 ms, in the environment's seeded reset.

    For a game that was just loaded and never reset, and without sticky actions: then the emulator draws no random
    numbers, so the seed has no effect in it. (Once a game has been played, its state may outlive ``reset_game``, as in
    Assault and Tennis: then only reloading gives the same game again.)
    """
    game.load_game = lambda: None
    try:
        yield
    finally:
        del game.load_game


def obstacle(env: gymnasium.Env[Any, Any]) -> str | None:
    """Return what prevents `Direct` from accessing the emulator, if anything.

    Args:
        env: what lies inside the Atari layer.
    """
    for layer in wrappers_of(env):
        if type(layer) not in TRANSPARENT:
            return f"{type(layer).__name__} lies between atari and the emulator, and may change what passes"
        if isinstance(layer, TimeLimit) and not hasattr(layer, "_elapsed_steps"):
            return "this version of Gymnasium's TimeLimit counts in another way"
    game: Any = env.unwrapped
    kind = f"{type(game).__module__}.{type(game).__qualname__}"
    if kind != "ale_py.env.AtariEnv" or not hasattr(game, "_action_set") or not hasattr(game, "_get_info"):
        return f"{kind} is not the environment of ale-py that this version of vecwrap knows"
    if game.ale.getScreenDims()[0] >= PAL_HEIGHT:
        return "the game is for PAL consoles, whose colours are others"
    return None
