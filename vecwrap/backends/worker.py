"""What runs in a worker process: make the sub-environments, then answer one message after the other.

Messages are pickled tuples over the inherited connection:

- ``("attach",)`` says that the slots may be made, and is followed by the descriptor of their memory where it is shared;
  the answer is ``("attached",)``.
- ``("step", rows, payload)`` and ``("reset", rows, seeds, options)`` are answered by ``("rows", rows, stepped, payload,
  failures)``: one answer for all rows, or one for each where the parent said ``each``.
- ``("frames", wanted)`` holds for the rows that are asked for after it, and is not answered.
- ``("ask", method, rows, arguments)`` is answered by ``("values", values, failures)``.
- ``("remake", rows, takeovers)`` is answered by ``("remade", failures)``.
- ``("close",)`` ends it, and so does the parent's end.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np

from vecwrap.backends.base import Description, Factory
from vecwrap.backends.channel import receive_descriptor
from vecwrap.backends.memory import SharedBlock
from vecwrap.batch import row as row_of
from vecwrap.contract import Autoreset
from vecwrap.errors import CastWarning
from vecwrap.slots import Arena, Slots
from vecwrap.sub_env import Failure, SubEnv, Takeover, make_failure

__all__ = ["WorkerInit", "decode", "encode", "serve"]

_GRACE = 1.0  # seconds for an orderly end after the parent has gone


@dataclass
class WorkerInit:
    """What a worker is told first.

    Attributes:
        env_ids: the sub-environments that it holds, consecutive.
        num_envs: how many there are in all.
        factories: how to make its own.
        takeovers: what each takes over from one that was lost; None at the first start.
        autoreset: the mode.
        debug: check observations.
        shared: whether slots are in shared memory.
        each: answer row by row.
        filters: the parent's warning filters.
        log_level: the parent's logging level.
    """

    env_ids: tuple[int, ...]
    num_envs: int
    factories: Sequence[Factory]
    takeovers: Sequence[Takeover] | None
    autoreset: Autoreset
    debug: bool
    shared: bool
    each: bool
    filters: list[Any]
    log_level: int


def encode(message: Any) -> bytes:
    """Pickle a message; by value what only the sender's ``__main__`` defines."""
    try:
        return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        data: bytes = cloudpickle.dumps(message)
        return data


def decode(data: bytes) -> Any:
    """Undo ``encode``; only ever used on what came over an inherited connection."""
    return pickle.loads(data)


