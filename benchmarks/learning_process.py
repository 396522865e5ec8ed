"""One process of `benchmarks.learning`: environments of one n beside one setting of threads.

It reads lines of JSON, ``[name, loop, seconds]`` or ``[name]``, and answers each with one: figures,
or ``{"cannot": why}``. A name alone opens the environment and takes a few steps.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import vecwrap
from benchmarks.learning_loops import (
    LOOPS,
    GymnasiumLoopEnv,
    Loop,
    LoopEnv,
    Sb3LoopEnv,
    StageTimes,
    sample,
)
from benchmarks.measure import CannotRun
from benchmarks.peers.gymnasium import Gymnasium
from benchmarks.peers.sb3 import StableBaselines3
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.tools.throughput import SEED

OURS: dict[str, Any] = {
    "vecwrap, default": "auto",
    "vecwrap shmem, no parent_share": {"name": "shmem", "parent_share": False},
    "vecwrap dummy": "dummy",
    "vecwrap shmem, workers=8": {"name": "shmem", "workers": 8},
}
WRAPPERS = ["atari", "framestack:4", "monitor"]


def open_env(name: str, n: int) -> LoopEnv:
    """Return an environment of ours or of a peer, by the contender's name."""
    spec = PipelineSpec("PongNoFrameskip-v4", n=n, wrappers=WRAPPERS)
    if name in OURS:
        return GymnasiumLoopEnv(vecwrap.build(spec.override(backend=OURS[name])), SEED)
    if name in StableBaselines3.names:
        makes, _ = StableBaselines3().makes(plan(spec))
        return Sb3LoopEnv(makes[name](), SEED)
    makes, _ = Gymnasium().makes(plan(spec))
    return GymnasiumLoopEnv(makes[name](), SEED)


class Side:
    """The environments that are open, and the loops over them."""

    def __init__(
        self,
        n: int,
        open_env: Callable[[str, int], LoopEnv] = open_env,
        *,
        acting_threads: int = 0,
    ) -> None:
        self._n = n
        self._acting_threads = acting_threads
        self._open_env = open_env
        self._loops: dict[tuple[str, str], tuple[Loop, StageTimes]] = {}
        self._envs: list[LoopEnv] = []

    def answer(self, name: str, loop: str = "", seconds: float = 0.0) -> dict[str, Any]:
        """Open an environment, or measure a loop over an open one."""
        if not loop:
            env = self._open_env(name, self._n)
            self._envs.append(env)
            for kind, make in LOOPS.items():
                times = StageTimes()
                opened = make(env, times)
                opened.acting_threads = self._acting_threads
                self._loops[name, kind] = opened, times
            self._loops[name, "A2C"][0].cycle()
            return {}
        opened, times = self._loops[name, loop]
        return sample(opened, times, self._n, seconds, time.perf_counter)

    def close(self) -> None:
        for env in self._envs:
            env.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, required=True)
    parser.add_argument("--torch-threads", type=int, default=0, help="0: as many as torch chooses")
    parser.add_argument("--acting-threads", type=int, default=0, help="0: all of them")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # the peers' own
    if options.torch_threads:
        torch.set_num_threads(options.torch_threads)
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints is no answer
    side = Side(options.n, acting_threads=options.acting_threads)
    for line in sys.stdin:
        try:
            answer = side.answer(*json.loads(line))
        except CannotRun as error:
            answer = {"cannot": str(error)}
        print(json.dumps(answer), file=replies, flush=True)
    side.close()


if __name__ == "__main__":
    main()
