"""The parent's side of worker processes: what subprocess and shmem share."""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import select
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

import cloudpickle
import numpy as np
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode

from vecwrap.backends.base import Backend, Description, Factory, refuse_unequal
from vecwrap.backends.cores import usable_cores
from vecwrap.backends.launch import check_start_method
from vecwrap.backends.link import LOOK, Expected, Link, end_workers
from vecwrap.backends.memory import SharedBlock
from vecwrap.backends.restarts import WorkerHealth
from vecwrap.backends.worker import WorkerInit, decode, encode
from vecwrap.batch import Batch
from vecwrap.contract import Autoreset, Frames, IntArray
from vecwrap.errors import ArgumentError, BackendError, PlanError, VecwrapError
from vecwrap.slots import Arena, Slots
from vecwrap.sub_env import Failure, Takeover

__all__ = ["ProcessBackend", "share_out"]

_open_backends: weakref.WeakSet[ProcessBackend] = weakref.WeakSet()


def share_out(num_envs: int, workers: int | None, envs_per_worker: int | None) -> list[range]:
    """Say which sub-environments each worker holds: consecutive ones, shares that differ by one at most.

    Args:
        num_envs: n; need not divide evenly.
        workers: how many workers; None means as many as there are usable cores, n at most.
        envs_per_worker: how many sub-environments a worker, the last one fewer; instead of ``workers``.

    Raises:
        PlanError: both are given, or one is below 1.

    >>> share_out(5, 2, None), share_out(5, None, 3)
    ([range(0, 3), range(3, 5)], [range(0, 3), range(3, 5)])
    """
    for name, value in (("workers", workers), ("envs_per_worker", envs_per_worker)):
        if value is not None and value < 1:
            raise PlanError(f"{name}: expected at least 1, got {value}")
    if workers is not None and envs_per_worker is not None:
        raise PlanError("workers and envs_per_worker: expected one of the two, got both; each follows from the other")
    if envs_per_worker is not None:
        return [range(i, min(i + envs_per_worker, num_envs)) for i in range(0, num_envs, envs_per_worker)]
    count = min(workers or usable_cores(), num_envs)
    bounds = [-(-num_envs * k // count) for k in range(count + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


class ProcessBackend(Backend):
    """Sub-environments in worker processes; each worker holds several.

    Args:
        factories: one callable for each sub-environment; they travel by value (cloudpickle).
        workers: how many workers; None means as many as there are usable cores.
        envs_per_worker: how many sub-environments a worker, instead of ``workers``.
        start_method: None (a fresh interpreter), ``"spawn"``, ``"forkserver"`` or ``"fork"``.
        daemon: at the interpreter's exit, True ends workers that need over a second to close; False waits for them.
        step_timeout: seconds that a worker may take for its share of a step, autoresets included; one that takes longer
            is killed, and then ``on_failure`` decides. None waits for ever.
        reset_timeout: the same for its share of a reset.
        start_timeout: the same for its start, with all that its environments do when they are made.
        autoreset, copy, batch_size, start_index, seed, debug: as every backend.
        on_failure, max_restarts, restart_window, restart_backoff: as every backend: see `dummy`.
    """

    shared: ClassVar[bool] = False

    def __init__(
        self,
        factories: Sequence[Factory],
        *,
        workers: int | None = None,
        envs_per_worker: int | None = None,
        start_method: str | None = None,
        daemon: bool = True,
        step_timeout: float | None = None,
        reset_timeout: float | None = None,
        start_timeout: float | None = None,
        autoreset: Autoreset | AutoresetMode | str = Autoreset.SAME_STEP,
        copy: bool = True,
        batch_size: int | None = None,
        start_index: int = 0,
        seed: int | None = None,
        debug: bool = False,
        on_failure: Literal["raise", "restart"] = "raise",
        max_restarts: int | None = 10,
        restart_window: float | None = 60.0,
        restart_backoff: float = 0.1,
    ) -> None:
        self.closed = True
        self._shares = share_out(len(factories), workers, envs_per_worker) if factories else []
        self.start_method = check_start_method(start_method)
        self.daemon = daemon
        self._limits = {"step_timeout": step_timeout, "reset_timeout": reset_timeout, "start_timeout": start_timeout}
        for name, seconds in self._limits.items():
            if seconds is not None and not seconds > 0:
                raise PlanError(f"{name}: expected seconds above 0, or None to wait for ever, got {seconds}")
        self._workers: list[Link] = []
        self._links: dict[int, Link] = {}  # by the descriptors that are polled
        self._broken: VecwrapError | None = None
        self._owner = os.getpid()
        self._block: SharedBlock | None = None
        self._lock = threading.RLock()
        self._poller = select.poll()
        self._looked = 0.0
        super().__init__(
            factories,
            autoreset=autoreset,
            copy=copy,
            batch_size=batch_size,
            start_index=start_index,
            seed=seed,
            debug=debug,
            on_failure=on_failure,
            max_restarts=max_restarts,
            restart_window=restart_window,
            restart_backoff=restart_backoff,
        )
        _open_backends.add(self)

    # -- start ---------------------------------------------------------------------------------------------------------

    def _start(self, factories: Sequence[Factory]) -> Description:
        self._factories = list(factories)
        self.workers = len(self._shares)
        self._workers = [Link(number, share) for number, share in enumerate(self._shares)]
        self._owner_of = np.repeat(np.arange(self.workers), [len(share) for share in self._shares]).tolist()
        self._descriptions: dict[int, Description] = {}
        self._start_failures: list[Failure] = []
        inits = [self._init_of(share, None) for share in self._shares]
        for worker in self._workers:
            self._launch(worker)
        for worker, init in zip(self._workers, inits, strict=True):
            self._initiate(worker, init)
        self._await_made()
        first = self._descriptions[0]
        refuse_unequal(sorted(self._descriptions.items()))
        self._allocate(first)
        for worker in self._workers:
            self._attach(worker)
        self._pump_until(lambda: not any(worker.expected for worker in self._workers))
        return first

    def _await_made(self) -> None:
        """Wait until all sub-environments are made, or one could not be, and those before it are made."""
        patience = math.inf
        while not all(worker.made for worker in self._workers):
            failed = min((failure.index for failure in self._start_failures), default=None)
            if failed is not None:
                patience = min(patience, time.monotonic() + 1.0)
                before = [worker for worker in self._workers if worker.env_ids[0] < failed and not worker.made]
                if not before or time.monotonic() > patience:
                    raise min(self._start_failures, key=lambda failure: failure.index).error()
            self._make_due_anew()
            with contextlib.suppress(TimeoutError):
                self._pump(None if failed is None else patience)

    def _init_of(self, share: range, takeovers: dict[int, Takeover] | None) -> bytes:
        init = WorkerInit(
            env_ids=tuple(share),
            num_envs=self.num_envs,
            factories=[self._factories[i] for i in share],
            takeovers=None if takeovers is None else [takeovers[i] for i in share],
            autoreset=self.autoreset,
            debug=self.debug,
            shared=self.shared,
            each=self.batch_size is not None,
            filters=list(warnings.filters),
            log_level=logging.getLogger().level,
        )
        try:
            data: bytes = cloudpickle.dumps(init)
        except Exception as error:
            raise PlanError(
                f"the environments of sub-environments {share[0]} to {share[-1]} cannot be sent to a worker: {error}; "
                'make what cannot be sent inside the factory, or use backend="dummy"'
            ) from error
        return data

    def _launch(self, worker: Link) -> None:
        """Start a worker's process; one that cannot be started is a loss like any other.

        Raises:
            BackendError: the policy says so.
        """
        try:
            worker.start(self.start_method, daemon=self.daemon)
        except BackendError as error:
            if self._lose(list(worker.env_ids), str(error), made=False):
                return
            self._broken = error
            raise
        for descriptor in (worker.channel.fileno(), worker.pidfd):
            if descriptor >= 0:
                self._links[descriptor] = worker
                self._poller.register(descriptor, select.POLLIN)

    def _initiate(self, worker: Link, init: bytes) -> None:
        self._send_bytes(worker, init, 1, self._expect("made", "start_timeout"))

    def _attach(self, worker: Link) -> None:
        """Say where the slots are."""
        self._send_bytes(worker, encode(("attach",)), 1, self._expect("attached", "start_timeout"))
        if self._block is not None and worker.is_up():
            with contextlib.suppress(OSError):
                worker.channel.send_descriptor(self._block.descriptor)

    def _allocate(self, first: Description) -> None:
        """Make the slots: in memory of this process alone, or shared with the workers."""
        form = self.num_envs, first.observation_space, first.action_space
        if not self.shared:
            self.slots = Slots(*form)
            return
        arena = Arena()
        Slots(*form, allocate=arena, shared=True)
        self._block = SharedBlock.create(arena.num_bytes)
        self.slots = Slots(*form, allocate=Arena(self._block.buffer), shared=True)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _send_rows(self, actions: Batch, env_ids: IntArray) -> None:
        self.slots.actions.fill(env_ids, actions)
        messages = []
        for worker, ids in self._by_worker(env_ids):
            rows = None if len(ids) == len(worker.env_ids) else [i - self._offset(worker) for i in ids]
            messages.append((worker, encode(("step", rows, self.slots.actions.export(ids))), self._answers_for(ids)))
        expected = self._expect("rows", "step_timeout")
        with self._lock:
            for worker, message, answers in messages:
                self._send_bytes(worker, message, answers, expected)

    def _reset_rows(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        seed_of = dict(zip(env_ids.tolist(), seeds, strict=True))
        messages = []
        for worker, ids in self._by_worker(env_ids):
            rows = [i - self._offset(worker) for i in ids]
            message = encode(("reset", rows, [seed_of[i] for i in ids], options))
            messages.append((worker, message, self._answers_for(ids)))
        expected = self._expect("rows", "reset_timeout")
        with self._lock:
            for worker, message, answers in messages:
                self._send_bytes(worker, message, answers, expected)

    def _tell_frames(self, wanted: Sequence[Frames]) -> None:
        with self._lock:
            for worker in self._workers:
                if worker.is_up():  # a new one takes them over
                    self._send_bytes(worker, encode(("frames", [wanted[i] for i in worker.env_ids])))

    def _make_anew(self, takeovers: dict[int, Takeover]) -> None:
        with self._lock:
            for worker, ids in self._by_worker(list(takeovers)):
                if worker.is_up():
                    rows = [i - self._offset(worker) for i in ids]
                    message = encode(("remake", rows, [takeovers[i] for i in ids]))
                    self._send_bytes(worker, message, 1, self._expect("remade", "start_timeout"))
                    continue
                init = self._init_of(worker.env_ids, takeovers)
                self._launch(worker)
                self._initiate(worker, init)
                if hasattr(self, "slots") and worker.is_up():
                    self._attach(worker)

    def _not_sent(self, env_ids: IntArray, error: BaseException) -> None:
        super()._not_sent(env_ids, error)
        if not isinstance(error, Exception) and any(worker.expected for worker in self._workers):
            self._broken = BackendError(
                f"{type(error).__name__} came while actions were being sent, so what the workers answer can no longer "
                "be told apart; close() still works, build the environment again to go on"
            )

    def _poll(self, deadline: float | None) -> None:
        self._refuse_broken()
        arrived = len(self._ready) + len(self._failed)
        self._make_due_anew()
        if len(self._ready) + len(self._failed) == arrived:
            self._pump(deadline)

    def _by_worker(self, env_ids: Sequence[int] | IntArray) -> list[tuple[Link, list[int]]]:
        """Group indices by the worker that holds them, in their order."""
        if env_ids is self.all_ids:
            return [(worker, list(worker.env_ids)) for worker in self._workers]
        groups: dict[int, list[int]] = {}
        for i in map(int, env_ids):
            groups.setdefault(self._owner_of[i], []).append(i)
        return [(self._workers[number], ids) for number, ids in groups.items()]

    def _offset(self, worker: Link) -> int:
        """What to add to a worker's row to get ours: shared slots have one numbering."""
        return 0 if self.shared else worker.env_ids[0]

    def _answers_for(self, ids: list[int]) -> int:
        return 1 if self.batch_size is None else len(ids)

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        self._refuse_broken()
        arguments_of: dict[int, tuple[Any, ...]] = dict(zip(env_ids, arguments, strict=True))
        groups = self._by_worker(list(dict.fromkeys(env_ids)))
        if groups:
            _refuse_unsendable(method, arguments)  # before the first worker has been asked
        self._values: dict[int, Any] = {}
        self._value_failures: list[Failure] = []
        self._unanswered: VecwrapError | None = None
        with self._lock:
            for worker, ids in groups:
                rows = [i - self._offset(worker) for i in ids]
                message = encode(("ask", method, rows, [arguments_of[i] for i in ids]))
                self._send_bytes(worker, message, 1, Expected("values"))

    def _answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        self._pump_until(
            lambda: not any(expected.kind == "values" for worker in self._workers for expected in worker.expected),
            deadline,
        )
        if self._unanswered is not None:
            self._pending = None
            raise self._unanswered
        return self._values, self._value_failures

    # -- talking to the workers ----------------------------------------------------------------------------------------

    def _expect(self, kind: str, limit: str) -> Expected:
        return Expected(kind, limit, self._limits[limit])

    def _send_bytes(self, worker: Link, data: bytes, answers: int = 0, expected: Expected | None = None) -> None:
        """Send a message; a worker that is gone is a loss, which is settled here."""
        self._refuse_broken()
        if not worker.is_up():
            return  # it was lost a moment ago, in this very call, and its rows are settled
        try:
            worker.send(data, answers, expected)
        except OSError:
            self._lose_worker(worker)
            return
        if worker.channel.unsent:
            self._poller.modify(worker.channel.fileno(), select.POLLIN | select.POLLOUT)

    def _pump_until(self, done: Callable[[], bool], deadline: float | None = None) -> None:
        while not done():
            self._refuse_broken()
            self._make_due_anew()
            self._pump(deadline)

    def _pump(self, deadline: float | None) -> None:
        """Take in what has come, once something has.

        Raises:
            TimeoutError: nothing has, until the deadline.
            BackendError: a worker is lost, and may not be started again.
        """
        with self._lock:
            while True:
                events = self._poller.poll(self._patience(deadline))
                if self.closed:  # by another thread, or a signal's handler
                    raise ClosedEnvironmentError("the environment was closed meanwhile")
                heard = {id(worker): worker for descriptor, _ in events if (worker := self._links.get(descriptor))}
                for worker in heard.values():
                    self._take_in(worker)
                self._show_words()
                now = time.monotonic()
                for worker in self._workers:
                    if worker.is_up() and (worker.torn or (worker.deadline is not None and now > worker.deadline)):
                        self._lose_worker(worker)
                        heard[id(worker)] = worker
                if heard or (self._due and min(self._due.values()) <= now):
                    return
                if deadline is not None and now >= deadline:
                    raise TimeoutError(f"{self._num_out} sub-environments have not answered yet; wait again")

    def _patience(self, deadline: float | None) -> float:
        """How long to wait at most, in milliseconds."""
        now = time.monotonic()
        until = now + LOOK
        if deadline is not None:
            until = min(until, deadline)
        for worker in self._workers:
            if worker.torn:
                return 0.0
            if worker.deadline is not None:
                until = min(until, worker.deadline)
        if self._due:
            until = min(until, *self._due.values())
        return max(0.0, math.ceil(1e3 * (until - now)))

    def _take_in(self, worker: Link) -> None:
        """Take in all that a worker has said; then, where that was its end, its loss."""
        if not worker.is_up():
            return
        try:
            ended = self._take_in_messages(worker)
        except BaseException as error:
            if not isinstance(error, VecwrapError):  # an interrupt: nobody knows how far it got
                worker.torn = True
            raise
        if ended:
            self._lose_worker(worker)

    def _take_in_messages(self, worker: Link) -> bool:
        """Whether the worker is gone."""
        gone = worker.process.exitcode is not None
        try:
            if worker.channel.unsent:
                worker.channel.flush()
                self._poller.modify(worker.channel.fileno(), select.POLLIN | select.POLLOUT * worker.channel.unsent)
            while (data := worker.channel.receive()) is not None:
                try:
                    message = decode(data)
                except Exception as error:
                    self._lose_worker(worker, f"sent what cannot be read here ({type(error).__name__}: {error})")
                    return False
                self._handle(worker, message)
                if not worker.is_up():
                    return False
        except (OSError, EOFError):
            return True
        return gone

    def _handle(self, worker: Link, message: tuple[Any, ...]) -> None:
        kind, *content = message
        expected = worker.answered()
        if kind == "rows":
            self._take_in_rows(worker, *content)
        elif kind == "values":
            values, failures = content
            self._values.update(values)
            self._value_failures.extend(failures)
        elif kind == "made":
            self._take_in_descriptions(worker, *content)
        elif kind == "remade":
            for failure in content[0]:
                self._not_made(failure)
        elif kind == "failed":
            self._take_in_failed_start(worker, *content)
        else:
            assert kind == "attached" == expected.kind, (kind, expected)

    def _take_in_rows(
        self, worker: Link, rows: list[int], stepped: list[int], payload: Any, failures: list[Failure]
    ) -> None:
        offset = self._offset(worker)
        if rows or stepped:
            self.slots.load(rows + stepped, payload, offset)
        self._arrived([offset + row for row in rows], failures)

    def _take_in_descriptions(self, worker: Link, descriptions: list[tuple[int, Description]]) -> None:
        worker.made = True
        if worker.restarts == 0 or not hasattr(self, "slots"):
            self._descriptions.update(descriptions)
            return
        refuse_unequal([(0, self._descriptions[0]), *descriptions])

    def _take_in_failed_start(self, worker: Link, failures: list[Failure]) -> None:
        reason = str(failures[0].error()).partition("\n")[0]
        worker.end()
        self._forget(worker)
        if self._lose(list(worker.env_ids), reason, made=False):
            return
        if hasattr(self, "slots"):
            self._broken = self._refused(failures[0]).error()
            raise self._broken
        self._start_failures.extend(map(self._refused, failures))

    # -- workers that are lost -----------------------------------------------------------------------------------------

    def _lose_worker(self, worker: Link, told: str | None = None) -> None:
        """End a worker that died, hangs or cannot be understood; its sub-environments are made anew, or it is an error.

        Raises:
            BackendError: the policy says so.
        """
        who, made, expected, overdue = str(worker), worker.made, list(worker.expected), worker.deadline
        late = overdue is not None and time.monotonic() > overdue and worker.process.exitcode is None
        how, said = worker.end()
        self._forget(worker)
        if told is not None:
            reason = f"{who} {told}, and was killed"
        elif worker.torn:
            reason = f"{who} was interrupted in the middle of an answer, and was killed"
        elif late:
            reason = f"{who} did not answer within {expected[0].limit}={expected[0].seconds:g} s, and was killed"
        else:
            reason = f"{who} died: {how}"

        def error(remedy: str) -> BackendError:
            return BackendError(
                f"{reason}{said}\n{remedy}",
                worker=worker.number,
                env_ids=tuple(worker.env_ids),
                exitcode=worker.process.exitcode,
            )

        if self._lose(list(worker.env_ids), reason, made=made):
            if any(one.kind == "values" for one in expected):
                self._unanswered = error(
                    "It is being started again, and the episodes of its sub-environments are lost; the call is not "
                    "repeated."
                )
            return
        if self._recovery is None:
            remedy = 'with on_failure="restart" that is done for you'
        else:
            remedy = f"it is not done for you, for {self._recovery.restarts.limit_in_words()} are used up"
        self._broken = error(f"close() still works; build the environment again to go on ({remedy}).")
        raise self._broken

    def _forget(self, worker: Link) -> None:
        """Poll a worker no more, and expect nothing of it."""
        for descriptor in [descriptor for descriptor, link in self._links.items() if link is worker]:
            del self._links[descriptor]
            self._poller.unregister(descriptor)
        worker.expected.clear()

    def _show_words(self) -> None:
        """Show, now and then, what workers write to stderr."""
        now = time.monotonic()
        if now - self._looked < LOOK / 2:
            return
        self._looked = now
        for worker in self._workers:
            if worker.is_up():
                worker.words.show()

    def _worker_health(self) -> tuple[WorkerHealth, ...]:
        return tuple(
            WorkerHealth(
                worker.number, worker.process.pid if worker.is_up() else None, tuple(worker.env_ids), worker.restarts
            )
            for worker in self._workers
        )

    def _refuse_closed(self, name: str) -> None:
        super()._refuse_closed(name)
        if os.getpid() != self._owner:
            raise BackendError(
                f"{name}: this environment was built in process {self._owner}, and its workers answer that process "
                f"alone; build one in this process ({os.getpid()})"
            )
        self._refuse_broken()

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    # -- the end -------------------------------------------------------------------------------------------------------

    def _stop(self, timeout: float, terminate: bool) -> None:
        if os.getpid() != self._owner:
            return  # a forked copy: the workers are its parent's
        locked = self._lock.acquire(timeout=max(2 * LOOK, min(timeout, 3600.0)))  # of a thread that waits for answers
        try:
            end_workers([one for one in self._workers if one.is_up()], encode(("close",)), timeout, terminate)
            self._workers = []
            self._links = {}
            self._poller = select.poll()
            if self._block is not None:
                self._block.close_descriptor()
                self._block = None
            if hasattr(self, "slots"):
                del self.slots  # the mapping goes with the last array over it
                self._latest = None
        finally:
            if locked:
                self._lock.release()


def _refuse_unsendable(method: str, arguments: Sequence[tuple[Any, ...]]) -> None:
    try:
        encode(arguments)
    except Exception as error:
        raise ArgumentError(f"{method}: the arguments cannot be sent to another process: {error}") from error


@atexit.register
def _close_all() -> None:
    for backend in list(_open_backends):
        backend.close(timeout=1.0 if backend.daemon else math.inf)
