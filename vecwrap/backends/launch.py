"""How a worker process comes to be.

The default is a fresh interpreter: no fork (safe beside threads and GPU libraries) and no import of ``__main__`` (a
plain script, a REPL and a notebook work without a ``__main__`` guard). What it runs travels by value over an inherited
socket.
``"spawn"``, ``"forkserver"`` and ``"fork"`` are multiprocessing's own, with its own rules.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, Protocol

from vecwrap.errors import PlanError, did_you_mean

__all__ = ["START_METHODS", "WorkerProcess", "check_start_method", "start_worker"]

START_METHODS = ("fresh", "spawn", "forkserver", "fork")
_MPI_PREFIXES = ("OMPI_", "PMI_", "PMIX_", "MPI_LOCAL", "MV2_COMM_", "HYDI_")
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)
_BOOTSTRAP = """\
import sys
from multiprocessing.connection import {connection}
connection = {connection}(int(sys.argv[1]))
sys.path[:] = connection.recv()
from vecwrap.backends.worker import serve
serve(connection)
"""
_environment_lock = threading.Lock()
_parent_ends: weakref.WeakSet[Any] = weakref.WeakSet()


class WorkerProcess(Protocol):
    """A running worker, however it was started."""

    @property
    def pid(self) -> int:
        """Its process id, which is its process group too."""

    @property
    def exitcode(self) -> int | None:
        """None while it runs; negative for a signal."""

    def join(self, timeout: float) -> bool:
        """Wait for its end; whether it came."""


class _FreshProcess:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def join(self, timeout: float) -> bool:
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True


class _MultiprocessingProcess:
    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid: int = process.pid

    @property
    def exitcode(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def join(self, timeout: float) -> bool:
        self._process.join(timeout)
        return self._process.exitcode is not None


def check_start_method(method: str | None) -> str:
    """Give the start method's name, ``"fresh"`` for None.

    Raises:
        PlanError: an unknown one, or one that this system does not have.
    """
    if method is None:
        return "fresh"
    if method not in START_METHODS:
        raise PlanError(
            f"start_method: expected one of {', '.join(START_METHODS)}, got {method!r}."
            f"{did_you_mean(str(method), START_METHODS)}"
        )
    if method != "fresh" and method not in multiprocessing.get_all_start_methods():
        raise PlanError(f"start_method: this system has no {method!r}; leave it out for a fresh interpreter")
    return method


def start_worker(method: str, *, daemon: bool) -> tuple[WorkerProcess, Any]:
    """Start a worker that waits for its first message.

    Args:
        method: one of ``START_METHODS``.
        daemon: multiprocessing's flag, for its start methods.

    Returns:
        The process, and the parent's end of its connection.
    """
    parent_end, worker_end = multiprocessing.Pipe(duplex=True)
    _parent_ends.add(parent_end)
    try:
        if method == "fresh":
            process: WorkerProcess = _FreshProcess(_popen(worker_end))
            parent_end.send(sys.path)
        else:
            context: Any = multiprocessing.get_context(method)
            to_close = list(_parent_ends) if method == "fork" else []
            spawned = context.Process(target=_serve_after_fork, args=(worker_end, to_close), daemon=daemon)
            with _worker_environment():
                spawned.start()
            process = _MultiprocessingProcess(spawned)
    except BaseException:
        parent_end.close()
        raise
    finally:
        worker_end.close()
    return process, parent_end


def kill(process: WorkerProcess, number: signal.Signals) -> None:
    """Send a signal to a worker and to whatever its environments started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.exitcode is None:
            os.kill(process.pid, number)


def _popen(worker_end: Any) -> subprocess.Popen[bytes]:
    handle = worker_end.fileno()
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "env": worker_environment(dict(os.environ))}
    if sys.platform == "win32":
        os.set_handle_inheritable(handle, True)
        startup = subprocess.STARTUPINFO()
        startup.lpAttributeList = {"handle_list": [handle]}
        options.update(startupinfo=startup, close_fds=True)
        code = _BOOTSTRAP.format(connection="PipeConnection")
    else:
        options.update(pass_fds=(handle,), process_group=0)
        code = _BOOTSTRAP.format(connection="Connection")
    return subprocess.Popen([sys.executable, *flags, "-c", code, str(handle), "vecwrap-worker"], **options)


def worker_environment(variables: dict[str, str]) -> dict[str, str]:
    """Give a worker's environment variables: none of MPI's; one thread a library unless the user said otherwise."""
    kept = {name: value for name, value in variables.items() if not name.startswith(_MPI_PREFIXES)}
    return {**dict.fromkeys(_ONE_THREAD, "1"), **kept}


@contextlib.contextmanager
def _worker_environment() -> Iterator[None]:
    """Set a worker's environment variables in this process, for start methods that inherit them."""
    with _environment_lock:
        before = dict(os.environ)
        try:
            os.environ.clear()
            os.environ.update(worker_environment(before))
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _serve_after_fork(connection: Connection, to_close: list[Any]) -> None:
    for end in to_close:  # else a worker would keep its siblings' connections open, and nobody would see the end of one
        end.close()
    from vecwrap.backends.worker import serve

    serve(connection)
