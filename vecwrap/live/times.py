"""Where the time of a step goes, and which rows are slow, measured in a thirtieth of the time while somebody looks.

A stopwatch is put on by the stepping thread for a few steps and taken off again, so the rest run as ever. Only objects
of vecwrap's own are touched: what belongs to the user may be saved, or compared, at any time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from vecwrap.backends.dummy import Dummy
from vecwrap.env.core import Core
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import cut, printable
from vecwrap.rows.step_result import FloatArray, IntArray
from vecwrap.tools.timing import Part, Stopwatch

STEPS, NANOSECONDS = 16, 200_000_000  # of a block, which ends with the first of the two
SHARE = 30  # a thirtieth of the time
LEAST_PAUSE = 200_000_000
BLOCKS = 20  # the last ones count
MOST_PARTS, MOST_SLOW = 12, 8


class StepTimes:
    """Blocks of timed steps; ``step`` and ``stop`` are the stepping thread's, the rest is for any thread.

    The environment is not kept alive.
    """

    def __init__(self, env: VecEnv, *, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._stopwatch = Stopwatch(env, sub_envs=False, clock=clock)
        self._rows = _RowTimes(env.core, clock)
        self._in_process = isinstance(env.core.runner, Dummy)
        *_, self._outermost, _, _ = self._stopwatch.parts  # before the face and the caller
        self._block: ExitStack | None = None
        self._calls = 0
        self._began: tuple[int, int, list[int]] | None = None
        self._due = 0
        self._blocks: deque[tuple[IntArray, int, FloatArray, IntArray]] = deque(maxlen=BLOCKS)

    def step(self, env_ids: IntArray) -> None:
        """These rows are about to be sent."""
        if self._block is None:
            if self._clock() >= self._due:
                self._block = ExitStack()
                self._calls = self._outermost.calls
                self._block.enter_context(self._stopwatch)
                self._block.enter_context(self._rows)
        elif self._began is not None:
            began, steps, _ = self._began
            if self._stopwatch.steps - steps >= STEPS or self._clock() - began >= NANOSECONDS:
                self._end()
        elif self._outermost.calls > self._calls:  # not before the step is over in which it was put on
            self._rows.clear()
            self._began = self._clock(), self._stopwatch.steps, self._nanoseconds()
        self._rows.sent(env_ids)

    def stop(self) -> None:
        """Take everything off; nobody looks any more."""
        if self._block is not None:
            block, self._block, self._began = self._block, None, None
            block.close()

    def shares(self) -> list[list[Any]]:
        """What a step consists of, inner first: name, what is counted there, microseconds a vector step."""
        blocks = list(self._blocks)
        steps = sum(block[1] for block in blocks)
        if not steps:
            return []
        found: dict[tuple[str, str], float] = {}
        spent = np.sum([block[0] for block in blocks], 0).tolist()
        for part, nanoseconds in zip(self._stopwatch.parts, spent, strict=True):
            name = self._in_words(part)
            found[name] = found.get(name, 0.0) + nanoseconds / steps / 1e3
        named = [[cut(printable(name), 40), what, round(value, 2)] for (name, what), value in found.items() if value]
        return named[:MOST_PARTS]

    def slowest(self) -> list[list[Any]]:
        """Rows, or those that come together, and their mean milliseconds, the slowest first; [] if all are alike."""
        blocks = list(self._blocks)
        if not blocks:
            return []
        spent, counts = np.sum([block[2] for block in blocks], 0), np.sum([block[3] for block in blocks], 0)
        means = spent / np.maximum(counts, 1) / 1e6
        together = np.split(np.arange(len(means)), np.flatnonzero(np.diff(spent)) + 1)
        if len(together) < 2:
            return []
        together.sort(key=lambda rows: -means[rows[0]])
        return [
            [f"#{rows[0]}" if len(rows) == 1 else f"#{rows[0]}–{rows[-1]}", round(float(means[rows[0]]), 4)]
            for rows in together[:MOST_SLOW]
        ]

    def _end(self) -> None:
        assert self._began is not None
        began, steps, before = self._began
        spent: IntArray = np.subtract(self._nanoseconds(), before, dtype=np.int64)
        self._blocks.append(
            (spent, self._stopwatch.steps - steps, self._rows.nanoseconds.copy(), self._rows.counts.copy())
        )
        self.stop()
        now = self._clock()
        self._due = now + max(LEAST_PAUSE, (SHARE - 1) * (now - began))

    def _nanoseconds(self) -> list[int]:
        return [part.nanoseconds for part in self._stopwatch.parts]

    def _in_words(self, part: Part) -> tuple[str, str]:
        if part.name in ("wait", "parent_share") and part.kind == "backend":
            where = "one after the other in this process" if self._in_process else "until workers have answered"
            return "sub-environments", f"with the wrappers in each, {where}"
        words = {
            "backend": ("backend", "sends actions, receives and copies rows"),
            "face": ("checks", "of the actions; makes the five values"),
            "other": ("your program", "the policy, learning: what runs between two steps"),
        }
        return words.get(part.kind, (part.name, part.what))


class _RowTimes:
    """How long each row took, while it is entered: its own step in this process, else until its answer was here."""

    def __init__(self, core: Core, clock: Callable[[], int]) -> None:
        self._books, self._runner, self._clock = core.books, core.runner, clock
        self.nanoseconds, self.counts = np.zeros(core.num_envs), np.zeros(core.num_envs, dtype=np.int64)
        self._sent: FloatArray = np.full(core.num_envs, np.nan)
        self._off: list[tuple[Any, str]] = []

    def clear(self) -> None:
        self.nanoseconds[:], self.counts[:] = 0.0, 0

    def sent(self, env_ids: IntArray) -> None:
        self._sent[env_ids] = self._clock()

    def __enter__(self) -> _RowTimes:
        for thing, name, timed in self._places():
            setattr(thing, name, timed)
            self._off.append((thing, name))
        return self

    def __exit__(self, *exception: object) -> None:
        while self._off:
            thing, name = self._off.pop()
            delattr(thing, name)
        self._sent[:] = np.nan

    def _places(self) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
        if not isinstance(self._runner, Dummy):
            yield self._books, "arrived", self._arrived(self._books.arrived)
            return
        for source in self._runner.local.sources:
            yield source, "step", self._stepped(source.rows, source.step)

    def _stepped(self, rows: Sequence[int], step: Callable[..., Any]) -> Callable[..., Any]:
        here = slice(rows[0], rows[-1] + 1)

        def timed(*arguments: Any) -> Any:
            began = self._clock()
            try:
                return step(*arguments)
            finally:
                self.nanoseconds[here] += self._clock() - began
                self.counts[here] += 1

        return timed

    def _arrived(self, arrived: Callable[..., None]) -> Callable[..., None]:
        def timed(rows: list[int], failures: Any) -> None:
            taken = self._clock() - self._sent[rows]  # NaN of those that were sent before
            known = np.array(rows, dtype=np.int64)[np.isfinite(taken)]
            self.nanoseconds[known] += taken[np.isfinite(taken)]
            self.counts[known] += 1
            arrived(rows, failures)

        return timed
