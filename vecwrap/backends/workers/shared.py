"""What a parent and its workers share: a memory block, rings of step requests, and doorbells.

The block has no name to clean up, and is freed with its last user. On Linux it is a memfd, on other
POSIX systems a temporary file that is unlinked at once; its descriptor is passed over the worker's
own connection. Neither is in ``/dev/shm``, which is 64 MB in a container.

A lane carries the requested steps and the progress on them. The parent appends entries, advances
its count and rings; the worker processes them in order, writes the results into the slots, advances
its own count and rings back. No messages are sent, and a spinning process need not even be woken.

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
_ASKED = 0
_DONE = 8
_CORE = 9
_ROWS = (1 << 32) - 1
WHOLE = 0  # the entry for all rows of a worker; single rows are 1 + row

# seconds; if waits are usually longer than this, sleep at once: waking up takes 24 to 46 µs
MOST = 500e-6
_WEIGHT = 0.125  # of the newest wait in the mean


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
) -> tuple[Slots, list[Words]]:
    """Allocate the shared arrays, with the same layout in the parent and in the workers.

    Without a buffer, the arena only measures the size.
    """
    slots = Slots(
        num_envs, observation_space, action_space, allocate=arena, shared=True, first_row=first_row
    )
    return slots, lanes(num_workers, largest_share, arena)


class Bell:
    """Several rings wake the listener once; ``hush`` returns how many there were.

    Ringing never blocks.
    An eventfd if the system supports it, else a pipe; the end in another process is -1.
    """

    def __init__(self, listens: int, rings: int) -> None:
        self.listens = listens
        self.rings = rings
        self.counts = hasattr(os, "eventfd")  # it counts by itself; in a pipe each ring is a byte

    @classmethod
    def create(cls) -> Bell:
        if hasattr(os, "eventfd"):
            descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            return cls(descriptor, descriptor)
        listens, rings = os.pipe()
        for end in (listens, rings):
            os.set_blocking(end, False)
        return cls(listens, rings)

    def ring(self, times: int = 1) -> None:
        """Wake the listener, which then sees everything written to shared memory before."""
        if self.counts:
            rings = times.to_bytes(8, "little")
        else:
            rings = bytes(times)
        try:  # noqa: SIM105 -- `suppress` takes as long as the bell itself
            os.write(self.rings, rings)
        except BlockingIOError:  # full of rings already, so the listener will wake
            pass

    def hush(self) -> int:
        """Clear the bell; return how often it was rung."""
        times = 0
        with contextlib.suppress(BlockingIOError):
            if self.counts:
                return int.from_bytes(os.read(self.listens, 8), "little")
            while data := os.read(self.listens, 4096):
                times += len(data)
        return times

    def close(self) -> None:
        for end in {self.listens, self.rings} - {-1}:
            os.close(end)
        self.listens = self.rings = -1


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
        if not self._allowed or self.mean > MOST:
            return 0.0
        return min(MOST, 4 * self.mean + 50e-6)

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
            if crowded:
                os.sched_yield()
            if clock() >= until and sleep():
                break
        self.mean += _WEIGHT * (min(clock() - start, 4 * MOST) - self.mean)

    def spin(self, lanes: Sequence[Lane], came: Callable[[], bool]) -> bool:
        """Poll until all rings are answered; return False after a limit or if ``came()``."""
        clock = self._clock
        crowded = self._crowded
        start = clock()
        until = start + self.bound
        done = False
        while not done:
            for lane in lanes:
                if lane.counts[_DONE] != lane.asked_so_far:
                    break
            else:
                done = True
                break
            if came() or clock() >= until:
                break
            if crowded:
                os.sched_yield()
        self.mean += _WEIGHT * (min(clock() - start, 4 * MOST) - self.mean)
        return done


class Words:
    """The shared words of one lane."""

    def __init__(self, counts: IntArray, entries: IntArray, piped: IntArray) -> None:
        # How many entries the parent has requested, how many the worker has done, and the core it
        # was on for the last.
        self.counts = counts.data
        # a row, or all of them; and how many messages must have been handled before it
        self.entries = entries.data
        self.piped = piped.data  # whether its answer was sent as a message
        self.size = len(self.entries)


def lanes(num_workers: int, largest_share: int, allocate: Allocate) -> list[Words]:
    """Allocate all rings, each with a new and a not yet read entry per row of the largest share.

    A row whose answer came as a message may be asked again before the count of its last entry is
    looked at.
    """
    size = -(-2 * largest_share // 8) * 8  # whole cache lines
    counts = allocate((num_workers, 16), np.int64)
    entries, piped = (allocate((num_workers, size), np.int64) for _ in range(2))
    if not counts.flags.writeable:  # only the size is being measured
        return []
    return [Words(*words) for words in zip(counts, entries, piped, strict=True)]


class Lane:
    """The parent's end; raises OSError if there are no descriptors left for its bells."""

    def __init__(self, words: Words, rows: Sequence[int]) -> None:
        self._words = words
        self.counts = words.counts
        self._rows = list(rows)
        self.there = Bell.create()
        try:
            self.back = Bell.create()
        except OSError:
            self.there.close()
            raise
        # whether any answer taken last was sent as a message, which may say how to read the rest
        self.piped = False
        self._asked_for: deque[list[int]] = deque()
        self.asked_so_far = self._done = self._heard = 0

    def restart(self) -> None:
        """Start over with another process."""
        self._asked_for.clear()
        self.counts[_ASKED] = self.counts[_DONE] = self.asked_so_far = self._done = self._heard = 0
        self.there.hush()
        self.back.hush()

    def ask(self, rows: list[int] | None, messages: int) -> None:
        """Request steps of these rows after ``messages`` messages (None: all rows at once).

        Each entry is answered separately.
        """
        asked = self.asked_so_far
        entries = self._words.entries
        size = self._words.size
        if rows is None:
            entries[asked % size] = messages << 32 | WHOLE
            self._asked_for.append(self._rows)
            answers = 1
        else:
            for position, row in enumerate(rows, asked):
                entries[position % size] = messages << 32 | row + 1
                self._asked_for.append([row])
            answers = len(rows)
        self.asked_so_far = self.counts[_ASKED] = asked + answers
        self.there.ring(answers)

    def hear(self) -> None:
        self._heard += self.back.hush()

    def has_answers(self) -> bool:
        """Whether there are new answers; if not ``ORDERED``, according to the bell."""
        return self._num_done() != self._done

    def _num_done(self) -> int:
        if ORDERED:
            count: int = self.counts[_DONE]
        else:
            count = self._heard
        return count

    @property
    def core(self) -> int:
        """The core that the worker was on for its last answer, as a hint; -1 if unknown."""
        core: int = self.counts[_CORE]
        return core

    @property
    def owes(self) -> bool:
        return bool(self._asked_for)

    def take(self) -> tuple[list[int], int]:
        """Return the rows that are done in shared memory, and the number of their answers.

        Raise LookupError if the worker's count is impossible.
        """
        words = self._words
        rows = []
        answers = 0
        done = self._num_done()
        if not self._done <= done <= self.asked_so_far:
            raise LookupError(f"expected {self._done} to {self.asked_so_far} answers, got {done}")
        self.piped = False
        for position in range(self._done, done):
            group = self._asked_for.popleft()
            if words.piped[position % words.size]:
                self.piped = True
            else:
                rows += group
                answers += 1
        self._done = done
        return rows, answers

    def close(self) -> None:
        self.there.close()
        self.back.close()
        for words in ("counts", "_words"):
            vars(self).pop(words, None)


