"""A lane between the parent and a worker through shared memory: the requested steps, and the progress on them.

The parent appends entries, advances its count and rings; the worker processes them in order, writes the results into
the slots, advances its own count and rings back. No messages are sent, and a spinning process need not even be woken.

Why the hand-over is safe: each count is one aligned word with a single writer, written after the data it covers. After
hearing the bell, a process sees everything that was written before the ring, on every processor, because ringing and
hearing pass through a kernel lock. A spinning process reads the count without hearing the bell, which is correct only
if the processor keeps its stores in order and its loads in order, as x86-64 does (Intel SDM vol. 3A 9.2.2, "total store
order"). On others, including arm64, the counts are never read (``ORDERED``): even after a ring they may be ahead of
what was rung for, so there the bell itself counts the entries. Nothing here relies on a store being visible before a
later load of the same process: a process that goes to sleep is woken by the bell, which keeps its count.
"""

from __future__ import annotations

import platform
import select
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection

import numpy as np

from vecwrap.backends.bell import Bell
from vecwrap.backends.cores import current_core
from vecwrap.backends.spinning import Spinner
from vecwrap.batch import Allocate
from vecwrap.contract import IntArray

__all__ = ["ORDERED", "Lane", "LaneOfWorker", "Words", "lanes"]

ORDERED = platform.machine().lower() in ("x86_64", "amd64", "i686")
_ASKED, _DONE, _CORE = 0, 8, 9  # two cache lines, each with one writer
_ROWS = (1 << 32) - 1
WHOLE = 0  # the entry for all rows of a worker; single rows are 1 + row


class Words:
    """The shared words of one lane.

    Attributes:
        counts: how many entries the parent has requested, and how many the worker has done, in total; and the core the
            worker was on for the last one.
        entries: each is a row, or all of them; and how many messages the worker must have handled before it.
        piped: whether the answer to an entry was sent as a message.
    """

    def __init__(self, counts: IntArray, entries: IntArray, piped: IntArray) -> None:
        self.counts, self.entries, self.piped = counts.data, entries.data, piped.data
        self.size = len(self.entries)


def lanes(num_workers: int, largest_share: int, allocate: Allocate) -> list[Words]:
    """Allocate the words of all lanes: one entry per row, and one more whose count may not have been read yet."""
    size = -(-(largest_share + 1) // 8) * 8  # whole cache lines
    counts = allocate((num_workers, 16), np.int64)
    entries, piped = (allocate((num_workers, size), np.int64) for _ in range(2))
    if not counts.flags.writeable:  # only the size is being measured
        return []
    return [Words(*words) for words in zip(counts, entries, piped, strict=True)]


class Lane:
    """The parent's end.

    Args:
        words: the shared words.
        rows: all rows of the worker, in their order.

    Raises:
        OSError: there are no descriptors left for its bells.

    Attributes:
        there, back: the bells.
        piped: whether any of the answers taken last was sent as a message, which may say how to read the rest.
    """

    def __init__(self, words: Words, rows: Sequence[int]) -> None:
        self._words = words
        self._counts = words.counts
        self._rows = list(rows)
        self.there = Bell.create()
        try:
            self.back = Bell.create()
        except OSError:
            self.there.close()
            raise
        self.piped = False
        self._asked_for: deque[list[int]] = deque()
        self._asked = self._done = self._heard = 0

    def restart(self) -> None:
        """Start over with another process."""
        self._asked_for.clear()
        self._counts[_ASKED] = self._counts[_DONE] = self._asked = self._done = self._heard = 0
        self.there.hush()
        self.back.hush()

    def ask(self, rows: list[int] | None, messages: int) -> None:
        """Request steps of these rows (None: all at once), after this many messages; each is answered separately."""
        asked, entries, size = self._asked, self._words.entries, self._words.size
        if rows is None:
            entries[asked % size] = messages << 32 | WHOLE
            self._asked_for.append(self._rows)
            answers = 1
        else:
            for position, row in enumerate(rows, asked):
                entries[position % size] = messages << 32 | row + 1
                self._asked_for.append([row])
            answers = len(rows)
        self._asked = self._counts[_ASKED] = asked + answers
        self.there.ring(answers)

    def hear(self) -> None:
        """Register that the bell was rung."""
        self._heard += self.back.hush()

    def has_answers(self) -> bool:
        """Whether there are new answers; if not ``ORDERED``, according to the bell."""
        return self._num_done() != self._done

    def _num_done(self) -> int:
        count: int = self._counts[_DONE] if ORDERED else self._heard
        return count

    @property
    def core(self) -> int:
        """The core that the worker was on for its last answer, as a hint; -1 if unknown."""
        core: int = self._counts[_CORE]
        return core

    @property
    def owes(self) -> bool:
        """Whether answers are outstanding."""
        return bool(self._asked_for)

    def take(self) -> tuple[list[int], int]:
        """Return the rows that are done and in shared memory, and the number of answers."""
        words, rows, answers = self._words, [], 0
        done = self._num_done()
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
        """Release the bells and the shared memory; may be called again."""
        self.there.close()
        self.back.close()
        for words in ("_counts", "_words"):
            vars(self).pop(words, None)


class LaneOfWorker:
    """The worker's end.

    Args:
        words: the shared words.
        rows: all rows of this worker, in their order.
        there, back: the bells.
        connection: where messages arrive.
        spins: whether there is a core to spare.
    """

    def __init__(
        self, words: Words, rows: Sequence[int], there: Bell, back: Bell, connection: Connection, *, spins: bool
    ) -> None:
        self._words = words
        self._counts = words.counts
        self._rows = rows
        self._there, self._back = there, back
        self._done = self._seen = self._heard = 0
        self._spinner = Spinner(spins and ORDERED, crowded=False)
        self._connection = connection
        self._poller = select.poll()
        self._poller.register(there.listens, select.POLLIN)
        self._poller.register(connection.fileno(), select.POLLIN)

    def wait(self) -> bool:
        """Wait until rows are requested (True), or else a message has arrived (False)."""
        self._spinner.wait(self._look if ORDERED else self._has_seen, self._sleep)
        return self._has_seen()

    def _look(self) -> bool:
        self._seen = self._counts[_ASKED] if ORDERED else self._heard
        return self._seen != self._done

    def _has_seen(self) -> bool:
        return self._seen != self._done

    def _sleep(self) -> bool:
        """Sleep; whether a message has arrived, with no rows requested before it was sent."""
        ready = [descriptor for descriptor, _ in self._poller.poll()]
        self._heard += self._there.hush()
        return not self._look() and any(descriptor != self._there.listens for descriptor in ready)

    @property
    def messages_before(self) -> int:
        """How many messages must have been handled before the next rows."""
        entry: int = self._words.entries[self._done % self._words.size]
        return entry >> 32

    def take(self) -> list[Sequence[int]]:
        """Return the rows of each requested entry, up to the next one that must wait for a message."""
        words, before = self._words, self.messages_before
        groups: list[Sequence[int]] = []
        for position in range(self._done, self._seen):
            entry = words.entries[position % words.size]
            if entry >> 32 != before:
                break
            code = entry & _ROWS
            groups.append(self._rows if code == WHOLE else [code - 1])
        return groups

    def answer(self, count: int, *, piped: bool) -> None:
        """Mark the next entries as done, and whether the answer was sent as a message."""
        words, done = self._words, self._done
        for position in range(done, done + count):
            words.piped[position % words.size] = piped
        self._counts[_CORE] = current_core()
        self._done = self._counts[_DONE] = done + count
        self._back.ring(count)