def serve(connection: Connection, parent: int) -> None:
    """Run a worker until it is told to close or its parent, a process id, is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)  # a group of its own, so that what environments start can be ended with it
    faulthandler.enable(2)  # a segmentation fault says where in Python it came from
    threading.Thread(target=_end_with_parent, args=(connection, parent), daemon=True).start()
    _serve(connection)
    sys.stdout.flush()
    sys.stderr.flush()
    if any(not thread.daemon and thread is not threading.main_thread() for thread in threading.enumerate()):
        os._exit(0)  # an environment's thread that never ends would keep the process


def _serve(connection: Connection) -> None:
    try:
        init = decode(connection.recv_bytes())
        warnings.filters[:] = init.filters  # type: ignore[index]
        warnings._filters_mutated()  # type: ignore[attr-defined]
        if init.env_ids[0] != 0 or init.takeovers is not None:  # said once, by the first worker
            warnings.filterwarnings("ignore", category=CastWarning)
        logging.getLogger().setLevel(init.log_level)
        worker = _Worker(connection, init)
    except (EOFError, ConnectionError):
        return
    except _CouldNotMake as reason:
        connection.send_bytes(encode(("failed", [failure.without_cause() for failure in reason.failures])))
        return
    try:
        worker.answer_all()
    except (EOFError, ConnectionError):  # the parent is gone
        worker.close()
        _end_group()
    else:
        worker.close()


class _CouldNotMake(Exception):
    def __init__(self, failures: list[Failure]) -> None:
        self.failures = failures


class _Worker:
    def __init__(self, connection: Connection, init: WorkerInit) -> None:
        self._connection = connection
        self._each = init.each
        self._sub_envs: list[SubEnv] = []
        self._first_row = init.env_ids[0] if init.shared else 0
        for i, factory in zip(init.env_ids, init.factories, strict=True):
            try:
                env = factory()
            except (Exception, SystemExit) as error:
                self.close()
                raise _CouldNotMake([make_failure(i, error)]) from error
            self._sub_envs.append(SubEnv(i, env, init.autoreset, debug=init.debug))
        self._init = init
        descriptions = [Description.of(sub_env.env) for sub_env in self._sub_envs]
        first = descriptions[0]
        told = [(init.env_ids[0], first)]  # the first, and the first that differs: all that the parent needs
        told += [
            (i, other)
            for i, other in zip(init.env_ids, descriptions, strict=True)
            if (other.observation_space, other.action_space) != (first.observation_space, first.action_space)
        ][:1]
        self._send(("made", [(i, _sendable(description)) for i, description in told]))
        self._spaces = first.observation_space, first.action_space

    def answer_all(self) -> None:
        while True:
            kind, *message = decode(self._connection.recv_bytes())
            if kind == "step":
                self._step(*message)
            elif kind == "reset":
                self._reset(*message)
            elif kind == "ask":
                self._ask(*message)
            elif kind == "attach":
                self._attach()
            elif kind == "remake":
                self._remake(*message)
            elif kind == "frames":
                for sub_env, frames in zip(self._sub_envs, *message, strict=True):
                    sub_env.frames = frames
            else:
                assert kind == "close", kind
                return

    def close(self) -> None:
        for sub_env in self._sub_envs:
            try:
                sub_env.close()
            except (Exception, SystemExit):
                traceback.print_exc()

    def _attach(self) -> None:
        init = self._init
        if init.shared:
            block = SharedBlock.map(receive_descriptor(self._connection))
            self._slots = Slots(init.num_envs, *self._spaces, allocate=Arena(block.buffer), shared=True)
        else:
            self._slots = Slots(len(init.env_ids), *self._spaces)
        for k, sub_env in enumerate(self._sub_envs):
            sub_env.attach(self._slots, self._first_row + k)
            if init.takeovers is not None:
                sub_env.take_over(init.takeovers[k])
        self._send(("attached",))

    def _remake(self, rows: list[int], takeovers: list[Takeover]) -> None:
        """Make sub-environments anew that have raised."""
        failures = []
        for row, takeover in zip(rows, takeovers, strict=True):
            k = row - self._first_row
            try:
                self._sub_envs[k] = self._sub_envs[k].made_anew(self._init.factories[k], takeover)
            except (Exception, SystemExit) as error:
                failures.append(make_failure(self._sub_envs[k].index, error).without_cause())
        self._send(("remade", failures))

    def _step(self, rows: list[int] | None, payload: Any) -> None:
        if rows is None:
            rows = list(range(self._first_row, self._first_row + len(self._sub_envs)))
        slots = self._slots
        if payload is not None:
            slots.actions.load(rows, payload)
        actions = slots.actions.batch()
        self._run("step", rows, [(row_of(actions, row),) for row in rows])

    def _reset(self, rows: list[int], seeds: list[int | None], options: dict[str, Any] | None) -> None:
        self._run("reset", rows, [(seed, options) for seed in seeds])

    def _run(self, method: str, rows: list[int], arguments: list[tuple[Any, ...]]) -> None:
        """Step or reset rows; an exception takes its own row out and leaves the others alone."""
        done: list[int] = []
        failures: list[Failure] = []
        for row, args in zip(rows, arguments, strict=True):
            sub_env = self._sub_envs[row - self._first_row]
            try:
                getattr(sub_env, method)(*args)
                done.append(row)
            except (Exception, SystemExit) as error:
                action = args[0] if method == "step" else None
                failures.append(sub_env.failure(error, method, action).without_cause())
            if self._each:
                self._send_rows(done, failures)
                done, failures = [], []
        if not self._each:
            self._send_rows(done, failures)

    def _send_rows(self, rows: list[int], failures: list[Failure]) -> None:
        """Answer; rows whose step was done before their autoreset failed are among the values, not among the rows."""
        try:
            data = encode(self._rows_message(rows, failures))
        except Exception:
            data = encode(self._rows_message(*self._without_unsendable(rows, failures)))
        self._connection.send_bytes(data)

    def _rows_message(self, rows: list[int], failures: list[Failure]) -> tuple[Any, ...]:
        stepped = [self._row_of(failure.index) for failure in failures if failure.stepped]
        return "rows", rows, stepped, self._slots.export(rows + stepped), failures

    def _row_of(self, index: int) -> int:
        return self._first_row + index - self._sub_envs[0].index

    def _without_unsendable(self, rows: list[int], failures: list[Failure]) -> tuple[list[int], list[Failure]]:
        """Turn rows whose infos or observations cannot be pickled into failures that name what it is."""
        good: list[int] = []
        bad = [
            replace(failure, stepped=failure.stepped and self._can_export(self._row_of(failure.index)))
            for failure in failures
        ]
        for row in rows:
            try:
                encode(self._slots.export([row]))
                good.append(row)
            except Exception as error:
                sub_env = self._sub_envs[row - self._first_row]
                both = {**self._slots.final_infos[row], **self._slots.infos[row]}
                keys = [key for key, value in both.items() if not _can_send(value)]
                what = f"infos {keys}" if keys else "its result"
                reason = TypeError(f"{what} cannot be sent between processes ({error}); leave it out, or use dummy")
                bad.append(sub_env.failure(reason, "step").without_cause())
        return good, bad

    def _can_export(self, row: int) -> bool:
        try:
            encode(self._slots.export([row]))
        except Exception:
            return False
        return True

    def _ask(self, method: str, rows: list[int], arguments: list[tuple[Any, ...]]) -> None:
        values: dict[int, Any] = {}
        failures = []
        for row, args in zip(rows, arguments, strict=True):
            sub_env = self._sub_envs[row - self._first_row]
            try:
                value = getattr(sub_env, method)(*args)
                if not _can_send(value):
                    raise TypeError(f"the value of type {type(value).__name__} cannot be sent between processes")
                values[sub_env.index] = value
            except (Exception, SystemExit) as error:
                failures.append(sub_env.failure(error, method).without_cause())
        self._send(("values", values, failures))

    def _send(self, message: Any) -> None:
        self._connection.send_bytes(encode(message))


def _can_send(value: Any) -> bool:
    if value is None or isinstance(value, (int, float, str, bytes, np.ndarray)):
        return not (isinstance(value, np.ndarray) and value.dtype == object)
    try:
        encode(value)
    except Exception:
        return False
    return True


def _sendable(description: Description) -> Description:
    """Leave out what need not survive the way to the parent."""
    if not _can_send(description.spec):
        description.spec = None
    if not _can_send(description.metadata):
        description.metadata = {key: value for key, value in description.metadata.items() if _can_send(value)}
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
    """End this process and all that its environments started."""
    with contextlib.suppress(OSError, AttributeError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
