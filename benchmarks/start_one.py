"""One sample of start-up in a fresh interpreter: `python -m benchmarks.start_one NAME N` prints a
line of JSON.

Peers' workers import the main module again, so this one imports only the standard library by
itself: they load only what they need.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["ENV", "SEED", "digest", "pss_mb"]

ENV = "PongNoFrameskip-v4"
SEED = 1


def digest(observations: Any) -> str:
    """Return a fingerprint of a batch."""
    return hashlib.sha256(observations.tobytes()).hexdigest()


def pss_mb(pid: int) -> float | None:
    """A process's proportional memory in MB: shared pages count by shares; None if unknown."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("Pss:")), None)


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rsplit(")", 1)[1].split()[1]
            )
        except (OSError, IndexError):
            continue  # it has just ended
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def _make(kind: str, n: int) -> Callable[[], tuple[Any, Any]]:
    """Import the library; return a function that makes the vector environment and resets it."""
    if kind == "ours":
        import vecwrap

        def ours() -> tuple[Any, Any]:
            env = vecwrap.build(ENV, n=n, wrappers=["atari"])
            return env, env.reset(seed=SEED)[0]

        return ours

    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    if kind == "gymnasium":
        from gymnasium.vector import AsyncVectorEnv

        def asynchronous() -> tuple[Any, Any]:
            env = AsyncVectorEnv([_preprocessed] * n, context="forkserver")
            return env, env.reset(seed=SEED)[0]

        return asynchronous
    from stable_baselines3.common.vec_env import SubprocVecEnv

    def subproc() -> tuple[Any, Any]:
        env = SubprocVecEnv([_sb3] * n)
        env.seed(SEED)
        return env, env.reset()

    return subproc


def _preprocessed() -> Any:
    import ale_py
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing

    gymnasium.register_envs(ale_py)
    return AtariPreprocessing(gymnasium.make(ENV), terminal_on_life_loss=True)


def _sb3() -> Any:
    import ale_py
    import gymnasium
    from stable_baselines3.common.atari_wrappers import AtariWrapper

    gymnasium.register_envs(ale_py)
    return AtariWrapper(gymnasium.make(ENV))


def main(kind: str, n: int) -> None:
    make = _make(kind, n)
    before = pss_mb(os.getpid())
    start = time.perf_counter()
    env, observations = make()
    seconds = time.perf_counter() - start
    now = [pss_mb(pid) for pid in (os.getpid(), *descendants(os.getpid()))]
    mb = None if before is None else sum(part for part in now if part is not None) - before
    told = {"seconds": seconds, "mb": mb, "digest": digest(observations)}
    env.close()
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
