"""What runs in a worker process: make the sub-environments, then answer one message after the other.

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
    adopt,
    can_send,
    decode,
    encode,
    out_of_reach,
    receive_descriptor,
)
from vecwrap.backends.workers.shared import Bell, LaneOfWorker, SharedBlock, allocate_shared
from vecwrap.errors import ArgumentError, CastWarning
from vecwrap.rows.columns import Arena
from vecwrap.rows.table import Slots
from vecwrap.sources.by_value import read_each
from vecwrap.sources.description import Description, same_space
from vecwrap.sources.failure import Failure, make_failure
from vecwrap.sources.parts import Part, Source, announce, make_source, refuse_one_for_several, together
from vecwrap.sources.sub_env import Takeover

_T = TypeVar("_T")

_GRACE = 1.0  # seconds for an orderly end after the parent has gone


def serve(connection: Connection, parent: int) -> None:
    """Run a worker until it is told to close or its parent, a process id, is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked until here where it was spawned
    for number in (signal.SIGTTOU, signal.SIGTTIN):  # they would stop an environment that sets the terminal's modes
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)  # a group of its own, so that what environments start can be ended with it
    inherited, connection = connection, Connection(out_of_reach(os.dup(connection.fileno())))
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
    if any(not thread.daemon and thread is not threading.main_thread() for thread in threading.enumerate()):
        _leave(0)  # an environment's thread that never ends would keep the process


def _leave(code: int) -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


class _ParentIsGone(Exception):
    """Nobody is there to be heard or answered."""


class _Parent:
    """The way to the parent, whose end is told apart from what an environment raises."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def hear(self) -> tuple[Any, ...]:
        message: tuple[Any, ...] = decode(self._unless_gone(self.connection.recv_bytes))
        return message

    def tell(self, data: bytes) -> None:
        self._unless_gone(self.connection.send_bytes, data)

    def take_descriptor(self) -> int:
        return self._unless_gone(receive_descriptor, self.connection)

    def _unless_gone(self, function: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return function(*arguments)
        except (EOFError, ConnectionError) as error:
            raise _ParentIsGone from error


def _serve(parent: _Parent) -> None:
    worker: Worker | None = None
    try:
        init: Any = parent.hear()
        worker = Worker(parent, init)
        worker.answer_all()
    except CouldNotMake as reason:
        parent.tell(encode(("failed", reason.failure.without_cause())))
    except _ParentIsGone:
        if worker is None:
            return
        worker.close()
        _end_group()
    if worker is not None:
        worker.close()


class CouldNotMake(Exception):
    """Sub-environments could not be made."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class CouldNotRead(CouldNotMake):
    """What makes the sub-environments could not be unpickled here."""


def contents_of(init: WorkerInit) -> tuple[WorkerContents, list[Any]]:
    """Unpickle the program's own part of a message, and drop it there; with the specs of its registrations."""
    contents, *specs = read_each(init.contents, init.num_contents)
    if isinstance(contents, BaseException):
        failure = make_failure(init.env_ids[0], contents)
        message = (
            f"{failure.message}. A worker cannot read what was sent to make the environments; define their classes in "
            'a module that can be imported, a file beside the script for instance, or use backend="dummy"'
        )
        raise CouldNotRead(replace(failure, message=message)) from contents
    init.contents = b""
    return contents, specs


