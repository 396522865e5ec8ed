"""What chains of wrappers cost by themselves, over a vector environment that returns batches made
beforehand.

The cost of the bare environment is measured in turn with each chain, and subtracted.
"""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import vecwrap
from benchmarks.measure import Contender, Sample
from benchmarks.peers.sb3 import sb3_vec_env
from vecwrap.tools.throughput import SEED, Throughput, make_stepper

__all__ = ["CHAIN_HOW", "STACK_HOW", "ChainCost", "Still", "chain", "stacks"]

N = 64  # rows
BATCHES = 16
# Probability that a row ends: one end every five vector steps, as in games of 300 steps.
END = 1 / 300
TAKEN_OFF = (
    "Each chain stands over the same environment, which hands out batches made beforehand and in "
    "which a row ends every 300 steps; what that environment costs without the chain is measured "
    "in turn with it and taken off. "
)
STACK_HOW = (
    f"{TAKEN_OFF}vecwrap gives fresh arrays, which stay as they are; SB3's VecFrameStack hands out "
    "its own buffer, which the next step overwrites."
)
CHAIN_HOW = (
    f"{TAKEN_OFF}On both sides a stack of 4, then running statistics of observations and returns, "
    "then the episodes' records. SB3 stacks along the numbers."
)


class Batches:
    """What both sides return, step by step."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, n: int = N) -> None:
        self.n = n
        rng = np.random.default_rng(SEED)
        high = 255 if dtype == np.uint8 else np.inf
        self.space = spaces.Box(0 if dtype == np.uint8 else -np.inf, high, shape, dtype)
        made = (
            rng.integers(0, 256, (BATCHES, n, *shape))
            if dtype == np.uint8
            else rng.normal(size=(BATCHES, n, *shape))
        )
        self.observations = list(made.astype(dtype))
        self.rewards = list(rng.normal(size=(BATCHES, n)))
        self.dones = list(rng.random((BATCHES * 16, n)) < END)


class Still(gymnasium.vector.VectorEnv):
    """The environment for ours: Gymnasium's interface, in same-step mode."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, batches: Batches) -> None:
        self.num_envs = batches.n
        self.single_observation_space = batches.space
        self.observation_space = batch_space(batches.space, batches.n)
        self.single_action_space = spaces.Discrete(2)
        self.action_space = batch_space(self.single_action_space, batches.n)
        self._observations = itertools.cycle(batches.observations)
        self._rewards = itertools.cycle(batches.rewards)
        self._dones = itertools.cycle(batches.dones)
        self._never = np.zeros(batches.n, dtype=np.bool_)

    def reset(self, *, seed=None, options=None):
        return next(self._observations), {}

    def step(self, actions):
        observations, dones = next(self._observations), next(self._dones)
        infos = {}
        if dones.any():
            final = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(dones):
                final[i] = observations[i]
            infos = {
                "final_obs": final,
                "_final_obs": dones,
                "final_info": {},
                "_final_info": dones,
            }
        return observations, next(self._rewards), dones, self._never, infos


def still_for_sb3(batches: Batches) -> Any:
    """Return the same environment with SB3's interface."""
    base = sb3_vec_env().VecEnv

    class StillForSb3(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self._observations = itertools.cycle(batches.observations)
            self._rewards = itertools.cycle(
                [rewards.astype(np.float32) for rewards in batches.rewards]
            )
            self._dones = itertools.cycle(batches.dones)
            super().__init__(batches.n, batches.space, spaces.Discrete(2))

        def reset(self):
            return next(self._observations)

        def step_async(self, actions):
            pass

        def step_wait(self):
            observations, dones = next(self._observations), next(self._dones)
            infos = [{} for _ in range(batches.n)]
            for i in np.flatnonzero(dones):
                infos[i] = {"terminal_observation": observations[i]}
            return observations, next(self._rewards), dones, infos

        def close(self):
            pass

        def get_attr(self, attr_name, indices=None):
            return [None] * batches.n

        def set_attr(self, attr_name, value, indices=None):
            pass

        def env_method(self, method_name, *args, indices=None, **kwargs):
            return [None] * batches.n

        def env_is_wrapped(self, wrapper_class, indices=None):
            return [False] * batches.n

    return StillForSb3()


class ChainCost:
    """Microseconds that a chain adds to a vector step: with it and without, each measured for half
    of the time.
    """

    def __init__(self, chained: Throughput, bare: Throughput) -> None:
        self._parts = chained, bare

    def sample(self, seconds: float) -> Sample:
        chained, bare = (1e6 / part.sample(seconds / 2)["rate"] for part in self._parts)
        return {"chain": chained - bare}

    def close(self) -> None:
        for part in self._parts:
            part.close()


def _throughput(env: Any) -> Throughput:
    env.reset()
    return Throughput(
        make_stepper(env.step, [np.zeros(env.num_envs, dtype=np.int64)], 1), env.close
    )


def _ours(name: str, batches: Batches, *wrappers: str) -> Contender:
    def start() -> ChainCost:
        return ChainCost(
            *(_throughput(vecwrap.wrap(Still(batches), wrappers)) for wrappers in (wrappers, ()))
        )

    return Contender(name, "ours", start)


def _sb3(
    name: str, batches: Batches, wrappers: dict[str, tuple[Any, ...]], note: str = ""
) -> Contender:
    """Return a chain of its VecEnvWrappers, by name with their arguments."""

    def start() -> ChainCost:
        chained = still_for_sb3(batches)
        for wrapper, arguments in wrappers.items():
            chained = getattr(sb3_vec_env(), wrapper)(chained, *arguments)
        return ChainCost(_throughput(chained), _throughput(still_for_sb3(batches)))

    return Contender(name, "peer", start, note)


def stacks() -> list[Contender]:
    """Stacks of 4 frames on either axis."""
    grey, last, first = (Batches(shape, np.uint8) for shape in ((84, 84), (84, 84, 1), (1, 84, 84)))
    return [
        _ours("vecwrap framestack, new axis", grey, "framestack:4"),
        _ours("vecwrap framestack, last axis", last, "framestack:4,axis=channel"),
        _sb3(
            "SB3 VecFrameStack, last axis", last, {"VecFrameStack": (4, "last")}, "its own buffer"
        ),
        _sb3(
            "SB3 VecFrameStack, first axis",
            first,
            {"VecFrameStack": (4, "first")},
            "its own buffer",
        ),
    ]


def chain(n: int = N) -> list[Contender]:
    """A stack, statistics and a monitor, in the same order on both sides, around n rows."""
    numbers = Batches((8,), np.float32, n)
    return [
        _ours("vecwrap chain", numbers, "framestack:4", "normalize", "monitor"),
        _sb3("SB3 chain", numbers, {"VecFrameStack": (4,), "VecNormalize": (), "VecMonitor": ()}),
    ]
