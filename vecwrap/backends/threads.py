"""Threads of this process, for environments that wait for something outside of Python."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

from vecwrap.backends.local import close_all, make_all
from vecwrap.backends.workers.options import ThreadOptions
from vecwrap.backends.workers.shares import rows_of, share_out
from vecwrap.env.arrivals import Arrival, CallValues, EnvsMade, RowResults
from vecwrap.env.runner import Context, Runner
from vecwrap.rows.infos import detached_copy
from vecwrap.rows.step_result import Frames, IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.failure import Failure
from vecwrap.sources.group import SourceGroup
from vecwrap.sources.source import RestartState
from vecwrap.sources.source_factories import Factory, num_rows_of


class Threads(Runner):
    """Sub-environments in threads of this process; each thread makes, steps and closes its own.

    Quicker than `dummy` where steps wait for something outside (a socket, a simulator): they wait
    side by side. Where they compute, a Python with a global lock makes it slower than `dummy`,
    though MuJoCo and ale-py release that lock. Nothing is isolated: a crash ends this process, and
    a step that hangs cannot be ended, so there are no time limits. Environments must not share
    anything that is not safe among threads.

    >>> import gymnasium
    >>> from vecwrap.env.backend import Backend
    >>> with Backend(Threads(workers=2), [lambda: gymnasium.make("CartPole-v1")] * 4) as env:
    ...     observations, infos = env.reset(seed=1)
    >>> observations.shape
    (4, 4)
    """

    name: ClassVar[str] = "threads"

    of_its_process: ClassVar[str] = "whose threads a forked process does not have"

    Options: ClassVar[type[ThreadOptions]] = ThreadOptions
    options: ThreadOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._threads: list[_ThreadShare] = []
        self._arrived = _ArrivalQueue()
        self._requested: set[int] = set()  # rows that threads are to bring
        self._num_calls = 0  # that threads have not answered

    def begin(self, context: Context, factories: Sequence[Factory]) -> Sequence[Arrival]:
        self.context = context
        arrivals: list[Arrival] = []
        for share in share_out(len(factories), self.options.workers, None):
            rows = rows_of(share, num_rows_of(factories))
            group = SourceGroup(rows.start, factories[share.start : share.stop], is_own=_never)
            thread = _ThreadShare(group, rows)
            self._threads.append(thread)
            # One after the other: what a constructor imports and counts is as on dummy.
            descriptions = thread.call(partial(make_all, group, context)).result()
            arrivals.append(EnvsMade(rows, list(descriptions.items())))
        self.workers = len(self._threads)
        return arrivals

    def allocate(self, description: EnvDescription) -> Slots:
        slots = super().allocate(description)
        for thread in self._threads:
            thread.group.attach(slots, thread.rows.start)
        return slots

    def _by_thread(self, rows: Iterable[int]) -> list[tuple[_ThreadShare, list[int]]]:
        ids = list(rows)
        each = [(thread, [i for i in ids if i in thread.rows]) for thread in self._threads]
        return [(thread, own) for thread, own in each if own]

    def send(self, rows: IntArray) -> None:
        for thread, ids in self._by_thread(rows.tolist()):
            self._requested.update(ids)
            for group in self._run_separately(thread, ids):
                thread.request(partial(self._run_rows, partial(thread.group.step, group)))

    def reset(
        self, rows: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        seed_of = dict(zip(rows.tolist(), seeds, strict=True))
        options = detached_copy(options)  # the caller may change them before the reset runs
        for thread, ids in self._by_thread(seed_of):
            self._requested.update(ids)
            for group in self._run_separately(thread, ids):
                own = [seed_of[i] for i in group]
                thread.request(
                    partial(self._run_rows, partial(thread.group.reset, group, own, options))
                )

    def _run_rows(self, run: Callable[[], tuple[Sequence[int], list[Failure]]]) -> None:
        self._arrived.put(RowResults(*run()))

    def _run_separately(self, thread: _ThreadShare, rows: list[int]) -> list[list[int]]:
        """Return the rows that a thread brings at once: all of them, or those of each source."""
        if self.context.batch_size is None:
            return [rows]
        return thread.group.in_groups(rows)

    def set_frames(self, wanted: Sequence[Frames]) -> None:
        for thread in self._threads:
            own = wanted[thread.rows.start : thread.rows.stop]
            thread.request(partial(thread.group.want_frames, own))

    def poll(self, until: float, *, return_early: bool) -> Sequence[Arrival]:
        if not (self._requested or self._num_calls):
            return ()
        if not self._arrived.wait(until):
            return ()
        self.context.interrupts.hold()
        arrivals = self._arrived.take()
        for arrival in arrivals:
            if isinstance(arrival, RowResults):
                self._requested.difference_update(arrival.rows)
                self._requested.difference_update(failure.index for failure in arrival.failures)
            else:
                self._num_calls -= 1
        return arrivals

    def cancel(self, rows: Collection[int]) -> Collection[int]:
        return self._requested.intersection(rows)

    def recreate(self, restart_states: dict[int, RestartState]) -> Sequence[Failure]:
        failures: list[Failure] = []
        for thread, ids in self._by_thread(restart_states):
            own = [restart_states[i] for i in ids]
            failures += thread.call(partial(thread.group.restore, ids, own)).result()
        return failures

    def call(
        self, number: int, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> None:
        arguments_of = dict(zip(rows, arguments, strict=True))
        for thread, ids in self._by_thread(rows):
            own = [arguments_of[i] for i in ids]
            self._num_calls += 1
            thread.request(
                partial(self._run_call, number, partial(thread.group.call, method, ids, own))
            )

    def _run_call(
        self, number: int, run: Callable[[], tuple[dict[int, Any], list[Failure]]]
    ) -> None:
        self._arrived.put(CallValues(number, *run()))

    def envs(self) -> list[Any] | None:
        shares = [thread.group.envs() for thread in self._threads]
        if None in shares:
            return None
        return [env for share in shares for env in share or ()]

    def stop(self, timeout: float, terminate: bool) -> None:
        threads = self._threads
        self._threads = []
        ends = [(thread, thread.end(timeout, terminate)) for thread in threads]
        until = time.monotonic() + timeout
        errors: list[Exception] = []
        late: list[int] = []
        for thread, end in ends:
            try:
                end.result(_seconds(until))
            except TimeoutError:
                late += thread.rows
            except Exception as error:
                errors.append(error)
        if late:
            warnings.warn(
                f"threads: sub-environments {late} were still busy {timeout:g} s after close(); a "
                "thread cannot be ended from outside, so theirs go on until their steps return "
                "or the program ends",
                RuntimeWarning,
                stacklevel=3,
            )
        if errors:
            raise errors[0]


def _never(error: BaseException) -> bool:
    """In a thread nothing that an environment raises is the program's own."""
    return False


