"""Tianshou's vector environments, which do not autoreset: the loop around them does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.wrappers import RecordEpisodeStatistics

from vecwrap.bench.contender import SEED, Contender, Steps, Throughput, action_batches, peer_module
from vecwrap.bench.peers.gymnasium import atari, framestack
from vecwrap.bench.peers.translation import (
    Counterpart,
    Work,
    contenders_of,
    forkserver,
    sub_env_factories,
    warm_forkserver,
    wrapped,
)
from vecwrap.contract import Autoreset
from vecwrap.plan import Plan
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor

__all__ = ["Tianshou"]

PIP = "torch==2.13.0 tianshou"


class Tianshou:
    """``SubprocVectorEnv`` and ``ShmemVectorEnv`` with Gymnasium's wrappers in their sub-environments."""

    names = ("tianshou Subproc", "tianshou Shmem")

    def contenders(self, planned: Plan) -> Sequence[Contender]:
        """Return both, with the same sub-environments."""
        work = sub_env_factories(
            planned,
            "tianshou",
            worker={Atari: atari},
            inside={FrameStack: framestack, Monitor: _monitor},
            parent={},
            modes=(Autoreset.SAME_STEP, Autoreset.NEXT_STEP),
            partial=True,
        )
        batch_size = planned.pipeline.batch_size
        starts = [partial(_running, kind, work, batch_size) for kind in ("SubprocVectorEnv", "ShmemVectorEnv")]
        note = "; ".join(filter(None, ("the loop resets ended rows by a call of its own", work.note)))
        return contenders_of(self.names, starts, note)


def _running(kind: str, work: Work, batch_size: int | None) -> Throughput:
    venvs = peer_module("tianshou.env", PIP)
    warm_forkserver()
    with forkserver():
        env = getattr(venvs, kind)(list(work.factories), wait_num=batch_size)
    n = len(work.factories)
    rows = batch_size or n
    env.seed(SEED)
    env.reset()
    batches = action_batches(env.action_space[0], n, as_list=True)
    return Throughput(Steps(_step_and_reset(env, np.arange(n)), batches, rows), env.close)


def _step_and_reset(env: Any, ids: Any) -> Callable[[Any], None]:
    """Step the rows that are ready, and reset those that have ended."""

    def step(actions: Any) -> None:
        nonlocal ids
        _, _, terminations, truncations, infos = env.step(actions[: len(ids)], ids)
        ids = np.array([info["env_id"] for info in infos])
        dones = terminations | truncations
        if dones.any():
            env.reset(ids[dones])

    return step


def _monitor(given: Mapping[str, Any]) -> Counterpart:
    note = "its monitor is Gymnasium's, in the sub-environments" + (", and writes no file" if given.get("dir") else "")
    return Counterpart((wrapped(RecordEpisodeStatistics),), note)
