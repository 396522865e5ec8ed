"""The parent's side of worker processes: what subprocess and shmem share."""

from __future__ import annotations

import contextlib
import math
import select
import threading
import time
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, ClassVar

from vecwrap.backends.local import LocalRows
from vecwrap.backends.workers.cores import usable_cores
from vecwrap.backends.workers.messages import decode, encode
from vecwrap.backends.workers.options import ProcessOptions, check_start_method
from vecwrap.backends.workers.pool import PendingReply, WorkerPool
from vecwrap.backends.workers.shares import rows_of, share_out, sources_per_worker
from vecwrap.backends.workers.step_ring import (
    ORDERED,
    SharedBlock,
    Spinner,
    StepRing,
    allocate_shared,
)
from vecwrap.backends.workers.worker_handle import WorkerHandle, end_workers, other_cores_first
from vecwrap.env.arrivals import Arrival, RowResults
from vecwrap.env.runner import POLL_SECONDS, Context, Runner
from vecwrap.errors import BackendError
from vecwrap.rows.batch import Batch
from vecwrap.rows.columns import Arena
from vecwrap.rows.step_result import Frames, IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.failure import Failure
from vecwrap.sources.source import RestartState
from vecwrap.sources.source_factories import Factory, num_rows_of

CHECK_INTERVAL_SECONDS = 0.02
"""Time between checks of pipes and deaths, while all replies arrive in shared memory."""


