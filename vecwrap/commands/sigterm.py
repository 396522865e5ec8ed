"""SIGTERM for commands that measure: it ends them as Ctrl-C does."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["sigterm_as_ctrl_c"]


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[list[int]]:
    """Let SIGTERM end it as Ctrl-C does, through everything that has to be closed; gives which of the two it was."""
    came: list[int] = [signal.SIGINT]
    # Only the main thread may handle signals, and what was ignored from the start stays so.
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
