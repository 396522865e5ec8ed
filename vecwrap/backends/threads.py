"""Threads of this process, for environments that wait for something outside of Python."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

from vecwrap.backends.local import close_all, make_all
from vecwrap.backends.workers.options import ThreadOptions
from vecwrap.backends.workers.shares import rows_of, share_out
from vecwrap.env.books import LOOK
from vecwrap.env.runner import Runner
from vecwrap.rows.infos import own_copy
from vecwrap.rows.step_result import Frames, IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Description, of_all
from vecwrap.sources.failure import Failure
from vecwrap.sources.group import SourceGroup
from vecwrap.sources.making import num_rows_of
from vecwrap.sources.source import Takeover
from vecwrap.sources.sub_env import Factory


class Threads(Runner):
    """Sub-environments in threads of this process; each thread makes, steps and closes its own.

    Quicker than `dummy` where steps wait for something outside (a socket, a simulator): they wait side by side. Where
    they compute, a Python with a global lock makes it slower than `dummy`, though MuJoCo and ale-py release that lock.
    Nothing is isolated: a crash ends this process, and a step that hangs cannot be ended, so there are no time limits.
    Environments must not share anything that is not safe among threads.

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
        self._threads: list[_Share] = []
        self._given = 0  # rows that threads have been asked for, and have not brought yet

    def start(self, factories: Sequence[Factory]) -> Description:
        books = self.books
        self._home = _Home()
        descriptions: dict[int, Description] = {}
        shares = share_out(len(factories), self.options.workers, None)
        for share in shares:  # one after the other: what a constructor imports and counts is as on dummy
            env_ids = rows_of(share, num_rows_of(factories))
            group = SourceGroup(env_ids.start, factories[share.start : share.stop], is_own=_never)
            thread = _Share(group, env_ids)
            self._threads.append(thread)
            restart = books.recovery is not None
            make = partial(make_all, group, books.autoreset, debug=books.debug, restart=restart)
            descriptions |= thread.call(make).result()
        first = of_all(sorted(descriptions.items()))
        books.slots = Slots(books.num_rows, first.observation_space, first.action_space)
        for thread in self._threads:
            thread.group.attach(books.slots, thread.env_ids.start)
        return first

    def _by_thread(self, env_ids: Iterable[int]) -> list[tuple[_Share, list[int]]]:
        ids = list(env_ids)
        each = [(thread, [i for i in ids if i in thread.env_ids]) for thread in self._threads]
        return [(thread, own) for thread, own in each if own]

    def send(self, env_ids: IntArray) -> None:
        for thread, ids in self._by_thread(env_ids.tolist()):
            for group in self._brought_apart(thread, ids):
                thread.ask(partial(self._home.bring, partial(thread.group.step, group)))
            self._given += len(ids)

    def reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        self.books.interrupts.hold()  # until all is sent, also amid a wait
        seed_of = dict(zip(env_ids.tolist(), seeds, strict=True))
        options = own_copy(options)  # the caller may change them before the reset runs
        for thread, ids in self._by_thread(seed_of):
            for group in self._brought_apart(thread, ids):
                own = [seed_of[i] for i in group]
                thread.ask(partial(self._home.bring, partial(thread.group.reset, group, own, options)))
            self._given += len(ids)

    def _brought_apart(self, thread: _Share, env_ids: list[int]) -> list[list[int]]:
        """Return the rows that a thread brings at once: all of them, or those of each source."""
        return [env_ids] if self.books.batch_size is None else thread.group.in_groups(env_ids)

    def frames(self, wanted: Sequence[Frames]) -> None:
        for thread in self._threads:
            own = wanted[thread.env_ids.start : thread.env_ids.stop]
            thread.ask(partial(thread.group.want_frames, own))

    def poll(self, deadline: float | None) -> None:
        books = self.books
        lost = bool(books.due)
        due = books.make_due_anew()
        until = [time.monotonic() + LOOK, *(when for when in (deadline, due) if when is not None)]
        if self._given:
            came = self._home.wait(min(until))
        elif due is not None:
            books.rest_until(min(until))
            came = False
        elif lost:
            return
        else:
            raise books.never_home()
        if not came:
            books.refuse_closed_meanwhile()
            if deadline is not None and time.monotonic() >= deadline:
                raise books.too_early()
            return
        books.interrupts.hold()  # until what has come is recorded
        while (rows := self._home.take()) is not None:
            self._given -= len(rows[0]) + len(rows[1])
            books.arrived(*rows)

    def recreate(self, takeovers: dict[int, Takeover]) -> None:
        for thread, ids in self._by_thread(takeovers):
            own = [takeovers[i] for i in ids]
            for failure in thread.call(partial(thread.group.restore, ids, own)).result():
                self.books.not_made(failure)

    def ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        arguments_of = dict(zip(env_ids, arguments, strict=True))
        self._calls = []
        for thread, ids in self._by_thread(env_ids):
            own = [arguments_of[i] for i in ids]
            self._calls.append(thread.call(partial(thread.group.call, method, ids, own)))

    def answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        values: dict[int, Any] = {}
        failures: list[Failure] = []
        for call in self._calls:
            try:
                answered, failed = call.result(_seconds(deadline))
            except TimeoutError:
                raise self.books.too_early() from None
            values |= answered
            failures += failed
        return values, failures

    def envs(self) -> list[Any] | None:
        shares = [thread.group.envs() for thread in self._threads]
        return None if None in shares else [env for share in shares for env in share or ()]

    def stop(self, timeout: float, terminate: bool) -> None:
        if self.books.forked:
            return  # in a forked process, which has no copies of the threads
        threads, self._threads = self._threads, []
        ends = [(thread, thread.end(timeout, terminate)) for thread in threads]
        until = time.monotonic() + timeout
        errors: list[Exception] = []
        late: list[int] = []
        for thread, end in ends:
            try:
                end.result(_seconds(until))
            except TimeoutError:
                late += thread.env_ids
            except Exception as error:
                errors.append(error)
        if late:
            warnings.warn(
                f"threads: sub-environments {late} were still busy {timeout:g} s after close(); a thread cannot be "
                "ended from outside, so theirs go on until their steps return or the program ends",
                RuntimeWarning,
                stacklevel=3,
            )
        if errors:
            raise errors[0]


