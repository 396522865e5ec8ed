"""What a step over Ray costs: `python -m benchmarks.ray_overhead` prints the tables of docs/scaling.md.

Environments that do nothing, by size of their observations: shmem, Ray with its actors on one node, and on two. Both
nodes are on this machine, so what the second one's actors give is copied between two object stores, but over no
network. The three stand side by side and are stepped in turn, so that a machine's moods meet all of them alike; the
median of the rounds is shown. A second table has more and more actors, which tells what a call costs the parent.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import ray

from benchmarks.environments import Toy
from vecwrap.backends.ray import RayBackend
from vecwrap.backends.shmem import ShmemBackend
from vecwrap.vec_env import VecEnv

SIZES = {"32 B": 32, "1 kB": 1 << 10, "32 kB": 1 << 15, "256 kB": 1 << 18, "1 MB": 1 << 20}
ACTORS = (1, 3, 8)
NUM_ENVS, WORKERS = 8, 2
STORE = 500_000_000  # bytes
SECOND = "127.0.0.2"  # the second node's address
WARM_UP = 10  # steps


class Sample(NamedTuple):
    """The time of a vector step, and this process's CPU time for it, over all its threads; in µs."""

    step: float
    parent: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="of one contender in one round")
    options = parser.parse_args()
    began = time.monotonic()
    with two_nodes() as (address, head):
        print(f"Ray {ray.__version__}, {os.cpu_count()} cores; medians of {options.rounds} rounds, in µs.\n")
        rows = []
        for name, size in SIZES.items():
            make = [partial(Toy, (size,))] * NUM_ENVS
            over_ray = partial(RayBackend, make, workers=WORKERS, address=address, num_cpus=0.01)
            found = measure(
                {
                    "shmem": partial(ShmemBackend, make, workers=WORKERS),
                    "ray, 1 node": partial(over_ray, placement=[head]),
                    "ray, 2 nodes": partial(over_ray, placement=[head, SECOND]),
                },
                options.rounds,
                options.seconds,
            )
            rows.append([name, *(one.step for one in found.values()), *(one.parent for one in found.values())])
        print(f"A vector step of {NUM_ENVS} sub-environments in {WORKERS} workers or actors, and the parent's part:\n")
        table(["observation", *found, *(f"parent, {name}" for name in found)], rows)

        make = [partial(Toy, (32,))] * NUM_ENVS
        over_ray = partial(RayBackend, make, address=address, num_cpus=0.01, placement=[head])
        found = measure(
            {str(count): partial(over_ray, workers=count) for count in ACTORS}, options.rounds, options.seconds
        )
        print("\nThe same with 32 B on one node, by the number of actors:\n")
        table(["actors", "step", "parent"], [[name, *one] for name, one in found.items()])
    print(f"\n{time.monotonic() - began:.0f} s in all")


@contextmanager
def two_nodes() -> Iterator[tuple[str, str]]:
    """Start two nodes on this machine; yield the cluster's address and the first node's id."""
    from ray.cluster_utils import Cluster

    os.environ.pop("RAY_ADDRESS", None)
    warnings.simplefilter("ignore")  # Ray's own
    settings = {"num_cpus": 2, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**settings, "include_dashboard": False})
    try:
        cluster.add_node(**settings, node_ip_address=SECOND)
        yield cluster.address, cluster.head_node.node_id
    finally:
        if ray.is_initialized():
            ray.shutdown()
        cluster.shutdown()


def measure(contenders: Mapping[str, Callable[[], VecEnv]], rounds: int, seconds: float) -> dict[str, Sample]:
    """Build all, step them in turn, and return the medians."""
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    with ExitStack() as stack:
        envs = {name: stack.enter_context(build()) for name, build in contenders.items()}
        for env in envs.values():
            env.reset(seed=1)
            for _ in range(WARM_UP):
                env.step(np.zeros(NUM_ENVS, np.int64))
        names = list(envs)
        for k in range(rounds):
            for name in names[k % len(names) :] + names[: k % len(names)]:
                samples[name].append(sample(envs[name], seconds))
    return {name: Sample(*map(statistics.median, zip(*found, strict=True))) for name, found in samples.items()}


def sample(env: VecEnv, seconds: float) -> Sample:
    """Step for a while."""
    actions, steps = np.zeros(NUM_ENVS, np.int64), 0
    began, computed = time.perf_counter(), time.process_time()
    while (elapsed := time.perf_counter() - began) < seconds:
        env.step(actions)
        steps += 1
    return Sample(1e6 * elapsed / steps, 1e6 * (time.process_time() - computed) / steps)


def table(head: Sequence[str], rows: Sequence[Sequence[str | float]]) -> None:
    """Print a table in Markdown."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(one if isinstance(one, str) else f"{one:,.0f}" for one in row) + " |")


if __name__ == "__main__":
    main()
