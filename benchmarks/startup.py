"""From `build` to the first seeded observation of 64 Pongs, and the memory it takes; each in a
fresh interpreter.
"""

from __future__ import annotations

import compileall
import functools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import vecwrap
from benchmarks.measure import Contender, Sample
from benchmarks.start_one import ENV, SEED, digest
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec

__all__ = ["HOW", "Startup", "contenders"]

TIMEOUT = 600.0
HOW = (
    "Each sample is a fresh interpreter that has imported the library; seconds run from making "
    "the vector environment to the batch of a seeded reset. Memory is proportional (PSS): all of "
    "its processes, and what the parent grew by. Preprocessing: atari here, AtariPreprocessing in "
    "Gymnasium, AtariWrapper in SB3, bit for bit as here. None forks the parent. All libraries "
    "are there as bytecode, which is how pip installs them."
)


class Startup:
    """One contender, as `start_one` takes it; a sample starts it from scratch, and compares what it
    shows first.
    """

    def __init__(self, kind: str, n: int, expected: str | None = None) -> None:
        self._kind = kind
        self._n = n
        self._expected = expected

    def sample(self, seconds: float) -> Sample:
        command = [sys.executable, "-m", "benchmarks.start_one", self._kind, str(self._n)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        if done.returncode:
            raise RuntimeError(
                (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
            )
        told = json.loads(done.stdout.splitlines()[-1])
        if self._expected is not None and told["digest"] != self._expected:
            raise RuntimeError(
                "the first observations are not those of one process that resets with each seed "
                "in turn"
            )
        return {"start": told["seconds"], **({} if told["mb"] is None else {"memory": told["mb"]})}

    def close(self) -> None:
        pass


def contenders(n: int = 64) -> list[Contender]:
    """Return ours, Gymnasium on forkserver, and SB3, whose default that is."""
    # pip compiles bytecode of what it copies, but not of what it installs as editable.
    compileall.compile_dir(Path(vecwrap.__file__).parent, quiet=2)
    return [
        Contender("vecwrap shmem", "ours", lambda: Startup("ours", n, _one_by_one(n))),
        Contender("Gymnasium Async", "peer", lambda: Startup("gymnasium", n), "forkserver"),
        Contender(
            "SB3 SubprocVecEnv", "peer", lambda: Startup("sb3", n, _one_by_one(n)), "forkserver"
        ),
    ]


@functools.cache
def _one_by_one(n: int) -> str:
    """The digest of what one sub-environment shows when reset with the seed of each in turn,
    without a backend.
    """
    env = plan(PipelineSpec(ENV, n=1, wrappers=["atari"])).factories[0]()
    observations = [env.reset(seed=SEED + i)[0] for i in range(n)]
    env.close()
    return digest(np.stack(observations))
