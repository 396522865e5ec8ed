"""The worker in a Ray actor: the same as in a local process, but requests and answers are calls.

A call carries messages, the last of which is answered.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from vecwrap.backends.workers.messages import WorkerInit, decode, encode
from vecwrap.backends.workers.worker import UnpickleError, Worker
from vecwrap.sources.failure import Failure, MakeError

_MIN_BUFFER_BYTES = 4096  # bytes from which an array gets its own buffer


class Reply(NamedTuple):
    """A reply that travels through Ray's object store.

    The parent reads large observations in place in the store.
    """

    message: bytes
    observations: bytes | None = None
    buffers: Sequence[Any] = ()


def unpack(reply: Reply) -> tuple[Any, ...]:
    """Decode a reply; its observation arrays are read-only.

    The arrays are valid as long as the reply is held.
    """
    message: tuple[Any, ...] = decode(reply.message)
    if reply.observations is None:
        return message
    observations = pickle.loads(reply.observations, buffers=reply.buffers)
    *head, (numbers, _, *rest), failures = message
    return *head, (numbers, observations, *rest), failures


def start_actor(data: bytes) -> tuple[ActorWorker | None, bytes]:
    """Make an actor's sub-environments; return the worker (None if it failed) and the reply."""
    init: WorkerInit = decode(data)
    try:
        worker = ActorWorker(init)
    except MakeError as reason:
        if isinstance(reason, UnpickleError) and isinstance(reason.__cause__, ModuleNotFoundError):
            raise reason.__cause__ from None  # the node has no such package
        return None, encode(("failed", reason.failure.without_cause()))
    return worker, worker.made


class ActorWorker(Worker):
    """The sub-environments of one actor; ``made`` is the answer to the start, pickled."""

    def __init__(self, init: WorkerInit) -> None:
        self._reply = Reply(b"")
        super().__init__(None, init)
        self.made = self._reply.message
        self._attach()

    def answer(self, data: bytes) -> Reply:
        for message in decode(data):
            self._answer(message)
        reply = self._reply
        self._reply = Reply(b"")
        return reply

    def _send(self, message: Any) -> None:
        self._reply = Reply(encode(message))

    def _send_rows(
        self, answers: int, during: str, rows: Sequence[int], failures: list[Failure]
    ) -> None:
        try:
            self._reply = self._packed(self._rows_message(answers, rows, failures))
        except Exception:
            self._reply = self._packed(
                self._rows_message(answers, *self._without_unsendable(during, rows, failures))
            )

    def _packed(self, message: tuple[Any, ...]) -> Reply:
        """Pickle a reply, with large observations as separate buffers in the object store.

        The parent copies these observations at once.
        """
        *head, payload, failures = message
        numbers, observations, *rest = payload
        if self._slots.needs_pipe or observations is None:
            return Reply(encode(message))
        buffers: list[pickle.PickleBuffer] = []

        def stays_inside(buffer: pickle.PickleBuffer) -> bool:
            if buffer.raw().nbytes < _MIN_BUFFER_BYTES:
                return True
            buffers.append(buffer)
            return False

        pickled = pickle.dumps(observations, protocol=5, buffer_callback=stays_inside)
        return Reply(encode((*head, (numbers, None, *rest), failures)), pickled, buffers)


def host_class() -> Callable[[], Any]:
    """Return the class of Ray actors.

    The class is defined in a function because cloudpickle sends such a class by value, with all
    that it needs.
    """

    class Host:
        """Runs in a Ray process and holds a vecwrap worker."""

        def __init__(self) -> None:
            self.worker: Any = None

        def start(
            self, path: list[str], directory: str, variables: Sequence[str], init: bytes
        ) -> Any:
            """Make the sub-environments; return process, node, missing package and reply."""
            import os
            import sys

            import ray

            for name in variables:
                os.environ.setdefault(name, "1")
            sys.path.extend(entry for entry in path if entry not in sys.path)
            if os.path.isdir(directory):  # noqa: PTH112
                os.chdir(directory)
            missing = None
            answer = b""
            try:
                from vecwrap.backends.ray_actor import start_actor

                self.worker, answer = start_actor(init)
            except ModuleNotFoundError as error:
                missing = error.name or str(error)
            node = ray.get_runtime_context().get_node_id()
            return os.getpid(), node, ray.util.get_node_ip_address(), missing, answer

        def answer(self, data: bytes) -> Any:
            if self.worker is None:
                return None
            return self.worker.answer(data)

        def close(self, timeout: float) -> None:
            worker = self.worker
            self.worker = None
            if worker is not None:
                worker.close(timeout)

    return Host
