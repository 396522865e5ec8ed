"""The base of runners whose sub-environments live in workers: local processes or Ray actors.

Starting workers and transporting messages is up to the runner; this module defines the requests to
workers, and what their replies, their silence and their end mean: what ``poll`` returns.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from vecwrap.backends.workers.messages import (
    WorkerContents,
    WorkerInit,
    encode,
    encode_for_worker,
    filter_names,
    refuse_malformed,
)
from vecwrap.backends.workers.options import WorkerOptions
from vecwrap.env.arrivals import (
    Arrival,
    CallValues,
    EnvsMade,
    MakeFailed,
    RecreateFailed,
    RowResults,
    WorkerLost,
)
from vecwrap.env.health import WorkerHealth
from vecwrap.env.runner import Context
from vecwrap.errors import ArgumentError, BackendError, PlanError, kind_of, text_of
from vecwrap.interrupts import is_raised_by_handler
from vecwrap.rows.row_set import RowSet
from vecwrap.rows.step_result import IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.by_value import by_value
from vecwrap.sources.description import EnvDescription, refuse_outside
from vecwrap.sources.failure import Failure
from vecwrap.sources.registrations import Registrations
from vecwrap.sources.source import RestartState
from vecwrap.sources.source_factories import Factory, num_rows_of

MIN_STOPPED_SECONDS = 1.0
"""If a wait takes so much longer than requested, this process was stopped meanwhile."""


class PendingReply(NamedTuple):
    """A reply that a worker is to send."""

    kind: str  # the first word of the reply
    limit: str  # the name of the option that limits its time, or ""
    seconds: float | None  # how long it may take
    # the number of the call to sub-environments that it replies to, or of the last one before it
    call: int


class WorkerHandleBase(ABC):
    """One worker as its parent sees it; it outlives the worker's process."""

    def __init__(self, number: int, env_ids: range) -> None:
        self.number = number
        self.env_ids = env_ids  # the sub-environments that it runs
        self.made = False  # whether these are made
        self.made_once = False  # whether they ever were
        self.pid: int | None = None  # of its process, once known
        self.restarts = -1
        self.since = 0.0  # from when the limit of the next reply counts
        self._up = False

    def is_up(self) -> bool:
        return self._up

    @abstractmethod
    def awaiting(self) -> list[str]:
        """The kinds of replies that it is to send, in order."""

    @abstractmethod
    def is_idle(self) -> bool:
        """Whether it is to send none."""

    def label(self, what: str, pid: str) -> str:
        """``worker 0 (pid 77, sub-environments 0-3)``."""
        ids = f"{self.env_ids[0]}"
        if len(self.env_ids) > 1:
            ids = f"{self.env_ids[0]}-{self.env_ids[-1]}"
        return f"{what} {self.number} (pid {pid}, sub-environments {ids})"


_Handle = TypeVar("_Handle", bound=WorkerHandleBase)


