"""An environment that fails on request, once, at any point of the protocol, and otherwise draws all
from its own rng.

A request is a file in a folder, named by sub-environment and point, that holds the kind. Whoever
meets it removes it first, so what is made anew does not meet it again.
"""

import gc
import os
import signal
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

from tests.helpers.polling import until

KINDS = ("raise", "kill", "segv", "exit", "stop", "hang")
DEATHS = ("kill", "segv", "exit")
HANGS = ("stop", "hang")
POINTS = (
    "make",
    "reset",
    "step",
    "after step",
    "half a row",
    "reply",
    "half a reply",
    "close",
    "save",
    "load",
)
IN_STEP_OF_A_WORKER = POINTS[2:7]


def fail(kind):
    """Do it."""
    if kind == "raise":
        raise RuntimeError("asked to raise")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "exit":
        os._exit(7)
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)  # also where a signal takes its time


def half_a_reply():
    """Write the beginning of a message to the parent, which is never followed by the rest."""
    connection = next(
        one for one in gc.get_objects() if isinstance(one, Connection) and not one.closed
    )
    os.write(connection.fileno(), (1000).to_bytes(4, "big") + b"\x80\x05half of it")


class Late:
    """An array, or an object in infos, that fails when somebody looks into it."""

    def __init__(self, kind):
        self.kind = kind

    def __array__(self, dtype=None, copy=None):
        fail(self.kind)

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        fail(self.kind)


class Faulty(gymnasium.Env):
    """Two leaves of observations, rewards that tell the action and ``bonus``, and early ends."""

    observation_space = spaces.Dict(
        {"a": spaces.Box(0, 1, (2,), np.float64), "b": spaces.Box(0, 255, (3,), np.uint8)}
    )
    action_space = spaces.Discrete(3)
    bonus = 0.0
    closed = False

    def __init__(self, folder=None, index=0, end=0.15):
        self.folder, self.index, self.end = folder, index, end
        self.point("make")

    def asked(self, point):
        """Take the request for this point, if there is one."""
        if self.folder is None:
            return None
        file = Path(self.folder, f"{self.index} {point}")
        try:
            kind = file.read_text()
        except OSError:
            return None
        file.unlink()
        return kind

    def point(self, point):
        kind = self.asked(point)
        if kind is not None:
            fail(kind)

    def observation(self):
        return {
            "a": self.np_random.random(2),
            "b": self.np_random.integers(0, 256, 3, dtype=np.uint8),
        }

    def reset(self, *, seed=None, options=None):
        assert not self.closed, "reset after it was closed"
        super().reset(seed=seed)
        self.point("reset")
        self.steps = 0
        return self.observation(), {"opened": int(self.np_random.integers(100))}

    def step(self, action):
        assert not self.closed, "stepped after it was closed"
        self.point("step")
        self.steps += 1
        observation, info = self.observation(), {"steps": self.steps}
        reward = float(self.np_random.normal()) + 10 * int(action) + self.bonus
        terminated = bool(self.np_random.random() < self.end)
        truncated = bool(self.np_random.random() < self.end / 3)
        self.point("after step")
        if kind := self.asked("half a row"):
            observation["b"] = Late(kind)
        if kind := self.asked("reply"):
            info["late"] = Late(kind)
        if kind := self.asked("half a reply"):
            half_a_reply()
            fail(kind)
        return observation, reward, terminated, truncated, info

    def state_dict(self):
        assert not self.closed, "saved after it was closed"
        self.point("save")
        return {"bonus": self.bonus, "steps": self.steps}

    def load_state_dict(self, state):
        assert not self.closed, "loaded after it was closed"
        self.point("load")
        self.bonus, self.steps = state["bonus"], state["steps"]

    def call_me(self, kind=None):
        """For ``call``."""
        assert not self.closed, "called after it was closed"
        if kind is not None:
            fail(kind)
        return self.index

    def close(self):
        self.closed = True
        self.point("close")


class Gated(Faulty):
    """Takes each step, and each ``wait``, when the gate of that number is open: when there is a
    file of that name.
    """

    def __init__(self, folder):
        super().__init__()
        self.gates, self.number = folder, 0

    def pass_a_gate(self):
        self.number += 1
        assert until((self.gates / str(self.number)).exists)

    def step(self, action):
        self.pass_a_gate()
        return super().step(action)

    def wait(self):
        self.pass_a_gate()
        return "waited"


def ask(folder, index, point, kind):
    """Ask sub-environment ``index`` to fail."""
    Path(folder, f"{index} {point}").write_text(kind)


def forget(folder):
    """Take back all requests that nobody has met."""
    for file in Path(folder).iterdir():
        file.unlink()


def factories(folder, num_envs, **keywords):
    return [partial(Faulty, folder and str(folder), i, **keywords) for i in range(num_envs)]
