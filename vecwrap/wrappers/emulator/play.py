"""The emulator under the Atari wrapper: a few ticks with one action, and one small grey image.

The image pools the last two frames of the ticks.

Two players do the same thing, bit for bit: `StepPlayer` works with any wrappers in between,
`DirectPlayer` accesses the emulator and makes no colour frames.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from vecwrap.env.picture import load_cv2
from vecwrap.errors import PlanError
from vecwrap.rows.step_result import IntArray
from vecwrap.sources.description import wrappers_of
from vecwrap.sources.raw_rewards import RawRewardRecorder
from vecwrap.wrappers.emulator.lineages import Pooling, Settings
from vecwrap.wrappers.emulator.openings import Begun

Image = NDArray[np.uint8]
Info = dict[str, Any]
Path = Literal["direct", "through env.step"]
Played = tuple[None, float, bool, bool, Info]

TRANSPARENT = (OrderEnforcing, PassiveEnvChecker, TimeLimit, RawRewardRecorder)
"""Wrappers that do not change a step; `DirectPlayer` does their work itself."""

PAL_HEIGHT = 250


class StepPlayer:
    """Goes through ``env.step``, so every wrapper in between takes effect."""

    path: Path = "through env.step"

    def __init__(self, env: gymnasium.Env[Any, Any], size: int, pooling: Pooling) -> None:
        self._env = env
        self._size = size
        self._cv2 = load_cv2("atari")
        self._ale: Any = env.unwrapped.ale  # type: ignore[attr-defined]
        shape = env.observation_space.shape
        assert shape is not None, "the Atari wrapper checks that the observations are images"
        self._grey_screens = pooling == "maximum of the greys" and len(shape) == 3
        if self._grey_screens:
            shape = shape[:2]
        self._frames = np.empty((2, *shape), np.uint8)
        self._count = 0

    def reset(self, seed: int | None, options: Info | None) -> Begun:
        observation, info = self._env.reset(seed=seed, options=options)
        if self._grey_screens and not np.array_equal(observation, self._ale.getScreenRGB()):
            raise PlanError(
                "atari: this lineage takes the emulator's own greys, but a wrapper inside it "
                "changes the colour observations, and that would be lost: make the environment "
                'with obs_type="grayscale", or put that wrapper outside of atari'
            )
        self._keep(0, observation)
        return None, info

    def play(self, action: Any, ticks: int = 1, *, one_life: bool = False) -> Played:
        """Hold one action for some ticks, or until the game ends, or a life with ``one_life``."""
        total = 0.0
        lives = 0
        if one_life:
            lives = self._ale.lives()
        for tick in range(ticks):
            observation, reward, terminated, truncated, info = self._env.step(action)
            self._keep(tick, observation)
            total += float(reward)
            if one_life:
                before = lives
                lives = self._ale.lives()
                terminated = terminated or lives < before
            if terminated or truncated:
                break
        return None, total, terminated, truncated, info

    def image(self) -> Image:
        """Return a new (size, size) uint8 image of the last two frames, or of the only one."""
        if self._count == 1:
            frame: Image = self._frames[0]
        else:
            frame = np.maximum(self._frames[0], self._frames[1])
        if frame.ndim == 2:
            grey = frame
        else:
            grey = self._cv2.cvtColor(frame, self._cv2.COLOR_RGB2GRAY)
        return resized(self._cv2, grey, self._size, self._size)

    def _keep(self, tick: int, observation: Any) -> None:
        """Keep the frame of a tick (from 0).

        Each one is kept, because the game may end at the next.
        """
        if self._grey_screens:
            self._ale.getScreenGrayscale(self._frames[tick % 2])
        else:
            self._frames[tick % 2] = observation
        self._count = tick + 1


class DirectPlayer:
    """Accesses the emulator itself; `obstacle` returns the reason if that is not possible."""

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
        self._watchers: list[Any] = [
            wrapper
            for wrapper in wrappers_of(env)
            if isinstance(wrapper, (TimeLimit, RawRewardRecorder))
        ][::-1]
        self._time_limits: list[Any] = [
            wrapper for wrapper in self._watchers if isinstance(wrapper, TimeLimit)
        ]
        self._fresh = self._ale.getFloat("repeat_action_probability") == 0.0 and any(
            isinstance(wrapper, OrderEnforcing) and not wrapper.has_reset
            for wrapper in wrappers_of(env)
        )

    def reset(self, seed: int | None, options: Info | None) -> Begun:
        loaded: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self._fresh:
            loaded = _as_it_was_loaded(self._game)
        with loaded:
            info = self._env.reset(seed=seed, options=options)[1]
        self._fresh = False
        self._ale.getScreen(self._screens[0])
        self._count = 1
        if not np.array_equal(palette()[self._screens[0]], self._ale.getScreenRGB()):
            raise PlanError(
                "atari: expected the NTSC palette, got colours that are not in it: give atari "
                f"direct=False, and please report the game, {self._game.spec}"
            )
        return None, info

    def play(self, action: Any, ticks: int = 1, *, one_life: bool = False) -> Played:
        ale = self._ale
        held = self._game._action_set[action]  # noqa: SLF001
        total = 0
        lost = False
        lives = 0
        if one_life:
            lives = self._ale.lives()
        for tick in range(self._ticks_left(ticks)):
            total += ale.act(held)
            # At each tick, because the game may end at the next.
            ale.getScreen(self._each_screen[tick % 2])
            if one_life:
                before = lives
                lives = ale.lives()
                lost = lives < before
            if lost or ale.game_over():
                break
        self._count = tick + 1
        terminated = ale.game_over(with_truncation=False)
        truncated = ale.game_truncated()
        for watcher in self._watchers:
            if isinstance(watcher, RawRewardRecorder):
                watcher.record(float(total), terminated or truncated)
            else:
                watcher._elapsed_steps += self._count  # noqa: SLF001
                if watcher._elapsed_steps >= watcher._max_episode_steps:  # noqa: SLF001
                    truncated = True
        info = self._game._get_info()  # noqa: SLF001
        return None, float(total), terminated or lost, truncated, info

    def image(self) -> Image:
        if self._count == 1:
            self._screens[1] = self._screens[0]
        return self._image(self._screens)

    def _ticks_left(self, ticks: int) -> int:
        """Return how many of these ticks the time limits allow, at least one.

        A step past the end is one tick, as through ``env.step``.
        """
        if not self._time_limits:
            return ticks
        left: list[int] = [
            limit._max_episode_steps - limit._elapsed_steps  # noqa: SLF001
            for limit in self._time_limits
        ]
        return max(1, min(ticks, *left))


@contextlib.contextmanager
def _as_it_was_loaded(game: Any) -> Iterator[None]:
    """Skip reloading the cartridge, which takes 84 ms, in the environment's seeded reset.

    For a game that was just loaded and never reset, and without sticky actions: then the emulator
    draws no random numbers, so the seed has no effect in it. (Once a game has been played, its
    state may outlive ``reset_game``, as in Assault and Tennis: then only reloading gives the same
    game again.)
    """
    game.load_game = lambda: None
    try:
        yield
    finally:
        del game.load_game


def obstacle(env: gymnasium.Env[Any, Any]) -> str | None:
    """Return what prevents `DirectPlayer` from accessing the emulator, if anything."""
    for wrapper in wrappers_of(env):
        if type(wrapper) not in TRANSPARENT:
            return (
                f"{type(wrapper).__name__} lies between atari and the emulator, and may change "
                "what passes"
            )
        if isinstance(wrapper, TimeLimit) and not hasattr(wrapper, "_elapsed_steps"):
            return "this version of Gymnasium's TimeLimit counts in another way"
    game: Any = env.unwrapped
    kind = f"{type(game).__module__}.{type(game).__qualname__}"
    if (
        kind != "ale_py.env.AtariEnv"
        or not hasattr(game, "_action_set")
        or not hasattr(game, "_get_info")
    ):
        return f"{kind} is not the environment of ale-py that this version of vecwrap knows"
    if getattr(game, "continuous", False):
        return "the game's actions are continuous"
    if game.ale.getScreenDims()[0] >= PAL_HEIGHT:
        return "the game is for PAL consoles, whose colours are others"
    return None


def choose_player(env: gymnasium.Env[Any, Any], settings: Settings) -> StepPlayer | DirectPlayer:
    reason: str | None = "direct=False"
    if settings.direct is not False:
        reason = obstacle(env)
    if settings.direct and reason:
        raise PlanError(
            f"atari: direct=True is not possible: {reason}. Leave direct out: the stream is the "
            "same"
        )
    return (StepPlayer if reason else DirectPlayer)(env, settings.screen_size, settings.pooling)


class PooledImage:
    """The image of two screens of palette indices: pooled, grey and small.

    Most of an Atari screen does not change between agent steps. So the image is kept, and only
    bands in which a pixel of either screen has changed are recomputed: bit for bit the same, in a
    third of the time (Breakout) to five sixths of it (Enduro). The width of a screen is a multiple
    of 32.
    """

    def __init__(self, shape: tuple[int, int], size: int, pooling: Pooling) -> None:
        height, self._width = shape
        self._size = size
        self._cv2 = load_cv2("atari")
        self._table = pooled_greys(pooling)
        bands = num_bands(height, size)
        self._rows = size // bands  # of the image, in a band
        self._seen = np.zeros((2, bands, height // bands * self._width), np.uint8)
        self._image = np.full((bands, self._rows, size), self._table[0])
        # Whether an interrupt may have left the image inconsistent with its screens.
        self._is_inconsistent = False

    def __call__(self, screens: Image) -> Image:
        """Return a new image of (2, height, width) contiguous uint8 screens, which are not kept."""
        bands = screens.reshape(self._seen.shape)
        if self._is_inconsistent:
            changed = np.arange(len(self._image))
        else:
            changed = self._changed(bands)
        if len(changed):
            new = bands.take(changed, axis=1)
            greys = self._table.take(new[0].astype(np.uint16) << 8 | new[1]).reshape(
                -1, self._width
            )
            small = resized(self._cv2, greys, len(changed) * self._rows, self._size)
            self._is_inconsistent = True
            self._image[changed] = small.reshape(-1, self._rows, self._size)
            self._seen[:, changed] = new
            self._is_inconsistent = False
        return self._image.reshape(self._size, self._size).copy()

    def _changed(self, bands: Image) -> IntArray:
        """Return the bands in which a pixel of either screen has changed.

        Pixels are compared eight at a time, and the results are combined for 32 pixels at a time.
        """
        differ = bands.view(np.uint64) != self._seen.view(np.uint64)
        on_either: IntArray = np.bitwise_or.reduce((differ[0] | differ[1]).view(np.uint32), axis=1)
        return on_either.nonzero()[0]


def resized(cv2: Any, image: Image, height: int, width: int) -> Image:
    small: Image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    return small


def num_bands(height: int, size: int) -> int:
    """Return how many bands of a screen can be resized separately with bit-identical results.

    Each band has whole rows before and after resizing: five of a screen's 210 rows become two of
    84. OpenCV splits the screen's rows at multiples of the scale, height / size, as doubles. If
    that is exact, a band is split the same alone as within the whole; otherwise there is one band.
    """
    exact = Fraction(1 / (size / height)) == Fraction(height, size)
    if exact:
        return math.gcd(height, size)
    return 1


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
"""The emulator's NTSC colours: one hue per row, by luminance; the index's last bit is 0."""


@functools.cache
def palette() -> Image:
    """Return the RGB colour of each palette index: (256, 3) uint8."""
    colours = np.zeros((256, 3), np.uint8)
    colours[::2] = np.frombuffer(bytes.fromhex(NTSC), np.uint8).reshape(128, 3)
    colours.flags.writeable = False
    return colours


@functools.cache
def pooled_greys(pooling: Pooling) -> Image:
    """Return the pooled grey of each pair of palette indices, (65536,) uint8.

    The entry of a pair is at first index * 256 + second index.
    """
    colours = palette()
    table: Image
    if pooling == "grey of the maximum":
        cv2 = load_cv2("atari")
        table = cv2.cvtColor(np.maximum(colours[:, None], colours[None]), cv2.COLOR_RGB2GRAY)
    else:
        # The emulator's own formula.
        greys = np.round(colours @ np.array([0.2989, 0.5870, 0.1140])).astype(np.uint8)
        table = np.maximum.outer(greys, greys)
    table = table.reshape(-1)
    table.flags.writeable = False
    return table
