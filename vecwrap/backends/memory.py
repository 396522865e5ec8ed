"""A block of memory that several processes share, and that dies with its users: there is no name to clean up.

Linux: a memfd. Other POSIX systems: a temporary file that is unlinked at once. Windows: a named mapping, which goes
with its last handle. The descriptor is passed over the worker's own connection, and closed once all have mapped it.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

from vecwrap.errors import BackendError

__all__ = ["SharedBlock"]


class SharedBlock:
    """Shared memory of a fixed size, zeroed.

    Attributes:
        buffer: the mapping; arrays over it keep it alive.
    """

    def __init__(self, buffer: mmap.mmap, descriptor: int | None, name: str | None) -> None:
        self.buffer = buffer
        self._descriptor = descriptor
        self._name = name

    @classmethod
    def create(cls, num_bytes: int) -> SharedBlock:
        """Make a block.

        Raises:
            BackendError: there is not enough memory.
        """
        num_bytes = max(num_bytes, mmap.PAGESIZE)
        if sys.platform == "win32":
            name = f"vecwrap-{os.getpid()}-{os.urandom(8).hex()}"
            return cls(mmap.mmap(-1, num_bytes, tagname=name), None, name)
        descriptor = _anonymous_file()
        try:
            os.ftruncate(descriptor, num_bytes)
            return cls(mmap.mmap(descriptor, num_bytes), descriptor, None)
        except OSError as error:
            os.close(descriptor)
            raise BackendError(
                f"shmem: {num_bytes:,} bytes of shared memory are needed and could not be had ({error}); "
                'use fewer sub-environments, smaller observations, or backend="subprocess"'
            ) from error

    def send(self, connection: Any, pid: int) -> None:
        """Let the process at the other end of a connection map this block, with ``receive``."""
        connection.send((self._name, len(self.buffer)))
        if self._descriptor is not None:
            send_handle(connection, self._descriptor, pid)

    @classmethod
    def receive(cls, connection: Connection) -> SharedBlock:
        """Map the block that ``send`` offers."""
        name, num_bytes = connection.recv()
        if sys.platform == "win32":
            return cls(mmap.mmap(-1, num_bytes, tagname=name), None, name)
        descriptor = recv_handle(connection)
        try:
            return cls(mmap.mmap(descriptor, num_bytes), None, None)
        finally:
            os.close(descriptor)

    def close_descriptor(self) -> None:
        """Give the descriptor back; the mapping stays for as long as arrays use it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _anonymous_file() -> int:
    """A descriptor of memory without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("vecwrap", os.MFD_CLOEXEC)
    return _unlinked_file()


def _unlinked_file() -> int:
    """The portable way: a file that is unlinked while it is open."""
    with tempfile.TemporaryFile(prefix="vecwrap-") as file:
        return os.dup(file.fileno())
