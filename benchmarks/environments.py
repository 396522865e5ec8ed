"""Environments of known cost.

Their ids name this module, so that every process that makes one imports it.
"""

import time

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = [
    "UNEVEN",
    "WAIT",
    "WORK",
    "Toy",
    "Uneven",
    "Wait",
    "Work",
    "loops_per_microsecond",
    "spin",
]

CALIBRATION_LOOPS = 200_000
FRAMES = 4  # made beforehand: observations are there to be moved, not computed


def spin(loops: int) -> None:
    """Keep a core busy.

    Loops are counted, not time: two at once on one core take twice as long, as real work does.
    """
    for _ in range(loops):
        pass


def loops_per_microsecond(clock=time.perf_counter) -> float:
    """Measure how many loops of ``spin`` take a microsecond here; the best of several, as others
    only slow it down.
    """
    seconds = []
    for _ in range(9):
        start = clock()
        spin(CALIBRATION_LOOPS)
        seconds.append(clock() - start)
    return CALIBRATION_LOOPS / (min(seconds) * 1e6)


class Toy(gymnasium.Env):
    """Returns uint8 arrays made beforehand, and ends after 400 to 600 steps; the seed decides which
    and when.
    """

    metadata = {"render_modes": []}

    def __init__(self, shape=(8,)):
        self.observation_space = spaces.Box(0, 255, tuple(shape), np.uint8)
        self.action_space = spaces.Discrete(2)
        rng = np.random.default_rng(0)
        self._shown = rng.integers(0, 256, (FRAMES, *shape), np.uint8)
        self._now = self._end = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._now, self._end = (int(k) for k in self.np_random.integers((0, 400), (FRAMES, 600)))
        self._end += self._now
        return self._shown[self._now % FRAMES], {}

    def step(self, action):
        self.work()
        self._now += 1
        return self._shown[self._now % FRAMES], float(action), self._now >= self._end, False, {}

    def work(self):
        """What a step costs; here nothing."""


class Work(Toy):
    """A step that computes for a while, in loops as ``loops_per_microsecond`` measured them, once
    per run.
    """

    def __init__(self, microseconds, loops_per_us, shape=(8,)):
        super().__init__(shape)
        self._loops = round(microseconds * loops_per_us)

    def work(self):
        spin(self._loops)


class Wait(Toy):
    """A step that waits, as one does that has its simulator elsewhere."""

    def __init__(self, milliseconds):
        super().__init__()
        self._seconds = milliseconds / 1000

    def work(self):
        time.sleep(self._seconds)


class Uneven(Toy):
    """A step that takes a random 0.2 to 5 ms: asleep, like one that waits for a device, or
    computing.
    """

    def __init__(self, waits=True, loops_per_us=0.0):
        super().__init__()
        self._waits = waits
        self._loops_per_us = loops_per_us

    def work(self):
        milliseconds = self.np_random.uniform(0.2, 5.0)
        if self._waits:
            time.sleep(milliseconds / 1000)
        else:
            spin(round(milliseconds * 1000 * self._loops_per_us))


def _register(kind: type) -> str:
    name = f"Bench{kind.__name__}-v0"
    if name not in gymnasium.registry:
        gymnasium.register(name, f"{__name__}:{kind.__name__}")
    return f"{__name__}:{name}"


WORK, WAIT, UNEVEN = map(_register, (Work, Wait, Uneven))
