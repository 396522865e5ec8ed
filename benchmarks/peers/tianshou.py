"""Tianshou's vector environments, which do not autoreset: the loop around them does."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.wrappers import RecordEpisodeStatistics

from benchmarks.measure import Contender, peer_module
from benchmarks.peers.gymnasium import gymnasium_atari, gymnasium_framestack
from benchmarks.peers.translation import (
    Counterpart,
    Given,
    Work,
    translated,
    warm_forkserver,
    wrapped,
)
from vecwrap.pipeline.plan import Plan
from vecwrap.tools.throughput import SEED, Throughput, action_batches, make_stepper
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor

__all__ = ["Tianshou"]

PIP = "torch==2.13.0 tianshou"


class Tianshou:
    """``SubprocVectorEnv`` and ``ShmemVectorEnv`` with Gymnasium's wrappers in their
    sub-environments.
    """

    names = ("tianshou Subproc", "tianshou Shmem")

    def contenders(self, planned: Plan) -> Sequence[Contender]:
        """Return both, with the same sub-environments."""
        work = translated(
            planned,
            "tianshou",
            inner={Atari: gymnasium_atari, FrameStack: gymnasium_framestack, Monitor: _monitor},
            outer={},
            batches=True,
        )
        batch_size = planned.pipeline.batch_size
        starts = [
            partial(_running, kind, work, batch_size)
            for kind in ("SubprocVectorEnv", "ShmemVectorEnv")
        ]
        note = "; ".join(
            filter(None, ("the loop resets ended rows by a call of its own", work.note))
        )
        return [
            Contender(name, "peer", start, note)
            for name, start in zip(self.names, starts, strict=True)
        ]


def _running(kind: str, work: Work, batch_size: int | None) -> Throughput:
    venvs = peer_module("tianshou.env", PIP)
    warm_forkserver()
    with _forkserver():
        env = work.start(partial(getattr(venvs, kind), wait_num=batch_size))
    n = len(work.factories)
    rows = batch_size or n
    env.seed(SEED)
    env.reset()
    batches = action_batches(env.action_space[0], n, as_list=True)
    return Throughput(make_stepper(_step_and_reset(env, np.arange(n)), batches, rows), env.close)


@contextlib.contextmanager
def _forkserver() -> Iterator[None]:
    """Start its workers from a forkserver: under ``fork`` they would copy a process with other
    engines' threads.
    """
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("forkserver", force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


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


def _monitor(given: Given) -> Counterpart:
    note = "its monitor is Gymnasium's, in the sub-environments" + (
        ", and writes no file" if given.get("dir") else ""
    )
    return Counterpart((wrapped(RecordEpisodeStatistics),), note)
