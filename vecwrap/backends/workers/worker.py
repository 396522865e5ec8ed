"""The main loop of a worker process: make the sub-environments, then answer each message.

``vecwrap.backends.workers.messages`` says which messages there are.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from vecwrap.backends.workers.messages import (
    WorkerContents,
    WorkerInit,
    can_send,
    decode,
    encode,
    move_descriptor_up,
    receive_descriptor,
    set_filters,
)
from vecwrap.backends.workers.step_ring import (
    Doorbell,
    SharedBlock,
    WorkerStepRing,
    allocate_shared,
)
from vecwrap.errors import ArgumentError, CastWarning
from vecwrap.rows.columns import Arena
from vecwrap.rows.table import Slots
from vecwrap.sources.by_value import read_each
from vecwrap.sources.description import EnvDescription, same_space
from vecwrap.sources.failure import Failure, MakeError, make_failure
from vecwrap.sources.group import SourceGroup
from vecwrap.sources.source import RestartState

_T = TypeVar("_T")

_CLOSE_SECONDS = 1.0  # seconds for an orderly end after the parent has gone


def serve(connection: Connection, parent: int) -> None:
    """Run a worker until it is asked to close or its parent, a process id, is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    # SIGINT is blocked until here if the worker was spawned
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # these signals would stop an environment that sets the terminal's modes
    for number in (signal.SIGTTOU, signal.SIGTTIN):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)  # a group of its own, so that what environments start can be ended with it
    inherited = connection
    connection = Connection(move_descriptor_up(os.dup(connection.fileno())))
    inherited.close()
    faulthandler.enable(2)  # a segmentation fault says where in Python it came from
    threading.Thread(target=_end_with_parent, args=(connection, parent), daemon=True).start()
    try:
        _serve(_Parent(connection))
    except BaseException as error:  # a fault of ours
        traceback.print_exc()
        if isinstance(error, OSError) and error.errno == errno.EBADF:
            sys.stderr.write("An environment has closed descriptors that are its worker's.\n")
        _leave(1)
    if any(
        not thread.daemon and thread is not threading.main_thread()
        for thread in threading.enumerate()
    ):
        _leave(0)  # an environment's thread that never ends would keep the process


def _leave(code: int) -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


class _ParentExited(Exception):
    """Nobody is there to be heard or answered."""


