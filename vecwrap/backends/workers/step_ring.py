"""What a parent and its workers share: a memory block, rings of step requests, and doorbells.

The block has no name to clean up, and is freed with its last user. On Linux it is a memfd, on other
POSIX systems a temporary file that is unlinked at once; its descriptor is passed over the worker's
own connection. Neither is in ``/dev/shm``, which is 64 MB in a container.

A step ring carries the requested steps and the progress on them. The parent appends entries,
advances its count and rings; the worker processes them in order, writes the results into the slots,
advances its own count and rings back. No messages are sent, and a spinning process need not even be
woken.

Each count is one aligned word with a single writer, written after the data it covers. After hearing
the bell, a process sees everything that was written before the ring; a spinning process reads the
count without, which is correct only on some processors (``ORDERED``; docs/design.md says why). On
others the bell itself counts the entries.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import platform
import select
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from vecwrap.backends.workers.cores import current_core
from vecwrap.errors import BackendError
from vecwrap.rows.batch import Allocate
from vecwrap.rows.columns import Arena
from vecwrap.rows.step_result import IntArray
from vecwrap.rows.table import Slots

ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i686")
# two cache lines, each with one writer
_REQUESTED = 0
_DONE = 8
_CORE = 9
_ROW_MASK = (1 << 32) - 1
ALL_ROWS = 0  # the entry for all rows of a worker; single rows are 1 + row

# seconds; if waits are usually longer than this, sleep at once: waking up takes 24 to 46 µs
MAX_SPIN_SECONDS = 500e-6
_NEWEST_WEIGHT = 0.125  # of the newest wait in the mean


class SharedBlock:
    """Zeroed memory of a fixed size that other processes can map by ``descriptor``.

    Arrays over ``buffer`` keep the memory alive.
    """

    def __init__(self, buffer: mmap.mmap, descriptor: int = -1) -> None:
        self.buffer = buffer
        self.descriptor = descriptor

    @classmethod
    def create(cls, num_bytes: int) -> SharedBlock:
        """Make a block; raise BackendError if there is not enough memory."""
        num_bytes = max(num_bytes, mmap.PAGESIZE)
        descriptor = -1
        try:
            descriptor = anonymous_file(getattr(os, "MFD_ALLOW_SEALING", 0))
            os.ftruncate(descriptor, num_bytes)
            block = cls(mmap.mmap(descriptor, num_bytes), descriptor)
            if hasattr(os, "posix_fallocate"):  # better an error now than SIGBUS in the first step
                os.posix_fallocate(descriptor, 0, num_bytes)
            # a file on disk, which a worker could still shorten
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(
                    descriptor,
                    fcntl.F_ADD_SEALS,
                    fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL,
                )
            return block
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            raise BackendError(
                f"shmem: {num_bytes:,} bytes of shared memory are needed but could not be "
                f"allocated ({error}); use fewer sub-environments, smaller observations, or "
                'backend="subprocess"'
            ) from error

    @classmethod
    def map(cls, descriptor: int) -> SharedBlock:
        """Map the block of a descriptor from another process, then close the descriptor."""
        try:
            return cls(mmap.mmap(descriptor, os.fstat(descriptor).st_size))
        finally:
            os.close(descriptor)

    def close_descriptor(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def anonymous_file(flags: int = 0) -> int:
    """Return the descriptor of a file without a name, in memory if the system supports that.

    ``flags`` apply to a file in memory only.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create("vecwrap", os.MFD_CLOEXEC | flags)
    return _unlinked_file()


def _unlinked_file(flags: int = 0) -> int:
    """The portable fallback: a file that is unlinked while open, and knows no flags."""
    with tempfile.TemporaryFile(prefix="vecwrap-") as file:
        return os.dup(file.fileno())


def allocate_shared(
    num_envs: int,
    observation_space: Any,
    action_space: Any,
    num_workers: int,
    largest_share: int,
    arena: Arena,
    *,
    first_row: int = 0,
) -> tuple[Slots, list[RingMemory]]:
    """Allocate the shared arrays, with the same layout in the parent and in the workers.

    Without a buffer, the arena only measures the size.
    """
    slots = Slots(
        num_envs, observation_space, action_space, allocate=arena, shared=True, first_row=first_row
    )
    return slots, allocate_rings(num_workers, largest_share, arena)


