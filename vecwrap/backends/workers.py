"""What backends share whose sub-environments live with workers: processes of ours, or the actors of a cluster.

How a worker is started, asked and heard is a backend's own affair; here is what follows for the sub-environments.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import cloudpickle
from gymnasium.error import NoAsyncCallError

from vecwrap.backends.base import Backend, Factory
from vecwrap.backends.cores import usable_cores
from vecwrap.backends.description import Description, refuse_unequal
from vecwrap.backends.filters import named
from vecwrap.backends.worker import WorkerInit, encode_for_worker
from vecwrap.batch import Batch
from vecwrap.contract import IntArray
from vecwrap.errors import ArgumentError, BackendError, PlanError, VecwrapError
from vecwrap.failure import Failure
from vecwrap.sub_env import Takeover

__all__ = ["AnyWorker", "WorkerBackend", "check_limits", "refuse_unsendable", "share_out"]


def share_out(
    num_envs: int, workers: int | None, envs_per_worker: int | None, parent_share: bool | None = False
) -> list[range]:
    """Say which sub-environments each worker holds: consecutive ones, shares that differ by one at most.

    Args:
        num_envs: n; need not divide evenly.
        workers: how many workers; None means as many as there are usable cores, n at most.
        envs_per_worker: how many sub-environments a worker, the last one fewer; instead of ``workers``.
        parent_share: whether the parent takes the last share; then there is one share more than ``workers``.

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
    count = min(workers + bool(parent_share) if workers else usable_cores(), num_envs)
    bounds = [-(-num_envs * k // count) for k in range(count + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def check_limits(limits: Mapping[str, float | None]) -> None:
    """Refuse limits of time that make no sense.

    Raises:
        PlanError: says which.
    """
    for name, seconds in limits.items():
        if seconds is not None and not seconds > 0:
            raise PlanError(f"{name}: expected seconds above 0, or None to wait for ever, got {seconds}")


def refuse_unsendable(what: str, value: Any) -> None:
    """Refuse what cannot be sent, before the first worker has been asked.

    Raises:
        ArgumentError: says what, and why.
    """
    try:
        encode_for_worker(value)
    except Exception as error:
        raise ArgumentError(f"{what} cannot be sent to another process: {error}") from error


class AnyWorker(Protocol):
    """One worker as its parent sees it; it outlives the process that it runs in.

    Attributes:
        number: its number.
        env_ids: the sub-environments that it holds.
        made: whether its sub-environments are made.
        torn: whether an interrupt has left in doubt what it answers; it is lost as soon as somebody waits.
    """

    number: int
    env_ids: range
    made: bool
    torn: bool

    def is_up(self) -> bool:
        """Whether there is a process, as far as is known."""

    def owes(self) -> list[str]:
        """The kinds of answers that it owes, in order."""


_Worker = TypeVar("_Worker", bound=AnyWorker)


class WorkerBackend(Backend, Generic[_Worker]):
    """A backend whose sub-environments live with workers, and are lost with them.

    A backend of this kind adds, to what every backend adds, how it hears its workers (``_pump``), loses one
    (``_lose_worker``), ends one (``_end_worker``) and expects nothing more of it (``_forget``).
    """

    noun: ClassVar[str] = "worker"
    """What a worker is called."""

    _owner: int  # the process that built it
    _factories: Sequence[Factory]
    _workers: list[_Worker]
    _owner_of: list[int]  # the number of the worker of each sub-environment
    _shares: list[range]
    _descriptions: dict[int, Description]
    _start_failures: list[Failure]
    _attaching: bool  # whether there are slots, for workers that start from now on
    _broken: VecwrapError | None  # what every further call raises
    _torn: bool  # whether any worker is torn
    _asks: int = 0  # how often ``_ask`` was called; what answers an earlier call, which was interrupted, is dropped
    _value_failures: list[Failure]
    _unanswered: VecwrapError | None  # a call that a worker died in

    # -- what a backend adds -------------------------------------------------------------------------------------------

    @abstractmethod
    def _pump(self, deadline: float | None) -> None:
        """Take in what has come, once something has.

        Raises:
            TimeoutError: nothing has, until the deadline.
            BackendError: a worker is lost, and may not be started again.
        """

    @abstractmethod
    def _lose_worker(self, worker: _Worker) -> None:
        """End a worker that died, hangs or is torn; its sub-environments are made anew, or it is an error.

        Raises:
            BackendError: the policy says so.
        """

    @abstractmethod
    def _end_worker(self, worker: _Worker) -> None:
        """End a worker, whatever it does."""

    @abstractmethod
    def _forget(self, worker: _Worker) -> None:
        """Expect nothing of a worker that was ended."""

    # -- start ---------------------------------------------------------------------------------------------------------

    def _init_of(
        self,
        worker: _Worker,
        takeovers: Mapping[int, Takeover] | None,
        *,
        shared: bool = False,
        each: bool = False,
        spins: bool = False,
    ) -> bytes:
        """Say what a worker is to make; see ``WorkerInit``."""
        share = worker.env_ids
        init = WorkerInit(
            env_ids=tuple(share),
            num_envs=self.num_envs,
            factories=[self._factories[i] for i in share],
            takeovers=None if takeovers is None else [takeovers[i] for i in share],
            autoreset=self.autoreset,
            debug=self.debug,
            shared=shared,
            each=each,
            number=worker.number,
            num_workers=self.workers,
            largest_share=max(map(len, self._shares)),
            spins=spins,
            filters=named(warnings.filters),
            log_level=logging.getLogger().level,
        )
        try:
            data: bytes = cloudpickle.dumps(init)
        except Exception as error:
            raise PlanError(
                f"the environments of sub-environments {share[0]} to {share[-1]} cannot be sent to their {self.noun}: "
                f'{error}; make what cannot be sent inside the factory, or use backend="dummy"'
            ) from error
        return data

    def _await_made(self) -> None:
        """Wait until all sub-environments are made, or one could not be, and those before it are made."""
        patience = math.inf
        while not all(worker.made for worker in self._workers):
            failed = min((failure.index for failure in self._start_failures), default=None)
            if failed is not None:
                patience = min(patience, time.monotonic() + 1.0)
                before = [
                    worker for worker in self._workers if worker.env_ids[0] < failed and self._may_be_made(worker)
                ]
                if not before or time.monotonic() > patience:
                    raise min(self._start_failures, key=lambda failure: failure.index).error()
            self._make_due_anew()
            with contextlib.suppress(TimeoutError):
                self._pump(None if failed is None else patience)

    def _may_be_made(self, worker: _Worker) -> bool:
        """Whether a worker's sub-environments are being made, or will be."""
        return "made" in worker.owes() or worker.env_ids[0] in self._due

    def _take_in_descriptions(self, worker: _Worker, descriptions: list[tuple[int, Description]]) -> None:
        worker.made = True
        if not self._attaching:
            self._descriptions.update(descriptions)
            return
        try:
            refuse_unequal([(0, self._descriptions[0]), *descriptions])
        except BackendError as error:  # the slots are of other spaces, and it must not write into them
            self._end_worker(worker)
            self._forget(worker)
            self._broken = error
            raise

    def _take_in_failed_start(self, worker: _Worker, failures: list[Failure]) -> None:
        reason = str(failures[0].error()).partition("\n")[0]
        owed = worker.owes()
        self._forget(worker)
        if self._lose(list(worker.env_ids), reason, made=False):
            self._leave_unanswered(worker, owed, reason)
            return
        if self._attaching:
            self._broken = self._refused(failures[0]).error()
            raise self._broken
        self._start_failures.extend(map(self._refused, failures))

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _send(self, actions: Batch, env_ids: IntArray) -> None:
        self._interrupts.hold()  # until all is sent
        super()._send(actions, env_ids)

    def _send_reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        if options is not None:
            refuse_unsendable("reset: the options", options)
        super()._send_reset(env_ids, seeds, options)

    def _not_sent(self, env_ids: IntArray, error: BaseException) -> None:
        super()._not_sent(env_ids, error)
        if not isinstance(error, Exception) and any(worker.owes() for worker in self._workers):
            self._broken = BackendError(
                f"{type(error).__name__} came while actions were being sent, so what the {self.noun}s answer can no "
                "longer be told apart; close() still works, build the environment again to go on"
            )

    def _by_worker(self, env_ids: Sequence[int] | IntArray) -> list[tuple[_Worker, list[int]]]:
        """Group indices by the worker that holds them, in their order."""
        if env_ids is self.all_ids:
            return [(worker, list(worker.env_ids)) for worker in self._workers]
        groups: dict[int, list[int]] = {}
        for i in map(int, env_ids):
            groups.setdefault(self._owner_of[i], []).append(i)
        return [(self._workers[number], ids) for number, ids in groups.items() if number < self.workers]

    def _refuse_to_wait_for_nobody(self) -> None:
        """Raise where no worker owes anything, and nothing is to be made anew.

        Raises:
            BackendError: rows are out all the same.
            NoAsyncCallError: none is; another thread has taken them meanwhile.
        """
        if self._due or any(worker.owes() for worker in self._workers):
            return
        if self._out:
            raise self._never_home()
        raise NoAsyncCallError("What this thread waits for was taken by another thread.", str(self._pending))

    def _pump_until(self, done: Callable[[], bool], deadline: float | None = None) -> None:
        while not done():
            self._refuse_broken()
            self._interrupts.let_through()
            self._make_due_anew()
            self._pump(deadline)

    def _answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        self._pump_until(lambda: not any("values" in worker.owes() for worker in self._workers), deadline)
        self._interrupts.let_through()
        if self._unanswered is not None:
            raise self._unanswered
        return self._values, self._value_failures

    # -- workers that are lost -----------------------------------------------------------------------------------------

    def _make_due_anew(self) -> float | None:
        """Lose the workers that are torn, before anything is heard of them or asked; then as every backend."""
        if self._torn:
            for worker in self._workers:
                if worker.torn:
                    self._lose_worker(worker)
            self._torn = False
        return super()._make_due_anew()

    def _take_back(self, env_ids: Iterable[int]) -> None:
        for worker in {self._owner_of[i]: self._workers[self._owner_of[i]] for i in env_ids}.values():
            if worker.is_up():
                worker.torn = self._torn = True

    def _book_loss(self, worker: _Worker, reason: str, said: str, owed: Sequence[str], **facts: Any) -> None:
        """Let the sub-environments of a worker that has ended be made anew, or say that they are not.

        Args:
            worker: which.
            reason: which it was and what became of it, in words.
            said: what is known besides, from its own line on, or "".
            owed: what it owed.
            facts: further arguments of the error.

        Raises:
            BackendError: the policy does not have them made anew.
        """

        def error(remedy: str) -> BackendError:
            return BackendError(
                f"{reason}{said}\n{remedy}", worker=worker.number, env_ids=tuple(worker.env_ids), **facts
            )

        if hasattr(self, "slots"):
            for i in worker.env_ids:
                self.slots.leave_cells(i)
        if self._lose(list(worker.env_ids), reason, made=worker.made):
            self._leave_unanswered(worker, owed, f"{reason}{said}", **facts)
            return
        if self._recovery is None:
            remedy = 'with on_failure="restart" that is done for you'
        else:
            remedy = f"it is not done for you, for {self._recovery.restarts.limit_in_words()} are used up"
        self._broken = error(f"close() still works; build the environment again to go on ({remedy}).")
        raise self._broken

    def _leave_unanswered(self, worker: _Worker, owed: Sequence[str], said: str, **facts: Any) -> None:
        """Have a call fail that a worker owed an answer of when it was lost."""
        if "values" in owed:
            self._unanswered = BackendError(
                f"{said}\nIt is being started again, and the episodes of its sub-environments are lost; the call is "
                "not repeated.",
                worker=worker.number,
                env_ids=tuple(worker.env_ids),
                **facts,
            )

    # -- what may be called when ---------------------------------------------------------------------------------------

    def _refuse_closed(self, name: str) -> None:
        if not self.closed and self._broken is None and os.getpid() == self._owner:
            return
        super()._refuse_closed(name)
        if os.getpid() != self._owner:
            raise BackendError(
                f"{name}: this environment was built in process {self._owner}, and its {self.noun}s answer that "
                f"process alone; build one in this process ({os.getpid()})"
            )
        self._refuse_broken()

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            raise self._broken