def _never(error: BaseException) -> bool:
    """In a thread nothing that an environment raises is the program's own."""
    return False


def _seconds(deadline: float | None) -> float | None:
    return None if deadline in (None, math.inf) else max(0.0, deadline - time.monotonic())


class _Home:
    """What has come from the threads: rows that are done and have failed; a row in it is never lost to an interrupt."""

    def __init__(self) -> None:
        self._came: deque[tuple[list[int], list[Failure]]] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()

    def bring(self, run: Callable[[], tuple[list[int], list[Failure]]]) -> None:
        """Run rows, and bring them home."""
        self._came.append(run())
        self._bell.put(None)

    def wait(self, deadline: float) -> bool:
        """Wait until something has come; False if nothing has."""
        if not self._came:
            with contextlib.suppress(Empty):
                self._bell.get(timeout=max(0.0, deadline - time.monotonic()))
        return bool(self._came)

    def take(self) -> tuple[list[int], list[Failure]] | None:
        if not self._came:
            return None
        with contextlib.suppress(Empty):  # what rang for it, so that rings do not pile up
            self._bell.get_nowait()
        return self._came.popleft()


class _Share:
    def __init__(self, group: SourceGroup, env_ids: range) -> None:
        self.group = group
        self.env_ids = env_ids
        self._asked: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        name = f"vecwrap sub-environments {env_ids[0]}-{env_ids[-1]}"
        # It must not know the backend, which would then never be collected.
        threading.Thread(target=_serve, args=(self._asked,), name=name, daemon=True).start()

    def ask(self, job: Callable[[], Any]) -> None:
        """Have the thread do something, after what it was asked before."""
        self._asked.put(job)

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Have the thread call a function; returns where its value will be."""
        future: Future[Any] = Future()

        def job() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self._asked.put(job)
        return future

    def end(self, timeout: float, terminate: bool) -> Future[Any]:
        closed = self.call(partial(close_all, self.group, timeout, terminate))
        self._asked.put(None)
        return closed


def _serve(asked: SimpleQueue[Callable[[], Any] | None]) -> None:
    """What a thread does: one job after the other."""
    while (job := asked.get()) is not None:
        job()