class Processes(WorkerPool[WorkerHandle], Runner):
    """Sub-environments in worker processes; each worker holds several."""

    Options: ClassVar[type[ProcessOptions]] = ProcessOptions
    shared: ClassVar[bool] = False
    workers_are_local: ClassVar[bool] = True
    options: ProcessOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.start_method = check_start_method(self.options.start_method)
        self.at_exit = (1.0 if self.options.daemon else math.inf), False
        # whether no derived class has its own methods
        as_here = type(self).send is Processes.send and type(self).poll is Processes.poll
        self._limited = any(self._limits.values())
        self.has_fast_path = self.shared and ORDERED and as_here and not self._limited
        self._by_descriptor: dict[int, WorkerHandle] = {}
        self._block: SharedBlock | None = None
        self._by_ring = False  # whether steps are requested through shared memory
        self._rings: list[StepRing] = []
        self.local_rows: LocalRows | None = None
        self._lock = threading.RLock()
        self._poller = select.poll()
        self._checked_at = 0.0

    # -- start -------------------------------------------------------------------------------------

    def begin(self, context: Context, factories: Sequence[Factory]) -> Sequence[Arrival]:
        self.context = context
        self._factories = list(factories)
        options = self.options
        options.isolating(restart=context.restarts, batch_size=context.batch_size)
        num_rows = num_rows_of(factories)
        sources_each = sources_per_worker(options.envs_per_worker, num_rows)
        source_shares = share_out(
            len(factories), options.workers, sources_each, options.parent_share
        )
        self._shares = [rows_of(share, num_rows) for share in source_shares]
        self.parent_share = bool(options.parent_share) and len(self._shares) > 1
        self._owner_of = [number for number, share in enumerate(self._shares) for _ in share]
        self._step_reply = self._reply("rows", "step_timeout")
        self.workers = len(self._shares) - self.parent_share
        self._workers = [WorkerHandle(i, self._shares[i]) for i in range(self.workers)]
        self._spinner = Spinner(ORDERED, crowded=self.workers >= usable_cores())
        inits = [self._init_of_worker(worker, None) for worker in self._workers]
        for worker in self._workers:
            self._launch(worker)
        for worker, init in zip(self._workers, inits, strict=True):
            self._initiate(worker, init)
        if self.parent_share:
            local_factories = self._factories[source_shares[-1].start :]
            self.local_rows = LocalRows(self._shares[-1], local_factories, context.interrupts)
            self._arrivals.append(self.local_rows.make(context))
        return self._pop_arrivals()

    def allocate(self, description: EnvDescription) -> Slots:
        self._joint = description
        self._allocate(description)
        if self.local_rows is not None:
            self.local_rows.attach(self.slots)
        for worker in self._workers:
            self._attach(worker)
        return self.slots

    def is_starting(self) -> bool:
        return self._is_anything_awaited()

    def _init_of_worker(
        self, worker: WorkerHandle, restart_states: dict[int, RestartState] | None
    ) -> bytes:
        cores = usable_cores()
        spins = worker.number < cores - 1 and self.workers <= cores
        return self._init_of(
            worker,
            restart_states,
            shared=self.shared,
            each=self.context.batch_size is not None,
            spins=spins,
        )

    def _launch(self, worker: WorkerHandle) -> None:
        """Start a worker's process; one that cannot be started once more is lost again."""
        try:
            worker.start(self.start_method, daemon=self.options.daemon)
        except BackendError as error:
            if not worker.made_once:
                raise
            self._report_loss(worker, str(error))
            return
        for descriptor in (worker.channel.fileno(), worker.pidfd):
            if descriptor >= 0:
                self._listen(worker, descriptor)

    def _listen(self, worker: WorkerHandle, descriptor: int) -> None:
        self._by_descriptor[descriptor] = worker
        self._poller.register(descriptor, select.POLLIN)

    def _initiate(self, worker: WorkerHandle, init: bytes) -> None:
        self._send_bytes(worker, init, [self._reply("made", "start_timeout")])

    def _attach(self, worker: WorkerHandle) -> None:
        worker.messages = 0
        if worker.ring is not None:
            worker.ring.restart()
        self._send_bytes(worker, encode(("attach",)), [self._reply("attached", "start_timeout")])
        if self._block is None or not worker.is_up():
            return
        descriptors = [self._block.descriptor]
        if worker.ring is not None:
            descriptors += [worker.ring.request_bell.read_end, worker.ring.reply_bell.write_end]
            self._listen(worker, worker.ring.reply_bell.read_end)
        with contextlib.suppress(OSError):
            for descriptor in descriptors:
                worker.channel.send_descriptor(descriptor)

    def _allocate(self, description: EnvDescription) -> None:
        form = self.context.num_rows, description.observation_space, description.action_space
        first_local = self.context.num_rows
        if self.parent_share:
            first_local = self._shares[-1][0]
        if not self.shared:
            self.slots = Slots(*form, first_row=first_local)
            return
        largest = max(map(len, self._shares))
        arena = Arena()
        allocate_shared(*form, self.workers, largest, arena)
        self._block = SharedBlock.create(arena.num_bytes)
        arena = Arena(self._block.buffer)
        self.slots, ring_memories = allocate_shared(
            *form, self.workers, largest, arena, first_row=first_local
        )
        self._by_ring = not self.slots.actions.needs_pipe
        if not self._by_ring:
            self.has_fast_path = False
            return
        for worker in self._workers:
            try:
                worker.ring = StepRing(ring_memories[worker.number], worker.env_ids)
            except OSError as error:
                raise BackendError(
                    f"shmem: a worker's bells could not be created ({error}); use fewer workers, "
                    'or backend="subprocess"'
                ) from error
            self._rings.append(worker.ring)

    # -- rows --------------------------------------------------------------------------------------

    def send(self, rows: IntArray) -> None:
        if not self._by_ring:
            super().send(rows)
            if self.local_rows is not None:
                self.local_rows.step(self._local_among(rows))
            return
        is_whole = len(rows) == self.context.num_rows and self.context.batch_size is None
        with self._lock:
            for worker, ids in other_cores_first(self._by_worker(rows)):
                self._requested.add(ids)
                own = None
                if not is_whole:
                    own = ids
                worker.request_steps(own, self._step_reply)
            if self.local_rows is not None:
                local: Sequence[int] = self._shares[-1]
                if not is_whole:
                    local = self._local_among(rows)
                self.local_rows.step(local)

    def cancel(self, rows: Collection[int]) -> Collection[int]:
        if self.local_rows is not None:
            self.local_rows.cancel(rows)
        return super().cancel(rows)

    def step_all(self, actions: Batch) -> bool:
        """Step all rows; return False if results arrive through ``poll``.

        That is so if the step takes long, a reply is a message, or a row has failed.
        """
        self.slots.actions.fill(slice(None), actions)
        num_arrivals = len(self._arrivals)
        is_done = False
        with self._lock:
            try:
                for worker, _ in other_cores_first([(worker, None) for worker in self._workers]):
                    worker.request_steps(None, self._step_reply)
                is_done = (
                    (self.local_rows is None or self._step_local_rows(self.local_rows))
                    # otherwise `poll` looks at stderr and deaths
                    and time.monotonic() - self._checked_at <= CHECK_INTERVAL_SECONDS
                    and self._spinner.spin(self._rings, self.context.interrupts.is_pending)
                    and self._take_all()
                )
            finally:
                if not is_done:
                    self._note_requested()
            if is_done:
                del self._arrivals[num_arrivals:]
        return is_done

    def _step_local_rows(self, local_rows: LocalRows) -> bool:
        """Step the rows of this process; return whether all are done."""
        local_rows.step(self._shares[-1])
        arrivals = local_rows.run()
        self._arrivals += arrivals
        return not local_rows and not any(
            isinstance(results, RowResults) and results.failures for results in arrivals
        )

    def _take_all(self) -> bool:
        """Take all replies, which are there; return False if some are messages, not rows."""
        is_whole = True
        taken: dict[WorkerHandle, Sequence[int]] = {}
        for worker, ring in zip(self._workers, self._rings, strict=True):
            try:
                rows, replies = ring.take()
            except LookupError as error:
                self._lose_worker(worker, f"has written what cannot be read here ({error})")
                is_whole = False
                continue
            is_whole = is_whole and replies == 1
            if replies:
                worker.answered(replies)
                self.slots.load_shared(rows)
                taken[worker] = rows
        if not is_whole:
            for rows in taken.values():
                self._take_results(rows)
        return is_whole

    def _note_requested(self) -> None:
        """After requests along the fast path, note the rows that workers have not returned."""
        for worker in self._workers:
            if "rows" in worker.awaiting():
                self._requested.add(worker.env_ids)

    def is_busy(self) -> bool:
        return bool(self.local_rows) or bool(self._requested)

    def _local_among(self, rows: Sequence[int] | IntArray) -> list[int]:
        return [i for i in map(int, rows) if i >= self._shares[-1][0]]

    def reset(
        self, rows: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        super().reset(rows, seeds, options)
        if self.local_rows is not None and (local := self._local_among(rows)):
            seed_of = dict(zip(rows.tolist(), seeds, strict=True))
            self.local_rows.reset(local, [seed_of[i] for i in local], options)

    def set_frames(self, wanted: Sequence[Frames]) -> None:
        if self.local_rows is not None:
            self.local_rows.set_frames(wanted)
        with self._lock:
            for worker in self._workers:
                if worker.is_up():  # a restarted worker gets them with its states
                    frames = [wanted[i] for i in worker.env_ids]
                    self._send_bytes(worker, encode(("frames", frames)))

    def recreate(self, restart_states: dict[int, RestartState]) -> Sequence[Failure]:
        with self._lock:
            return super().recreate(restart_states)

    def _restart_worker(
        self, worker: WorkerHandle, restart_states: dict[int, RestartState]
    ) -> None:
        init = self._init_of_worker(worker, restart_states)
        self._launch(worker)
        self._initiate(worker, init)
        if self._joint is not None and worker.is_up():
            self._attach(worker)

    def poll(self, until: float, *, return_early: bool) -> Sequence[Arrival]:
        if self.local_rows and not self._arrivals:
            self._arrivals += self.context.timing.run(
                "parent_share", partial(self.local_rows.run, one=return_early)
            )
            with self._lock:
                self._receive_from_rings()  # workers have stepped meanwhile
        if not self._arrivals:
            self._wait(until)
        return self._pop_arrivals()

    def notice_losses(self, rows: IntArray) -> Sequence[Arrival]:
        with self._lock:
            self._check_workers(0.0)
        return self._pop_arrivals()

    def _offset(self, worker: WorkerHandle) -> int:
        # shared slots have one numbering
        if self.shared:
            return 0
        return worker.env_ids[0]

    def call(
        self, number: int, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> None:
        super().call(number, method, rows, arguments)
        if self.local_rows is not None:
            local = self._local_among(rows)
            arguments_of = dict(zip(rows, arguments, strict=True))
            self.local_rows.call(number, method, local, [arguments_of[i] for i in local])

    # -- talking to the workers --------------------------------------------------------------------

    def _send_all(
        self,
        messages: Sequence[tuple[WorkerHandle, tuple[Any, ...]]],
        reply: PendingReply,
        what: str = "",
    ) -> None:
        with self._lock:
            super()._send_all(messages, reply, what)

    def _num_replies(self, worker: WorkerHandle, message: tuple[Any, ...]) -> int:
        kind, rows, *_ = message
        if kind not in ("step", "reset") or self.context.batch_size is None:
            return 1
        # one per row, so that ``recv`` can return some of them
        return len(worker.env_ids if rows is None else rows)

    def _send_bytes(
        self, worker: WorkerHandle, data: bytes, replies: Sequence[PendingReply] = ()
    ) -> None:
        if not worker.is_up():  # it was lost a moment ago, which `poll` is about to return
            self._requested.discard(worker.env_ids)
            return
        try:
            worker.send(data, replies)
        except OSError:
            self._lose_worker(worker)
            return
        if worker.channel.unsent:
            self._poller.modify(worker.channel.fileno(), select.POLLIN | select.POLLOUT)

    def _wait(self, until: float) -> None:
        """Wait until something arrives, or until then; return at once if nothing will."""
        with self._lock:
            self._receive_from_rings()
            while not self._arrivals and self._is_anything_awaited():
                self.context.interrupts.let_through()
                if ORDERED and any(
                    worker.ring is not None and worker.ring.is_awaiting for worker in self._workers
                ):
                    self._spinner.wait(self._receive, lambda: self._sleep(until))
                else:
                    self._sleep(until)
                if time.monotonic() >= until:
                    return

    def _receive_from_rings(self) -> None:
        """Receive from shared memory; check for deaths and stderr output now and then."""
        if (
            self._by_ring
            and ORDERED
            and self._receive()
            and time.monotonic() - self._checked_at > CHECK_INTERVAL_SECONDS
        ):
            self._check_workers(0.0)

    def _receive(self) -> bool:
        """Receive from shared memory; whether anything has arrived."""
        received = False
        for worker in self._workers:
            if worker.ring is not None and worker.ring.has_answers():
                self._receive_from(worker)
                received = True
        return received

    def _sleep(self, until: float) -> bool:
        return self._check_workers(self._poll_milliseconds(until)) or time.monotonic() >= until

    def _check_workers(self, milliseconds: float) -> bool:
        """Wait for the descriptors and receive from them; return whether anything arrived."""
        began = time.monotonic()
        events = self._poller.poll(milliseconds)
        self._extend_deadlines(time.monotonic() - began - milliseconds / 1e3)
        received = [
            (worker, descriptor)
            for descriptor, _ in events
            if (worker := self._by_descriptor.get(descriptor))
        ]
        for worker, descriptor in received:
            self._receive_from(worker, descriptor)
            if self._limited:
                worker.note_bytes()
        now = time.monotonic()
        if now - self._checked_at > CHECK_INTERVAL_SECONDS:
            self._checked_at = now
            for worker in self._workers:
                if worker.is_up():
                    worker.stderr_tail.flush()
        overdue: list[WorkerHandle] = []
        if self._limited:
            overdue = [one for one in self._workers if one.is_up() and now > one.deadline]
        for worker in overdue:
            self._lose_worker(worker)
        return bool(received or overdue)

    def _poll_milliseconds(self, until: float) -> float:
        if self._limited:
            until = min(until, *(worker.deadline for worker in self._workers))
        return max(0.0, math.ceil(1e3 * (until - time.monotonic())))

    def _receive_from(self, worker: WorkerHandle, descriptor: int = -1) -> None:
        """Receive all that a worker has sent; end the worker if it has hung up.

        ``descriptor`` is the one that reported data (-1: shared memory).
        """
        if not worker.is_up():
            return
        self.context.interrupts.hold()  # until the next wait
        ended = descriptor >= 0 and descriptor == worker.pidfd
        ring = worker.ring
        if ring is not None and descriptor >= 0:
            ring.clear_doorbell()
        if ring is not None and ring.has_answers():
            # a message was sent before the rows
            if worker.expected and worker.expected[0].kind != "rows":
                ended = self._receive_messages(worker) or ended
            if worker.is_up() and not self._take_from_ring(worker, ring):
                return
        # else there are only rows
        if ring is None or ring.by_pipe or descriptor not in (-1, ring.reply_bell.read_end):
            ended = self._receive_messages(worker) or ended
        if ended and worker.is_up():
            self._lose_worker(worker)

    def _take_from_ring(self, worker: WorkerHandle, ring: StepRing) -> bool:
        """Process the rows that are done in shared memory; return False if the worker is lost.

        A worker that has written an invalid count is lost.
        """
        try:
            rows, replies = ring.take()
            if replies:
                worker.answered(replies)
        except LookupError as error:
            self._lose_worker(worker, f"has written what cannot be read here ({error})")
            return False
        if replies:
            self.slots.load_shared(rows)
            self._take_results(rows)
        return True

    def _receive_messages(self, worker: WorkerHandle) -> bool:
        if not worker.is_up():
            return False
        try:
            if worker.channel.unsent:
                worker.channel.flush()
                self._poller.modify(
                    worker.channel.fileno(), select.POLLIN | select.POLLOUT * worker.channel.unsent
                )
            while (data := worker.channel.receive()) is not None:
                message = self._read(worker, partial(decode, data), worker.expected)
                if isinstance(message, str):
                    self._lose_worker(worker, message)
                    return False
                self._handle(worker, message)
                if not worker.is_up():
                    return False
        except (OSError, EOFError):
            return True
        return False

    def _handle(self, worker: WorkerHandle, message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind != "rows" and worker.ring is not None and worker.expected[0].kind == "rows":
            # rows that the worker has finished before it sent this message
            worker.ring.clear_doorbell()
            if not self._take_from_ring(worker, worker.ring):
                return
        count = 1
        if kind == "rows":
            count = message[1]
        reply = worker.answered(count)
        if kind == "attached":
            assert reply.kind == kind, reply
            return
        if kind == "failed":
            worker.end()
        self._take_reply(worker, message, reply.call)

    # -- workers that are lost ---------------------------------------------------------------------

    def _lose_worker(self, worker: WorkerHandle, did: str | None = None) -> None:
        """End a worker that died, hangs, or ``did`` something for which it is ended."""
        reason, details = worker.lose(did)
        self._forget(worker)
        self._report_loss(worker, reason, details, exitcode=worker.process.exitcode)

    def _end_worker(self, worker: WorkerHandle) -> None:
        worker.end()

    def _forget(self, worker: WorkerHandle) -> None:
        for descriptor in [key for key, value in self._by_descriptor.items() if value is worker]:
            del self._by_descriptor[descriptor]
            self._poller.unregister(descriptor)
        worker.expected.clear()

    # -- the end -----------------------------------------------------------------------------------

    def stop(self, timeout: float, terminate: bool) -> None:
        # a thread that waits in `poll` holds the lock
        locked = self._lock.acquire(timeout=max(2 * POLL_SECONDS, min(timeout, 3600.0)))
        try:
            running = [worker for worker in self._workers if worker.is_up()]
            end_workers(running, encode(("close", timeout)), timeout, terminate)
            for worker in self._workers:
                if worker.ring is not None:
                    worker.ring.close()
            self._workers = []
            if self.local_rows is not None:
                local_rows = self.local_rows
                self.local_rows = None
                local_rows.close(timeout, terminate)
        finally:  # even if a sub-environment in this process raises
            self._release_memory()
            if locked:
                self._lock.release()

    def _release_memory(self) -> None:
        self._by_descriptor = {}
        self._poller = select.poll()
        if self._block is not None:
            self._block.close_descriptor()
            self._block = None
        if hasattr(self, "slots"):
            del self.slots  # the mapping is released with the last array over it
