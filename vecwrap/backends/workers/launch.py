"""How a worker process comes to be, and how it is ended.

The default is a fresh interpreter: no fork (safe beside threads and GPU libraries) and no import of
``__main__`` (a plain script, a REPL and a notebook work without a ``__main__`` guard). What it runs
travels by value over an inherited socket. ``"spawn"``, ``"forkserver"`` and ``"fork"`` are
multiprocessing's own, with its own rules.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

from vecwrap.backends.workers.messages import Channel, receive_descriptor
from vecwrap.backends.workers.step_ring import anonymous_file
from vecwrap.errors import BackendError

_MPI_PREFIXES = ("OMPI_", "PMI_", "PMIX_", "MPI_LOCAL", "MV2_COMM_", "HYDI_")
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)
_BOOTSTRAP = """\
import sys
if not sys.flags.safe_path:
    del sys.path[0]  # the working directory, whose random.py need not be Python's
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
sys.path[:] = connection.recv()
from vecwrap.backends.workers.worker import serve
serve(connection, int(sys.argv[2]))
"""
_TAIL_BYTES = 1 << 13  # bytes of a worker's stderr, for the error that reports its death
_MAX_STDERR_BYTES = (
    1 << 22
)  # bytes of it; an environment that floods its stderr does not fill the memory
_environment_lock = threading.Lock()
_channels: weakref.WeakSet[Channel] = weakref.WeakSet()


class WorkerProcess(ABC):
    """A worker's process, however it was started; ``pid`` is its process group too.

    Its end is looked at, and ends what it started, before it is reaped. Where the program ignores
    SIGCHLD, or reaps every child itself, nobody can be asked any more how one ended: ``subprocess``
    then tells exit code 0, and ``multiprocessing`` that it runs for ever.
    """

    def __init__(self, process: Any, *, is_own_child: bool = True) -> None:
        self._process = process
        # macOS has no waitid before Python 3.13
        self.is_own_child = is_own_child and hasattr(os, "waitid")
        self._ended = False
        self._code: int | None = None
        self.pid: int = process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        if not self._ended:
            ended, code = self._poll_exit()
            if ended and not self._ended:  # nor has another thread seen it meanwhile, and reaped it
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    # what the process started; once the process is reaped, its id may be another's
                    os.killpg(self.pid, signal.SIGKILL)
                self._code = code
                self._ended = True
                self._reap()
        return not self._ended

    @property
    def exitcode(self) -> int | None:
        """None while it runs, and where the program took it for itself; negative for a signal."""
        return None if self.running else self._code

    @abstractmethod
    def join(self, timeout: float) -> bool:
        """Wait for its end; whether it came."""

    @abstractmethod
    def _poll(self) -> int | None:
        """Give its exit code, and reap it; None while it runs."""

    def _reap(self) -> None:
        self._poll()

    def _poll_exit(self) -> tuple[bool, int | None]:
        """Give whether it has ended, and its exit code, None where that was taken."""
        if not self.is_own_child:
            code = self._poll()
            return code is not None, code
        try:
            end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True, None
        if end is None:
            return False, None
        return True, end.si_status if end.si_code == os.CLD_EXITED else -end.si_status


class _FreshProcess(WorkerProcess):
    _process: subprocess.Popen[bytes]

    def join(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        pause = 0.0005
        while self.running and (remaining := deadline - time.monotonic()) > 0:
            time.sleep(min(pause, remaining))
            pause = min(2 * pause, 0.05)
        return not self.running

    def _poll(self) -> int | None:
        return self._process.poll()


class _MultiprocessingProcess(WorkerProcess):
    def join(self, timeout: float) -> bool:
        if self.running:
            self._process.join(timeout)
        return not self.running

    def _poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def _reap(self) -> None:
        if self._poll() is None:
            # Otherwise multiprocessing takes the process for running, and keeps its descriptors.
            self._process._popen.returncode = 0  # noqa: SLF001
        self._process.close()  # they go now, and not with the last reference to it


class StderrTail:
    """The stderr of one worker: a file that the worker appends to.

    New text is written as it comes; the last lines are kept for the report of the worker's death.
    """

    def __init__(self) -> None:
        self.descriptor = anonymous_file()
        fcntl.fcntl(
            self.descriptor,
            fcntl.F_SETFL,
            fcntl.fcntl(self.descriptor, fcntl.F_GETFL) | os.O_APPEND,
        )
        self._num_flushed = 0
        self._tail = b""

    def flush(self) -> None:
        """Write the worker's new stderr text to ``sys.stderr`` of this process.

        If there is too much new text, only its tail is written.
        """
        if self.descriptor < 0:
            return
        # text that is written from now on is shown the next time
        new = os.fstat(self.descriptor).st_size - self._num_flushed
        if new <= 0:
            return
        left_out = 0
        if new > _MAX_STDERR_BYTES:
            left_out = new - _TAIL_BYTES
        said = os.pread(self.descriptor, new - left_out, self._num_flushed + left_out)
        self._num_flushed += new
        if self._num_flushed > _MAX_STDERR_BYTES:  # before it is shown, which may take a while
            size = os.fstat(self.descriptor).st_size
            # text that was written meanwhile is kept, unless it is written without end
            if size == self._num_flushed or size > 4 * _MAX_STDERR_BYTES:
                os.ftruncate(self.descriptor, 0)
                self._num_flushed = 0
        self._tail = (self._tail + said)[-_TAIL_BYTES:]
        text = said.decode(errors="replace")
        if left_out:
            text = (
                f"\n({left_out:,} bytes of a worker's stderr are left out, because they arrived "
                f"too fast)\n\n{text}"
            )
        with contextlib.suppress(Exception):  # no stderr, a closed one, a full disk behind it
            sys.stderr.write(text)
            sys.stderr.flush()

    def lines(self, most: int = 20) -> list[str]:
        return [line for line in self._tail.decode(errors="replace").splitlines() if line.strip()][
            -most:
        ]

    def close(self) -> None:
        """Show what is left, and give the file back; may be called again."""
        self.flush()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def start_worker(method: str, *, daemon: bool) -> tuple[WorkerProcess, Channel, StderrTail]:
    """Start a worker that waits for its first message; return worker, channel and stderr."""
    with contextlib.ExitStack() as opened:  # what is closed again where anything fails
        try:
            words = StderrTail()
            opened.callback(words.close)
            parent_end, worker_end = socket.socketpair()
            channel = Channel(parent_end)
            opened.callback(channel.close)
            _channels.add(channel)
            with worker_end:
                # for the worker that inherits it: a default timeout would have changed that
                worker_end.setblocking(True)
                if method == "fresh":
                    process: WorkerProcess = _FreshProcess(_popen(worker_end, words))
                    # as ``Connection.recv`` takes it
                    channel.send(bytes(ForkingPickler.dumps(list(sys.path))))
                else:
                    process = _spawn(method, worker_end, daemon)
                    channel.send_descriptor(words.descriptor)
        except (OSError, AssertionError) as error:
            remedy = 'use fewer workers, or backend="dummy"'
            raise BackendError(f"a worker could not be started ({error}); {remedy}") from error
        opened.pop_all()
    return process, channel, words


def kill(process: WorkerProcess, number: signal.Signals) -> None:
    """Send a signal to a worker that still runs, and to whatever its environments started."""
    if process.running:
        for send in (os.killpg, os.kill):  # it may not have made its group yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(process.pid, number)


def exit_text(code: int | None) -> str:
    """Say how a process ended; None where nobody can tell."""
    if code is None:
        return (
            "how is not known, for the program ignores SIGCHLD, or waited for this process itself"
        )
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    return f"killed by {name}" + (", often the out-of-memory killer" if name == "SIGKILL" else "")


def worker_environment(variables: dict[str, str]) -> dict[str, str]:
    """Return the environment variables of a worker, without those of MPI.

    Each library gets one thread, unless the user has set its variable.
    """
    kept = {name: value for name, value in variables.items() if not name.startswith(_MPI_PREFIXES)}
    return {**dict.fromkeys(ONE_THREAD, "1"), **kept}


def _popen(worker_end: socket.socket, stderr_tail: StderrTail) -> subprocess.Popen[bytes]:
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
    # Without stdin, stdout and stderr it has the number of one of these, which is the worker's own.
    handle = fcntl.fcntl(worker_end, fcntl.F_DUPFD_CLOEXEC, 3)
    try:
        return subprocess.Popen(
            [
                sys.executable,
                *flags,
                "-c",
                _BOOTSTRAP,
                str(handle),
                str(os.getpid()),
                "vecwrap-worker",
            ],
            stdin=subprocess.DEVNULL,
            stderr=stderr_tail.descriptor,
            env=worker_environment(dict(os.environ)),
            pass_fds=(handle,),
            process_group=0,
        )
    finally:
        os.close(handle)


def _spawn(method: str, worker_end: socket.socket, daemon: bool) -> WorkerProcess:
    context: Any = multiprocessing.get_context(method)
    connection = Connection(os.dup(worker_end.fileno()))
    spawned = context.Process(target=_serve, args=(connection, os.getpid()), daemon=daemon)
    try:
        blocked: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if method == "spawn":
            blocked = _close_on_exec()
        with worker_variables(), blocked:
            spawned.start()
    finally:
        connection.close()
    # the end of a process of the forkserver is reported by the server
    return _MultiprocessingProcess(spawned, is_own_child=method != "forkserver")


@contextlib.contextmanager
def worker_variables() -> Iterator[None]:
    """Set a worker's environment variables in this process while a worker starts.

    Start methods that inherit variables need this; other variables stay.
    """
    with _environment_lock:
        before = dict(os.environ)
        within = worker_environment(before)
        differ = [name for name in {**before, **within} if before.get(name) != within.get(name)]
        try:
            _set_variables({name: within.get(name) for name in differ})
            yield
        finally:
            _set_variables({name: before.get(name) for name in differ})


def _set_variables(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def _close_on_exec() -> Iterator[None]:
    """Block SIGINT while children start, because children inherit the mask.

    Until the children serve requests, Ctrl-C would end each of them with a traceback.
    """
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # its start would unblock it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, parent: int) -> None:
    stderr = receive_descriptor(connection)
    os.dup2(stderr, 2)
    os.close(stderr)
    from vecwrap.backends.workers.worker import serve

    serve(connection, parent)


def _close_in_child() -> None:
    """Close a forked child's copies of the connections.

    Workers must notice when their own parent ends.
    """
    global _environment_lock
    _environment_lock = threading.Lock()  # it may have been held, by a thread that is not here
    for channel in list(_channels):
        channel.close()


os.register_at_fork(after_in_child=_close_in_child)
