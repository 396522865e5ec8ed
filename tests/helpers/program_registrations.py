"""A program without a ``__main__`` guard that registers environments in every way there is, and
makes them by id.

It prints what the environments answer in this process, in workers, and in workers that took the
place of dead ones.
"""

import functools
import json
import os
import signal
import sys
import tempfile
import threading
import types
import warnings
from pathlib import Path

import gymnasium
import pettingzoo
from gymnasium.spaces import Discrete
from pettingzoo.classic.rps import rps

import vecwrap

FOLDER = tempfile.mkdtemp()
Path(FOLDER, "its_own.py").write_text("""
import gymnasium

class Beside(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return 0, {}
    def tell(self):
        return "beside"

gymnasium.register("its/Own-v0", "its_own:Beside")
gymnasium.register("its/Class-v0", Beside)
""")
sys.path.append(FOLDER)


class Tells(gymnasium.Env):
    observation_space = action_space = Discrete(2)

    def __init__(self, what="class", render_mode=None):
        self.what = what

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 0.0, False, False, {}

    def tell(self):
        return self.what


class Nests(Tells):
    def __init__(self):
        super().__init__("in " + gymnasium.make("mine/Lambda-v0").unwrapped.tell())


class Instead(Tells):
    pass


import its_own  # noqa: E402 -- the module registers its ids as it is imported

gymnasium.register_envs(its_own)
gymnasium.register("Class-v0", Tells)
gymnasium.register("mine/Lambda-v0", lambda: Tells("lambda"))
gymnasium.register("Partial-v0", functools.partial(Tells, "partial"))
gymnasium.register("Text-v3", "__main__:Tells", kwargs={"what": "text"})
gymnasium.register("Nests-v0", Nests)
with warnings.catch_warnings(action="ignore"):
    gymnasium.register("CartPole-v1", Instead, kwargs={"what": "overridden"})
lock = threading.Lock()
gymnasium.register("Locked-v0", lambda: lock and Tells())  # which cannot be sent
pettingzoo.register("parallel", "mine/Game-v0", lambda: rps.parallel_env(max_cycles=3))


def imports():
    import its_own  # noqa: F401 -- again, in the worker

    return gymnasium.make("its/Own-v0")


makers = [
    lambda env_id=env_id: gymnasium.make(env_id)
    for env_id in ("Class-v0", "mine/Lambda-v0", "Partial-v0")
]
makers += [
    lambda env_id=env_id: gymnasium.make(env_id)
    for env_id in ("Text-v3", "Nests-v0", "CartPole-v1")
]
makers += [
    lambda env_id=env_id: gymnasium.make(env_id)
    for env_id in ("its/Own-v0", "its/Class-v0", "Late-v0")
]
makers += [imports, Nests]


def told(**backend):
    with vecwrap.build(makers, **backend) as env:
        env.reset(seed=1)
        return [env.call("tell"), [type(one).__name__ for one in env.get_attr("spec")]]


vecwrap.build(makers[:2], backend="dummy").close()
gymnasium.register("Late-v0", lambda: Tells("late"))  # after something was built
print(json.dumps(told(backend="dummy")))
print(json.dumps(told(backend="subprocess", workers=1)))

with vecwrap.build(makers, backend="shmem", workers=1, on_failure="restart") as env:
    env.reset(seed=1)
    os.kill(env.health().workers[0].pid, signal.SIGKILL)
    env.reset(seed=1)
    print(json.dumps([env.call("tell"), [type(one).__name__ for one in env.get_attr("spec")]]))
    print(env.health().restarts.tolist() == [1] * len(makers))

with vecwrap.build(
    lambda: pettingzoo.make("parallel", "mine/Game-v0"), n=1, backend="subprocess"
) as env:
    print(env.reset(seed=1)[0].shape[0])

NOWHERE = types.ModuleType("nowhere")
exec("class Lost:\n    def __reduce__(self):\n        return divmod, (1, 0)\n", vars(NOWHERE))
# Which no worker can read.
gymnasium.register("Unreadable-v0", functools.partial(Tells, NOWHERE.Lost()))

for env_id in ("Locked-v0", "Unreadable-v0"):
    try:
        vecwrap.build(lambda env_id=env_id: gymnasium.make(env_id), n=1, backend="subprocess")
    except vecwrap.VecwrapError as error:
        print(error)
