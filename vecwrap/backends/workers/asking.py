"""The common base of runners whose sub-environments live in workers: local processes, or actors of a cluster.

Starting workers and transporting messages is up to the runner; this module defines the requests to workers, and what
their answers, their silence and their end mean for the sub-environments.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from gymnasium.error import NoAsyncCallError

from vecwrap.backends.workers.messages import (
    WorkerContents,
    WorkerInit,
    encode,
    encode_for_worker,
    named,
    refuse_malformed,
)
from vecwrap.backends.workers.options import WorkerOptions
from vecwrap.env.books import Books
from vecwrap.env.restarts import WorkerHealth
from vecwrap.errors import (
    ArgumentError,
    BackendError,
    PlanError,
    VecwrapError,
    kind_of,
    text_of,
)
from vecwrap.interrupts import is_of_a_handler
from vecwrap.rows.step_result import IntArray
from vecwrap.sources.by_value import by_value
from vecwrap.sources.description import Description, of_all, refuse_outside
from vecwrap.sources.failure import Failure
from vecwrap.sources.making import never_made, num_rows_of, of_first_start
from vecwrap.sources.registrations import Registrations
from vecwrap.sources.source import Takeover
from vecwrap.sources.sub_env import Factory

STOPPED = 1.0  # seconds: if a wait takes so much longer than asked for, this process was stopped meanwhile


class Expected(NamedTuple):
    """An answer that a worker owes."""

    kind: str  # the first word of the answer
    limit: str  # the name of the option that limits its time, or ""
    seconds: float | None  # how long it may take
    ask: int  # the number of the call to sub-environments that requested it, or of the last one before it


class AnyWorker(ABC):
    """One worker as its parent sees it; it outlives the worker's process."""

    def __init__(self, number: int, env_ids: range) -> None:
        self.number = number
        self.env_ids = env_ids  # the sub-environments that it runs
        self.made = False  # whether these are made
        self.made_once = False  # whether they ever were
        self.torn = False  # whether an interrupt has made its answers unreliable; it is then lost at the next wait
        self.pid: int | None = None  # of its process, once known
        self.restarts = -1
        self.since = 0.0  # from when the limit of the next answer counts
        self._up = False

    def is_up(self) -> bool:
        return self._up

    @abstractmethod
    def owes(self) -> list[str]:
        """The kinds of answers that it owes, in order."""

    def in_words(self, what: str, pid: str) -> str:
        """``worker 0 (pid 77, sub-environments 0-3)``."""
        ids = f"{self.env_ids[0]}-{self.env_ids[-1]}" if len(self.env_ids) > 1 else f"{self.env_ids[0]}"
        return f"{what} {self.number} (pid {pid}, sub-environments {ids})"


_Worker = TypeVar("_Worker", bound=AnyWorker)


