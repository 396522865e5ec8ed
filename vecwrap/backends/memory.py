"""A block of memory shared by several processes, freed with its last user: there is no name to clean up.

Linux: a memfd. Other POSIX systems: a temporary file that is unlinked at once. The descriptor is passed over the
worker's own connection. Neither is in ``/dev/shm``, which is 64 MB in a container.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

from vecwrap.backends.lane import Words, lanes
from vecwrap.columns import Arena
from vecwrap.errors import BackendError
from vecwrap.slots import Slots

__all__ = ["SharedBlock", "allocate_shared", "anonymous_file"]


class SharedBlock:
    """Shared memory of a fixed size, zeroed.

    Attributes:
        buffer: the mapping; arrays over it keep it alive.
        descriptor: for other processes to map it by; -1 once this process has closed it.
    """

    def __init__(self, buffer: mmap.mmap, descriptor: int = -1) -> None:
        self.buffer = buffer
        self.descriptor = descriptor

    @classmethod
    def create(cls, num_bytes: int) -> SharedBlock:
        """Make a block.

        Raises:
            BackendError: there is not enough memory.
        """
        num_bytes = max(num_bytes, mmap.PAGESIZE)
        descriptor = -1
        try:
            descriptor = anonymous_file()
            os.ftruncate(descriptor, num_bytes)
            block = cls(mmap.mmap(descriptor, num_bytes), descriptor)
            if hasattr(os, "posix_fallocate"):  # better an error now than SIGBUS in the first step
                os.posix_fallocate(descriptor, 0, num_bytes)
            return block
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            raise BackendError(
                f"shmem: {num_bytes:,} bytes of shared memory are needed but could not be allocated ({error}); "
                'use fewer sub-environments, smaller observations, or backend="subprocess"'
            ) from error

    @classmethod
    def map(cls, descriptor: int) -> SharedBlock:
        """Map the block of a descriptor received from another process, then close the descriptor."""
        try:
            return cls(mmap.mmap(descriptor, os.fstat(descriptor).st_size))
        finally:
            os.close(descriptor)

    def close_descriptor(self) -> None:
        """Close the descriptor; the mapping remains as long as arrays use it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def anonymous_file() -> int:
    """Return the descriptor of a file without a name, in memory if the system supports it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("vecwrap", os.MFD_CLOEXEC)
    return _unlinked_file()


def _unlinked_file() -> int:
    """The portable fallback: a file that is unlinked while open."""
    with tempfile.TemporaryFile(prefix="vecwrap-") as file:
        return os.dup(file.fileno())


def allocate_shared(
    num_envs: int,
    observation_space: Any,
    action_space: Any,
    num_workers: int,
    largest_share: int,
    arena: Arena,
    *,
    first_row: int = 0,
) -> tuple[Slots, list[Words]]:
    """Allocate the shared arrays, in the same way in the parent and in the workers.

    Args:
        num_envs: n.
        observation_space: of one sub-environment.
        action_space: likewise.
        num_workers: how many.
        largest_share: the largest number of sub-environments in a worker.
        arena: where; without a buffer, only the size is measured.
        first_row: the first of the rows that this process steps.
    """
    slots = Slots(num_envs, observation_space, action_space, allocate=arena, shared=True, first_row=first_row)
    return slots, lanes(num_workers, largest_share, arena)
