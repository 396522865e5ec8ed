"""What a worker writes to stderr: shown as it comes, and its last lines kept for the error that tells of its death.

The worker's stderr is an anonymous file that it appends to, and never a pipe: a pipe that nobody reads while the parent
is busy would hold the worker up, and one whose reader is a thread would make the parent's process multi-threaded.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys

from vecwrap.backends.memory import anonymous_file

__all__ = ["LastWords"]

_KEPT = 1 << 13  # bytes
_LARGEST = 1 << 22  # bytes; an environment that floods its stderr does not fill the memory


class LastWords:
    """The stderr of one worker."""

    def __init__(self) -> None:
        self.descriptor = anonymous_file()
        fcntl.fcntl(self.descriptor, fcntl.F_SETFL, fcntl.fcntl(self.descriptor, fcntl.F_GETFL) | os.O_APPEND)
        self._shown = 0
        self._tail = b""

    def show(self) -> None:
        """Write what is new to this process's ``sys.stderr``; of more than can be shown in time the tail."""
        if self.descriptor < 0:
            return
        new = os.fstat(self.descriptor).st_size - self._shown  # what comes from now on is shown the next time
        if new <= 0:
            return
        left_out = new - _KEPT if new > _LARGEST else 0
        said = os.pread(self.descriptor, new - left_out, self._shown + left_out)
        self._shown += new
        if self._shown > _LARGEST:  # before it is shown, which may take a while
            size = os.fstat(self.descriptor).st_size
            if size == self._shown or size > 4 * _LARGEST:  # what came meanwhile is kept, unless it comes without end
                os.ftruncate(self.descriptor, 0)
                self._shown = 0
        self._tail = (self._tail + said)[-_KEPT:]
        text = said.decode(errors="replace")
        if left_out:
            text = f"\n({left_out:,} bytes of a worker's stderr are left out, for they came too fast)\n\n{text}"
        with contextlib.suppress(Exception):  # no stderr, a closed one, a full disk behind it
            sys.stderr.write(text)
            sys.stderr.flush()

    def lines(self, most: int = 20) -> list[str]:
        """Give the last lines that are not empty."""
        return [line for line in self._tail.decode(errors="replace").splitlines() if line.strip()][-most:]

    def close(self) -> None:
        """Show what is left, and give the file back; may be called again."""
        self.show()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
