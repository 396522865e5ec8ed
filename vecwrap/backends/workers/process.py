"""The parent's side of worker processes: what subprocess and shmem share."""

from __future__ import annotations

import contextlib
import math
import select
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from vecwrap.backends.local import LocalRows
from vecwrap.backends.workers.asking import Expected, Workers
from vecwrap.backends.workers.cores import usable_cores
from vecwrap.backends.workers.link import Link, elsewhere_first, end_workers
from vecwrap.backends.workers.messages import decode, encode
from vecwrap.backends.workers.options import ProcessOptions, check_start_method
from vecwrap.backends.workers.shared import ORDERED, Lane, SharedBlock, Spinner, allocate_shared
from vecwrap.backends.workers.shares import rows_of, share_out, sources_per_worker
from vecwrap.env.books import LOOK
from vecwrap.env.runner import Runner
from vecwrap.errors import BackendError, VecwrapError
from vecwrap.rows.batch import Batch
from vecwrap.rows.columns import Arena
from vecwrap.rows.step_result import Frames, IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Description
from vecwrap.sources.failure import Failure
from vecwrap.sources.making import num_rows_of
from vecwrap.sources.source import Takeover
from vecwrap.sources.sub_env import Factory

GLANCE = 0.02  # seconds between checks of pipes and deaths, while all answers arrive in shared memory


