"""Environments for the tests of adapters, apart from them: a worker that makes one need not import
torch.
"""

import sys
import threading
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium import wrappers as gw

from tests.helpers.stream_envs import ToyEnv

DICT = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (4, 6, 3), np.uint8),
        "speed": spaces.Box(0, 255, (2,)),
        "gear": spaces.Discrete(5),
    }
)


class Talking(gymnasium.Wrapper):
    """Has much to say in its infos, and says what its resets are given; every fourth end is of both
    kinds.
    """

    def __init__(self, env):
        super().__init__(env)
        self.level = 3
        self.tags = ["a"]
        self.ends = 0

    def reset(self, *, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        self.lasted = 0
        return observation, {**info, "seed": seed, "options": options, "began": True}

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.lasted += 1
        self.ends += terminated or truncated
        if self.ends % 4 == 0 and (terminated or truncated):
            terminated = truncated = True
        told = {
            "place": np.full(2, self.lasted),
            "deep": {"name": f"step {self.lasted}", "half": self.lasted / 2},
        }
        if self.lasted == 2:
            told["second"] = True
        return observation, reward, terminated, truncated, {**info, **told}

    def add(self, number, *, name=0):
        return self.level + number + name

    def loaded(self, module):
        return module in sys.modules


def talking(index=0, **arguments):
    return Talking(ToyEnv(index=index, **arguments))


def factories(n=3, **arguments):
    return [partial(talking, i, **arguments) for i in range(n)]


class Mine(gw.TimeLimit):
    """A class derived from another."""


def short_cartpole():
    return Mine(gymnasium.make("CartPole-v1").env, 9)


class Breaking(gymnasium.Wrapper):
    """Raises on action 2."""

    def step(self, action):
        if action == 2:
            raise RuntimeError("as told")
        return self.env.step(action)


class Restarted(gymnasium.Wrapper):
    """Says in the infos of its resets how often it was reset; each episode is one step, which may
    say it too.
    """

    def __init__(self, in_steps):
        super().__init__(ToyEnv(lengths=(1,)))
        self.told, self.resets = {"restarted": -1} if in_steps else {}, 0

    def reset(self, **arguments):
        self.resets += 1
        return self.env.reset(**arguments)[0], {"restarted": self.resets}

    def step(self, action):
        return *self.env.step(action)[:4], self.told


def breaking(index):
    return Breaking(ToyEnv(lengths=(9,), index=index))


class Locked(gymnasium.Wrapper):
    """Holds what cannot be sent to another process, and a method that a policy asks for, as
    sb3-contrib's do.
    """

    def __init__(self, env):
        super().__init__(env)
        self.lock = threading.Lock()

    def action_masks(self):
        return np.array([True, False])

    def fail(self, kind):
        raise kind("raised AttributeError in get_attr")


def locked(index):
    return Locked(gymnasium.make("CartPole-v1"))


class Noted(gymnasium.Wrapper):
    """Keeps what passed: ``(observation, action, reward, next observation, terminated, truncated)``
    of each step.
    """

    def __init__(self, env):
        super().__init__(env)
        self.seen = []

    def reset(self, **arguments):
        self.last, info = self.env.reset(**arguments)
        return self.last, info

    def step(self, action):
        result = self.env.step(action)
        self.seen.append((self.last, action, result[1], *result[:1], *result[2:4]))
        self.last = result[0]
        return result


class Cliff(gymnasium.Env):
    """Small observations, and one far away where an episode ends; that is a termination and a
    truncation in turn.
    """

    action_space = spaces.Discrete(2)

    def __init__(self, members=False):
        box = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.members = members
        self.observation_space = (
            spaces.Dict(place=box, gear=spaces.Discrete(3), wind=box) if members else box
        )
        self.ends = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        over = bool(self.np_random.random() < 0.2)
        self.ends += over
        truncated = over and self.ends % 2 == 0
        reward = 3.0 * float(action) + self.steps
        return self.observe(1e4 if over else 1.0), reward, over and not truncated, truncated, {}

    def observe(self, scale=1.0):
        place = (scale * self.np_random.normal(size=3)).astype(np.float32)
        if not self.members:
            return place
        wind = self.np_random.normal(size=3).astype(np.float32)
        return {"place": place, "gear": int(self.np_random.integers(3)), "wind": wind}


class Told(gymnasium.Env):
    """Observations in a Dict, infos of many kinds, both kinds of ends."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            at=spaces.Box(-9, 9, (2,), np.float32), room=spaces.Discrete(5)
        )
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.draw(), {"opens": 1, "level": (options or {}).get("level", 0)}

    def step(self, action):
        self.time += 1
        u = self.np_random.random()
        info = {"time": self.time, "u": u, "name": f"t{self.time}", "deep": {"x": np.arange(2) * u}}
        return self.draw(), u + action, u < 0.1, 0.1 < u < 0.2, info

    def draw(self):
        return {"at": self.np_random.random(2, np.float32), "room": int(self.np_random.integers(5))}


class Named(gymnasium.Env):
    """Two steps an episode; its infos are those of a list, one after the other."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, infos):
        self.infos, self.given, self.taken = infos, 0, 0

    def _info(self):
        self.given += 1
        return dict(self.infos[(self.given - 1) % len(self.infos)])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        return np.zeros(1, np.float32), self._info()

    def step(self, action):
        self.taken += 1
        return np.zeros(1, np.float32), 1.0, self.taken == 2, False, self._info()


class Gated(gymnasium.Env):
    """Its steps are done when a file is there."""

    observation_space = spaces.Box(0, 99, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, file):
        self.file = Path(file)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        while not self.file.exists():
            time.sleep(0.01)
        self.time += 1
        return np.full(1, self.time, np.float32), float(action), False, False, {}
