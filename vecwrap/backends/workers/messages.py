"""The messages between a parent and its workers, their encoding, and the parent's connection.

Messages are pickled tuples over the inherited connection:

- A ``WorkerInit`` comes first, and is answered by ``("made", descriptions)`` or by ``("failed",
  failure)``, after which the worker exits.
- ``("attach",)`` means that the slots can be made, and is followed by the descriptors of their
  memory and of the step ring's bells if memory is shared; the answer is ``("attached",)``.
- ``("step", rows, payload)`` and ``("reset", rows, seeds, options)`` are answered by ``("rows",
  answers, rows, stepped, payload, failures)``: one message for all rows, or one per row if the
  parent set ``each``.
- If memory is shared, steps are requested through the step
  ring (``vecwrap.backends.workers.step_ring``), and answered there too; or by ``("rows", ...)`` if
  something cannot be in shared memory: a non-numeric info, a frame, a failure.
- ``("frames", wanted)`` applies to rows requested after it, and is not answered.
- ``("ask", method, rows, arguments)`` is answered by ``("values", values, failures)``.
- ``("remake", rows, takeovers)`` is answered by ``("remade", failures)``.
- ``("close", timeout)`` ends the worker, and so does the end of the parent; engines get so many
  seconds.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import pickle
import resource
import socket
import sys
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any

import numpy as np

from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.by_value import by_value
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.failure import Failure
from vecwrap.sources.registrations import Registrations
from vecwrap.sources.source import RestartState
from vecwrap.sources.source_factories import Factory

_MAX_HEADER = (
    0x7FFFFFFF  # multiprocessing.connection's framing: 4 bytes of length, or -1 and 8 bytes
)
_CHUNK_BYTES = 1 << 16
# from where a worker's own descriptors are numbered; few environments have so many files open
_FIRST_OWN_DESCRIPTOR = 512
_ANSWERS: dict[str, tuple[type, ...]] = {
    "made": (list,),
    "failed": (Failure,),
    "attached": (),
    "rows": (int, list, list, tuple, list),
    "values": (dict, list),
    "remade": (list,),
}
_MAX_CHUNK_BYTES = 1 << 20


@dataclass
class WorkerContents:
    """The program's own part of what a worker starts from."""

    factories: Sequence[Factory]  # of its sources
    # of its rows, from those that were lost; None at the first start
    restart_states: Sequence[RestartState] | None
    registrations: Registrations
    filters: list[Any]


@dataclass
class WorkerInit:
    env_ids: tuple[int, ...]  # of its sub-environments, consecutive
    num_envs: int  # of all
    # by value, because it may be unreadable: a WorkerContents, then the registrations' specs
    contents: bytes
    num_contents: int  # how many values that are
    autoreset: Autoreset
    debug: bool
    recreate_every: int | None
    number: int
    num_workers: int
    largest_share: int
    log_level: int
    shared: bool = False  # whether slots are in shared memory
    each: bool = False  # answer row by row
    spins: bool = False  # whether there is a core on which it may wait without sleeping


def encode(message: Any) -> bytes:
    """Pickle a message; what cannot be imported is pickled by value."""
    try:
        return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        return by_value(message)


def encode_for_worker(message: Any) -> bytes:
    """Pickle a message to a worker, with objects of ``__main__`` by value.

    The worker's own ``__main__`` is a different module.
    """
    data = encode(message)
    if b"__main__" in data:
        data = by_value(message)
    return data


decode = pickle.loads


def refuse_malformed(message: Any, awaited: Sequence[str], env_ids: range) -> None:
    """Raise ValueError unless a message is an awaited reply about the worker's own rows."""
    kind: Any = None
    content: list[Any] = []
    if type(message) is tuple and message:
        kind, *content = message
    form = None
    if type(kind) is str:
        form = _ANSWERS.get(kind)
    if form is None or tuple(map(type, content)) != form:
        raise ValueError("expected one of the answers of a worker")
    if kind not in awaited and not (
        kind == "failed" and ("made" in awaited or "attached" in awaited)
    ):
        expected = next(iter(awaited), "none")
        raise ValueError(f'expected the answer "{expected}", got "{kind}"')
    if kind == "rows" and not 1 <= content[0] <= awaited.count(kind):
        raise ValueError(f"expected at most {awaited.count(kind)} answers, got {content[0]}")
    if kind == "made":
        fits = bool(content[0]) and content[0][0][0] == env_ids[0]
        fits = fits and all(
            type(i) is int and i in env_ids and type(one) is EnvDescription for i, one in content[0]
        )
    else:
        failures: Sequence[Any] = ()
        if kind == "failed":
            failures = content
        elif content:
            failures = content[-1]
        fits = all(type(one) is Failure and one.is_of(env_ids) for one in failures)
    if not fits:
        raise ValueError(
            f'"{kind}": expected what became of sub-environments {env_ids[0]} to {env_ids[-1]}'
        )