class Doorbell:
    """Several rings wake the listener once; ``clear`` returns how many there were.

    Ringing never blocks.
    An eventfd if the system supports it, else a pipe; the end in another process is -1.
    """

    def __init__(self, read_end: int, write_end: int) -> None:
        self.read_end = read_end
        self.write_end = write_end
        self.is_counter = hasattr(
            os, "eventfd"
        )  # it counts by itself; in a pipe each ring is a byte

    @classmethod
    def create(cls) -> Doorbell:
        if hasattr(os, "eventfd"):
            descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return cls(descriptor, descriptor)
        listens, rings = os.pipe()
        for end in (listens, rings):
            os.set_blocking(end, False)
        return cls(listens, rings)

    def ring(self, times: int = 1) -> None:
        """Wake the listener, which then sees everything written to shared memory before."""
        if self.is_counter:
            rings = times.to_bytes(8, "little")
        else:
            rings = bytes(times)
        try:  # noqa: SIM105 -- `suppress` takes as long as the bell itself
            os.write(self.write_end, rings)
        except BlockingIOError:  # full of rings already, so the listener will wake
            pass

    def clear(self) -> int:
        """Clear the bell; return how often it was rung."""
        times = 0
        with contextlib.suppress(BlockingIOError):
            if self.is_counter:
                return int.from_bytes(os.read(self.read_end, 8), "little")
            while data := os.read(self.read_end, 4096):
                times += len(data)
        return times

    def close(self) -> None:
        for end in {self.read_end, self.write_end} - {-1}:
            os.close(end)
        self.read_end = self.write_end = -1


