"""Ours beside the peers where a step is cheap: `python -m benchmarks.beside` prints these tables.

gymnasium: the default backend beside Gymnasium's Sync (same-step) and Async. chain: HalfCheetah as
single-file loops wrap it. sb3: CartPole through `to_sb3`, stepped and trained by PPO. torch: the
tensors of `to_torch` on the CPU beside arrays. threads: where a step releases Python's lock.
engines: other libraries' engines bare and under wrappers, a chain around an engine beside plain
NumPy, one engine split over workers, and a chain by itself.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import vecwrap
from benchmarks.engines import (
    CHAIN,
    PONG,
    Measure,
    chain_costs,
    engine_chains,
    engine_rates,
    split_engines,
)
from benchmarks.environments import Toy
from benchmarks.measure import Contender, Measurement, Sample, WorkResult, measure_rounds
from benchmarks.pages import table
from benchmarks.report import figure
from vecwrap.tools.throughput import SEED, Throughput, make_stepper
from vecwrap.tools.throughput import action_batches as batches_of

ENVIRONMENTS = (
    "CartPole-v1",
    "MountainCarContinuous-v0",
    "FrozenLake-v1",
    "LunarLander-v3",
    "HalfCheetah-v5",
)
LEARNT = 8192  # environment steps of one PPO run


def opened(make: Callable[[], Any], *, rows: bool = True) -> Throughput:
    """Reset an environment, and time its steps."""
    env = make()
    if rows:
        env.reset(seed=SEED)
        batches = batches_of(env.single_action_space, env.num_envs)
    else:  # SB3's interface
        env.reset()
        batches = batches_of(env.action_space, env.num_envs)
    return Throughput(make_stepper(env.step, batches, env.num_envs), env.close)


def lines(measure: Measure, title: str, makes: Mapping[str, Callable[[], Any]]) -> list[str]:
    """A line of the table: what each contender did in a second, and how many times as much the
    first one did.
    """
    measured = measure(makes)
    result = WorkResult(title, title, "", measured)
    cells = [title]
    for each in measured:
        rate, ratio = each.median("rate"), result.ratio(each)
        cells.append(
            each.missing
            or figure(rate or 0.0) + ("" if ratio is None else f" ({ratio.of_medians:.2f} ×)")
        )
    return cells


def gymnasium_table(measure: Measure) -> list[list[str]]:
    rows = [["environment steps a second", "vecwrap, default", "Sync, same-step", "Async"]]
    mode = AutoresetMode.SAME_STEP
    for env_id in ENVIRONMENTS:
        for n in (1, 8):
            each = [partial(gymnasium.make, env_id)] * n
            makes: dict[str, Callable[[], Any]] = {
                "ours": partial(opened, partial(vecwrap.build, env_id, n=n)),
                "Sync": partial(opened, partial(SyncVectorEnv, each, autoreset_mode=mode)),
                "Async": partial(opened, partial(AsyncVectorEnv, each, autoreset_mode=mode)),
            }
            rows.append(lines(measure, f"{env_id} n={n}", makes))
    return rows


def _looped() -> gymnasium.Env[Any, Any]:
    env: Any = wrappers.RecordEpisodeStatistics(gymnasium.make("HalfCheetah-v5"))
    env = wrappers.NormalizeObservation(wrappers.ClipAction(env))
    env = wrappers.TransformObservation(env, lambda seen: np.clip(seen, -10, 10), None)
    env = wrappers.NormalizeReward(env)
    return wrappers.TransformReward(env, lambda reward: np.clip(reward, -10, 10))


def chain_table(measure: Measure) -> list[list[str]]:
    rows = [["HalfCheetah-v5, clip_action, normalize, monitor", "vecwrap dummy", "Gymnasium Sync"]]
    for n in (1, 8):
        makes = {
            "ours": partial(
                opened,
                partial(vecwrap.build, "HalfCheetah-v5", n=n, backend="dummy", wrappers=CHAIN),
            ),
            "Sync": partial(
                opened,
                partial(SyncVectorEnv, [_looped] * n, autoreset_mode=AutoresetMode.SAME_STEP),
            ),
        }
        rows.append(lines(measure, f"n={n}", makes))
    return rows


class Learning:
    """Trains PPO anew in each round, from its construction on."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def sample(self, seconds: float) -> Sample:
        """Learn once, however long it takes."""
        from stable_baselines3 import PPO

        env = self._make()
        model = PPO("MlpPolicy", env, n_steps=128, device="cpu", seed=SEED)
        start = time.perf_counter()
        model.learn(LEARNT)
        took = time.perf_counter() - start
        env.close()
        return {"rate": LEARNT / took}

    def close(self) -> None:
        """Nothing is left open."""