class _Parent:
    """The way to the parent, whose end is distinguished from what an environment raises."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def receive(self) -> tuple[Any, ...]:
        message: tuple[Any, ...] = decode(self._unless_exited(self.connection.recv_bytes))
        return message

    def report(self, data: bytes) -> None:
        self._unless_exited(self.connection.send_bytes, data)

    def take_descriptor(self) -> int:
        return self._unless_exited(receive_descriptor, self.connection)

    def _unless_exited(self, function: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return function(*arguments)
        except (EOFError, ConnectionError) as error:
            raise _ParentExited from error


def _serve(parent: _Parent) -> None:
    worker: Worker | None = None
    try:
        init: Any = parent.receive()
        worker = Worker(parent, init)
        worker.answer_all()
    except MakeError as reason:
        parent.report(encode(("failed", reason.failure.without_cause())))
    except _ParentExited:
        if worker is None:
            return
        worker.close()
        _end_group()
    if worker is not None:
        worker.close()


class UnpickleError(MakeError):
    """What makes the sub-environments could not be unpickled here."""


def contents_of(init: WorkerInit) -> tuple[WorkerContents, list[Any]]:
    """Unpickle the contents of a worker's first message, and the specs of registrations.

    The pickled contents are then dropped from the message.
    """
    contents, *specs = read_each(init.contents, init.num_contents)
    if isinstance(contents, BaseException):
        failure = make_failure(init.env_ids[0], contents)
        message = (
            f"{failure.message}. A worker cannot read what was sent to make the environments; "
            "define their classes in a module that can be imported, a file beside the script for "
            'instance, or use backend="dummy"'
        )
        raise UnpickleError(replace(failure, message=message)) from contents
    init.contents = b""
    return contents, specs


class Worker:
    """The sub-environments of a worker, and the replies about them.

    ``_send`` and ``_send_rows`` define how replies travel.
    """

    def __init__(self, parent: Any, init: WorkerInit) -> None:
        contents, specs = contents_of(init)
        restart_states = contents.restart_states
        warnings.resetwarnings()
        later = set_filters(contents.filters)
        contents.registrations.register(specs)
        if init.env_ids[0] != 0 or restart_states is not None:  # said once, by the first worker
            warnings.filterwarnings("ignore", category=CastWarning)
        logging.getLogger().setLevel(init.log_level)
        self._parent = parent
        self._pid = os.getpid()
        self._each = init.each
        self._group = SourceGroup(init.env_ids[0], contents.factories, is_own=self._is_own)
        self._first_row = 0
        if init.shared:
            self._first_row = init.env_ids[0]
        self._rows = range(self._first_row, self._first_row + len(init.env_ids))
        self._ring: WorkerStepRing | None = None
        self._handled = 0  # messages since the slots were made
        # rows whose sub-environment could not be recreated: they answer nothing
        self._not_recreated: set[int] = set()
        try:
            descriptions = self._group.make(
                init.autoreset, debug=init.debug, recreate_every=init.recreate_every
            )
        except MakeError:
            self.close()
            raise
        except ArgumentError as error:
            self.close()
            raise MakeError(make_failure(init.env_ids[0], error)) from error
        self._init = init
        self._restart_states = restart_states
        _, first = descriptions[0]
        reported = descriptions[:1]  # the first, and those that differ: all that the parent needs
        reported += [
            (i, other)
            for i, other in descriptions
            if not (
                same_space(other.observation_space, first.observation_space)
                and same_space(other.action_space, first.action_space)
                and other.registration == first.registration
            )
        ]
        self._send(("made", [(i, _sendable(description)) for i, description in reported]))
        self._spaces = first.observation_space, first.action_space
        set_filters(later)  # making the sub-environments has imported what they may warn of

    def answer_all(self) -> None:
        while self._ring is None:
            if not self._answer(self._parent.receive()):
                return
        ring = self._ring
        while True:
            requested = ring.wait()
            if requested and ring.messages_before <= self._handled:
                self._step_requested(ring)
            elif not self._answer(self._parent.receive()):
                return

    def _answer(self, message: tuple[Any, ...]) -> bool:
        """Whether there will be another message."""
        self._handled += 1
        kind, *content = message
        if kind == "step":
            self._step(*content)
        elif kind == "reset":
            self._reset(*content)
        elif kind == "ask":
            self._call(*content)
        elif kind == "attach":
            self._attach()
        elif kind == "remake":
            self._recreate(*content)
        elif kind == "frames":
            self._group.want_frames(*content)
        else:
            assert kind == "close", kind
            self.close(*content)
            return False
        return True

    def close(self, timeout: float = 5.0) -> None:
        """Close them all, whatever they say; engines get so many seconds."""
        for error in self._group.close(timeout):
            traceback.print_exception(error)

    def _attach(self) -> None:
        init = self._init
        self._handled = 1
        if init.shared:
            block = SharedBlock.map(self._parent.take_descriptor())
            form = init.num_envs, *self._spaces, init.num_workers, init.largest_share
            self._slots, words = allocate_shared(
                *form, Arena(block.buffer), first_row=self._first_row
            )
            if not self._slots.actions.needs_pipe:
                there, back = (move_descriptor_up(self._parent.take_descriptor()) for _ in range(2))
                self._ring = WorkerStepRing(
                    words[init.number],
                    self._rows,
                    Doorbell(there, -1),
                    Doorbell(-1, back),
                    self._parent.connection,
                    spins=init.spins,
                )
            os.register_at_fork(after_in_child=self._detach)
        else:
            self._slots = Slots(len(init.env_ids), *self._spaces, first_row=init.env_ids[0])
        self._slots.recycle()
        self._group.attach(self._slots, self._first_row)
        if self._restart_states is not None:
            failures = self._group.restore(self._rows, self._restart_states, made=True)
            if failures:
                raise MakeError(failures[0])
        self._send(("attached",))

    def _detach(self) -> None:
        self._slots = Slots(self._init.num_envs, *self._spaces)
        self._group.attach(self._slots, self._first_row)

    def _recreate(self, rows: list[int], restart_states: list[RestartState]) -> None:
        failures = self._group.restore(rows, restart_states)
        self._not_recreated = self._not_recreated.difference(rows).union(
            self._row_of(failure.index) for failure in failures
        )
        self._send(("remade", _without_causes(failures)))

    def _step(self, rows: list[int] | None, payload: Any) -> None:
        if rows is None:
            rows = list(self._rows)
        if payload is not None:
            self._slots.actions.load(rows, payload)
        for group in self._answered_separately(rows):
            answers = 1
            if self._each:
                answers = len(group)
            self._send_rows(answers, "step", *self._group.step(self._existing(group)))

    def _answered_separately(self, rows: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return the rows of each answer: all of them, or source by source."""
        if self._each:
            return self._group.in_groups(rows)
        return [rows]

    def _step_requested(self, ring: WorkerStepRing) -> None:
        groups = ring.take()
        if len(groups) == 1 or (self._each and not self._group.of_several):
            for group in groups:
                self._step_group(ring, 1, group)
            return
        rows = [row for group in groups for row in group]
        for group in self._answered_separately(rows):
            self._step_group(ring, len(group), group)

    def _step_group(self, ring: WorkerStepRing, answers: int, rows: Sequence[int]) -> None:
        there = rows
        if self._not_recreated:
            there = self._existing(rows)
        done, failures = self._group.step(there)
        self._leave_if_copied()
        piped = len(done) < len(rows) or len(self._slots.entirely_shared(done)) < len(done)
        if piped:
            self._send_rows(answers, "step", done, failures)
        ring.answer(answers, by_pipe=piped)

    def _existing(self, rows: Sequence[int]) -> list[int]:
        return [row for row in rows if row not in self._not_recreated]

    def _is_own(self, error: BaseException) -> bool:
        """In a worker nothing that an environment raises is the program's own."""
        self._leave_if_copied()
        return False

    def _reset(
        self, rows: list[int], seeds: list[int | None], options: dict[str, Any] | None
    ) -> None:
        seed_of = dict(zip(rows, seeds, strict=True))
        for group in self._answered_separately(rows):
            there = self._existing(group)
            done, failures = self._group.reset(there, [seed_of[row] for row in there], options)
            answers = 1
            if self._each:
                answers = len(group)
            self._send_rows(answers, "reset", done, failures)

    def _send_rows(
        self, answers: int, during: str, rows: Sequence[int], failures: list[Failure]
    ) -> None:
        """Send the reply to a request for rows.

        A row whose autoreset failed after its step is among the values, but not among the rows.
        """
        try:
            data = encode(self._rows_message(answers, rows, failures))
        except Exception:
            data = encode(
                self._rows_message(answers, *self._without_unsendable(during, rows, failures))
            )
        self._leave_if_copied()
        self._parent.report(data)
        self._slots.mark_exported()

    def _rows_message(
        self, answers: int, rows: Sequence[int], failures: list[Failure]
    ) -> tuple[Any, ...]:
        stepped = [self._row_of(failure.index) for failure in failures if failure.stepped]
        payload = self._slots.export([*rows, *stepped])
        return "rows", answers, list(rows), stepped, payload, _without_causes(failures)

    def _row_of(self, index: int) -> int:
        return self._first_row + index - self._init.env_ids[0]

    def _without_unsendable(
        self, during: str, rows: Sequence[int], failures: list[Failure]
    ) -> tuple[list[int], list[Failure]]:
        """Turn rows that cannot be pickled into failures that name the unpicklable part."""
        good: list[int] = []
        bad = [
            replace(
                failure,
                stepped=failure.stepped
                and can_send(self._slots.export([self._row_of(failure.index)])),
            )
            for failure in failures
        ]
        for row in rows:
            try:
                encode(self._slots.export([row]))
                good.append(row)
            except Exception as error:
                begun, ended = map(_unsendable, self._slots.own_infos(row))
                what = "its result"
                if ended or begun:
                    what = f"infos {ended + begun}"
                reason = TypeError(
                    f"{what} cannot be sent between processes ({error}); leave it out, or use dummy"
                )
                bad.append(self._group.refused(row, reason, during, of_the_end=bool(ended)))
        return good, bad

    def _call(self, method: str, rows: list[int], arguments: list[tuple[Any, ...]]) -> None:
        values, failures = self._group.call(method, rows, arguments)
        for index, value in list(values.items()):
            if not can_send(value):
                kind = type(values.pop(index)).__name__
                error = TypeError(f"the value of type {kind} cannot be sent between processes")
                failures += self._group.failures(self._row_of(index), error, method)
        self._send(("values", values, _without_causes(failures)))

    def _send(self, message: Any) -> None:
        self._leave_if_copied()
        self._parent.report(encode(message))

    def _leave_if_copied(self) -> None:
        """End this process if an environment has forked it.

        Only the worker itself replies.
        """
        if os.getpid() != self._pid:
            _leave(0)


def _without_causes(failures: Sequence[Failure]) -> list[Failure]:
    return [failure.without_cause() for failure in failures]


def _unsendable(info: dict[str, Any]) -> list[str]:
    return [key for key, value in info.items() if not can_send(value)]


def _sendable(description: EnvDescription) -> EnvDescription:
    """Leave out what need not survive the way to the parent."""
    if not can_send(description.spec):
        description.spec = None
    if not can_send(description.metadata):
        description.metadata = {
            key: value for key, value in description.metadata.items() if can_send(value)
        }
    return description


def _end_with_parent(connection: Connection, parent: int) -> None:
    """Wait until the parent is gone, and end this process group after a grace period."""
    poller = select.poll()
    try:
        poller.register(connection.fileno(), 0)
        # a fork of the parent's may hold the connection open
        with contextlib.suppress(AttributeError, OSError):
            poller.register(os.pidfd_open(parent), select.POLLIN)
        poller.poll()
    except (OSError, ValueError):
        return  # closed in good order
    time.sleep(_CLOSE_SECONDS)
    _end_group()


def _end_group() -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
