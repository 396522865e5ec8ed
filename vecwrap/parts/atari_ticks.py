"""Play a few emulator ticks with one action, and pool their last two frames into one grey image.

Two players do the same thing, bit for bit. `ThroughStep` goes through ``env.step`` and works with whatever lies in
between; each tick costs it a colour frame, though only two frames of an agent step are looked at. `Direct` speaks to
the emulator: it keeps the screens as indices into the palette, and a table gives the grey of each pair of indices.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, Literal, Protocol

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from vecwrap.errors import PlanError
from vecwrap.parts.atari_settings import Pooling, layers_of
from vecwrap.parts.opencv import load_cv2
from vecwrap.sub_env import Tap

__all__ = ["Direct", "Image", "Player", "ThroughStep", "obstacle"]

Image = NDArray[np.uint8]
Info = dict[str, Any]
Path = Literal["direct", "through env.step"]

TRANSPARENT = (OrderEnforcing, PassiveEnvChecker, TimeLimit, Tap)
"""Wrappers that change nothing of a step; what TimeLimit and Tap do at each, `Direct` does in their place."""

PAL_HEIGHT = 250
MANY = 2000  # pixels; where more differ between two frames, to look each pair up takes less time than to find them
NTSC = """
    000000 4a4a4a 6f6f6f 8e8e8e aaaaaa c0c0c0 d6d6d6 ececec
    484800 69690f 86861d a2a22a bbbb35 d2d240 e8e84a fcfc54
    7c2c00 904811 a26221 b47a30 c3903d d2a44a dfb755 ecc860
    901c00 a33915 b55328 c66c3a d5824a e39759 f0aa67 fcbc74
    940000 a71a1a b83232 c84848 d65c5c e46f6f f08080 fc9090
    840064 97197a a8308f b846a2 c659b3 d46cc3 e07cd2 ec8ce0
    500084 68199a 7d30ad 9246c0 a459d0 b56ce0 c57cee d48cfc
    140090 331aa3 4e32b5 6848c6 7f5cd5 956fe3 a980f0 bc90fc
    000094 181aa7 2d32b8 4248c8 545cd6 656fe4 7580f0 8490fc
    001c88 183b9d 2d57b0 4272c2 548ad2 65a0e1 75b5ef 84c8fc
    003064 185080 2d6d98 4288b0 54a0c5 65b7d9 75cceb 84e0fc
    004030 18624e 2d8169 429e82 54b899 65d1ae 75e7c2 84fcd4
    004400 1a661a 328432 48a048 5cba5c 6fd26f 80e880 90fc90
    143c00 355f18 527e2d 6e9c42 87b754 9ed065 b4e775 c8fc84
    303800 505916 6d762b 88923e a0ab4f b7c25f ccd86e e0ec7c
    482c00 694d14 866a26 a28638 bb9f47 d2b656 e8cc63 fce070
"""
"""The colours of the NTSC console, as the emulator shows them: a hue a row, by luminance; the index's last bit is 0."""


class Player(Protocol):
    """What the Atari layer asks of the way to the emulator."""

    path: Path

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

    path: Path = "through env.step"

    def __init__(self, env: gymnasium.Env[Any, Any], pooling: Pooling) -> None:
        self._env = env
        self._cv2 = load_cv2("atari")
        self._ale: Any = env.unwrapped.ale  # type: ignore[attr-defined]
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