class WorkerPool(ABC, Generic[_Handle]):
    """What a runner has whose sub-environments live in workers, and are lost with them."""

    noun: ClassVar[str] = "worker"  # what a worker is called
    of_its_process: ClassVar[str] = "and its workers answer only that process"
    recreates_engines: ClassVar[bool] = True

    _factories: list[Factory]  # one for each source
    _shares: list[range]  # the sub-environments of each worker; last those of this process, if any
    _owner_of: list[int]  # the number of the worker of each sub-environment

    options: WorkerOptions
    context: Context
    slots: Slots
    workers: int

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._limits = self.options.limits
        self._workers: list[_Handle] = []
        self._joint: EnvDescription | None = None  # of all sub-environments, once there are slots
        self._arrivals: list[Arrival] = []  # for the next `poll`
        self._requested = RowSet()  # rows that workers are to bring
        # the sub-environments that the last call was for
        self._called: frozenset[int] = frozenset()
        self._call_number = 0

    # -- what a runner adds ------------------------------------------------------------------------

    @abstractmethod
    def _restart_worker(self, worker: _Handle, restart_states: dict[int, RestartState]) -> None:
        """Restart a worker that was lost."""

    @abstractmethod
    def _send_bytes(self, worker: _Handle, data: bytes, replies: Sequence[PendingReply]) -> None:
        """Send a message and expect these replies; if the worker is gone, report its loss."""

    def _pickled(self, worker: _Handle, message: tuple[Any, ...]) -> bytes:
        return encode_for_worker(message)

    def _num_replies(self, worker: _Handle, message: tuple[Any, ...]) -> int:
        return 1

    def _offset(self, worker: _Handle) -> int:
        return worker.env_ids[0]

    @abstractmethod
    def _end_worker(self, worker: _Handle) -> None:
        """End a worker, whatever it is doing."""

    @abstractmethod
    def _forget(self, worker: _Handle) -> None:
        """Expect nothing more from a worker that was ended."""

    def _pop_arrivals(self) -> list[Arrival]:
        arrivals = self._arrivals
        self._arrivals = []
        return arrivals

    def _is_anything_awaited(self) -> bool:
        return not all(worker.is_idle() for worker in self._workers)

    # -- start -------------------------------------------------------------------------------------

    def _init_of(
        self, worker: _Handle, restart_states: Mapping[int, RestartState] | None, **settings: bool
    ) -> bytes:
        share = worker.env_ids
        registrations, specs = Registrations.current()
        taken_over = None
        if restart_states is not None:
            taken_over = [restart_states[i] for i in share]
        contents = WorkerContents(
            factories=self._factories_of(worker),
            restart_states=taken_over,
            registrations=registrations,
            filters=filter_names(warnings.filters),
        )
        try:
            pickled = by_value(contents, *specs)
        except Exception as error:
            raise PlanError(
                f"the environments of sub-environments {share[0]} to {share[-1]} cannot be sent to "
                f"their {self.noun}: {error}; create unpicklable objects inside the factory, or "
                'use backend="dummy"'
            ) from error
        init = WorkerInit(
            env_ids=tuple(share),
            num_envs=self.context.num_rows,
            contents=pickled,
            num_contents=1 + len(specs),
            autoreset=self.context.autoreset,
            debug=self.context.debug,
            recreate_every=self.context.recreate_every,
            number=worker.number,
            num_workers=self.workers,
            largest_share=max(map(len, self._shares)),
            log_level=logging.getLogger().level,
            **settings,
        )
        return encode(init)

    def _factories_of(self, worker: _Handle) -> list[Factory]:
        num_rows = num_rows_of(self._factories)
        return self._factories[worker.env_ids.start // num_rows : worker.env_ids.stop // num_rows]

    def _take_descriptions(
        self, worker: _Handle, descriptions: list[tuple[int, EnvDescription]]
    ) -> None:
        worker.made = True
        worker.made_once = True
        if self._joint is not None:
            try:
                refuse_outside(self._joint, descriptions)
            except BackendError:
                # its spaces differ from the slots', so it must not write into them
                self._end_worker(worker)
                self._forget(worker)
                raise
        self._arrivals.append(EnvsMade(worker.env_ids, descriptions))

    def _take_failed_start(self, worker: _Handle, failure: Failure) -> None:
        self._forget(worker)
        self._requested.discard(worker.env_ids)
        self._arrivals.append(MakeFailed(worker.env_ids, failure))

    # -- rows --------------------------------------------------------------------------------------

    def refuse_reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        if options is not None:
            with _sendable("reset: the options"):
                encode_for_worker(options)

    def send(self, rows: IntArray) -> None:
        by_worker = self._by_worker(rows)
        messages = []
        for worker, ids in by_worker:
            own = None
            if len(ids) != len(worker.env_ids):
                own = self._rows_of(worker, ids)
            messages.append((worker, ("step", own, self.slots.actions.export(ids))))
        self._request_rows(by_worker, messages, self._reply("rows", "step_timeout"))

    def reset(
        self, rows: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        seed_of = dict(zip(rows.tolist(), seeds, strict=True))
        by_worker = self._by_worker(rows)
        messages = [
            (worker, ("reset", self._rows_of(worker, ids), [seed_of[i] for i in ids], options))
            for worker, ids in by_worker
        ]
        self._request_rows(by_worker, messages, self._reply("rows", "reset_timeout"))

    def _request_rows(
        self,
        by_worker: Sequence[tuple[_Handle, Sequence[int]]],
        messages: Sequence[tuple[_Handle, tuple[Any, ...]]],
        reply: PendingReply,
    ) -> None:
        for _, ids in by_worker:
            self._requested.add(ids)
        try:
            self._send_all(messages, reply)
        except Exception:  # nothing was sent
            for _, ids in by_worker:
                self._requested.discard(ids)
            raise

    def cancel(self, rows: Collection[int]) -> Collection[int]:
        arrived = [row for one in self._arrivals if isinstance(one, RowResults) for row in one.rows]
        failed = [
            failure.index
            for one in self._arrivals
            if isinstance(one, RowResults)
            for failure in one.failures
        ]
        return self._requested.as_set().union(arrived, failed).intersection(rows)

    def _by_worker(
        self, env_ids: Sequence[int] | IntArray
    ) -> Sequence[tuple[_Handle, Sequence[int]]]:
        if len(env_ids) == self.context.num_rows:
            return [(worker, worker.env_ids) for worker in self._workers]
        groups: dict[int, list[int]] = {}
        for i in map(int, env_ids):
            groups.setdefault(self._owner_of[i], []).append(i)
        return [
            (self._workers[number], ids) for number, ids in groups.items() if number < self.workers
        ]

    def _rows_of(self, worker: _Handle, env_ids: Sequence[int]) -> list[int]:
        offset = self._offset(worker)
        return [i - offset for i in env_ids]

    # -- talking to the workers --------------------------------------------------------------------

    def _reply(self, kind: str, limit: str = "") -> PendingReply:
        return PendingReply(kind, limit, self._limits.get(limit), self._call_number)

    def _send_all(
        self,
        messages: Sequence[tuple[_Handle, tuple[Any, ...]]],
        reply: PendingReply,
        what: str = "",
    ) -> None:
        """Send each worker its message, after all messages have been pickled.

        Raise ArgumentError, which names ``what``, if a message cannot be pickled.
        """
        with _sendable(what):
            pickled = [
                (
                    worker,
                    self._pickled(worker, message),
                    [reply] * self._num_replies(worker, message),
                )
                for worker, message in messages
            ]
        for worker, data, replies in pickled:
            self._send_bytes(worker, data, replies)

    def _read(
        self, worker: _Handle, decode: Callable[[], Any], awaited: Iterable[PendingReply]
    ) -> Any:
        """Decode a reply and load its rows.

        If the reply is unreadable, return the reason for ending the worker.
        """
        try:
            reply = decode()
            refuse_malformed(reply, [one.kind for one in awaited], worker.env_ids)
            if reply[0] == "rows":
                self._load_rows(worker, *reply[2:])
            elif reply[0] == "values" and self._call_number == next(
                one.call for one in awaited if one.kind == "values"
            ):
                self._refuse_others(worker, *reply[1:])
        except BaseException as error:
            if is_raised_by_handler(error):
                raise
            return f"sent what cannot be read here ({kind_of(error)}: {text_of(error)})"
        return reply

    def _load_rows(
        self,
        worker: _Handle,
        rows: list[int],
        stepped: list[int],
        payload: tuple[Any, ...],
        failures: list[Failure],
    ) -> None:
        """Check a worker's rows against the requested rows before loading any into the slots."""
        offset = self._offset(worker)
        failed = [failure.index for failure in failures]
        brought = [*(offset + row for row in rows), *failed]
        requested = self._requested.as_set().intersection(worker.env_ids)
        if len(set(brought)) < len(brought) or not requested.issuperset(brought):
            raise ValueError(f"expected rows of {sorted(requested)}, got {brought}")
        if any(offset + row not in failed for row in stepped):
            raise ValueError(f"expected steps of {failed} before their failures, got {stepped}")
        # Even of no rows: a failed step may have had the first info of its kind, sent only once.
        self.slots.load(rows + stepped, payload, offset, worker.env_ids)

    def _refuse_others(
        self, worker: _Handle, values: dict[int, Any], failures: list[Failure]
    ) -> None:
        called = self._called.intersection(worker.env_ids)
        if {*values, *(failure.index for failure in failures)} != called:
            raise ValueError(f"expected values of {sorted(called)}, got {list(values)}")

    def _take_reply(self, worker: _Handle, reply: tuple[Any, ...], call: int) -> None:
        """Process a worker's reply; ``call`` is the number of the answered call, if any."""
        kind, *content = reply
        if kind == "rows":
            _, rows, _, _, failures = content
            offset = self._offset(worker)
            self._take_results([offset + row for row in rows], failures)
        elif kind == "values":
            values, failures = content
            self._arrivals.append(CallValues(call, values, failures))
        elif kind == "made":
            self._take_descriptions(worker, *content)
        elif kind == "failed":
            self._take_failed_start(worker, *content)
        else:
            assert kind == "remade", kind
            failures = content[0]
            if failures:
                self._requested.discard(failure.index for failure in failures)
                self._arrivals.append(RecreateFailed(failures))

    def _take_results(self, rows: Sequence[int], failures: Sequence[Failure] = ()) -> None:
        """Have ``poll`` return results, those of several workers together if it can."""
        self._requested.discard(rows)
        if failures:
            self._requested.discard(failure.index for failure in failures)
        elif not rows:
            return
        elif self._arrivals:
            last = self._arrivals[-1]
            if isinstance(last, RowResults) and not last.failures:
                before = last.rows
                if type(before) is not range and type(rows) is not range:
                    self._arrivals[-1] = RowResults([*before, *rows])
                    return
                if type(before) is type(rows) is range and before.stop == rows.start:
                    self._arrivals[-1] = RowResults(range(before.start, rows.stop))
                    return
        self._arrivals.append(RowResults(rows, failures))

    def _extend_deadlines(self, longer: float) -> None:
        """Extend all deadlines if a wait was ``longer`` than requested, in seconds.

        No time limit runs while this process is stopped.
        """
        if longer > MIN_STOPPED_SECONDS:
            for worker in self._workers:
                worker.since += longer

    def call(
        self, number: int, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> None:
        arguments_of: dict[int, tuple[Any, ...]] = dict(zip(rows, arguments, strict=True))
        self._call_number = number
        self._called = frozenset(rows)
        messages = [
            (worker, ("ask", method, self._rows_of(worker, ids), [arguments_of[i] for i in ids]))
            for worker, ids in self._by_worker(list(arguments_of))
        ]
        self._send_all(messages, self._reply("values"), f"{method}: the arguments")

    # -- workers that are lost ---------------------------------------------------------------------

    def recreate(self, restart_states: dict[int, RestartState]) -> Sequence[Failure]:
        for worker, ids in self._by_worker(list(restart_states)):
            if worker.is_up():
                message = "remake", self._rows_of(worker, ids), [restart_states[i] for i in ids]
                self._send_all([(worker, message)], self._reply("remade", "start_timeout"))
            else:
                self._restart_worker(worker, restart_states)
        return ()

    def _report_loss(self, worker: _Handle, reason: str, details: str = "", **facts: Any) -> None:
        """Have ``poll`` return that a worker has ended."""
        if self._joint is not None:
            for i in worker.env_ids:
                self.slots.infos.leave_cells(i)
                self.slots.final_infos.leave_cells(i)
        self._requested.discard(worker.env_ids)
        self._arrivals.append(
            WorkerLost(worker.number, worker.env_ids, reason, details, worker.made, facts)
        )

    @staticmethod
    def _error_of(worker: _Handle, text: str, **facts: Any) -> BackendError:
        return BackendError(text, worker=worker.number, env_ids=tuple(worker.env_ids), **facts)

    def health(self) -> tuple[WorkerHealth, ...]:
        return tuple(
            WorkerHealth(
                worker.number,
                worker.pid if worker.is_up() else None,
                tuple(worker.env_ids),
                worker.restarts,
            )
            for worker in self._workers
        )


@contextlib.contextmanager
def _sendable(what: str) -> Iterator[None]:
    """Raise ArgumentError, which says what and why, for what cannot be pickled."""
    try:
        yield
    except Exception as error:
        if not what:
            raise
        raise ArgumentError(f"{what} cannot be sent to another process: {error}") from error
