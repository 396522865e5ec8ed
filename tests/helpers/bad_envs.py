"""Environments that are right, or each have one flaw by which a stream does not follow from its
seed.
"""

import random
import time

import gymnasium
import numpy as np
from gymnasium import spaces

WORDS = {f"word{i}" for i in range(40)}
MADE = []


class Right(gymnasium.Env):
    """Draws from its own generator alone; episodes of seven steps; NaN in an observation and in an
    info.
    """

    observation_space = spaces.Dict(
        {
            "a": spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
            "b": spaces.Discrete(1000),
            "nan": spaces.Box(-9, 9, ()),
        }
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation(), {}

    def step(self, action):
        self.steps += 1
        return self.observation(), self.reward(), self.steps == 7, False, self.info()

    def observation(self):
        return {
            "a": self.np_random.random((2, 2)),
            "b": self.b(),
            "nan": np.array(np.nan, np.float32),
        }

    def b(self):
        return 0

    def reward(self):
        return float(self.np_random.random())

    def info(self):
        return {"steps": self.steps, "nan": np.nan, "where": {"x": self.np_random.random(3)}}


class GlobalNumpy(Right):
    def b(self):
        return np.random.randint(1000)  # noqa: NPY002


class GlobalNumpySeeded(Right):
    """Seeds the global generator: right alone, but several sub-environments share it."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            np.random.seed(seed)  # noqa: NPY002
        return super().reset(seed=seed)

    def b(self):
        return np.random.randint(1000)  # noqa: NPY002


class GlobalRandom(Right):
    def reward(self):
        return random.random()


class Clock(Right):
    def reward(self):
        return time.perf_counter()


class SetOrder(Right):
    """The order of a set of text depends on the process."""

    def b(self):
        return int(next(iter(WORDS))[4:])


class ClassCounter(Right):
    made = 0

    def b(self):
        ClassCounter.made += 1
        return ClassCounter.made % 1000


class CountsInstances(Right):
    def __init__(self):
        MADE.append(0)
        self.number = len(MADE) % 1000

    def b(self):
        return self.number


class Identity(Right):
    def reward(self):
        return float(id(self))


class OwnGenerator(Right):
    def __init__(self):
        self.rng = np.random.default_rng()

    def reward(self):
        return float(self.rng.random())


class NotReseeded(Right):
    """A seeded generator, but of the constructor: a second reset goes on with it."""

    def __init__(self):
        self.rng = np.random.default_rng(3)

    def reward(self):
        return float(self.rng.random())


class SeedNotPassedOn(Right):
    def reset(self, *, seed=None, options=None):
        return super().reset()


class InfoOnly(Right):
    def info(self):
        return {**super().info(), "took": time.perf_counter()}


class OneMember(Right):
    def observation(self):
        seen = super().observation()
        seen["a"][1, 0] += time.perf_counter()
        return seen


class FlagOnly(Right):
    """The first that is made in a process ends its episodes early."""

    made = 0

    def __init__(self):
        self.first = FlagOnly.made == 0
        FlagOnly.made += 1

    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, self.first and self.steps == 3, info


class SecondEpisode(Right):
    """Only seedless resets, which are those of the second episode on, draw from the clock."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        if seed is None:
            observation["a"][0, 1] = time.perf_counter()
        return observation, info


class FinalInfoOnly(Right):
    def info(self):
        return {**super().info(), **({"took": time.perf_counter()} if self.steps == 7 else {})}


class RaisesLater(Right):
    """The second seeded reset in a process raises."""

    resets = 0

    def reset(self, *, seed=None, options=None):
        RaisesLater.resets += seed is not None
        if RaisesLater.resets > 1:
            raise RuntimeError("one is enough")
        return super().reset(seed=seed)


class WrapperOfTheClock(gymnasium.Wrapper):
    def step(self, action):
        observation, _, *rest = self.env.step(action)
        return observation, time.perf_counter(), *rest


class Lock:
    """Has no == of its own, and cannot be compared."""


class Uncomparable(Right):
    def info(self):
        return {**super().info(), "lock": Lock()}


class FinalObsOnly(Right):
    def step(self, action):
        observation, *rest = super().step(action)
        if self.steps == 7:
            observation["a"][0, 0] = time.perf_counter()
        return observation, *rest