def sb3_table(measure: Measure) -> list[list[str]]:
    import torch
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    torch.set_num_threads(1)

    def ours(backend: str) -> Any:
        return vecwrap.to_sb3(
            vecwrap.build("CartPole-v1", n=8, wrappers=["monitor"], backend=backend)
        )

    def theirs() -> Any:
        return DummyVecEnv([lambda: Monitor(gymnasium.make("CartPole-v1"))] * 8)

    rows = [
        [
            "CartPole-v1 n=8 through to_sb3, with monitor",
            "vecwrap, default",
            "vecwrap dummy",
            "SB3 DummyVecEnv",
        ]
    ]
    makes = {"default": partial(ours, "auto"), "dummy": partial(ours, "dummy"), "SB3": theirs}
    stepped = {name: partial(opened, make, rows=False) for name, make in makes.items()}
    rows.append(lines(measure, "stepping", stepped))
    rows.append(
        lines(
            measure, "PPO's learn", {name: partial(Learning, make) for name, make in makes.items()}
        )
    )
    return rows


def torch_table(measure: Measure) -> list[list[str]]:
    import torch
    from gymnasium.wrappers.vector import NumpyToTorch

    torch.set_num_threads(1)

    def opened_in_torch(convert: Callable[[Any], Any], make: Callable[[], Any]) -> Throughput:
        env = convert(make())
        env.reset(seed=SEED)
        batches = batches_of(env.single_action_space, env.num_envs)
        actions = [torch.from_numpy(batch) for batch in batches]
        return Throughput(make_stepper(env.step, actions, env.num_envs), env.close)

    rows = [["environment steps a second, on the CPU", "arrays", "to_torch", "NumpyToTorch"]]
    images = partial(Toy, (3, 256, 256))
    for title, env, n in (
        ("CartPole-v1", "CartPole-v1", 64),
        ("HalfCheetah-v5, float64 to float32", "HalfCheetah-v5", 8),
        ("images of 3×256×256 bytes", images, 8),
    ):
        # the mode in which Gymnasium's does not fail at the end of an episode
        make = partial(vecwrap.build, env, n=n, backend="dummy", autoreset="next_step")
        makes: dict[str, Callable[[], Any]] = {
            "arrays": partial(opened, make),
            "to_torch": partial(opened_in_torch, vecwrap.to_torch, make),
            "NumpyToTorch": partial(opened_in_torch, NumpyToTorch, make),
        }
        measured = measure(makes)
        rates = [each.median("rate") or 0.0 for each in measured]
        cells = [f"{title}, n={n}", figure(rates[0])]
        cells += [f"{figure(rate)} ({rate / rates[0]:.3f})" for rate in rates[1:]]
        rows.append(cells)
    return rows


def threads_table(measure: Measure) -> list[list[str]]:
    rows = [
        [
            "environment steps a second, n=8",
            "vecwrap threads",
            "vecwrap dummy",
            "vecwrap shmem",
            "Gymnasium Sync",
        ]
    ]
    chains: dict[str, Sequence[str]] = {"HalfCheetah-v5": (), "PongNoFrameskip-v4": PONG}
    for env_id, chain in chains.items():
        makes: dict[str, Callable[[], Any]] = {
            name: partial(
                opened, partial(vecwrap.build, env_id, n=8, backend=name, wrappers=list(chain))
            )
            for name in ("threads", "dummy", "shmem")
        }
        if not chain:
            sync = partial(SyncVectorEnv, [partial(gymnasium.make, env_id)] * 8)
            makes["Sync"] = partial(opened, partial(sync, autoreset_mode=AutoresetMode.SAME_STEP))
        rows.append([*lines(measure, env_id, makes), *([""] if chain else [])])
    return rows


TABLES: dict[str, Sequence[Callable[[Measure], list[list[str]]]]] = {
    "gymnasium": (gymnasium_table,),
    "chain": (chain_table,),
    "sb3": (sb3_table,),
    "torch": (torch_table,),
    "threads": (threads_table,),
    "engines": (engine_rates, engine_chains, split_engines, chain_costs),
}


def table_arguments(
    description: str | None,
    tables: Iterable[str],
    seconds: float,
    given: Sequence[str] | None = None,
) -> argparse.Namespace:
    """Read which of the tables are wanted, and how long each contender is measured."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", choices=list(tables), action="append", help="this table; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="of one contender in one round"
    )
    return parser.parse_args(given)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    return table_arguments(__doc__, TABLES, 0.3, given)


def measured_in(rounds: int, seconds: float) -> Measure:
    """A measure of contenders in so many rounds, the first of which is ours."""

    def measure(makes: Mapping[str, Callable[[], Any]]) -> list[Measurement]:
        contenders = [
            Contender(name, "peer" if i else "ours", make)
            for i, (name, make) in enumerate(makes.items())
        ]
        return measure_rounds(contenders, rounds, seconds)

    return measure


def main() -> None:
    options = arguments()
    warnings.simplefilter("ignore")  # the peers' own
    measure = measured_in(options.rounds, options.seconds)
    for name in options.only or TABLES:
        for rows in TABLES[name]:
            print(table(rows(measure)), flush=True)


if __name__ == "__main__":
    main()