class Workers(ABC, Generic[_Worker]):
    """What a runner has whose sub-environments live in workers, and are lost with them."""

    noun: ClassVar[str] = "worker"  # what a worker is called
    of_its_process: ClassVar[str] = "and its workers answer only that process"

    _factories: list[Factory]  # one for each source
    _shares: list[range]  # the sub-environments of each worker; last those of this process, if any
    _owner_of: list[int]  # the number of the worker of each sub-environment

    options: WorkerOptions
    books: Books
    workers: int

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._limits = self.options.limits
        self._workers: list[_Worker] = []
        self._descriptions: dict[int, Description] = {}
        self._joint: Description  # of all
        self._start_failures: list[Failure] = []
        self._attaching = False  # whether there are slots already, for workers started from now on
        self._torn = False  # whether any worker is torn
        self._asked_of: frozenset[int] = frozenset()  # the sub-environments that the last call was for
        self._asks = 0  # counts calls of ``ask``; answers to an earlier, interrupted one are dropped
        self._values: dict[int, Any] = {}
        self._value_failures: list[Failure] = []
        self._unanswered: VecwrapError | None = None  # the error of a call in which a worker died

    # -- what a runner adds -------------------------------------------------------------------------------------------

    @abstractmethod
    def _start_anew(self, worker: _Worker, takeovers: dict[int, Takeover]) -> None:
        """Restart a worker that was lost."""

    @abstractmethod
    def _send_bytes(self, worker: _Worker, data: bytes, owed: Sequence[Expected]) -> None:
        """Send a message and expect these answers; if the worker is gone, handle its loss."""

    def _pickled(self, worker: _Worker, message: tuple[Any, ...]) -> bytes:
        return encode_for_worker(message)

    def _num_answers(self, worker: _Worker, message: tuple[Any, ...]) -> int:
        return 1

    def _offset(self, worker: _Worker) -> int:
        return worker.env_ids[0]

    @abstractmethod
    def _pump(self, deadline: float | None) -> None:
        """Wait until something arrives, and receive it; TimeoutError past the deadline."""

    @abstractmethod
    def _lose_worker(self, worker: _Worker) -> None:
        """End a worker that died, hangs or is torn; recreate its sub-environments, or raise BackendError."""

    @abstractmethod
    def _end_worker(self, worker: _Worker) -> None:
        """End a worker, whatever it is doing."""

    @abstractmethod
    def _forget(self, worker: _Worker) -> None:
        """Expect nothing more from a worker that was ended."""

    # -- start ---------------------------------------------------------------------------------------------------------

    def _init_of(self, worker: _Worker, takeovers: Mapping[int, Takeover] | None, **settings: bool) -> bytes:
        share = worker.env_ids
        registrations, specs = Registrations.here()
        contents = WorkerContents(
            factories=self._factories_of(worker),
            takeovers=None if takeovers is None else [takeovers[i] for i in share],
            registrations=registrations,
            filters=named(warnings.filters),
        )
        try:
            pickled = by_value(contents, *specs)
        except Exception as error:
            raise PlanError(
                f"the environments of sub-environments {share[0]} to {share[-1]} cannot be sent to their {self.noun}: "
                f'{error}; create unpicklable objects inside the factory, or use backend="dummy"'
            ) from error
        init = WorkerInit(
            env_ids=tuple(share),
            num_envs=self.books.num_rows,
            contents=pickled,
            num_contents=1 + len(specs),
            autoreset=self.books.autoreset,
            debug=self.books.debug,
            number=worker.number,
            num_workers=self.workers,
            largest_share=max(map(len, self._shares)),
            log_level=logging.getLogger().level,
            **settings,
        )
        return encode(init)

    def _factories_of(self, worker: _Worker) -> list[Factory]:
        num_rows = num_rows_of(self._factories)
        return self._factories[worker.env_ids.start // num_rows : worker.env_ids.stop // num_rows]

    def _await_made(self) -> Description:
        """Wait until all sub-environments are made, or one has failed and all those before it are made."""
        patience = math.inf
        while not all(worker.made for worker in self._workers):
            failed = min((failure.index for failure in self._start_failures), default=None)
            if failed is not None:
                patience = min(patience, time.monotonic() + 1.0)
                before = any(
                    worker.env_ids[0] < failed and ("made" in worker.owes() or worker.env_ids[0] in self.books.due)
                    for worker in self._workers
                )
                if not before or time.monotonic() > patience:
                    raise min(self._start_failures, key=lambda failure: failure.index).error()
            self.books.make_due_anew()
            with contextlib.suppress(TimeoutError):
                self._pump(None if failed is None else patience)
        self._joint = of_all(sorted(self._descriptions.items()))
        return self._joint

    def _take_in_descriptions(self, worker: _Worker, descriptions: list[tuple[int, Description]]) -> None:
        worker.made = worker.made_once = True
        if not self._attaching:
            self._descriptions.update(descriptions)
            return
        try:
            refuse_outside(self._joint, descriptions)
        except BackendError as error:  # its spaces differ from the slots', so it must not write into them
            self._end_worker(worker)
            self._forget(worker)
            self.books.broken = error
            raise

    def _take_in_failed_start(self, worker: _Worker, failure: Failure) -> None:
        reason = str(failure.error()).partition("\n")[0]
        owed = worker.owes()
        self._forget(worker)
        if not worker.made_once:
            restart = self.books.recovery is not None
            factory = self._factories[failure.index // num_rows_of(self._factories)]
            self._start_failures.append(of_first_start(failure, factory, restart=restart))
            return
        if self.books.lose(list(worker.env_ids), reason, made=False):
            self._leave_unanswered(worker, owed, reason)
            return
        self.books.broken = self.books.refused(failure).error()
        raise self.books.broken

    # -- rows ----------------------------------------------------------------------------------------------------------

    def refuse_reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        if options is not None:
            with _sendable("reset: the options"):
                encode_for_worker(options)

    def send(self, env_ids: IntArray) -> None:
        messages = []
        for worker, ids in self._by_worker(env_ids):
            rows = None if len(ids) == len(worker.env_ids) else self._rows_of(worker, ids)
            messages.append((worker, ("step", rows, self.books.slots.actions.export(ids))))
        self._tell(messages, self._expected("rows", "step_timeout"))

    def reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        seed_of = dict(zip(env_ids.tolist(), seeds, strict=True))
        messages = [
            (worker, ("reset", self._rows_of(worker, ids), [seed_of[i] for i in ids], options))
            for worker, ids in self._by_worker(env_ids)
        ]
        self._tell(messages, self._expected("rows", "reset_timeout"))

    def not_sent(self, env_ids: IntArray, error: BaseException) -> None:
        if not isinstance(error, Exception) and any(worker.owes() for worker in self._workers):
            self.books.broken = BackendError(
                f"{type(error).__name__} occurred while actions were being sent, so the {self.noun}s' replies can no "
                "longer be matched to requests; close() still works; build the environment again to continue"
            )

    def _by_worker(self, env_ids: Sequence[int] | IntArray) -> list[tuple[_Worker, list[int]]]:
        if env_ids is self.books.all_ids:
            return [(worker, list(worker.env_ids)) for worker in self._workers]
        groups: dict[int, list[int]] = {}
        for i in map(int, env_ids):
            groups.setdefault(self._owner_of[i], []).append(i)
        return [(self._workers[number], ids) for number, ids in groups.items() if number < self.workers]

    def _rows_of(self, worker: _Worker, env_ids: Sequence[int]) -> list[int]:
        offset = self._offset(worker)
        return [i - offset for i in env_ids]

    # -- talking to the workers ----------------------------------------------------------------------------------------

    def _expected(self, kind: str, limit: str = "") -> Expected:
        return Expected(kind, limit, self._limits.get(limit), self._asks)

    def _tell(self, messages: Sequence[tuple[_Worker, tuple[Any, ...]]], expected: Expected, what: str = "") -> None:
        """Send each of these workers its message, all pickled before; ArgumentError: ``what`` is in them cannot be."""
        self._refuse_broken()
        with _sendable(what) if what else contextlib.nullcontext():
            pickled = [
                (worker, self._pickled(worker, message), [expected] * self._num_answers(worker, message))
                for worker, message in messages
            ]
        for worker, data, owed in pickled:
            self._send_bytes(worker, data, owed)

    def _read(self, worker: _Worker, decode: Callable[[], Any], owed: Iterable[Expected]) -> Any:
        """Decode an answer, and load its rows; of an unreadable one return what the worker is lost for."""
        try:
            answer = decode()
            refuse_malformed(answer, [one.kind for one in owed], worker.env_ids)
            if answer[0] == "rows":
                self._load_rows(worker, *answer[2:])
            elif answer[0] == "values" and self._asks == next(one.ask for one in owed if one.kind == "values"):
                self._refuse_others(worker, *answer[1:])
        except BaseException as error:
            if is_of_a_handler(error):
                raise
            return f"sent what cannot be read here ({kind_of(error)}: {text_of(error)})"
        return answer

    def _load_rows(
        self, worker: _Worker, rows: list[int], stepped: list[int], payload: tuple[Any, ...], failures: list[Failure]
    ) -> None:
        offset, failed = self._offset(worker), [failure.index for failure in failures]
        named = [*(offset + row for row in rows), *failed]
        books = self.books
        awaited = books.out.intersection(worker.env_ids).difference(books.ready, (one.index for one in books.failed))
        if len(set(named)) < len(named) or not awaited.issuperset(named):
            raise ValueError(f"expected rows of {sorted(awaited)}, got {named}")
        if any(offset + row not in failed for row in stepped):
            raise ValueError(f"expected steps of {failed} before their failures, got {stepped}")
        # Even of no rows: a step that failed may have had the first info of its kind, and kinds are told once.
        books.slots.load(rows + stepped, payload, offset, worker.env_ids)

    def _refuse_others(self, worker: _Worker, values: dict[int, Any], failures: list[Failure]) -> None:
        asked = self._asked_of.intersection(worker.env_ids)
        if {*values, *(failure.index for failure in failures)} != asked:
            raise ValueError(f"expected values of {sorted(asked)}, got {list(values)}")

    def _take_in_answer(self, worker: _Worker, answer: tuple[Any, ...], ask: int) -> None:
        """Process an answer of a worker; ``ask`` is the number of the call that it answers, if any."""
        kind, *content = answer
        if kind == "rows":
            _, rows, _, _, failures = content
            offset = self._offset(worker)
            self.books.arrived([offset + row for row in rows], failures)
        elif kind == "values":
            values, failures = content
            if ask == self._asks:
                self._values.update(values)
                self._value_failures.extend(failures)
        elif kind == "made":
            self._take_in_descriptions(worker, *content)
        elif kind == "failed":
            self._take_in_failed_start(worker, *content)
        else:
            assert kind == "remade", kind
            for failure in content[0]:
                self.books.not_made(failure)

    def _is_due(self, deadline: float | None) -> bool:
        """Whether something is due, if nothing has arrived; an error if nothing can be."""
        books, now = self.books, time.monotonic()
        if books.due and min(books.due.values()) <= now:
            return True
        if not books.due and not any(worker.owes() for worker in self._workers):
            if books.out:
                raise books.never_home()
            raise NoAsyncCallError("Another thread has taken the result this thread waits for.", "wait")
        if deadline is not None and now >= deadline:
            raise books.too_early()
        return False

    def _excuse(self, longer: float) -> None:
        """Let no limit run while this process is stopped: a wait has taken ``longer`` than asked for, in seconds."""
        if longer > STOPPED:
            for worker in self._workers:
                worker.since += longer

    def _pump_until(self, done: Callable[[], bool], deadline: float | None = None) -> None:
        while not done():
            self._refuse_broken()
            self.books.interrupts.let_through()
            self.books.make_due_anew()
            self._pump(deadline)

    def ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        self._refuse_broken()
        arguments_of: dict[int, tuple[Any, ...]] = dict(zip(env_ids, arguments, strict=True))
        self._asks, self._asked_of = self._asks + 1, frozenset(env_ids)
        self._values, self._value_failures, self._unanswered = {}, [], None
        messages = [
            (worker, ("ask", method, self._rows_of(worker, ids), [arguments_of[i] for i in ids]))
            for worker, ids in self._by_worker(list(arguments_of))
        ]
        self._tell(messages, self._expected("values"), f"{method}: the arguments")

    def answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        self._pump_until(lambda: not any("values" in worker.owes() for worker in self._workers), deadline)
        self.books.interrupts.let_through()
        if self._unanswered is not None:
            raise self._unanswered
        return self._values, self._value_failures

    def answered(self) -> Collection[int]:
        return self._values

    # -- workers that are lost -----------------------------------------------------------------------------------------

    def lose_torn(self) -> None:
        if self._torn:
            for worker in self._workers:
                if worker.torn:
                    self._lose_worker(worker)
            self._torn = False

    def recreate(self, takeovers: dict[int, Takeover]) -> None:
        for worker, ids in self._by_worker(list(takeovers)):
            if worker.is_up():
                message = "remake", self._rows_of(worker, ids), [takeovers[i] for i in ids]
                self._tell([(worker, message)], self._expected("remade", "start_timeout"))
            else:
                self._start_anew(worker, takeovers)

    def take_back(self, env_ids: Iterable[int]) -> None:
        for worker in {self._owner_of[i]: self._workers[self._owner_of[i]] for i in env_ids}.values():
            if worker.is_up():
                worker.torn = self._torn = True

    def _book_loss(self, worker: _Worker, reason: str, said: str, owed: Sequence[str], **facts: Any) -> None:
        """Schedule the sub-environments of a worker that has ended for recreation, or raise BackendError."""
        if hasattr(self.books, "slots"):
            for i in worker.env_ids:
                self.books.slots.infos.leave_cells(i)
                self.books.slots.final_infos.leave_cells(i)
        if not worker.made_once:
            remedy = never_made(self._factories_of(worker), restart=self.books.recovery is not None)
            self.books.broken = self._error_of(worker, f"{reason}{said}{remedy}", **facts)
            raise self.books.broken
        if self.books.lose(list(worker.env_ids), reason, made=worker.made):
            self._leave_unanswered(worker, owed, f"{reason}{said}", **facts)
            return
        recovery = self.books.recovery
        if recovery is None:
            remedy = 'with on_failure="restart" this is automatic'
        else:
            limit = recovery.restarts.limit_in_words()
            remedy = f"this is no longer automatic: {limit} are used up"
        remedy = f"close() still works; build the environment again to continue ({remedy})."
        self.books.broken = self._error_of(worker, f"{reason}{said}\n{remedy}", **facts)
        raise self.books.broken

    def _leave_unanswered(self, worker: _Worker, owed: Sequence[str], said: str, **facts: Any) -> None:
        """Fail a call that a worker owed an answer to when it was lost."""
        if "values" in owed:
            lost = "It is being restarted, and the episodes of its sub-environments are lost; the call is not repeated."
            self._unanswered = self._error_of(worker, f"{said}\n{lost}", **facts)

    @staticmethod
    def _error_of(worker: _Worker, text: str, **facts: Any) -> BackendError:
        return BackendError(text, worker=worker.number, env_ids=tuple(worker.env_ids), **facts)

    def health(self) -> tuple[WorkerHealth, ...]:
        return tuple(
            WorkerHealth(worker.number, worker.pid if worker.is_up() else None, tuple(worker.env_ids), worker.restarts)
            for worker in self._workers
        )

    def _refuse_broken(self) -> None:
        if self.books.broken is not None:
            raise self.books.broken


@contextlib.contextmanager
def _sendable(what: str) -> Iterator[None]:
    """Raise ArgumentError, which says what and why, for what cannot be pickled."""
    try:
        yield
    except Exception as error:
        raise ArgumentError(f"{what} cannot be sent to another process: {error}") from error
