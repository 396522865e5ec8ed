"""Other libraries' engines, bare and under our wrappers: `python -m benchmarks.beside --only
engines` prints these tables.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np

import vecwrap
from benchmarks import chains
from benchmarks.measure import Measurement, Sample
from benchmarks.peers.ale import engine_arguments
from benchmarks.peers.envpool import atari_task
from benchmarks.report import figure
from vecwrap.pipeline.plan import Plan, plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.tools.throughput import SEED

__all__ = ["PlainChain", "chain_costs", "engine_chains", "engine_rates", "split_engines"]

CHAIN = ["clip_action", "normalize", "monitor"]
PONG = ["atari", "framestack:4"]
RNG = np.random.default_rng(SEED)
THREADS = 2  # of EnvPool and ale-py
SPLIT = 65_536  # rows that two workers share
DRAWN = 64  # batches of actions, drawn beforehand

Measure = Callable[[Mapping[str, Callable[[], Any]]], list[Measurement]]
Policy = Callable[[Any], Any]


class Closed:
    """Steps an engine with a policy that sees its observations; only the steps are timed."""

    def __init__(self, make: Callable[[], Any], policy: Policy) -> None:
        self._env = make()
        self._policy = policy
        self._observations = self._env.reset()[0]

    def sample(self, seconds: float) -> Sample:
        """Step until the time is over."""
        steps = 0
        took = 0.0
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            actions = self._policy(self._observations)
            start = time.perf_counter()
            self._observations = self._env.step(actions)[0]
            took += time.perf_counter() - start
            steps += 1
        return {"rate": steps * self._env.num_envs / took}

    def close(self) -> None:
        """Close the engine."""
        self._env.close()


# -- policies --------------------------------------------------------------------------------------


def balanced(observations: Any) -> Any:
    """CartPole's pole stays up for hundreds of steps."""
    return (observations[:, 2] + 0.5 * observations[:, 3] > 0).astype(np.int64)


def at_random(observations: Any) -> Any:
    """Two actions; a CartPole falls after about twenty of them."""
    return RNG.integers(0, 2, len(observations))


def drawn(n: int, dtype: Any) -> Policy:
    """HalfCheetah's actions, of which a third lies outside of the bounds."""
    batches = itertools.cycle(list(RNG.normal(size=(DRAWN, n, 6)).astype(dtype)))
    return lambda observations: next(batches)


# -- engines ---------------------------------------------------------------------------------------


def cartpoles(n: int) -> Any:
    return gymnasium.make_vec("CartPole-v1", num_envs=n, vectorization_mode="vector_entry_point")


def pongs(n: int) -> Plan:
    """What the engines of Pong are translated from, so that all preprocess as ours does."""
    return plan(PipelineSpec("PongNoFrameskip-v4", n=n, wrappers=PONG, autoreset="next_step"))


def envpool_pong(n: int) -> Any:
    import envpool

    task, arguments, _ = atari_task(pongs(n))
    return envpool.make(
        task, env_type="gymnasium", num_envs=n, seed=SEED, num_threads=THREADS, **arguments
    )


def ale_pong(n: int) -> Any:
    from ale_py.vector_env import AtariVectorEnv

    game, arguments = engine_arguments(pongs(n))
    return AtariVectorEnv(game, num_envs=n, num_threads=THREADS, **arguments)


def envpool_cheetah(n: int) -> Any:
    import envpool

    return envpool.make(
        "HalfCheetah-v5", env_type="gymnasium", num_envs=n, seed=SEED, num_threads=THREADS
    )


# -- the same chain without us ---------------------------------------------------------------------


class Moments:
    """Running mean and variance, as in Stable-Baselines3 and Gymnasium."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.mean = np.zeros(shape)
        self.var = np.ones(shape)
        self.count = 1e-4

    def update(self, values: Any) -> None:
        number = len(values)
        if number == 0:
            return
        total = self.count + number
        delta = values.mean(axis=0) - self.mean
        squares = self.var * self.count + values.var(axis=0) * number
        self.mean = self.mean + delta * number / total
        self.var = (squares + delta**2 * self.count * number / total) / total
        self.count = total


class PlainChain:
    """An engine in next-step mode under `clip_action`, `normalize` and `monitor`, written by hand.

    It counts what ours does: no terminal observations, and no reset.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.num_envs = engine.num_envs
        space = engine.action_space
        self._low = space.low
        self._high = space.high
        self._seen = Moments(engine.observation_space.shape)
        self._paid = Moments()
        self._returns = np.zeros(self.num_envs)
        self._scores = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._started = np.full(self.num_envs, time.perf_counter())
        self._over = np.zeros(self.num_envs, np.bool_)

    def reset(self) -> tuple[Any, Any]:
        observations, infos = self._engine.reset()
        self._seen.update(observations)
        return self._normalized(observations), infos

    def step(self, actions: Any) -> tuple[Any, ...]:
        values = self._engine.step(np.clip(actions, self._low, self._high))
        observations, rewards, terminations, truncations, infos = values
        dones = terminations | truncations
        acted = ~self._over
        rewards = np.where(acted, rewards, 0.0)
        self._seen.update(observations[~dones])
        self._returns = self._returns * 0.99 + rewards
        self._paid.update(self._returns[acted])
        self._scores += rewards
        self._lengths += acted
        if self._over.any():
            self._started[self._over] = time.perf_counter()
        if dones.any():
            seconds = time.perf_counter() - self._started
            infos["episode"] = {
                "r": np.where(dones, self._scores, 0.0),
                "l": np.where(dones, self._lengths, 0),
                "t": np.where(dones, seconds, 0.0),
            }
            infos["_episode"] = dones
            self._returns[dones] = self._scores[dones] = self._lengths[dones] = 0
        self._over = dones
        rewards = np.clip(rewards / np.sqrt(self._paid.var + 1e-8), -10, 10)
        return self._normalized(observations), rewards, terminations, truncations, infos

    def _normalized(self, observations: Any) -> Any:
        scaled = (observations - self._seen.mean) / np.sqrt(self._seen.var + 1e-8)
        return np.clip(scaled, -10, 10).astype(np.float32)

    def close(self) -> None:
        self._engine.close()


