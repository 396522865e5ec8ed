"""Environments and policies for runs through the command line; tests copy this file into their
folder.
"""

import ctypes
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import gymnasium
import numpy as np


class Toy(gymnasium.Env):
    """Pays 1 an agent step, ends after ten, and renders the number of the step as a grey frame."""

    metadata = {"render_modes": ["rgb_array"]}
    observation_space = gymnasium.spaces.Discrete(11)
    action_space = gymnasium.spaces.Discrete(2)
    length = 10

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now = 0
        return 0, {}

    def step(self, action):
        self.now += 1
        return self.now, 1.0, self.now == self.length, False, {}

    def render(self):
        return np.full((6, 8, 3), 10 + self.now, np.uint8)


class Slow(Toy):
    def step(self, action):
        time.sleep(0.005)
        return super().step(action)


class Broken(Toy):
    def step(self, action):
        raise ZeroDivisionError("the wheel came off")


class Garbled(Toy):
    def step(self, action):
        raise ValueError("lvl \udc80")


def always_one(observations):
    return np.ones(len(observations), np.int64)


def broken_policy(observations):
    raise KeyError("weights")


class Walk(Toy):
    """A random walk, whose observations are numbers, and whose steps take longer than the least
    interval.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal(3, 2, 2)
        return self.place.copy(), {}

    def step(self, action):
        time.sleep(0.001)
        self.place = self.place + self.np_random.normal(size=2)
        return self.place.copy(), *super().step(action)[1:]


class Fragile(Toy):
    """Raises at each fifth step of its process, and writes down those that it took."""

    steps = 0

    def step(self, action):
        Fragile.steps += 1
        if Fragile.steps % 5 == 0:
            raise ZeroDivisionError("the wheel came off")
        with Path("taken.txt").open("a") as file:
            file.write("x")
        return super().step(action)


class Dies(Walk):
    """Its process is killed at its 15th step."""

    steps = 0

    def step(self, action):
        Dies.steps += 1
        if Dies.steps == 15:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Blind(Walk):
    """Cannot render, and ends its process at the second try, as OpenGL does without a display."""

    attempts = 0

    def render(self):
        Blind.attempts += 1
        if Blind.attempts == 2:
            os.abort()
        raise RuntimeError("no display")


class Aborts(Walk):
    """Ends its process when it is rendered."""

    def render(self):
        os.abort()


class Talks(Toy):
    """Prints as Python does, as a library in C does, and as a program does that it starts."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        print("simulator ready")
        ctypes.CDLL(None).printf(b"licence found\n")
        subprocess.run(["echo", "server started"], check=True)

    def step(self, action):
        print("stepped")
        return super().step(action)


class Calls:
    """Which call of a policy this is, counted from 1."""

    number = 0


def counted(observations):
    Calls.number += 1
    return np.zeros(len(observations), np.int64)


def killed(observations):
    """The 40th call is the end of it all."""
    actions = counted(observations)
    if Calls.number == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    return actions


def killed_while_saving(observations):
    """From the 40th call on, whoever saves an array dies in the middle of it."""
    actions = counted(observations)
    if Calls.number == 40:
        np.savez = half
    return actions


def half(file, **arrays):
    file.write(b"PK half of an archive")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def full_disk(observations):
    """From the 20th call on, no file can be longer than a few bytes."""
    actions = counted(observations)
    if Calls.number == 20:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    return actions
