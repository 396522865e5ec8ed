"""A process that measures something, and is ended with everything it started, in time or not."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle

LOOK = 0.5  # seconds between checks that the parent is alive
GRACE = 2.0  # seconds for an orderly end
_BOOTSTRAP = """\
import sys
if not sys.flags.safe_path:
    del sys.path[0]  # the working directory, whose random.py need not be Python's
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
sys.path[:] = connection.recv()
from vecwrap.tools.processes import serve
serve(connection, int(sys.argv[2]))
"""


class TooLate(Exception):
    """Nothing arrived by the deadline."""


class Ended(Exception):
    """The process ended, or reported a failure; the message says how."""


class Measurer:
    """A fresh interpreter that runs one job and answers; in its own session, so that Ctrl-C reaches only the parent.

    ``job`` takes the connection and sends ``(kind, content)``; it is sent by value.
    """

    def __init__(self, job: Callable[[Connection], None]) -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115
        self._connection, other_end = Pipe()
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
        self._process = subprocess.Popen(
            [sys.executable, *flags, "-c", _BOOTSTRAP, str(other_end.fileno()), str(os.getpid()), "vecwrap-tune"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._words,
            pass_fds=(other_end.fileno(),),
            start_new_session=True,
        )
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
        """Wait for the next answer until ``deadline`` of the monotonic clock, else TooLate; Ended if it failed."""
        try:
            if not self._connection.poll(max(0.0, deadline - time.monotonic())):
                raise TooLate
            kind, content = self._connection.recv()
        except (EOFError, OSError):
            raise Ended(self._last_words()) from None
        if kind == "failed":
            raise Ended(content)
        return content

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


def serve(connection: Connection, parent: int) -> None:
    """Run the job that is received, until it is done or the parent, a process id, is gone."""
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    with contextlib.suppress(EOFError, OSError):  # the parent has heard enough
        job = cloudpickle.loads(connection.recv_bytes())
        try:
            job(connection)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            ours = type(error).__module__.startswith("vecwrap.")
            connection.send(("failed", text if ours else f"{type(error).__name__}: {text}"))


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


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