# -- tables ----------------------------------------------------------------------------------------


def beside_first(measured: Sequence[Measurement]) -> list[str]:
    """The median rates; in brackets, as parts of the first one."""
    first = measured[0].median("rate")
    cells = []
    for i, each in enumerate(measured):
        rate = each.median("rate")
        if rate is None:
            cells.append(each.missing)
        elif i == 0 or first is None:
            cells.append(figure(rate))
        else:
            cells.append(f"{figure(rate)} ({rate / first:.2f})")
    return cells


def engine_rates(measure: Measure) -> list[list[str]]:
    """Bare, and what is left of it; the Pongs are made with `atari` and `framestack:4` inside."""
    rows = [
        ["environment steps a second", "bare", "under wrap", "with monitor", "with its files too"]
    ]
    works = [
        *((cartpoles, n, policy) for n in (1024, 16384) for policy in (balanced, at_random)),
        *((make, n, at_random) for make in (envpool_pong, ale_pong) for n in (8, 64)),
    ]
    for make, n, policy in works:
        with tempfile.TemporaryDirectory() as folder:
            chains_of = {"wrap": [], "monitor": ["monitor"]}
            if n == 1024:
                chains_of["files"] = [f"monitor:{folder}"]
            bare = partial(make, n)
            makes: dict[str, Callable[[], Any]] = {"bare": partial(Closed, bare, policy)}
            for name, wrappers in chains_of.items():
                wrapped = partial(_wrapped, bare, wrappers)
                makes[name] = partial(Closed, wrapped, policy)
            cells = beside_first(measure(makes))
        title = f"{make.__name__} n={n}, {policy.__name__}"
        if make is not cartpoles:
            title = f"{make.__name__} n={n}, made with {', '.join(PONG)}"
        cells += [""] * (len(rows[0]) - 1 - len(cells))
        rows.append([title, *cells])
    return rows


def _wrapped(make: Callable[[], Any], wrappers: Sequence[str]) -> Any:
    return vecwrap.wrap(make(), wrappers)


def engine_chains(measure: Measure) -> list[list[str]]:
    rows = [
        [
            f"HalfCheetah-v5, {', '.join(CHAIN)}",
            "EnvPool, the chain in plain NumPy",
            "EnvPool under vecwrap",
            "vecwrap shmem",
            "EnvPool bare",
        ]
    ]
    for n in (8, 64):
        bare = partial(envpool_cheetah, n)
        ours = partial(vecwrap.build, "HalfCheetah-v5", n=n, wrappers=CHAIN, backend="shmem")
        policy = drawn(n, np.float64)
        makes: dict[str, Callable[[], Any]] = {
            "plain": partial(Closed, lambda bare=bare: PlainChain(bare()), policy),
            "wrapped": partial(Closed, partial(_wrapped, bare, CHAIN), policy),
            "shmem": partial(Closed, ours, drawn(n, np.float32)),
            "bare": partial(Closed, bare, policy),
        }
        rows.append([f"n={n}", *beside_first(measure(makes))])
    return rows


def split_engines(measure: Measure) -> list[list[str]]:
    """One engine in this process, and half of it in each of two workers."""
    rows = [[f"CartPole-v1 n={SPLIT:,}", "one process", "two shmem workers", "bare engine"]]
    backends: dict[str, tuple[int, Any]] = {
        "one": (SPLIT, "dummy"),
        "two": (SPLIT // 2, {"name": "shmem", "workers": 2, "parent_share": False}),
    }
    for wrappers in ([], ["monitor"]):
        makes: dict[str, Callable[[], Any]] = {}
        for name, (size, backend) in backends.items():
            build = partial(
                vecwrap.build,
                "CartPole-v1",
                n=SPLIT,
                envs_per_engine=size,
                autoreset="next_step",
                backend=backend,
                wrappers=wrappers,
            )
            makes[name] = partial(Closed, build, balanced)
        makes["bare"] = partial(Closed, partial(cartpoles, SPLIT), balanced)
        title = ", ".join(wrappers) or "no wrapper"
        rows.append([title, *beside_first(measure(makes))])
    return rows


def chain_costs(measure: Measure) -> list[list[str]]:
    """What a chain adds to a vector step; `make bench BENCH_ARGS="--only chain-64,chain-1024"`."""
    rows = [["µs per vector step, framestack:4, normalize, monitor", "vecwrap", "SB3"]]
    for n in (64, 1024):
        measured = measure({each.name: each.open for each in chains.chain(n)})
        ours, theirs = (each.median("chain") for each in measured)
        cells = [each.missing for each in measured]
        if ours is not None and theirs is not None:
            cells = [f"{figure(ours)} ({ours / theirs:.2f} of SB3's)", figure(theirs)]
        rows.append([f"{n:,} rows of 8 numbers", *cells])
    return rows
