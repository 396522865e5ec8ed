"""What chains of wrappers cost by themselves, over a vector environment that returns batches made beforehand.

The cost of the bare environment is measured in turn with each chain, and subtracted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import vecwrap
from vecwrap.bench.measure import SEED, Contender, Sample, Throughput, steps
from vecwrap.bench.peers import sb3_vec_env

__all__ = ["CHAIN_HOW", "STACK_HOW", "ChainCost", "Still", "chain", "stacks"]

N = 64
BATCHES = 16
END = 1 / 300  # probability that a row ends: one end every five vector steps, as in games of 300 steps
TAKEN_OFF = (
    "Each chain stands over the same environment, which hands out batches made beforehand and in which a row ends "
    "every 300 steps; what that environment costs without the chain is measured in turn with it and taken off. "
)
STACK_HOW = (
    f"{TAKEN_OFF}vecwrap gives fresh arrays, which stay as they are; SB3's VecFrameStack hands out its own buffer, "
    "which the next step overwrites."
)
CHAIN_HOW = (
    f"{TAKEN_OFF}On both sides a stack of 4, then running statistics of observations and returns, then the episodes' "
    "records. SB3 stacks along the numbers."
)


class Batches:
    """What both sides return, step by step.

    Args:
        shape: of one observation.
        dtype: of one observation.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        rng = np.random.default_rng(SEED)
        high = 255 if dtype == np.uint8 else np.inf
        self.space = spaces.Box(0 if dtype == np.uint8 else -np.inf, high, shape, dtype)
        made = (
            rng.integers(0, 256, (BATCHES, N, *shape)) if dtype == np.uint8 else rng.normal(size=(BATCHES, N, *shape))
        )
        self.observations = list(made.astype(dtype))
        self.rewards = list(rng.normal(size=(BATCHES, N)))
        self.dones = list(rng.random((BATCHES * 16, N)) < END)


class Still(gymnasium.vector.VectorEnv):
    """The environment for ours: Gymnasium's interface, in same-step mode."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, batches: Batches) -> None:
        self.num_envs = N
        self.single_observation_space = batches.space
        self.observation_space = batch_space(batches.space, N)
        self.single_action_space = spaces.Discrete(2)
        self.action_space = batch_space(self.single_action_space, N)
        self._observations = itertools.cycle(batches.observations)
        self._rewards = itertools.cycle(batches.rewards)
        self._dones = itertools.cycle(batches.dones)
        self._never = np.zeros(N, dtype=np.bool_)

    def reset(self, *, seed=None, options=None):
        return next(self._observations), {}

    def step(self, actions):
        observations, dones = next(self._observations), next(self._dones)
        infos = {}
        if dones.any():
            final = np.full(N, None, dtype=object)
            for i in np.flatnonzero(dones):
                final[i] = observations[i]
            infos = {"final_obs": final, "_final_obs": dones, "final_info": {}, "_final_info": dones}
        return observations, next(self._rewards), dones, self._never, infos


def still_for_sb3(batches: Batches) -> Any:
    """Return the same environment with SB3's interface."""
    base = sb3_vec_env().VecEnv

    class StillForSb3(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            self._observations = itertools.cycle(batches.observations)
            self._rewards = itertools.cycle([rewards.astype(np.float32) for rewards in batches.rewards])
            self._dones = itertools.cycle(batches.dones)
            super().__init__(N, batches.space, spaces.Discrete(2))

        def reset(self):
            return next(self._observations)

        def step_async(self, actions):
            pass

        def step_wait(self):
            observations, dones = next(self._observations), next(self._dones)
            infos = [{} for _ in range(N)]
            for i in np.flatnonzero(dones):
                infos[i] = {"terminal_observation": observations[i]}
            return observations, next(self._rewards), dones, infos

        def close(self):
            pass

        def get_attr(self, attr_name, indices=None):
            return [None] * N

        def set_attr(self, attr_name, value, indices=None):
            pass

        def env_method(self, method_name, *args, indices=None, **kwargs):
            return [None] * N

        def env_is_wrapped(self, wrapper_class, indices=None):
            return [False] * N

    return StillForSb3()


class ChainCost:
    """Microseconds that a chain adds to a vector step.

    Args:
        chained: steps of the environment under the chain.
        bare: steps of the environment.
        close: closes both.
    """

    def __init__(self, chained: Throughput, bare: Throughput, close: Callable[[], object]) -> None:
        self._parts = chained, bare
        self._close = close

    def sample(self, seconds: float) -> Sample:
        """Measure both for half of the time each."""
        chained, bare = (1e6 / part.sample(seconds / 2)["rate"] for part in self._parts)
        return {"chain": chained - bare}

    def close(self) -> None:
        """Close both."""
        self._close()


def _ours(name: str, batches: Batches, layers: Sequence[str], note: str = "") -> Contender:
    def start() -> ChainCost:
        chained, bare = vecwrap.wrap(Still(batches), layers), vecwrap.wrap(Still(batches))
        return _cost(chained, bare)

    return Contender(name, "ours", start, note)


def _sb3(name: str, batches: Batches, *wrap: Callable[[Any, Any], Any], note: str = "") -> Contender:
    def start() -> ChainCost:
        module = sb3_vec_env()
        chained, bare = still_for_sb3(batches), still_for_sb3(batches)
        for each in wrap:
            chained = each(module, chained)
        return _cost(chained, bare)

    return Contender(name, "peer", start, note)


def _cost(chained: Any, bare: Any) -> ChainCost:
    actions = [np.zeros(N, dtype=np.int64)]
    parts = []
    for env in (chained, bare):
        env.reset()
        parts.append(Throughput(steps(env.step, actions, 1), env.close))
    return ChainCost(*parts, lambda: (chained.close(), bare.close()))


def stacks() -> list[Contender]:
    """Stacks of 4 frames on either axis."""
    grey, last, first = (Batches(shape, np.uint8) for shape in ((84, 84), (84, 84, 1), (1, 84, 84)))
    return [
        _ours("vecwrap framestack, new axis", grey, ["framestack:4"]),
        _ours("vecwrap framestack, last axis", last, ["framestack:4,axis=channel"]),
        _sb3(
            "SB3 VecFrameStack, last axis", last, lambda m, env: m.VecFrameStack(env, 4, "last"), note="its own buffer"
        ),
        _sb3(
            "SB3 VecFrameStack, first axis",
            first,
            lambda m, env: m.VecFrameStack(env, 4, "first"),
            note="its own buffer",
        ),
    ]


def chain() -> list[Contender]:
    """A stack, statistics and a monitor, in the same order on both sides."""
    numbers = Batches((8,), np.float32)
    return [
        _ours("vecwrap chain", numbers, ["framestack:4", "normalize", "monitor"]),
        _sb3(
            "SB3 chain",
            numbers,
            lambda m, env: m.VecFrameStack(env, 4),
            lambda m, env: m.VecNormalize(env),
            lambda m, env: m.VecMonitor(env),
        ),
    ]