class Spinner:
    """Polls for a short while before it sleeps, as long as recent waits suggest.

    Not ``allowed``: there is no core to spare, or polling is not reliable; then it never polls
    twice. ``crowded``: other processes may need this core, so it is yielded between polls.
    """

    def __init__(
        self, allowed: bool, *, crowded: bool, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._allowed = allowed
        self._crowded = crowded
        self._clock = clock
        self.mean = 0.0  # of recent waits, in seconds; each counts as at most four times ``MOST``

    @property
    def bound(self) -> float:
        if not self._allowed or self.mean > MAX_SPIN_SECONDS:
            return 0.0
        return min(MAX_SPIN_SECONDS, 4 * self.mean + 50e-6)

    def wait(self, ready: Callable[[], bool], sleep: Callable[[], bool]) -> None:
        """Wait until ``ready()``: poll at first, then call ``sleep``.

        ``sleep`` waits until ``ready()`` may be true, and returns True if there is other work to
        do.
        """
        clock = self._clock
        crowded = self._crowded
        start = clock()
        until = start + self.bound
        while not ready():
            if clock() >= until:
                if sleep():
                    break
            elif crowded:
                os.sched_yield()
        self.mean += _NEWEST_WEIGHT * (min(clock() - start, 4 * MAX_SPIN_SECONDS) - self.mean)

    def spin(self, rings: Sequence[StepRing], is_interrupted: Callable[[], bool]) -> bool:
        """Poll until all rings are answered; return False after a limit or if ``came()``."""
        clock = self._clock
        crowded = self._crowded
        start = clock()
        until = start + self.bound
        done = False
        while not done:
            for ring in rings:
                if ring.counts[_DONE] != ring.num_requested:
                    break
            else:
                done = True
                break
            if is_interrupted() or clock() >= until:
                break
            if crowded:
                os.sched_yield()
        self.mean += _NEWEST_WEIGHT * (min(clock() - start, 4 * MAX_SPIN_SECONDS) - self.mean)
        return done


class RingMemory:
    """The memory of one step ring."""

    def __init__(self, counts: IntArray, entries: IntArray, by_pipe: IntArray) -> None:
        # How many entries the parent has requested, how many the worker has done, and the core it
        # was on for the last.
        self.counts = counts.data
        # a row, or all of them; and how many messages must have been handled before it
        self.entries = entries.data
        self.by_pipe = by_pipe.data  # whether its answer was sent as a message
        self.size = len(self.entries)


def allocate_rings(num_workers: int, largest_share: int, allocate: Allocate) -> list[RingMemory]:
    """Allocate all rings, each with a new and a not yet read entry per row of the largest share.

    A row whose answer came as a message may be asked again before the count of its last entry is
    looked at.
    """
    size = -(-2 * largest_share // 8) * 8  # whole cache lines
    counts = allocate((num_workers, 16), np.int64)
    entries, piped = (allocate((num_workers, size), np.int64) for _ in range(2))
    if not counts.flags.writeable:  # only the size is being measured
        return []
    return [RingMemory(*words) for words in zip(counts, entries, piped, strict=True)]


class StepRing:
    """The parent's end; raises OSError if there are no descriptors left for its bells."""

    def __init__(self, memory: RingMemory, rows: Sequence[int]) -> None:
        self._memory = memory
        self.counts = memory.counts
        self._rows = rows
        self.request_bell = Doorbell.create()
        try:
            self.reply_bell = Doorbell.create()
        except OSError:
            self.request_bell.close()
            raise
        # whether any answer taken last was sent as a message, which may say how to read the rest
        self.by_pipe = False
        self._requests: deque[Sequence[int]] = deque()
        self.num_requested = self._num_taken = self._num_rung = 0

    def restart(self) -> None:
        """Start over with another process."""
        self._requests.clear()
        self.counts[_REQUESTED] = self.counts[_DONE] = 0
        self.num_requested = self._num_taken = self._num_rung = 0
        self.request_bell.clear()
        self.reply_bell.clear()

    def request(self, rows: Sequence[int] | None, messages: int) -> None:
        """Request steps of these rows after ``messages`` messages (None: all rows at once).

        Each entry is answered separately.
        """
        requested = self.num_requested
        entries = self._memory.entries
        size = self._memory.size
        if rows is None:
            entries[requested % size] = messages << 32 | ALL_ROWS
            self._requests.append(self._rows)
            answers = 1
        else:
            for position, row in enumerate(rows, requested):
                entries[position % size] = messages << 32 | row + 1
                self._requests.append([row])
            answers = len(rows)
        self.num_requested = self.counts[_REQUESTED] = requested + answers
        self.request_bell.ring(answers)

    def clear_doorbell(self) -> None:
        self._num_rung += self.reply_bell.clear()

    def has_answers(self) -> bool:
        """Whether there are new answers; if not ``ORDERED``, according to the bell."""
        done: int = self._num_rung  # as `_num_done`, without a call for each worker of each step
        if ORDERED:
            done = self.counts[_DONE]
        return done != self._num_taken

    def _num_done(self) -> int:
        done: int = self._num_rung
        if ORDERED:
            done = self.counts[_DONE]
        return done

    @property
    def core(self) -> int:
        """The core that the worker was on for its last answer, as a hint; -1 if unknown."""
        core: int = self.counts[_CORE]
        return core

    @property
    def is_awaiting(self) -> bool:
        return bool(self._requests)

    def take(self) -> tuple[Sequence[int], int]:
        """Return the rows that are done in shared memory, and the number of their answers.

        The rows of one answer are as they were requested: all rows of the worker, or a single one.

        Raise LookupError if the worker's count is impossible.
        """
        words = self._memory
        rows: Sequence[int] = ()
        several: list[int] = []
        answers = 0
        done = self._num_done()
        if not self._num_taken <= done <= self.num_requested:
            raise LookupError(
                f"expected {self._num_taken} to {self.num_requested} answers, got {done}"
            )
        self.by_pipe = False
        for position in range(self._num_taken, done):
            group = self._requests.popleft()
            if words.by_pipe[position % words.size]:
                self.by_pipe = True
            else:
                answers += 1
                if answers == 1:
                    rows = group
                    continue
                if answers == 2:
                    several = [*rows]
                    rows = several
                several += group
        self._num_taken = done
        return rows, answers

    def close(self) -> None:
        self.request_bell.close()
        self.reply_bell.close()
        for name in ("counts", "_memory"):
            vars(self).pop(name, None)


class WorkerStepRing:
    """The worker's end; it spins only if there is a core to spare."""

    def __init__(
        self,
        memory: RingMemory,
        rows: Sequence[int],
        request_bell: Doorbell,
        reply_bell: Doorbell,
        connection: Connection,
        *,
        spins: bool,
    ) -> None:
        self._memory = memory
        self.counts = memory.counts
        self._rows = rows
        self._request_bell = request_bell
        self._reply_bell = reply_bell
        self._num_answered = self._num_seen = self._num_rung = 0
        self._spinner = Spinner(spins and ORDERED, crowded=False)
        self._connection = connection
        self._poller = select.poll()
        self._poller.register(request_bell.read_end, select.POLLIN)
        self._poller.register(connection.fileno(), select.POLLIN)

    def wait(self) -> bool:
        self._spinner.wait(self._read_count if ORDERED else self._has_seen, self._sleep)
        return self._has_seen()

    def _read_count(self) -> bool:
        if ORDERED:
            self._num_seen = self.counts[_REQUESTED]
        else:
            self._num_seen = self._num_rung
        return self._num_seen != self._num_answered

    def _has_seen(self) -> bool:
        return self._num_seen != self._num_answered

    def _sleep(self) -> bool:
        ready = [descriptor for descriptor, _ in self._poller.poll()]
        self._num_rung += self._request_bell.clear()
        return not self._read_count() and any(
            descriptor != self._request_bell.read_end for descriptor in ready
        )

    @property
    def messages_before(self) -> int:
        """How many messages must have been handled before the next rows."""
        entry: int = self._memory.entries[self._num_answered % self._memory.size]
        return entry >> 32

    def take(self) -> list[Sequence[int]]:
        """Return the rows of each requested entry, up to an entry that must wait for a message."""
        words = self._memory
        before = self.messages_before
        groups: list[Sequence[int]] = []
        for position in range(self._num_answered, self._num_seen):
            entry = words.entries[position % words.size]
            if entry >> 32 != before:
                break
            code = entry & _ROW_MASK
            if code == ALL_ROWS:
                groups.append(self._rows)
            else:
                groups.append([code - 1])
        return groups

    def answer(self, count: int, *, by_pipe: bool) -> None:
        """Mark the next entries as done, and whether the answer was sent as a message."""
        words = self._memory
        done = self._num_answered
        for position in range(done, done + count):
            words.by_pipe[position % words.size] = by_pipe
        self.counts[_CORE] = current_core()
        self._num_answered = self.counts[_DONE] = done + count
        self._reply_bell.ring(count)