def can_send(value: Any) -> bool:
    """Whether a value can be pickled, as ``encode`` does it."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return True
    try:
        encode(value)
    except Exception:
        return False
    return True


def filter_names(filters: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Replace the categories of warning filters by their module and name.

    Categories that a script defines itself are sent by value.

    Unpickling a category would import the module that defines it. torch adds a filter for a warning
    class of its own, so the workers of any process that has imported torch would import it too:
    seconds, and hundreds of MB each.
    """
    return [
        (action, message, _name(category), *where) for action, message, category, *where in filters
    ]


def set_filters(filters: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Insert the filters whose categories are imported here; return the other filters.

    Nothing can raise the other categories yet.
    """
    here = []
    others = []
    for action, message, category, *where in filters:
        if isinstance(category, tuple):
            module, name = category
            try:
                category = attrgetter(name)(sys.modules[module])
            except (KeyError, AttributeError):
                others.append((action, message, (module, name), *where))
                continue
        here.append((action, message, category, *where))
    warnings.filters[:0] = here  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]  # noqa: SLF001
    return others


def _name(category: Any) -> Any:
    module = category.__module__
    name = category.__qualname__
    with contextlib.suppress(KeyError, AttributeError):
        if module != "__main__" and attrgetter(name)(sys.modules[module]) is category:
            return module, name
    return category


class Channel:
    """The parent's end of a socket pair; calls never block.

    Unsent bytes and incomplete messages are kept until the next call.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.setblocking(False)
        self._to_send: deque[memoryview | int] = deque()  # bytes, and descriptors between them
        self._received = bytearray()
        self.num_bytes = 0  # sent and received

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something is still to be sent: ``flush`` when the socket can be written to."""
        return bool(self._to_send)

    def send(self, message: bytes) -> None:
        """Send as much of a message as possible; raise OSError if the other end is gone."""
        size = len(message)
        if size <= _MAX_HEADER:
            header = size.to_bytes(4, "big")
        else:
            header = b"\xff\xff\xff\xff" + size.to_bytes(8, "big")
        if size < _CHUNK_BYTES:
            self._to_send.append(memoryview(header + message))
        else:
            self._to_send.extend((memoryview(header), memoryview(message)))
        self.flush()

    def send_descriptor(self, descriptor: int) -> None:
        self._to_send.append(descriptor)
        self.flush()

    def flush(self) -> None:
        """Send what is left, as far as possible now; raise OSError if the other end is gone."""
        while self._to_send:
            first = self._to_send[0]
            try:
                if isinstance(first, int):
                    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [first]))
                    self._socket.sendmsg([b"\0"], [rights])
                    sent = 0
                else:
                    sent = self._socket.send(first)
            except BlockingIOError:
                return
            self.num_bytes += sent
            if isinstance(first, int) or sent == len(first):
                self._to_send.popleft()
            else:
                self._to_send[0] = first[sent:]

    def receive(self) -> bytes | None:
        """Return the next message, or None while the message is incomplete.

        Raise EOFError or OSError if the other end is gone.
        """
        while len(self._received) < (bounds := self._bounds())[1]:
            try:
                chunk = self._socket.recv(
                    max(_CHUNK_BYTES, min(bounds[1] - len(self._received), _MAX_CHUNK_BYTES))
                )
            except BlockingIOError:
                return None
            if not chunk:
                raise EOFError
            self._received += chunk
            self.num_bytes += len(chunk)
        start, stop = bounds
        message = bytes(memoryview(self._received)[start:stop])
        del self._received[:stop]
        return message

    def _bounds(self) -> tuple[int, int]:
        """Return the bounds of the first message, or of its header while that is incomplete."""
        received = self._received
        if len(received) < 4:
            return 4, 4
        size = int.from_bytes(received[:4], "big")
        if size <= _MAX_HEADER:
            return 4, 4 + size
        if len(received) < 12:
            return 12, 12
        return 12, 12 + int.from_bytes(received[4:12], "big")

    def close(self) -> None:
        self._to_send.clear()
        self._socket.close()


def move_descriptor_up(descriptor: int) -> int:
    """Give a descriptor a high number, and return that.

    An environment may close descriptors that are not its own; the next file that it opens gets the
    lowest free number, which must not be one that a worker writes to. Where so high a number is not
    to be had, it stays as it is.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    lowest = _FIRST_OWN_DESCRIPTOR
    if most > 0:
        lowest = min(_FIRST_OWN_DESCRIPTOR, most // 2)
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    except OSError:
        return descriptor
    os.close(descriptor)
    return high


def receive_descriptor(connection: Connection) -> int:
    """Receive, in a worker, a descriptor sent by ``Channel.send_descriptor``."""
    with socket.socket(fileno=connection.fileno()) as end:
        # a default socket timeout would have made the connection non-blocking
        end.setblocking(True)
        try:
            data, descriptors, _, _ = socket.recv_fds(end, 1, 1)
        finally:
            end.detach()
    if not data:
        raise EOFError
    if not descriptors:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise OSError(
            errno.EMFILE,
            f"the worker may open no more descriptors (RLIMIT_NOFILE is {most}); raise ulimit -n, "
            "or let its environments hold fewer files",
        )
    return descriptors[0]
