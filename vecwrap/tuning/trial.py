"""What the measuring processes run: one sub-environment by itself, or the pipeline under one candidate."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from statistics import fmean, quantiles
from typing import Any

import cloudpickle

from vecwrap.bench.measure import SEED, Throughput, action_batches
from vecwrap.bench.ours import driver
from vecwrap.building import build_plan
from vecwrap.infos import own_copy
from vecwrap.plan import plan
from vecwrap.spec import PipelineSpec
from vecwrap.tuning.processes import pss_mb
from vecwrap.vec_env import VecEnv

__all__ = ["MeasureEnv", "TryCandidate", "busy_share", "serve"]

LOOK = 0.5  # seconds between checks that the parent is alive
MOST_STEPS = 20_000


def serve(connection: Connection, parent: int) -> None:
    """Run the job that is received, until it is done or the parent, a process id, is gone."""
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    try:
        job = cloudpickle.loads(connection.recv_bytes())
        try:
            job(connection)
        except (EOFError, BrokenPipeError, ConnectionResetError):  # the parent has heard enough
            pass
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            connection.send(("failed", text if _ours(error) else f"{type(error).__name__}: {text}"))
    except (EOFError, OSError):
        pass


def _ours(error: Exception) -> bool:
    return type(error).__module__.startswith("vecwrap.")


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


@dataclass(frozen=True)
class MeasureEnv:
    """Measures one sub-environment, and sends each figure as soon as it is known.

    Attributes:
        pipeline: as plain data.
        seconds: how long steps are measured.
    """

    pipeline: Mapping[str, Any]
    seconds: float

    def __call__(self, connection: Connection) -> None:
        """Make it, reset it, step it; then make a second one."""
        start = time.perf_counter()
        make = plan(PipelineSpec.from_dict(dict(self.pipeline))).factories[0]

        def tell(**figures: Any) -> None:
            connection.send(("figures", figures))

        env = make()
        observation, _ = env.reset(seed=SEED)
        tell(first_seconds=time.perf_counter() - start, observation_bytes=_bytes(own_copy(observation)))
        tell(**self._stepped(env))
        resident, start = _resident_mb(), time.perf_counter()
        other = make()
        other.reset(seed=SEED + 1)
        seconds, now = time.perf_counter() - start, _resident_mb()
        memory = None if resident is None or now is None else max(0.0, now - resident)
        tell(make_seconds=seconds, memory_mb=memory)
        for each in (env, other):
            each.close()
        tell(done=True)

    def _stepped(self, env: Any) -> dict[str, Any]:
        steps: list[float] = []
        resets: list[float] = []
        computed: list[float] = []
        batches = action_batches(env.action_space, 1, as_list=True)
        clock, computing = time.perf_counter, time.process_time
        began = clock()
        while clock() - began < self.seconds and len(steps) < MOST_STEPS:
            (action,) = batches[len(steps) % len(batches)]
            start, start_computing = clock(), computing()
            _, _, terminated, truncated, _ = env.step(action)
            computed.append(computing() - start_computing)
            steps.append(clock() - start)
            if terminated or truncated:
                start = clock()
                env.reset()
                resets.append(clock() - start)
        if not resets:
            start = clock()
            env.reset()
            resets.append(clock() - start)
        twentieths = quantiles(steps, n=20) if len(steps) > 1 else [0.0]
        return {
            "step_seconds": fmean(steps),
            "step_spread": (twentieths[-1] - twentieths[0]) / 2,
            "steps": len(steps),
            "busy": busy_share(steps, computed),
            "reset_seconds": fmean(resets),
        }


@dataclass(frozen=True)
class TryCandidate:
    """Builds the pipeline, sends how long that took, then the rate of a sample for each length requested.

    Attributes:
        pipeline: as plain data, with the candidate's settings.
    """

    pipeline: Mapping[str, Any]

    def __call__(self, connection: Connection) -> None:
        """Answer until the parent hangs up."""
        spec = PipelineSpec.from_dict(dict(self.pipeline))
        start = time.perf_counter()
        with build_plan(plan(spec)) as env:
            env.reset(seed=SEED)
            connection.send(("started", {"start_seconds": time.perf_counter() - start, "memory_mb": _memory_mb(env)}))
            throughput = Throughput(driver(env, spec.batch_size), lambda: None)
            while True:
                seconds = connection.recv()
                connection.send(("rate", throughput.sample(seconds)["rate"]))


def busy_share(steps: Sequence[float], computed: Sequence[float]) -> float:
    """Return how many cores steps keep busy on an idle machine.

    A step interrupted by another program seems to wait. So a quarter of the time is enough: the share reached by the
    busiest steps that together make up a quarter of all steps' time.

    Args:
        steps: how long each took, in seconds.
        computed: how long each computed meanwhile, in seconds of all threads.

    >>> busy_share([1, 1, 1, 9], [1, 1, 1, 1])  # the last was interrupted
    1.0
    >>> busy_share([1, 1, 1, 99], [1, 1, 1, 1]) < 0.02  # now and then it waits, for most of the time
    True
    """
    quarter = sum(steps) / 4
    for share, seconds in sorted(((c / s, s) for s, c in zip(steps, computed, strict=True) if s), reverse=True):
        quarter -= seconds
        if quarter <= 0:
            return share
    return 1.0


def _memory_mb(env: VecEnv) -> float | None:
    pids = [os.getpid(), *(worker.pid for worker in env.health().workers if worker.pid is not None)]
    parts = [pss_mb(pid) for pid in pids]
    return None if None in parts else sum(part for part in parts if part is not None)


def _resident_mb() -> float | None:
    with contextlib.suppress(OSError, IndexError), open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return None


def _bytes(observation: Any) -> int:
    """The bytes of an observation's arrays."""
    if isinstance(observation, Mapping):
        return sum(map(_bytes, observation.values()))
    if isinstance(observation, (tuple, list)):
        return sum(map(_bytes, observation))
    return int(getattr(observation, "nbytes", 8))