class Worker:
    """The sub-environments of a worker, and its answers; ``_send`` and ``_send_rows`` say which way these go."""

    def __init__(self, parent: Any, init: WorkerInit) -> None:
        contents, specs = contents_of(init)
        takeovers = contents.takeovers
        warnings.resetwarnings()
        later = adopt(contents.filters)
        contents.registrations.adopt(specs)
        if init.env_ids[0] != 0 or takeovers is not None:  # said once, by the first worker
            warnings.filterwarnings("ignore", category=CastWarning)
        logging.getLogger().setLevel(init.log_level)
        self._parent = parent
        self._pid = os.getpid()
        self._each = init.each
        self._sub_envs: list[Source] = []
        self._first_row = init.env_ids[0] if init.shared else 0
        self._rows = range(self._first_row, self._first_row + len(init.env_ids))
        self._lane: LaneOfWorker | None = None
        self._handled = 0  # messages since the slots were made
        self._not_there: set[int] = set()  # rows whose sub-environment could not be recreated: they answer nothing
        descriptions: list[Description] = []
        for i, factory in zip(init.env_ids, contents.factories, strict=True):
            try:
                self._sub_envs.append(
                    make_source(
                        i, factory, init.autoreset, self._sub_envs[-1] if self._sub_envs else None, debug=init.debug
                    )
                )
                descriptions.append(self._sub_envs[-1].describe())
            except BaseException as error:
                self.close()
                raise CouldNotMake(make_failure(i, error)) from error
        try:
            refuse_one_for_several(self._sub_envs)
        except ArgumentError as error:
            self.close()
            raise CouldNotMake(make_failure(init.env_ids[0], error)) from error
        self._init, self._takeovers = init, takeovers
        self._of_several = isinstance(self._sub_envs[0], Part)
        self._together = together(contents.factories)
        first = descriptions[0]
        told = [(init.env_ids[0], first)]  # the first, and those that differ: all that the parent needs
        told += [
            (i, other)
            for i, other in zip(init.env_ids, descriptions, strict=True)
            if not (
                same_space(other.observation_space, first.observation_space)
                and same_space(other.action_space, first.action_space)
                and other.registration == first.registration
            )
        ]
        self._send(("made", [(i, _sendable(description)) for i, description in told]))
        self._spaces = first.observation_space, first.action_space
        adopt(later)  # making the sub-environments has imported what they may warn of

    def answer_all(self) -> None:
        while self._lane is None:
            if not self._answer(self._parent.hear()):
                return
        lane = self._lane
        while True:
            asked = lane.wait()
            if asked and lane.messages_before <= self._handled:
                self._step_asked(lane)
            elif not self._answer(self._parent.hear()):
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
            self._ask(*content)
        elif kind == "attach":
            self._attach()
        elif kind == "remake":
            self._remake(*content)
        elif kind == "frames":
            for sub_env, frames in zip(self._sub_envs, *content, strict=True):
                sub_env.frames = frames
        else:
            assert kind == "close", kind
            self.close(*content)
            return False
        return True

    def close(self, timeout: float = 5.0) -> None:
        """Close them all, whatever they say; engines get so many seconds."""
        sub_envs, self._sub_envs = self._sub_envs, []
        for sub_env in sub_envs:
            try:
                sub_env.close(timeout) if isinstance(sub_env, Part) else sub_env.close()
            except BaseException:
                traceback.print_exc()

    def _attach(self) -> None:
        init = self._init
        self._handled = 1
        if init.shared:
            block = SharedBlock.map(self._parent.take_descriptor())
            form = init.num_envs, *self._spaces, init.num_workers, init.largest_share
            self._slots, words = allocate_shared(*form, Arena(block.buffer), first_row=self._first_row)
            if not self._slots.actions.rides_the_pipe:
                there, back = (out_of_reach(self._parent.take_descriptor()) for _ in range(2))
                self._lane = LaneOfWorker(
                    words[init.number],
                    self._rows,
                    Bell(there, -1),
                    Bell(-1, back),
                    self._parent.connection,
                    spins=init.spins,
                )
            os.register_at_fork(after_in_child=self._detach)
        else:
            self._slots = Slots(len(init.env_ids), *self._spaces, first_row=init.env_ids[0])
        self._slots.recycle()
        for k, sub_env in enumerate(self._sub_envs):
            sub_env.attach(self._slots, self._first_row + k)
            if self._takeovers is not None:
                try:
                    sub_env.take_over(self._takeovers[k])
                except BaseException as error:
                    raise CouldNotMake(make_failure(sub_env.index, error)) from error
        self._send(("attached",))

    def _detach(self) -> None:
        self._slots = Slots(self._init.num_envs, *self._spaces)
        for k, sub_env in enumerate(self._sub_envs):
            sub_env.attach(self._slots, self._first_row + k)

    def _remake(self, rows: list[int], takeovers: list[Takeover]) -> None:
        failures = []
        for row, takeover in zip(rows, takeovers, strict=True):
            k = row - self._first_row
            try:
                with contextlib.suppress(BaseException):  # in a worker nothing that it says is the program's own
                    self._sub_envs[k].close()
                self._sub_envs[k] = self._sub_envs[k].made_anew(takeover)
                self._not_there.discard(row)
            except BaseException as error:
                self._not_there.add(row)
                failures.append(make_failure(self._sub_envs[k].index, error).without_cause())
        self._send(("remade", failures))

    def _step(self, rows: list[int] | None, payload: Any) -> None:
        if rows is None:
            rows = list(self._rows)
        if payload is not None:
            self._slots.actions.load(rows, payload)
        for group in self._grouped(rows) if self._each else [rows]:
            self._send_rows(len(group) if self._each else 1, "step", *self._step_rows(group))

    def _grouped(self, rows: Sequence[int]) -> list[Sequence[int]]:
        """Rows as they are stepped, and answered if each sub-environment answers alone: a game's come together."""
        return [rows[k : k + self._together] for k in range(0, len(rows), self._together)]

    def _step_asked(self, lane: LaneOfWorker) -> None:
        groups = lane.take()
        if len(groups) > 1 and not (self._each and self._together == 1):
            rows = [row for group in groups for row in group]
            for group in self._grouped(rows) if self._each else [rows]:
                self._step_group(lane, len(group), group)
            return
        for group in groups:
            self._step_group(lane, 1, group)

    def _step_group(self, lane: LaneOfWorker, answers: int, rows: Sequence[int]) -> None:
        done, failures = self._step_rows(rows)
        self._leave_if_copied()
        piped = len(done) < len(rows) or len(self._slots.entirely_shared(done)) < len(done)
        if piped:
            self._send_rows(answers, "step", done, failures)
        lane.answer(answers, piped=piped)

    def _step_rows(self, rows: Sequence[int]) -> tuple[list[int], list[Failure]]:
        """Step rows; an exception takes its own row out and leaves the others alone."""
        first_row = self._first_row
        sub_envs: list[Any] = self._sub_envs
        done: list[int] = []
        failures: list[Failure] = []
        if self._not_there:
            rows = [row for row in rows if row not in self._not_there]
        if self._of_several:
            return self._step_sources(rows)
        for row, action in zip(rows, self._slots.actions.get_all(rows), strict=True):
            try:
                sub_envs[row - first_row].step(action)
                done.append(row)
            except BaseException as error:
                self._leave_if_copied()
                failures.append(sub_envs[row - first_row].failure(error, "step", action).without_cause())
        return done, failures

    def _step_sources(self, rows: Sequence[int]) -> tuple[list[int], list[Failure]]:
        """Step rows source by source, for they come together: an engine may have a thousand of them."""
        done: list[int] = []
        failures: list[Failure] = []
        parts: list[Any] = self._sub_envs
        for own in self._grouped(rows):
            try:
                parts[own[0] - self._first_row].source.step_whole()
                done += own
            except BaseException as error:
                self._leave_if_copied()
                failures += [parts[i - self._first_row].failure(error, "step").without_cause() for i in own]
        return done, failures

    def _reset(self, rows: list[int], seeds: list[int | None], options: dict[str, Any] | None) -> None:
        done: list[int] = []
        failures: list[Failure] = []
        announce([self._sub_envs[row - self._first_row] for row in rows], "reset", [(seed, options) for seed in seeds])
        for row, seed in zip(rows, seeds, strict=True):
            sub_env = self._sub_envs[row - self._first_row]
            try:
                if row not in self._not_there:
                    sub_env.reset(seed, options)
                    done.append(row)
            except BaseException as error:
                self._leave_if_copied()
                failures.append(sub_env.failure(error, "reset").without_cause())
            if self._each and len(done) + len(failures) == self._together:
                self._send_rows(self._together, "reset", done, failures)
                done, failures = [], []
        if not self._each:
            self._send_rows(1, "reset", done, failures)

    def _send_rows(self, answers: int, during: str, rows: list[int], failures: list[Failure]) -> None:
        """Answer; rows whose step was done before their autoreset failed are among the values, not among the rows."""
        try:
            data = encode(self._rows_message(answers, rows, failures))
        except Exception:
            data = encode(self._rows_message(answers, *self._without_unsendable(during, rows, failures)))
        self._leave_if_copied()
        self._parent.tell(data)
        self._slots.exported()

    def _rows_message(self, answers: int, rows: list[int], failures: list[Failure]) -> tuple[Any, ...]:
        stepped = [self._row_of(failure.index) for failure in failures if failure.stepped]
        return "rows", answers, rows, stepped, self._slots.export(rows + stepped), failures

    def _row_of(self, index: int) -> int:
        return self._first_row + index - self._sub_envs[0].index

    def _without_unsendable(
        self, during: str, rows: list[int], failures: list[Failure]
    ) -> tuple[list[int], list[Failure]]:
        """Turn rows whose infos or observations cannot be pickled into failures that name what it is."""
        good: list[int] = []
        bad = [
            replace(failure, stepped=failure.stepped and can_send(self._slots.export([self._row_of(failure.index)])))
            for failure in failures
        ]
        for row in rows:
            try:
                encode(self._slots.export([row]))
                good.append(row)
            except Exception as error:
                sub_env = self._sub_envs[row - self._first_row]
                begun, ended = map(_unsendable, self._slots.own_infos(row))
                what = f"infos {ended + begun}" if ended or begun else "its result"
                reason = TypeError(f"{what} cannot be sent between processes ({error}); leave it out, or use dummy")
                action = self._slots.actions.get_all([row])[0] if during == "step" else None
                bad.append(sub_env.refused(reason, during, action, of_the_end=bool(ended)).without_cause())
        return good, bad

    def _ask(self, method: str, rows: list[int], arguments: list[tuple[Any, ...]]) -> None:
        values: dict[int, Any] = {}
        failures = []
        announce([self._sub_envs[row - self._first_row] for row in rows], method, arguments)
        for row, args in zip(rows, arguments, strict=True):
            sub_env = self._sub_envs[row - self._first_row]
            try:
                value = getattr(sub_env, method)(*args)
                if not can_send(value):
                    raise TypeError(f"the value of type {type(value).__name__} cannot be sent between processes")
                values[sub_env.index] = value
            except BaseException as error:
                failures.append(sub_env.failure(error, method).without_cause())
        self._send(("values", values, failures))

    def _send(self, message: Any) -> None:
        self._leave_if_copied()
        self._parent.tell(encode(message))

    def _leave_if_copied(self) -> None:
        """End a copy of this process that an environment has forked off: the worker itself answers."""
        if os.getpid() != self._pid:
            _leave(0)


def _unsendable(info: dict[str, Any]) -> list[str]:
    return [key for key, value in info.items() if not can_send(value)]


def _sendable(description: Description) -> Description:
    """Leave out what need not survive the way to the parent."""
    if not can_send(description.spec):
        description.spec = None
    if not can_send(description.metadata):
        description.metadata = {key: value for key, value in description.metadata.items() if can_send(value)}
    return description


def _end_with_parent(connection: Connection, parent: int) -> None:
    """Wait for the parent to be gone; then give the main thread a moment, and end this whole process group."""
    poller = select.poll()
    try:
        poller.register(connection.fileno(), 0)
        with contextlib.suppress(AttributeError, OSError):  # a fork of the parent's may hold the connection open
            poller.register(os.pidfd_open(parent), select.POLLIN)
        poller.poll()
    except (OSError, ValueError):
        return  # closed in good order
    time.sleep(_GRACE)
    _end_group()


def _end_group() -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
