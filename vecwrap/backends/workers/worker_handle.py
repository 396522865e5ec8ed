"""One worker as its parent sees it: the process, the connection, and its pending answers."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from vecwrap.backends.workers.cores import current_core
from vecwrap.backends.workers.launch import (
    StderrTail,
    WorkerProcess,
    exit_text,
    kill,
    start_worker,
)
from vecwrap.backends.workers.messages import Channel
from vecwrap.backends.workers.pool import PendingReply, WorkerHandleBase
from vecwrap.backends.workers.step_ring import StepRing
from vecwrap.env.runner import POLL_SECONDS
from vecwrap.interrupts import deferred_interrupts

_T = TypeVar("_T")


class WorkerHandle(WorkerHandleBase):
    """The handle of one worker; it outlives the worker's process, which may be restarted."""

    process: WorkerProcess
    channel: Channel
    stderr_tail: StderrTail

    def __init__(self, number: int, env_ids: range) -> None:
        super().__init__(number, env_ids)
        self.expected: deque[PendingReply] = deque()  # the answers it owes, in order
        self.pidfd = -1  # if the system has one
        self.ring: StepRing | None = None
        self.messages = 0  # sent since, and including, the one that told it where the slots are
        self._num_bytes = 0

    def start(self, method: str, *, daemon: bool) -> None:
        # an interrupt could leave a process that is not recorded yet and never reaped
        with deferred_interrupts():
            self.process, self.channel, self.stderr_tail = start_worker(method, daemon=daemon)
            self.expected.clear()
            self._num_bytes = 0
            self.made = False
            self.pid = self.process.pid
            self._up = True
        self.restarts += 1
        with contextlib.suppress(AttributeError, OSError):
            self.pidfd = os.pidfd_open(self.pid)

    def awaiting(self) -> list[str]:
        return [one.kind for one in self.expected]

    def is_idle(self) -> bool:
        return not self.expected

    def send(self, message: bytes, replies: Sequence[PendingReply] = ()) -> None:
        """Send a message, and expect these answers; raise OSError if the worker is gone."""
        if replies and self._limited_reply() is None:
            self.since = time.monotonic()
        self.expected.extend(replies)
        self.messages += 1
        self.channel.send(message)

    def request_steps(self, rows: Sequence[int] | None, expected: PendingReply) -> None:
        """Request steps of these rows of the worker (None: all) through the step ring."""
        assert self.ring is not None
        if expected.seconds is not None and self._limited_reply() is None:
            self.since = time.monotonic()
        count = 1
        if rows is not None:
            count = len(rows)
        self.expected.extend((expected,) * count)
        self.ring.request(rows, self.messages)

    def answered(self, count: int = 1) -> PendingReply:
        """Remove answers from the expected ones; return the last of these."""
        for _ in range(count):
            last = self.expected.popleft()
        if self.expected and self.expected[0].seconds is not None:
            self.since = time.monotonic()
        return last

    def note_bytes(self) -> None:
        """Restart the time limit if bytes were sent or received since the last check.

        Replies that the parent had not read yet may have delayed the worker.
        """
        if self.channel.num_bytes != self._num_bytes:
            self._num_bytes = self.channel.num_bytes
            self.since = time.monotonic()

    def _limited_reply(self) -> PendingReply | None:
        return next((one for one in self.expected if one.seconds is not None), None)

    @property
    def deadline(self) -> float:
        limited = self._limited_reply()
        if limited is None or limited.seconds is None:
            return math.inf
        return self.since + limited.seconds

    def lose(self, did: str | None) -> tuple[str, str]:
        """End the process of a lost worker; return the reason and its last lines on stderr.

        Args:
            did: what it did, if it did something for which it is ended.
        """
        limited = self._limited_reply()
        late = time.monotonic() > self.deadline and self.process.running
        how, said = self.end()
        if did is not None:
            reason = f"{did}, and was killed"
        elif late and limited is not None:
            reason = f"did not answer within {limited.limit}={limited.seconds:g} s, and was killed"
        else:
            reason = f"died: {how}"
        return f"{self} {reason}", said

    def end(self) -> tuple[str, str]:
        """End the process and its children; return how it ended and its last stderr lines.

        The children are all processes that the environments have started.
        """
        # If it closed its connection, give it a moment to exit by itself, to get its exit code.
        ended = self.process.join(0.0) or self.process.join(0.2 if self.pidfd >= 0 else 0.0)
        how = "it hung up without ending"
        if ended:
            how = exit_text(self.process.exitcode)
        kill(self.process, signal.SIGKILL)
        self.process.join(5.0)
        self.stderr_tail.flush()
        lines = self.stderr_tail.lines()
        self.close()
        if not lines:
            return how, ""
        return how, "\n  ".join(["\nIts last lines on stderr:", *lines])

    def close(self) -> None:
        self._up = False
        self.channel.close()
        self.stderr_tail.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def __str__(self) -> str:
        return self.label("worker", f"{self.pid}")


def other_cores_first(requests: Sequence[tuple[WorkerHandle, _T]]) -> list[tuple[WorkerHandle, _T]]:
    """Return the workers that are up, with those that last stepped on this core at the end.

    These workers would take this core as they wake up.
    """
    up = [one for one in requests if one[0].is_up()]
    if len(up) > 1:
        here = current_core()
        up.sort(key=lambda one: one[0].ring is not None and one[0].ring.core == here)
    return up


def end_workers(
    workers: Sequence[WorkerHandle], message: bytes, timeout: float, terminate: bool
) -> None:
    """Close workers within ``timeout`` seconds, unless ``terminate``; then terminate and kill."""
    if not terminate:
        for worker in workers:
            with contextlib.suppress(OSError):
                worker.send(message)
        _drain(workers, time.monotonic() + timeout)
    for worker in workers:
        if worker.process.running:
            kill(worker.process, signal.SIGTERM)
    _drain(workers, time.monotonic() + (0.2 if terminate else 1.0))
    for worker in workers:
        worker.end()


def _drain(workers: Sequence[WorkerHandle], deadline: float) -> None:
    """Read and discard the workers' output until all have ended or the time is over."""
    while time.monotonic() < deadline:
        running = [worker for worker in workers if worker.process.running]
        if not running:
            return
        poller = select.poll()
        for worker in running:
            poller.register(
                worker.channel.fileno(), select.POLLIN | select.POLLOUT * worker.channel.unsent
            )
            if worker.pidfd >= 0:
                poller.register(worker.pidfd, select.POLLIN)
        hung_up = False
        remaining = max(0.0, min(deadline - time.monotonic(), POLL_SECONDS))
        poller.poll(math.ceil(1e3 * remaining))
        for worker in running:
            worker.stderr_tail.flush()
            try:
                worker.channel.flush()
                while worker.channel.receive() is not None:
                    pass
            except (OSError, EOFError):
                hung_up = True
        if hung_up:  # its connection would always be ready now; wait for the process instead
            time.sleep(min(0.002, remaining))
