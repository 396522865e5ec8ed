"""What a step over Ray costs: `python -m benchmarks.ray_overhead` prints the tables of
docs/scaling.md.

Environments that do nothing, by size of their observations: shmem, Ray with its actors on one node,
and on two. Both nodes are on this machine, so what the second one's actors give is copied between
two object stores, but over no network. A second table has more and more actors, which tells what a
call costs the parent.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
import ray

from benchmarks.environments import Toy
from benchmarks.measure import Contender, Measurement, Sample, measure_rounds
from benchmarks.pages import table
from benchmarks.report import figure
from vecwrap.backends.ray import Ray
from vecwrap.backends.shmem import Shmem
from vecwrap.env.vec_env import VecEnv
from vecwrap.testing import on
from vecwrap.tools.throughput import SEED

SIZES = {"32 B": 32, "1 kB": 1 << 10, "32 kB": 1 << 15, "256 kB": 1 << 18, "1 MB": 1 << 20}
ACTORS = (1, 3, 8)
NUM_ENVS, WORKERS = 8, 2
STORE = 500_000_000  # bytes
SECOND = "127.0.0.2"  # the second node's address


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="of one contender in one round")
    options = parser.parse_args()

    def measure(builds: Mapping[str, Callable[[], VecEnv]]) -> list[Measurement]:
        contenders = [
            Contender(name, "ours", partial(Stepping, build)) for name, build in builds.items()
        ]
        return measure_rounds(contenders, options.rounds, options.seconds)

    with two_nodes() as (address, head):
        print(
            f"Ray {ray.__version__}, {os.cpu_count()} cores; medians of {options.rounds} rounds, "
            "in µs.\n"
        )
        rows = []
        for name, size in SIZES.items():
            make = [partial(Toy, (size,))] * NUM_ENVS
            over_ray = partial(on(Ray), make, workers=WORKERS, address=address, num_cpus=0.01)
            found = measure(
                {
                    "shmem": partial(on(Shmem), make, workers=WORKERS),
                    "ray, 1 node": partial(over_ray, placement=[head]),
                    "ray, 2 nodes": partial(over_ray, placement=[head, SECOND]),
                }
            )
            rows.append(
                [name, *(cell(m, "step") for m in found), *(cell(m, "parent") for m in found)]
            )
        print(
            f"A vector step of {NUM_ENVS} sub-environments in {WORKERS} workers or actors, and the "
            "parent's part:\n"
        )
        print(
            table(
                [
                    [
                        "observation",
                        *(m.name for m in found),
                        *(f"parent, {m.name}" for m in found),
                    ],
                    *rows,
                ]
            )
        )

        make = [partial(Toy, (32,))] * NUM_ENVS
        over_ray = partial(on(Ray), make, address=address, num_cpus=0.01, placement=[head])
        found = measure({str(count): partial(over_ray, workers=count) for count in ACTORS})
        print("The same with 32 B on one node, by the number of actors:\n")
        print(
            table(
                [
                    ["actors", "step", "parent"],
                    *([m.name, cell(m, "step"), cell(m, "parent")] for m in found),
                ]
            )
        )


class Stepping:
    """Steps an environment; a sample is µs per vector step, and of this process's CPU time, over
    all its threads.
    """

    def __init__(self, build: Callable[[], VecEnv]) -> None:
        self._env = build()
        self._env.reset(seed=SEED)

    def sample(self, seconds: float) -> Sample:
        actions, steps = np.zeros(NUM_ENVS, np.int64), 0
        began, computed = time.perf_counter(), time.process_time()
        while (elapsed := time.perf_counter() - began) < seconds:
            self._env.step(actions)
            steps += 1
        return {
            "step": 1e6 * elapsed / steps,
            "parent": 1e6 * (time.process_time() - computed) / steps,
        }

    def close(self) -> None:
        self._env.close()


def cell(measurement: Measurement, quantity: str) -> str:
    return figure(measurement.median(quantity))


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


if __name__ == "__main__":
    main()