def _seconds(deadline: float | None) -> float | None:
    if deadline in (None, math.inf):
        return None
    return max(0.0, deadline - time.monotonic())


class _ArrivalQueue:
    """What threads have brought; an interrupt of the wait loses nothing of it."""

    def __init__(self) -> None:
        self._arrived: deque[Arrival] = deque()
        self._event: SimpleQueue[None] = SimpleQueue()

    def put(self, arrival: Arrival) -> None:
        self._arrived.append(arrival)
        self._event.put(None)

    def wait(self, until: float) -> bool:
        """Wait until something has arrived; False if nothing has."""
        if not self._arrived:
            with contextlib.suppress(Empty):
                self._event.get(timeout=max(0.0, until - time.monotonic()))
        return bool(self._arrived)

    def take(self) -> list[Arrival]:
        """Return all that has arrived."""
        with contextlib.suppress(Empty):
            while True:
                self._event.get_nowait()
        return [self._arrived.popleft() for _ in range(len(self._arrived))]


class _ThreadShare:
    def __init__(self, group: SourceGroup, rows: range) -> None:
        self.group = group
        self.rows = rows
        self._requests: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        name = f"vecwrap sub-environments {rows[0]}-{rows[-1]}"
        # It must not know the backend, which would then never be collected.
        threading.Thread(target=_serve, args=(self._requests,), name=name, daemon=True).start()

    def request(self, job: Callable[[], Any]) -> None:
        """Have the thread do something, after what was requested before."""
        self._requests.put(job)

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Have the thread call a function; returns where its value will be."""
        future: Future[Any] = Future()

        def job() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self._requests.put(job)
        return future

    def end(self, timeout: float, terminate: bool) -> Future[Any]:
        closed = self.call(partial(close_all, self.group, timeout, terminate))
        self._requests.put(None)
        return closed


def _serve(requests: SimpleQueue[Callable[[], Any] | None]) -> None:
    """What a thread does: one job after the other."""
    while (job := requests.get()) is not None:
        job()
