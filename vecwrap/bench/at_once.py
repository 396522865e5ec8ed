"""What the cores really give: one process for each, all of them looping at the same time, with nothing between them.

Cores × one process is more than that where cores share something (a cache, a clock, a neighbour's load). A vector step
that waits for all rows comes no nearer to the former than to this.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import gymnasium

from vecwrap.bench.contender import Sample, Throughput
from vecwrap.errors import VecwrapError

__all__ = ["AtOnce"]

Make = Callable[[], gymnasium.Env[Any, Any]]


class AtOnce:
    """Processes that loop over one environment each, all at once.

    Args:
        loop: opens a loop over what ``make`` gives, in each process.
        make: gives one environment; travels by value.
        processes: how many.

    Raises:
        VecwrapError: the environment cannot be made.
    """

    def __init__(self, loop: Callable[[Make], Throughput], make: Make, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        job = cloudpickle.dumps((loop, make))
        self._links = []
        self._processes = []
        for _ in range(processes):
            here, there = context.Pipe()
            with there:
                process = context.Process(target=_serve, args=(there, job), daemon=True)
                process.start()
            self._links.append(here)
            self._processes.append(process)
        try:
            self._answers()
        except BaseException:
            self.close()
            raise

    def sample(self, seconds: float) -> Sample:
        """Give the sum of their rates over so long."""
        for link in self._links:
            link.send(seconds)
        return {"rate": sum(self._answers())}

    def close(self) -> None:
        """End the processes."""
        for link in self._links:
            link.close()
        for process in self._processes:
            process.join()

    def _answers(self) -> list[float]:
        try:
            answers = [link.recv() for link in self._links]
        except EOFError:
            raise VecwrapError("a process that loops over one environment ended before its time") from None
        for answer in answers:
            if isinstance(answer, str):
                raise VecwrapError(f"the environment cannot be made by itself: {answer}")
        return answers


def _serve(link: Connection, job: bytes) -> None:
    """Run in each process: loop for as long as is asked, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    with link, contextlib.suppress(EOFError, ConnectionError):  # closed, perhaps with an answer that nobody has read
        try:
            loop, make = cloudpickle.loads(job)
            sampler = loop(make)
        except Exception as error:
            link.send(f"{type(error).__name__}: {error}")
            return
        with contextlib.closing(sampler):
            link.send(0.0)
            while True:
                link.send(sampler.sample(link.recv())["rate"])
