"""The parent's side of worker processes: what subprocess and shmem share."""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import signal
import time
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import wait
from typing import Any, ClassVar

import cloudpickle
import numpy as np
from gymnasium.vector import AutoresetMode

from vecwrap.backends.base import Backend, Description, Factory, refuse_unequal
from vecwrap.backends.cores import usable_cores
from vecwrap.backends.launch import WorkerProcess, check_start_method, kill, start_worker
from vecwrap.backends.memory import SharedBlock
from vecwrap.backends.worker import WorkerInit, decode, encode
from vecwrap.batch import Batch
from vecwrap.contract import Autoreset, Frames, IntArray
from vecwrap.errors import ArgumentError, BackendError, PlanError
from vecwrap.slots import Arena, Slots
from vecwrap.sub_env import Failure

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


@dataclass
class _Worker:
    number: int
    env_ids: range
    process: WorkerProcess
    connection: Any
    awaited: int = field(default=0)  # answers that are still to come

    def __str__(self) -> str:
        ids = f"{self.env_ids[0]}-{self.env_ids[-1]}" if len(self.env_ids) > 1 else f"{self.env_ids[0]}"
        return f"worker {self.number} (pid {self.process.pid}, sub-environments {ids})"


class ProcessBackend(Backend):
    """Sub-environments in worker processes; each worker holds several.

    Args:
        factories: one callable for each sub-environment; they travel by value (cloudpickle).
        workers: how many workers; None means as many as there are usable cores.
        envs_per_worker: how many sub-environments a worker, instead of ``workers``.
        start_method: None (a fresh interpreter), ``"spawn"``, ``"forkserver"`` or ``"fork"``.
        daemon: at the interpreter's exit, True ends workers that need over a second to close; False waits for them.
        autoreset, copy, batch_size, start_index, seed, debug: as every backend.
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
        autoreset: Autoreset | AutoresetMode | str = Autoreset.SAME_STEP,
        copy: bool = True,
        batch_size: int | None = None,
        start_index: int = 0,
        seed: int | None = None,
        debug: bool = False,
    ) -> None:
        self.closed = True
        self._shares = share_out(len(factories), workers, envs_per_worker) if factories else []
        self.start_method = check_start_method(start_method)
        self.daemon = daemon
        self._workers: list[_Worker] = []
        self._broken: BackendError | None = None
        self._owner = os.getpid()
        super().__init__(
            factories,
            autoreset=autoreset,
            copy=copy,
            batch_size=batch_size,
            start_index=start_index,
            seed=seed,
            debug=debug,
        )
        _open_backends.add(self)

    # -- start ---------------------------------------------------------------------------------------------------------

    def _start(self, factories: Sequence[Factory]) -> Description:
        self.workers = len(self._shares)
        inits = [self._init_of(share, factories) for share in self._shares]
        for number, share in enumerate(self._shares):
            process, connection = start_worker(self.start_method, daemon=self.daemon)
            self._workers.append(_Worker(number, share, process, connection))
        for worker, init in zip(self._workers, inits, strict=True):
            self._send_bytes(worker, init)
        descriptions: list[tuple[int, Description]] = []
        failures: list[Failure] = []
        for worker in self._workers:
            kind, content = self._receive_from(worker)
            (failures if kind == "failed" else descriptions).extend(content)
        if failures:
            raise failures[0].error()
        refuse_unequal(descriptions)
        first = descriptions[0][1]
        self._allocate(first)
        self._owner_of = np.concatenate([[w.number] * len(w.env_ids) for w in self._workers]).tolist()
        return first

    def _init_of(self, share: range, factories: Sequence[Factory]) -> bytes:
        init = WorkerInit(
            env_ids=tuple(share),
            num_envs=self.num_envs,
            factories=[factories[i] for i in share],
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

    def _allocate(self, first: Description) -> None:
        """Make the slots: in memory of this process alone, or shared with the workers."""
        if not self.shared:
            self.slots = Slots(self.num_envs, first.observation_space, first.action_space)
            return
        arena = Arena()
        Slots(self.num_envs, first.observation_space, first.action_space, allocate=arena, shared=True)
        block = SharedBlock.create(arena.num_bytes)
        try:
            for worker in self._workers:
                block.send(worker.connection, worker.process.pid)
            for worker in self._workers:
                self._receive_from(worker)
        finally:
            block.close_descriptor()
        self.slots = Slots(
            self.num_envs,
            first.observation_space,
            first.action_space,
            allocate=Arena(block.buffer),
            shared=True,
        )

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _send_rows(self, actions: Batch, env_ids: IntArray) -> None:
        self._refuse_broken()
        self.slots.actions.fill(env_ids, actions)
        for worker, ids in self._by_worker(env_ids):
            rows = None if len(ids) == len(worker.env_ids) else [i - self._offset(worker) for i in ids]
            self._send_message(worker, ("step", rows, self.slots.actions.export(ids)), self._answers_for(ids))

    def _reset_rows(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        self._refuse_broken()
        seed_of = dict(zip(env_ids.tolist(), seeds, strict=True))
        for worker, ids in self._by_worker(env_ids):
            rows = [i - self._offset(worker) for i in ids]
            self._send_message(worker, ("reset", rows, [seed_of[i] for i in ids], options), self._answers_for(ids))

    def _tell_frames(self, wanted: Sequence[Frames]) -> None:
        self._refuse_broken()
        for worker in self._workers:
            self._send_message(worker, ("frames", [wanted[i] for i in worker.env_ids]), 0)

    def _poll(self, deadline: float | None) -> None:
        self._refuse_broken()
        waiting = [worker for worker in self._workers if worker.awaited]
        assert waiting, "rows are out, so somebody must answer"
        if self.batch_size is None:  # all are needed, so the order does not matter
            self._take_in(waiting[0], deadline)
            return
        by_connection = {worker.connection: worker for worker in waiting}
        remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = wait(list(by_connection), remaining)
        if not ready:
            raise TimeoutError(f"{self._num_out} sub-environments have not answered yet; wait again")
        for connection in ready:
            self._take_in(by_connection[connection], None)

    def _take_in(self, worker: _Worker, deadline: float | None) -> None:
        _, rows, payload, failures = self._receive_from(worker, deadline)
        worker.awaited -= 1
        offset = self._offset(worker)
        if rows:
            self.slots.load(rows, payload, offset)
        self._arrived([offset + row for row in rows], failures)

    def _by_worker(self, env_ids: Sequence[int] | IntArray) -> list[tuple[_Worker, list[int]]]:
        """Group indices by the worker that holds them, in their order."""
        if env_ids is self.all_ids:
            return [(worker, list(worker.env_ids)) for worker in self._workers]
        groups: dict[int, list[int]] = {}
        for i in map(int, env_ids):
            groups.setdefault(self._owner_of[i], []).append(i)
        return [(self._workers[number], ids) for number, ids in groups.items()]

    def _offset(self, worker: _Worker) -> int:
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
        for worker, ids in groups:
            rows = [i - self._offset(worker) for i in ids]
            self._send_message(worker, ("ask", method, rows, [arguments_of[i] for i in ids]), 1)
        self._values: dict[int, Any] = {}
        self._value_failures: list[Failure] = []

    def _answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        for worker in self._workers:
            if worker.awaited:
                _, values, failures = self._receive_from(worker, deadline)
                worker.awaited -= 1
                self._values.update(values)
                self._value_failures.extend(failures)
        return self._values, self._value_failures

    # -- talking to one worker -----------------------------------------------------------------------------------------

    def _send_message(self, worker: _Worker, message: tuple[Any, ...], answers: int) -> None:
        self._send_bytes(worker, encode(message))
        worker.awaited += answers

    def _send_bytes(self, worker: _Worker, data: bytes) -> None:
        try:
            worker.connection.send_bytes(data)
        except (OSError, ValueError) as error:
            raise self._died(worker) from error

    def _receive_from(self, worker: _Worker, deadline: float | None = None) -> Any:
        try:
            if deadline is not None and not worker.connection.poll(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"{worker} has not answered yet; wait again")
            return decode(worker.connection.recv_bytes())
        except (EOFError, ConnectionError) as error:
            raise self._died(worker) from error

    def _died(self, worker: _Worker) -> BackendError:
        worker.process.join(1.0)
        code = worker.process.exitcode
        self._broken = BackendError(
            f"{worker} died: {_in_words(code)}. close() still works; build the environment again to go on",
            worker=worker.number,
            env_ids=tuple(worker.env_ids),
            exitcode=code,
        )
        return self._broken

    def _refuse_closed(self, name: str) -> None:
        super()._refuse_closed(name)
        self._refuse_broken()

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    # -- the end -------------------------------------------------------------------------------------------------------

    def _stop(self, timeout: float, terminate: bool) -> None:
        if os.getpid() != self._owner:
            return  # a forked copy: the workers are its parent's
        deadline = time.monotonic() + timeout
        if not terminate:
            for worker in self._workers:
                with contextlib.suppress(OSError, ValueError):
                    worker.connection.send_bytes(encode(("close",)))
            for worker in self._workers:
                _drain(worker.connection, deadline)
                worker.process.join(max(0.0, min(deadline - time.monotonic(), 3600.0)))
        for worker in self._workers:
            if worker.process.exitcode is None:
                kill(worker.process, signal.SIGTERM)
        for worker in self._workers:
            worker.connection.close()
            if not worker.process.join(0.2 if terminate else 1.0):
                kill(worker.process, signal.SIGKILL)
                worker.process.join(5.0)
            kill(worker.process, signal.SIGKILL)  # what its environments left running
        self._workers = []
        if hasattr(self, "slots"):
            del self.slots  # the mapping goes with the last array over it
            self._latest = None


def _refuse_unsendable(method: str, arguments: Sequence[tuple[Any, ...]]) -> None:
    try:
        encode(arguments)
    except Exception as error:
        raise ArgumentError(f"{method}: the arguments cannot be sent to another process: {error}") from error


def _drain(connection: Any, deadline: float) -> None:
    """Read and throw away what a worker still says, until it has hung up or the time is over."""
    with contextlib.suppress(EOFError, OSError):
        while connection.poll(max(0.0, min(deadline - time.monotonic(), 3600.0))):
            connection.recv_bytes()


def _in_words(code: int | None) -> str:
    if code is None:
        return "it hung up without ending"
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"killed by {name}" + (", often the out-of-memory killer" if name == "SIGKILL" else "")


@atexit.register
def _close_all() -> None:
    for backend in list(_open_backends):
        backend.close(timeout=1.0 if backend.daemon else math.inf)
