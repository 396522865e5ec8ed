"""SIGTERM for measuring commands: it ends them like Ctrl-C."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["sigterm_as_ctrl_c"]


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[list[int]]:
    """Let SIGTERM end the command like Ctrl-C, closing everything; yields a list that receives the signal."""
    came: list[int] = [signal.SIGINT]
    # Only the main thread may handle signals, and a signal ignored from the start stays ignored.
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        yield came
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        came[0] = number
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)
