"""The parent's end of a worker's connection, which never blocks.

Data that cannot be sent yet is kept and sent later; received data is kept until a message is complete. So a worker that
stops during a message, or never reads, does not block the parent, and an abandoned wait can be resumed.
"""

from __future__ import annotations

import array
import errno
import resource
import socket
from collections import deque
from multiprocessing.connection import Connection

__all__ = ["Channel", "receive_descriptor"]

_LARGEST_HEADER = 0x7FFFFFFF  # multiprocessing.connection's framing: 4 bytes of length, or -1 and 8 bytes
_CHUNK = 1 << 16
_LARGEST_CHUNK = 1 << 20


class Channel:
    """One end of a socket pair, whose other end is a ``multiprocessing.connection.Connection``.

    Args:
        end: this end.

    Attributes:
        num_bytes: how many have been sent and received.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.setblocking(False)
        self._to_send: deque[memoryview | int] = deque()  # bytes, and descriptors between them
        self._received = bytearray()
        self.num_bytes = 0

    def fileno(self) -> int:
        """The descriptor, -1 after ``close``."""
        return self._socket.fileno()

    # -- sending -------------------------------------------------------------------------------------------------------

    @property
    def unsent(self) -> bool:
        """Whether something is still to be sent: ``flush`` when the socket can be written to."""
        return bool(self._to_send)

    def send(self, message: bytes) -> None:
        """Send a message, or as much of it as possible now.

        Raises:
            OSError: the other end is gone.
        """
        size = len(message)
        header = size.to_bytes(4, "big") if size <= _LARGEST_HEADER else b"\xff\xff\xff\xff" + size.to_bytes(8, "big")
        if size < _CHUNK:
            self._to_send.append(memoryview(header + message))
        else:
            self._to_send.extend((memoryview(header), memoryview(message)))
        self.flush()

    def send_descriptor(self, descriptor: int) -> None:
        """Send an open file descriptor, which the other end gets with ``receive_descriptor``; it must stay open."""
        self._to_send.append(descriptor)
        self.flush()

    def flush(self) -> None:
        """Send what is left, as far as possible now.

        Raises:
            OSError: the other end is gone.
        """
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

    # -- receiving -----------------------------------------------------------------------------------------------------

    def receive(self) -> bytes | None:
        """Return the next message, or None while it is incomplete.

        Raises:
            EOFError: the other end is gone, and no complete message is left.
            OSError: likewise.
        """
        while (message := self._whole_message()) is None:
            try:
                chunk = self._socket.recv(max(_CHUNK, min(self._missing(), _LARGEST_CHUNK)))
            except BlockingIOError:
                return None
            if not chunk:
                raise EOFError
            self._received += chunk
            self.num_bytes += len(chunk)
        return message

    def _layout(self) -> tuple[int, int] | None:
        """Where the first message begins and ends, once its header has arrived."""
        received = self._received
        if len(received) < 4:
            return None
        size = int.from_bytes(received[:4], "big")
        if size <= _LARGEST_HEADER:
            return 4, 4 + size
        if len(received) < 12:
            return None
        return 12, 12 + int.from_bytes(received[4:12], "big")

    def _missing(self) -> int:
        layout = self._layout()
        return 0 if layout is None else layout[1] - len(self._received)

    def _whole_message(self) -> bytes | None:
        layout = self._layout()
        if layout is None or len(self._received) < layout[1]:
            return None
        start, stop = layout
        message = bytes(memoryview(self._received)[start:stop])
        del self._received[:stop]
        return message

    def close(self) -> None:
        """Close the descriptor; may be called again."""
        self._to_send.clear()
        self._socket.close()


def receive_descriptor(connection: Connection) -> int:
    """Receive, in a worker, a descriptor sent by ``Channel.send_descriptor``.

    Raises:
        EOFError: the other end is gone.
        OSError: this process may open no more descriptors.
    """
    with socket.socket(fileno=connection.fileno()) as end:
        end.setblocking(True)  # a default socket timeout would have made the connection non-blocking
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
            f"the worker may open no more descriptors (RLIMIT_NOFILE is {most}); raise ulimit -n, or let "
            "its environments hold fewer files",
        )
    return descriptors[0]
