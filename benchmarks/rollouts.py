"""`vecwrap.rollouts` beside loops by hand: `python -m benchmarks.rollouts` prints three tables.

cartpoles: 64 CartPoles, 128 steps a rollout, a policy that costs nothing, beside a loop of `step`
that keeps references, and beside Stable-Baselines3's `collect_rollouts` through `to_sb3`, whose
policy is the same but for a value of 0. images: 8 environments of 3 x 256 x 256 uint8, whose step
takes 100 µs, 32 steps a rollout, beside a loop of `step` that copies into one batch, which is made
once. waits: 16 environments in 4 workers, a step of which waits for 2 ms, under a policy that waits
as long as they do, 4 ms for half of the rows; `overlap=2` beside none. In agent steps a second, all
in turn; the ratio is that of the medians.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import vecwrap
from benchmarks.beside import lines, measured_in, table_arguments
from benchmarks.engines import Measure
from benchmarks.environments import WAIT, WORK, loops_per_microsecond
from benchmarks.pages import table
from vecwrap.tools.throughput import SEED, Throughput

CARTPOLES, STEPS = 64, 128
IMAGES, IMAGE_STEPS, SHAPE, MICROSECONDS = 8, 32, (3, 256, 256), 100
WAITS, WORKERS, MILLISECONDS = 16, 4, 2


def cartpoles(backend: str) -> Any:
    return vecwrap.build("CartPole-v1", n=CARTPOLES, backend=backend, seed=SEED)


def images(backend: str, loops: float, *, copy: bool = True) -> Any:
    work = {"microseconds": MICROSECONDS, "loops_per_us": loops, "shape": SHAPE}
    return vecwrap.build(WORK, n=IMAGES, backend=backend, env_kwargs=work, seed=SEED, copy=copy)


def waits(backend: str) -> Any:
    options = {"name": backend, "workers": WORKERS}
    return vecwrap.build(
        WAIT, n=WAITS, backend=options, env_kwargs={"milliseconds": MILLISECONDS}, seed=SEED
    )


def waiting_policy(observations: Any) -> Any:
    """As dear as the environments: as long as the workers need for as many rows."""
    time.sleep(len(observations) * MILLISECONDS / 1000 / WORKERS)
    return np.zeros(len(observations), np.int64)


def collected(
    make: Callable[[], Any], num_steps: int, policy: Any = None, overlap: int = 1
) -> Throughput:
    """Rollouts under a policy; None: one that costs nothing."""
    env = make()
    actions = np.zeros(env.num_envs, np.int64)
    rollouts = vecwrap.rollouts(
        env, policy or (lambda observations: actions), num_steps, overlap=overlap
    )

    def run(count: int) -> int:
        for _ in range(count):
            next(rollouts)
        return count * num_steps * env.num_envs

    return Throughput(run, env.close)


def kept(make: Callable[[], Any], num_steps: int) -> Throughput:
    """Steps whose results are kept as they are, in a list that is made anew for each rollout."""
    env = make()
    actions = np.zeros(env.num_envs, np.int64)
    env.reset()

    def run(count: int) -> int:
        for _ in range(count):
            rollout = [(actions, *env.step(actions)) for _ in range(num_steps)]
            assert len(rollout) == num_steps
        return count * num_steps * env.num_envs

    return Throughput(run, env.close)


def copied(make: Callable[[], Any], num_steps: int) -> Throughput:
    """Steps whose results are copied into one batch, again and again."""
    env = make()
    given = np.zeros(env.num_envs, np.int64)
    last = [env.reset()[0]]
    shape = (num_steps, env.num_envs)
    observations = np.empty((num_steps + 1, *last[0].shape), last[0].dtype)
    actions, rewards = np.empty(shape, np.int64), np.empty(shape)
    terminations, truncations = np.empty(shape, bool), np.empty(shape, bool)

    def run(count: int) -> int:
        for _ in range(count):
            observations[0] = last[0]
            for t in range(num_steps):
                actions[t] = given
                last[0], rewards[t], terminations[t], truncations[t], _ = env.step(given)
                observations[t + 1] = last[0]
        return count * num_steps * env.num_envs

    return Throughput(run, env.close)


def stable_baselines3(make: Callable[[], Any], num_steps: int) -> Throughput:
    """What PPO collects, whose policy computes nothing."""
    import torch
    from stable_baselines3 import PPO

    venv = vecwrap.to_sb3(make())
    model = PPO("MlpPolicy", venv, n_steps=num_steps, device="cpu")
    zeros = torch.zeros(venv.num_envs)
    answer = torch.zeros(venv.num_envs, dtype=torch.int64), zeros[:, None], zeros
    model.policy.forward = lambda *arguments, **keywords: answer
    model.policy.predict_values = lambda observations: torch.zeros(len(observations), 1)
    _, callback = model._setup_learn(1)  # noqa: SLF001

    def run(count: int) -> int:
        for _ in range(count):
            model.collect_rollouts(venv, callback, model.rollout_buffer, num_steps)
        return count * num_steps * venv.num_envs

    return Throughput(run, venv.close)


def cartpoles_table(measure: Measure) -> list[list[str]]:
    rows = []
    for backend in ("dummy", "shmem"):
        make = partial(cartpoles, backend)
        makes: dict[str, Callable[[], Any]] = {
            "rollouts": partial(collected, make, STEPS),
            "step, references kept": partial(kept, make, STEPS),
            "SB3 collect_rollouts": partial(stable_baselines3, make, STEPS),
        }
        rows.append(lines(measure, backend, makes))
    return [[f"{CARTPOLES} CartPoles, {STEPS} steps, agent steps a second", *makes], *rows]


def images_table(measure: Measure) -> list[list[str]]:
    loops = loops_per_microsecond(time.perf_counter)
    rows = []
    for backend in ("dummy", "shmem"):
        make = partial(images, backend, loops)
        views = partial(images, backend, loops, copy=False)
        makes: dict[str, Callable[[], Any]] = {
            "rollouts, copy=False": partial(collected, views, IMAGE_STEPS),
            "step, copied into a batch": partial(copied, make, IMAGE_STEPS),
            "rollouts": partial(collected, make, IMAGE_STEPS),
            "step, copy=False, copied into a batch": partial(copied, views, IMAGE_STEPS),
        }
        rows.append(lines(measure, backend, makes))
    title = f"{IMAGES} images of {SHAPE}, {IMAGE_STEPS} steps, agent steps a second"
    return [[title, *makes], *rows]


def waits_table(measure: Measure) -> list[list[str]]:
    rows = []
    for backend in ("threads", "shmem"):
        policies = partial(collected, partial(waits, backend), STEPS, waiting_policy)
        makes: dict[str, Callable[[], Any]] = {
            "overlap=2": partial(policies, 2),
            "overlap=1": policies,
        }
        rows.append(lines(measure, backend, makes))
    title = f"{WAITS} waits of {MILLISECONDS} ms, {WORKERS} workers, agent steps a second"
    return [[title, *makes], *rows]


TABLES: dict[str, Callable[[Measure], list[list[str]]]] = {
    "cartpoles": cartpoles_table,
    "images": images_table,
    "waits": waits_table,
}


def main() -> None:
    options = table_arguments(__doc__, TABLES, 1.0)
    warnings.simplefilter("ignore")  # the peers' own
    measure = measured_in(options.rounds, options.seconds)
    for name in options.only or TABLES:
        print(table(TABLES[name](measure)), flush=True)


if __name__ == "__main__":
    main()