class Direct:
    """Speaks to the emulator itself; `obstacle` says where that cannot be done.

    Args:
        env: what lies inside the Atari layer.
        pooling: how two frames become one grey image.
    """

    path: Path = "direct"

    def __init__(self, env: gymnasium.Env[Any, Any], pooling: Pooling) -> None:
        self._env = env
        self._game: Any = env.unwrapped
        self._ale: Any = env.unwrapped.ale  # type: ignore[attr-defined]
        self._table, self._twins = pooled_greys(pooling), twin_greys(pooling)
        self._screens = np.empty((2, *self._ale.getScreenDims()), np.uint8)
        self._count = 0
        # inner first, as the result of a step passes them
        self._watchers: list[Any] = [layer for layer in layers_of(env) if isinstance(layer, (TimeLimit, Tap))][::-1]
        self._time_limits: list[Any] = [layer for layer in self._watchers if isinstance(layer, TimeLimit)]
        self._fresh = self._ale.getFloat("repeat_action_probability") == 0.0 and any(
            isinstance(layer, OrderEnforcing) and not layer.has_reset for layer in layers_of(env)
        )

    def reset(self, seed: int | None, options: Info | None) -> Info:
        """Start a new game; its first frame is the only one of `grey`."""
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
        """Hold one action for so many ticks, or until the game ends; give reward, terminated, truncated, info."""
        ale, held = self._ale, self._game._action_set[action]
        screens = tuple(self._screens)
        total = 0
        for tick in range(self._ticks_left(ticks)):
            total += ale.act(held)
            ale.getScreen(screens[tick % 2])  # at each tick, because the game may end at the next
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

    def grey(self) -> Image:
        """Pool the last two frames, or the only one, of the latest `play` or `reset`: (height, width) uint8."""
        first, second = self._screens
        greys: Image = self._twins.take(first.view(np.uint16)).view(np.uint8)  # right where both frames are the same
        if self._count == 1:
            return greys
        differ = np.flatnonzero(first != second)
        if len(differ) > MANY:
            greys = self._table.take(first.astype(np.uint16) << 8 | second)
        else:
            pairs = first.take(differ).astype(np.uint16) << 8 | second.take(differ)
            greys.reshape(-1)[differ] = self._table.take(pairs)
        return greys

    def _ticks_left(self, ticks: int) -> int:
        """How many of these ticks the time limits leave; a step past the end is one tick, as through ``env.step``."""
        left = (limit._max_episode_steps - limit._elapsed_steps for limit in self._time_limits)
        return max(1, min(ticks, *left)) if self._time_limits else ticks


@contextlib.contextmanager
def _as_it_was_loaded(game: Any) -> Iterator[None]:
    """Let the environment's seeded reset leave the cartridge alone, which takes it 84 ms to load.

    For a game that was just loaded and never reset, and whose actions are not sticky: without these the emulator draws
    nothing at random, so the seed changes nothing in it. (Once it has been played, the state of some games outlives
    ``reset_game``, Assault's and Tennis's among them: then only loading gives the same game again.)
    """
    game.load_game = lambda: None
    try:
        yield
    finally:
        del game.load_game


def obstacle(env: gymnasium.Env[Any, Any]) -> str | None:
    """Say what keeps `Direct` from the emulator, if anything does.

    Args:
        env: what lies inside the Atari layer.
    """
    for layer in layers_of(env):
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


@functools.cache
def palette() -> Image:
    """Give the RGB colour of each palette index: (256, 3) uint8."""
    colours = np.zeros((256, 3), np.uint8)
    colours[::2] = np.frombuffer(bytes.fromhex(NTSC), np.uint8).reshape(128, 3)
    colours.flags.writeable = False
    return colours


@functools.cache
def pooled_greys(pooling: Pooling) -> Image:
    """Give the pooled grey of each pair of palette indices: (65536,) uint8, at first index * 256 + second index."""
    colours = palette()
    table: Image
    if pooling == "grey of the maximum":
        cv2 = load_cv2("atari")
        table = cv2.cvtColor(np.maximum(colours[:, None], colours[None]), cv2.COLOR_RGB2GRAY)
    else:
        greys = np.round(colours @ np.array([0.2989, 0.5870, 0.1140])).astype(np.uint8)  # the emulator's own formula
        table = np.maximum.outer(greys, greys)
    table = table.reshape(-1)
    table.flags.writeable = False
    return table


@functools.cache
def twin_greys(pooling: Pooling) -> NDArray[np.uint16]:
    """Give the greys of two pixels side by side, each the same in both frames: (65536,) uint16, two greys in one.

    At the two palette indices, read as one number as they lie in memory. Most pixels of two frames are the same, and
    two of them at a time takes half as long.
    """
    same = pooled_greys(pooling)[:: 256 + 1]  # at index * 256 + index
    both = np.arange(1 << 16, dtype=np.uint16).view(np.uint8)
    table: NDArray[np.uint16] = same[both].view(np.uint16)
    table.flags.writeable = False
    return table
