"""An environment in which everything can be foretold, and one that does what it is told to."""

import time
from functools import partial

import gymnasium
import numpy as np


class Counter(gymnasium.Env):
    """Observation = (episode, step), reward = 10 * episode + step, an end after ``length`` steps.

    Args:
        length: steps of an episode.
        truncate: ends are truncations.
        delay: seconds that each step takes.
    """

    observation_space = gymnasium.spaces.Box(0, 1e6, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, length=4, truncate=False, delay=0.0):
        self.length, self.truncate, self.delay = length, truncate, delay
        self.episode = self.step_number = 0

    def _observation(self):
        return np.array([self.episode, self.step_number], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.step_number = 0
        return self._observation(), {"began": self.episode}

    def step(self, action):
        time.sleep(self.delay)
        self.step_number += 1
        done = self.step_number >= self.length
        reward = 10 * self.episode + self.step_number
        info = {"step": self.step_number, "action": int(action)}
        return self._observation(), reward, done and not self.truncate, done and self.truncate, info


class Lottery(gymnasium.Env):
    """Lasts 1 step or 30, by the toss of a coin at its reset, and pays 1 a step: the mean return is
    15.5.
    """

    observation_space = gymnasium.spaces.Box(0, 30, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 30 if self.np_random.random() < 0.5 else 1
        return np.array([self.left], np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.array([self.left], np.float32), 1.0, self.left == 0, False, {}


class Told(gymnasium.Env):
    """Gives what its attributes say: ``observation``, ``reward``, ``info``, in steps and resets."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, observation_space=None, observation=None, reward=0.0, info=None):
        self.observation_space = observation_space or gymnasium.spaces.Discrete(4)
        self.observation, self.reward, self.info = (
            0 if observation is None else observation,
            reward,
            info or {},
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation, self.info

    def step(self, action):
        return self.observation, self.reward, False, False, self.info


def counter(length=4, truncate=False, delay=0.0):
    """A factory of counters."""
    return partial(Counter, length, truncate, delay)


def told(**values):
    """A factory of environments that do what they are told."""
    return partial(Told, **values)


class LastLife(gymnasium.Env):
    """A game of two steps: the first loses a life and pays 1; the second, maybe a reset's, ends the
    game and pays 5.

    It takes the level out of the options that a reset gives it.
    """

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.ale, self.steps, self.seen = self, 0, []

    def lives(self):
        return 2 if self.steps == 0 else 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.seen.append(options.pop("level") if options else 0)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return (
            np.full(1, self.steps, np.float32),
            (1.0, 5.0)[self.steps - 1],
            self.steps == 2,
            False,
            {},
        )
