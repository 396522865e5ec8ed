"""A process that measures something, and is ended with everything it started, in time or not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import cloudpickle

__all__ = ["Ended", "Measurer", "TooLate", "pss_mb"]

LOOK = 0.1  # seconds between checks of the clock while waiting
GRACE = 2.0  # seconds for an orderly end
_BOOTSTRAP = """\
import sys
if not sys.flags.safe_path:
    del sys.path[0]  # the working directory, whose random.py need not be Python's
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
sys.path[:] = connection.recv()
from vecwrap.tuning.trial import serve
serve(connection, int(sys.argv[2]))
"""


class TooLate(Exception):
    """Nothing arrived by the deadline."""


class Ended(Exception):
    """The process ended, or reported a failure; the message says how."""


class Measurer:
    """A fresh interpreter that runs one job and answers; in its own session, so that Ctrl-C reaches only the parent.

    Args:
        job: a callable that takes the connection and sends its findings; it is sent by value.
        tick: called now and then while waiting.
        clock: in seconds.
    """

    def __init__(
        self, job: Callable[[Any], None], tick: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tick = tick
        self._clock = clock
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        self._connection, other_end = Pipe()
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        try:
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-c", _BOOTSTRAP, str(other_end.fileno()), str(os.getpid()), "vecwrap-tune"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._words,
                pass_fds=(other_end.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            self._connection.close()
            self._words.close()
            raise
        finally:
            other_end.close()
        with contextlib.suppress(OSError):  # it ended at once: `hear` reports it
            self._connection.send(list(sys.path))
            self._connection.send_bytes(cloudpickle.dumps(job))

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end(kill=exception[0] is not None)

    def ask(self, message: Any) -> None:
        """Send it a message."""
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def hear(self, deadline: float) -> Any:
        """Wait for the next answer.

        Raises:
            TooLate: none arrived by the deadline.
            Ended: the process failed.
        """
        while True:
            try:
                if self._connection.poll(max(0.0, min(LOOK, deadline - self._clock()))):
                    kind, content = self._connection.recv()
                    if kind == "failed":
                        raise Ended(content)
                    return content
            except (EOFError, OSError):
                raise Ended(self._last_words()) from None
            self._tick()
            if self._clock() >= deadline:
                raise TooLate

    def end(self, *, kill: bool = False) -> None:
        """End it and everything it started; unless it is killed, it gets a moment to close its environment."""
        if self._words.closed:  # it has already ended, and its pid may have been reused
            return
        self._connection.close()
        try:
            if not kill:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(GRACE)
        finally:
            for pid in session_of(self._process.pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._words.close()

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        said = f": {lines[-1]}" if lines else ""
        return f"the process ended with exit code {self._process.returncode}{said}"


def session_of(session: int) -> list[int]:
    """Return all processes of a session: a process and everything it started. Empty if the system has no /proc."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[3]) == session:
                found.append(int(folder.name))
    return found


def pss_mb(pid: int) -> float | None:
    """Return a process's proportional memory in MB: shared pages count by shares; None if unknown."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("Pss:")), None)
