"""Whether worker processes wait for a core while other threads of this process run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vecwrap.env.runner import Runner

__all__ = ["NOTHING_COUNTED", "CoreCounts", "CoreMeter", "contention"]

MIN_SHARE = 0.2  # of a wait, from which on it is worth a remark
MIN_WAITED_SECONDS = 0.1  # less says nothing
REMEDY = (
    "Set OMP_WAIT_POLICY=PASSIVE before torch is imported, or call torch.set_num_threads(1); see "
    '"A learner beside the workers" in docs/performance.md.'
)


@dataclass(frozen=True)
class CoreCounts:
    """Seconds that have been counted so far.

    Attributes:
        waits: how many times this process waited for its workers.
        waited: how long.
        beside: for how long other threads of this process had a core meanwhile; of several at once
            each counts.
        delays: by process id: for how long a worker could have run, but had no core.
    """

    waits: int
    waited: float
    beside: float
    delays: Mapping[int, float]

    def since(self, earlier: CoreCounts) -> CoreCounts:
        """Return what came after other counts; workers that are not in both are left out."""
        both = self.delays.keys() & earlier.delays.keys()
        return CoreCounts(
            self.waits - earlier.waits,
            self.waited - earlier.waited,
            self.beside - earlier.beside,
            {pid: self.delays[pid] - earlier.delays[pid] for pid in both},
        )

    def plus(self, other: CoreCounts) -> CoreCounts:
        """Return the sums."""
        delays = dict(self.delays)
        for pid, delay in other.delays.items():
            delays[pid] = delays.get(pid, 0.0) + delay
        return CoreCounts(
            self.waits + other.waits,
            self.waited + other.waited,
            self.beside + other.beside,
            delays,
        )


NOTHING_COUNTED = CoreCounts(0, 0.0, 0.0, {})


def contention(counts: CoreCounts) -> str:
    """Say that the learner's threads take the workers' cores; "" if they do not.

    That is so if, for a fifth of the time that a step waits for its workers, a worker had no core,
    and other threads of this process had one.

    >>> counts = CoreCounts(waits=100, waited=1.2, beside=1.1, delays={4711: 0.6})
    >>> contention(counts).partition(":")[0]
    "your learner's threads take your workers' core"
    >>> contention(CoreCounts(waits=100, waited=1.2, beside=0.0, delays={4711: 0.6}))
    ''
    """
    delayed = max(counts.delays.values(), default=0.0)
    if counts.waited < MIN_WAITED_SECONDS or min(delayed, counts.beside) < (
        MIN_SHARE * counts.waited
    ):
        return ""
    waited = 1e3 * counts.waited / counts.waits
    without = min(1e3 * delayed / counts.waits, waited)
    return (
        f"your learner's threads take your workers' core: of the {waited:.1f} ms that a step waits "
        f"for its workers, a worker has no core for {without:.1f} ms, while other threads of this "
        f"process run. {REMEDY}"
    )


class CoreMeter:
    """Counts for how long this process waits, and who has a core meanwhile.

    The stepping thread calls ``begin_wait`` and ``end_wait``; any thread may read. Workers are not
    asked: the system knows for how long each could have run, but had no core.

    Args:
        runner: whose worker processes count, if they are on this machine.
        clock: in seconds.
        process_clock: for how many seconds all threads of this process together had a core.
        thread_clock: for how many seconds the calling thread had a core.
        read_delay: from a process id to the seconds for which it could have run, but had no core;
            None if that is not known.

    Attributes:
        has_workers: whether there are such processes; if not, there is nothing to count.
    """

    def __init__(
        self,
        runner: Runner,
        *,
        clock: Callable[[], float] = time.perf_counter,
        process_clock: Callable[[], float] = time.process_time,
        thread_clock: Callable[[], float] = time.thread_time,
        read_delay: Callable[[int], float | None] | None = None,
    ) -> None:
        self._runner = runner
        self.has_workers = runner.workers_are_local
        self._clock = clock
        self._process_clock = process_clock
        self._thread_clock = thread_clock
        self._read_delay = read_delay or read_run_delay
        self._waits = 0
        self._waited = 0.0
        self._beside = 0.0
        self._began = 0.0
        self._others = 0.0

    def begin_wait(self) -> None:
        """This process begins to wait for its workers, or to step its own share."""
        self._others = self._process_clock() - self._thread_clock()
        self._began = self._clock()

    def end_wait(self) -> None:
        """Results have arrived."""
        self._waited += self._clock() - self._began
        self._beside += self._process_clock() - self._thread_clock() - self._others
        self._waits += 1

    def read(self) -> CoreCounts:
        """Return the counts so far."""
        delays: dict[int, float] = {}
        if self.has_workers:
            for worker in self._runner.health():
                if worker.pid is not None and (delay := self._read_delay(worker.pid)) is not None:
                    delays[worker.pid] = delay
        return CoreCounts(self._waits, self._waited, self._beside, delays)


def read_run_delay(pid: int) -> float | None:
    """Return for how many seconds the main thread of a process could have run, but had no core.

    None if the system does not say, or the process has ended.
    """
    try:
        _, delay, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return None
    return int(delay) / 1e9