class Processes(Workers[Link], Runner):
    """Sub-environments in worker processes; each worker holds several."""

    Options: ClassVar[type[ProcessOptions]] = ProcessOptions
    shared: ClassVar[bool] = False
    options: ProcessOptions

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.start_method = check_start_method(self.options.start_method)
        self.at_exit = (1.0 if self.options.daemon else math.inf), False
        as_here = type(self).send is Processes.send and type(self).poll is Processes.poll  # not one derived from it
        self._limited = any(self._limits.values())
        self.has_line = self.shared and ORDERED and as_here and not self._limited
        self._links: dict[int, Link] = {}  # by polled descriptor
        self._block: SharedBlock | None = None
        self._by_lane = False  # whether steps are requested through shared memory
        self._lanes: list[Lane] = []
        self.own: LocalRows | None = None
        self._lock = threading.RLock()
        self._poller = select.poll()
        self._looked = 0.0

    # -- start ---------------------------------------------------------------------------------------------------------

    def start(self, factories: Sequence[Factory]) -> Description:
        self._factories = list(factories)
        asked, books = self.options, self.books
        asked.isolating(restart=books.recovery is not None, batch_size=books.batch_size)
        num_rows = num_rows_of(factories)
        each = sources_per_worker(asked.envs_per_worker, num_rows)
        shared_out = share_out(len(factories), asked.workers, each, asked.parent_share)
        self._shares = [rows_of(share, num_rows) for share in shared_out]
        self.parent_share = bool(asked.parent_share) and len(self._shares) > 1
        self._owner_of = [number for number, share in enumerate(self._shares) for _ in share]
        self._step_expected = self._expected("rows", "step_timeout")
        shares, own = (self._shares[:-1], self._shares[-1]) if self.parent_share else (self._shares, range(0))
        self.workers = len(shares)
        self._workers = [Link(number, share) for number, share in enumerate(shares)]
        self._spinner = Spinner(ORDERED, crowded=self.workers >= usable_cores())
        inits = [self._init_of_worker(worker, None) for worker in self._workers]
        for worker in self._workers:
            self._launch(worker)
        for worker, init in zip(self._workers, inits, strict=True):
            self._initiate(worker, init)
        if own:
            self.own = LocalRows(own, self._factories[shared_out[-1].start :], self.books.interrupts)
            self._descriptions.update(self.own.make(self.books.autoreset, debug=self.books.debug))
        first = self._await_made()
        self._allocate(first)
        if self.own is not None:
            self.own.attach(self.books.slots)
        self._attaching = True
        for worker in self._workers:
            self._attach(worker)
        self._pump_until(lambda: not any(worker.expected for worker in self._workers))
        return first

    def _init_of_worker(self, worker: Link, takeovers: dict[int, Takeover] | None) -> bytes:
        cores = usable_cores()
        spins = worker.number < cores - 1 and self.workers <= cores
        return self._init_of(worker, takeovers, shared=self.shared, each=self.books.batch_size is not None, spins=spins)

    def _launch(self, worker: Link) -> None:
        """Start a worker's process; one that cannot be started counts as lost."""
        try:
            worker.start(self.start_method, daemon=self.options.daemon)
        except BackendError as error:
            if worker.made_once and self.books.lose(list(worker.env_ids), str(error), made=False):
                return
            self.books.broken = error
            raise
        for descriptor in (worker.channel.fileno(), worker.pidfd):
            if descriptor >= 0:
                self._listen(worker, descriptor)

    def _listen(self, worker: Link, descriptor: int) -> None:
        self._links[descriptor] = worker
        self._poller.register(descriptor, select.POLLIN)

    def _initiate(self, worker: Link, init: bytes) -> None:
        self._send_bytes(worker, init, [self._expected("made", "start_timeout")])

    def _attach(self, worker: Link) -> None:
        worker.messages = 0
        if worker.lane is not None:
            worker.lane.restart()
        self._send_bytes(worker, encode(("attach",)), [self._expected("attached", "start_timeout")])
        if self._block is None or not worker.is_up():
            return
        descriptors = [self._block.descriptor]
        if worker.lane is not None:
            descriptors += [worker.lane.there.listens, worker.lane.back.rings]
            self._listen(worker, worker.lane.back.listens)
        with contextlib.suppress(OSError):
            for descriptor in descriptors:
                worker.channel.send_descriptor(descriptor)

    def _allocate(self, first: Description) -> None:
        books = self.books
        form = books.num_rows, first.observation_space, first.action_space
        first_own = self._shares[-1][0] if self.parent_share else books.num_rows
        if not self.shared:
            books.slots = Slots(*form, first_row=first_own)
            return
        arena = Arena()
        allocate_shared(*form, self.workers, largest := max(map(len, self._shares)), arena)
        self._block = SharedBlock.create(arena.num_bytes)
        arena = Arena(self._block.buffer)
        books.slots, words = allocate_shared(*form, self.workers, largest, arena, first_row=first_own)
        self._by_lane = not books.slots.actions.rides_the_pipe
        if self._by_lane:
            for worker in self._workers:
                try:
                    worker.lane = Lane(words[worker.number], worker.env_ids)
                except OSError as error:
                    remedy = 'use fewer workers, or backend="subprocess"'
                    raise BackendError(f"shmem: a worker's bells could not be created ({error}); {remedy}") from error
                self._lanes.append(worker.lane)
        else:
            books.rule_out_line()

    # -- rows ----------------------------------------------------------------------------------------------------------

    def not_sent(self, env_ids: IntArray, error: BaseException) -> None:
        if self.own is not None:
            self.own.forget(env_ids.tolist())
        super().not_sent(env_ids, error)

    def send(self, env_ids: IntArray) -> None:
        if not self._by_lane:
            super().send(env_ids)
            if self.own is not None:
                self.own.step(self._own_among(env_ids))
            return
        expected = self._step_expected
        books = self.books
        whole = env_ids is books.all_ids and books.batch_size is None
        with self._lock:
            if books.broken is not None:
                raise books.broken
            asked = [(worker, None) for worker in self._workers] if whole else self._by_worker(env_ids)
            for worker, ids in elsewhere_first(asked):
                worker.ask(ids, expected)
            if self.own is not None:
                self.own.step(self._shares[-1] if whole else self._own_among(env_ids))

    # -- the straight line ---------------------------------------------------------------------------------------------

    def step_whole(self, actions: Batch) -> bool:
        """Step all rows; False leaves the step to the general path: it takes long, is a message, a row has failed."""
        books = self.books
        books.slots.actions.fill(slice(None), actions)
        with self._lock:
            if books.broken is not None:
                raise books.broken
            try:
                for worker, _ in elsewhere_first([(worker, None) for worker in self._workers]):
                    worker.ask(None, self._step_expected)
                if self.own is not None:
                    self.own.step(self._shares[-1])
            except BaseException as error:
                self.not_sent(books.all_ids, error)
                raise
        if self.own is not None:
            self.own.run(books.arrived)
        if books.failed or time.monotonic() - self._looked > GLANCE:  # it looks at stderr and for deaths
            return False
        with self._lock:
            return self._spinner.spin(self._lanes, books.interrupts.came) and self._take_whole()

    def _take_whole(self) -> bool:
        """Take all answers, which are there; False if some have come as messages."""
        books, whole = self.books, True
        try:
            for worker, lane in zip(self._workers, self._lanes, strict=True):
                rows, answers = lane.take()
                whole = whole and answers == 1
                if answers:
                    worker.answered(answers)
                    books.slots.load_shared(rows)
                    books.ready = books.ready + rows
        except LookupError as error:
            self._lose_worker(worker, f"has written what cannot be read here ({error})")
            return False
        except BaseException:  # an interrupt that was not held back: how far it got is unknown
            worker.torn = self._torn = True
            raise
        if whole:
            books.ready = []
        return whole

    def has_work(self) -> bool:
        return bool(self.own) or any(worker.expected for worker in self._workers)

    def _own_among(self, env_ids: Sequence[int] | IntArray) -> list[int]:
        own = self._shares[-1]
        return [i for i in map(int, env_ids) if i >= own[0]] if self.own is not None else []

    def reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        super().reset(env_ids, seeds, options)
        if self.own is not None and (own := self._own_among(env_ids)):
            seed_of = dict(zip(env_ids.tolist(), seeds, strict=True))
            self.own.reset(own, [seed_of[i] for i in own], options)

    def frames(self, wanted: Sequence[Frames]) -> None:
        if self.own is not None:
            self.own.tell_frames(wanted)
        with self._lock:
            for worker in self._workers:
                if worker.is_up():  # a new one takes them over
                    self._send_bytes(worker, encode(("frames", [wanted[i] for i in worker.env_ids])))

    def recreate(self, takeovers: dict[int, Takeover]) -> None:
        with self._lock:
            super().recreate(takeovers)

    def _start_anew(self, worker: Link, takeovers: dict[int, Takeover]) -> None:
        init = self._init_of_worker(worker, takeovers)
        self._launch(worker)
        self._initiate(worker, init)
        if self._attaching and worker.is_up():
            self._attach(worker)

    def poll(self, deadline: float | None) -> None:
        books = self.books
        if books.broken is not None:
            raise books.broken
        arrived = books.num_arrived
        if books.due or self._torn:
            books.make_due_anew()
        if self.own:
            if books.progress and deadline is not None and time.monotonic() > deadline:
                raise books.too_early()
            if books.timer is None:
                self.own.run(books.arrived, one=deadline is not None)
            else:
                books.timer.run("parent_share", partial(self.own.run, books.arrived, one=deadline is not None))
            with self._lock:
                self._hear_lanes()  # workers have stepped meanwhile
        if books.num_arrived == arrived:
            self._pump(deadline)

    def notice_losses(self, env_ids: IntArray) -> None:
        with self._lock:
            self._look(0.0)

    def _offset(self, worker: Link) -> int:
        return 0 if self.shared else worker.env_ids[0]  # shared slots have one numbering

    def ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        super().ask(method, env_ids, arguments)
        if self.own is not None:
            own, arguments_of = self._own_among(env_ids), dict(zip(env_ids, arguments, strict=True))
            self.own.ask(method, own, [arguments_of[i] for i in own])

    def answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        values, failures = super().answers(deadline)
        if self.own is not None:
            more, others = self.own.answers()
            return {**values, **more}, [*failures, *others]
        return values, failures

    # -- talking to the workers ----------------------------------------------------------------------------------------

    def _tell(self, messages: Sequence[tuple[Link, tuple[Any, ...]]], expected: Expected, what: str = "") -> None:
        with self._lock:
            super()._tell(messages, expected, what)

    def _num_answers(self, worker: Link, message: tuple[Any, ...]) -> int:
        kind, rows, *_ = message
        if kind not in ("step", "reset") or self.books.batch_size is None:
            return 1
        return len(worker.env_ids if rows is None else rows)  # one per row, so that ``recv`` can return some of them

    def _send_bytes(self, worker: Link, data: bytes, owed: Sequence[Expected] = ()) -> None:
        self._refuse_broken()
        if not worker.is_up():
            return  # it was lost a moment ago, in this very call, and its rows are settled
        try:
            worker.send(data, owed)
        except OSError:
            self._lose_worker(worker)
            return
        if worker.channel.unsent:
            self._poller.modify(worker.channel.fileno(), select.POLLIN | select.POLLOUT)

    def _pump(self, deadline: float | None) -> None:
        with self._lock:
            if self._hear_lanes():
                return
            if ORDERED and any(worker.lane is not None and worker.lane.owes for worker in self._workers):
                self._spinner.wait(self._hear, lambda: self._sleep(deadline))
            else:
                while not self._sleep(deadline):
                    pass

    def _hear_lanes(self) -> bool:
        """Receive from shared memory, and check the descriptors now and then; whether anything has arrived."""
        if not (self._by_lane and ORDERED and self._hear()):
            return False
        if time.monotonic() - self._looked > GLANCE:  # for deaths and stderr output
            self._look(0.0)
        return True

    def _hear(self) -> bool:
        """Receive from shared memory; whether anything has arrived."""
        heard = False
        for worker in self._workers:
            if worker.lane is not None and worker.lane.has_answers():
                self._take_in(worker)
                heard = True
        return heard

    def _sleep(self, deadline: float | None) -> bool:
        return self._look(self._patience(deadline)) or self._is_due(deadline)

    def _look(self, milliseconds: float) -> bool:
        """Wait this long for the descriptors, and receive from them; whether anything has arrived."""
        began = time.monotonic()
        events = self._poller.poll(milliseconds)
        self._excuse(time.monotonic() - began - milliseconds / 1e3)
        self.books.refuse_closed_meanwhile()
        heard = [(link, descriptor) for descriptor, _ in events if (link := self._links.get(descriptor))]
        for worker, descriptor in heard:
            self._take_in(worker, descriptor)
            if self._limited:
                worker.note_bytes()
        now = time.monotonic()
        if now - self._looked > GLANCE:
            self._looked = now
            for worker in self._workers:
                if worker.is_up():
                    worker.words.show()
        overdue = [one for one in self._workers if one.is_up() and now > one.deadline] if self._limited else []
        for worker in overdue:
            self._lose_worker(worker)
        return bool(heard or overdue)

    def _patience(self, deadline: float | None) -> float:
        """In milliseconds."""
        now = time.monotonic()
        until = [now + LOOK, *self.books.due.values()]
        if deadline is not None:
            until.append(deadline)
        if self._limited:
            until += [worker.deadline for worker in self._workers]
        return max(0.0, math.ceil(1e3 * (min(until) - now)))

    def _take_in(self, worker: Link, descriptor: int = -1) -> None:
        """Receive all that a worker has sent, as noticed there (-1: in shared memory); if it hung up, lose it."""
        if not worker.is_up():
            return
        self.books.interrupts.hold()  # until the next wait
        ended = descriptor >= 0 and descriptor == worker.pidfd
        try:
            lane = worker.lane
            if lane is not None and descriptor >= 0:
                lane.hear()
            if lane is not None and lane.has_answers():
                if worker.expected and worker.expected[0].kind != "rows":  # a message was sent before the rows
                    ended = self._take_in_messages(worker) or ended
                if worker.is_up():
                    try:
                        rows, answers = lane.take()
                        if answers:
                            worker.answered(answers)
                    except LookupError as error:
                        self._lose_worker(worker, f"has written what cannot be read here ({error})")
                        return
                    if answers:
                        self.books.slots.load_shared(rows)
                        self.books.arrived(rows, [])
            if lane is None or lane.piped or descriptor not in (-1, lane.back.listens):  # not only rows
                ended = self._take_in_messages(worker) or ended
        except BaseException as error:
            if not isinstance(error, VecwrapError):  # an interrupt: how far it got is unknown
                worker.torn = self._torn = True
            raise
        if ended and worker.is_up():
            self._lose_worker(worker)

    def _take_in_messages(self, worker: Link) -> bool:
        if not worker.is_up():
            return False
        try:
            if worker.channel.unsent:
                worker.channel.flush()
                self._poller.modify(worker.channel.fileno(), select.POLLIN | select.POLLOUT * worker.channel.unsent)
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

    def _handle(self, worker: Link, message: tuple[Any, ...]) -> None:
        kind = message[0]
        expected = worker.answered(message[1] if kind == "rows" else 1)
        if kind == "attached":
            assert expected.kind == kind, expected
            return
        if kind == "failed":
            worker.end()
        self._take_in_answer(worker, message, expected.ask)

    # -- workers that are lost -----------------------------------------------------------------------------------------

    def _lose_worker(self, worker: Link, told: str | None = None) -> None:
        try:
            self._end_and_book(worker, told)
        except BaseException as error:
            if not isinstance(error, VecwrapError):  # an interrupt: the worker is lost again
                worker.torn = self._torn = True
            raise
        worker.torn = False

    def _end_and_book(self, worker: Link, told: str | None) -> None:
        owed = worker.owes()
        reason, said = worker.lose(told)
        self._forget(worker)
        self._book_loss(worker, reason, said, owed, exitcode=worker.process.exitcode)

    def _end_worker(self, worker: Link) -> None:
        worker.end()

    def _forget(self, worker: Link) -> None:
        for descriptor in [descriptor for descriptor, link in self._links.items() if link is worker]:
            del self._links[descriptor]
            self._poller.unregister(descriptor)
        worker.expected.clear()

    # -- the end -------------------------------------------------------------------------------------------------------

    def stop(self, timeout: float, terminate: bool) -> None:
        if self.books.forked:
            return  # in a forked process: the workers belong to its parent
        locked = self._lock.acquire(timeout=max(2 * LOOK, min(timeout, 3600.0)))  # held while a thread waits
        try:
            end_workers([one for one in self._workers if one.is_up()], encode(("close", timeout)), timeout, terminate)
            for worker in self._workers:
                if worker.lane is not None:
                    worker.lane.close()
            self._workers = []
            if self.own is not None:
                own, self.own = self.own, None
                own.close(timeout, terminate)
        finally:  # even if a sub-environment in this process raises
            self._give_memory_back()
            if locked:
                self._lock.release()

    def _give_memory_back(self) -> None:
        self._links = {}
        self._poller = select.poll()
        if self._block is not None:
            self._block.close_descriptor()
            self._block = None
        if hasattr(self.books, "slots"):
            del self.books.slots  # the mapping is released with the last array over it
            self.books.latest = None