class LaneOfWorker:
    """The worker's end; it spins only if there is a core to spare."""

    def __init__(
        self,
        words: Words,
        rows: Sequence[int],
        there: Bell,
        back: Bell,
        connection: Connection,
        *,
        spins: bool,
    ) -> None:
        self._words = words
        self.counts = words.counts
        self._rows = rows
        self._there = there
        self._back = back
        self._done = self._seen = self._heard = 0
        self._spinner = Spinner(spins and ORDERED, crowded=False)
        self._connection = connection
        self._poller = select.poll()
        self._poller.register(there.listens, select.POLLIN)
        self._poller.register(connection.fileno(), select.POLLIN)

    def wait(self) -> bool:
        self._spinner.wait(self._look if ORDERED else self._has_seen, self._sleep)
        return self._has_seen()

    def _look(self) -> bool:
        if ORDERED:
            self._seen = self.counts[_ASKED]
        else:
            self._seen = self._heard
        return self._seen != self._done

    def _has_seen(self) -> bool:
        return self._seen != self._done

    def _sleep(self) -> bool:
        ready = [descriptor for descriptor, _ in self._poller.poll()]
        self._heard += self._there.hush()
        return not self._look() and any(descriptor != self._there.listens for descriptor in ready)

    @property
    def messages_before(self) -> int:
        """How many messages must have been handled before the next rows."""
        entry: int = self._words.entries[self._done % self._words.size]
        return entry >> 32

    def take(self) -> list[Sequence[int]]:
        """Return the rows of each requested entry, up to an entry that must wait for a message."""
        words = self._words
        before = self.messages_before
        groups: list[Sequence[int]] = []
        for position in range(self._done, self._seen):
            entry = words.entries[position % words.size]
            if entry >> 32 != before:
                break
            code = entry & _ROWS
            if code == WHOLE:
                groups.append(self._rows)
            else:
                groups.append([code - 1])
        return groups

    def answer(self, count: int, *, piped: bool) -> None:
        """Mark the next entries as done, and whether the answer was sent as a message."""
        words = self._words
        done = self._done
        for position in range(done, done + count):
            words.piped[position % words.size] = piped
        self.counts[_CORE] = current_core()
        self._done = self.counts[_DONE] = done + count
        self._back.ring(count)
