"""Ctrl-C, held back while rows are sent, stepped in this process, taken in, and go through the layers.

Python calls the handler of SIGINT between any two of its instructions, in the main thread. To replace that handler at
every step, for some microseconds, costs two calls of the system each time: a tenth of a step of eight CartPoles. So it
is replaced once, by a gate that is open but for these microseconds, and put back when the last environment is closed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import weakref
from _signal import getsignal  # type: ignore[import-not-found]  # under signal's own, which looks up an enum each time
from collections.abc import Callable, Iterator
from threading import get_ident, main_thread
from types import FrameType
from typing import Any, ClassVar

__all__ = ["Interrupts", "close_lost", "held_back", "is_interrupt"]

SIGINT = int(signal.SIGINT)
MAIN = main_thread().ident
_MARK = "_raised_by_the_handler_of_SIGINT"
_attributes = BaseException.__dict__["__dict__"].__get__  # an exception's own, whatever its class makes of lookups

_open: weakref.WeakSet[Interrupts] = weakref.WeakSet()
_holding: list[Interrupts] = []  # one, or one within another's; the main thread alone changes it


class Interrupts:
    """Holds SIGINT back from ``hold`` to ``let_through`` or the end of the ``with`` block, whichever is first.

    Then the program's own handler is called, as it would have been: Python's raises KeyboardInterrupt. A second one
    goes there at once, because what holds it back may hang, and ends the holding. Blocks may be nested:
    what an outer one holds back, an inner one does not let through. Outside of a block nothing is held back, nor in
    another than the main thread, which alone is ever interrupted, nor where the handler is none of Python's.

    >>> interrupts = Interrupts()
    >>> try:
    ...     with interrupts:
    ...         interrupts.hold()
    ...         signal.raise_signal(signal.SIGINT)
    ...         print("done")
    ... except KeyboardInterrupt:
    ...     print("interrupted")
    done
    interrupted
    >>> interrupts.close()
    """

    def __init__(self) -> None:
        self._depth = 0  # of blocks, each of which will let through what came
        self._held_at = 0  # the depth of the block that holds it back
        _open.add(self)

    def __enter__(self) -> None:
        self._depth += 1  # and no call: an interrupt between it and the block would leave it one too deep

    def hold(self) -> None:
        """Hold back what comes from now on; may be called again."""
        if self._depth and self not in _holding and get_ident() == MAIN:
            handler = getsignal(SIGINT)
            if type(handler) is not _Gate:  # at first, and where the program has set another one since
                if not callable(handler) or self not in _open:
                    return
                signal.signal(SIGINT, _Gate(handler))
            self._held_at = self._depth
            _holding.append(self)

    def came(self) -> bool:
        """Whether something is held back."""
        return _Gate.shut is not None

    def let_through(self) -> None:
        """Let through what came, and what comes from now on, unless an outer block holds it back."""
        if get_ident() == MAIN:
            if self in _holding:
                if self._held_at < self._depth:
                    return
                _holding.remove(self)
            if _Gate.shut is not None and not _holding:
                gate, _Gate.shut = _Gate.shut, None
                gate.call(gate.handler, SIGINT, None)

    def __exit__(self, *exception: object) -> None:
        self._depth -= 1
        if (_holding or _Gate.shut is not None) and self._depth < self._held_at:
            self.let_through()

    def close(self) -> None:
        """Put the program's own handler back, where no environment is open any more."""
        _open.discard(self)
        if self in _holding and get_ident() == MAIN:
            _holding.remove(self)
        if not _open:
            _put_back()


class _Gate:
    """The handler of SIGINT while environments are open.

    Attributes:
        handler: the program's own.
        shut: the gate that an interrupt has come to while somebody held it back; the class's own.
    """

    shut: ClassVar[_Gate | None] = None

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not _open:  # the last environment was closed in a thread that may set no handler
            _put_back()
        if not _holding:
            self.call(self.handler, number, frame)
        elif _Gate.shut is None:
            _Gate.shut = self
        else:  # the one that was held back, then this one, for which that may have set another handler
            _Gate.shut = None
            _holding.clear()
            self.call(self.handler, number, frame)
            handler = getsignal(number)
            self.call(self.handler if handler is self else handler, number, frame)

    @staticmethod
    def call(handler: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None) -> None:
        """Call the program's handler, and mark what it raises, which may be anything: `sys.exit` is common there."""
        try:
            handler(number, frame)
        except BaseException as error:
            _attributes(error)[_MARK] = True
            raise


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold SIGINT back for what takes a moment, also where no environment is there yet; then all is as it was."""
    interrupts, had_a_gate = Interrupts(), type(getsignal(SIGINT)) is _Gate
    try:
        with interrupts:
            interrupts.hold()
            yield
    finally:
        interrupts.close()
        if not had_a_gate:
            _put_back()


def is_interrupt(error: BaseException) -> bool:
    """Whether the program's handler of SIGINT has raised this, as far as a gate stood before it; else by its type."""
    return issubclass(type(error), KeyboardInterrupt) or _MARK in _attributes(error)


def close_lost(one: Any) -> None:
    """Close what is given up, whatever it says; what the program's own handler says meanwhile is raised."""
    try:
        one.close()
    except (Exception, SystemExit) as error:
        if is_interrupt(error):
            raise


def _put_back() -> None:
    """Put the program's own handler in the gate's place."""
    gate = getsignal(SIGINT)
    if type(gate) is _Gate and get_ident() == MAIN:
        signal.signal(SIGINT, gate.handler)


def _begin_anew() -> None:
    """Leave to the parent what is the parent's: a forked copy holds nothing of it back."""
    global MAIN
    MAIN = get_ident()
    _open.clear()
    _holding.clear()
    _Gate.shut = None
    _put_back()


os.register_at_fork(after_in_child=_begin_anew)
