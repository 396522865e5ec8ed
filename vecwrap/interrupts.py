"""Ctrl-C, held back while rows are sent, stepped, received, and passed through the wrappers.

A step is protected in this way if the step runs in this process.

Python calls the SIGINT handler between any two of its instructions, in the main thread. Replacing
that handler at every step, for a few microseconds, costs two system calls each time: a tenth of a
step of eight CartPoles. So it is replaced once, by a gate that is open except for these
microseconds, and restored when the last environment is closed.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import traceback
import weakref

# underlies signal's getsignal, which looks up an enum each time
from _signal import getsignal  # type: ignore[import-not-found]
from collections.abc import Callable, Iterator
from threading import get_ident, main_thread
from time import monotonic
from types import FrameType
from typing import Any, ClassVar

SIGINT = int(signal.SIGINT)
MAIN = main_thread().ident
_MARK = "_raised_by_the_handler_of_SIGINT"
# an exception's own, however its class handles lookups
_attributes = BaseException.__dict__["__dict__"].__get__

_open: weakref.WeakSet[Interrupts] = weakref.WeakSet()
_holding: list[Interrupts] = []  # one, or one nested in another; changed only by the main thread

# seconds within which a signal counts as the same: both a terminal and a launcher deliver it
REPEAT_SECONDS = 0.3
_last_counted: dict[int, float] = {}  # when one last counted, by its number


def is_repeated(number: int) -> bool:
    """Whether a signal that has just arrived is the same as the last one that counted."""
    now = monotonic()
    if now - _last_counted.get(number, -math.inf) < REPEAT_SECONDS:
        return True
    _last_counted[number] = now
    return False


class Interrupts:
    """Holds SIGINT back from ``hold`` to ``let_through`` or the end of the ``with`` block.

    Then the program's own handler is called as usual: Python's raises KeyboardInterrupt. A second
    interrupt, unless it comes together with the first, reaches it at once and ends the holding,
    because what holds it back may hang. Blocks may be nested: an inner one does not let through
    what an outer one holds back. Nothing is held back outside of a block, in any thread but the
    main one (the only one ever interrupted), or if the handler is not a Python callable.
    """

    def __init__(self) -> None:
        self._depth = 0  # of nested blocks, each of which lets through what arrived
        self._held_at = 0  # the depth of the block that holds it back
        self.is_broken: bool = (
            False  # whether an exception, or a second interrupt, has ended what is held
        )
        _open.add(self)

    def __enter__(self) -> Interrupts:
        self._depth += (
            1  # and no call: an interrupt between it and the block would leave it one too deep
        )
        return self

    @property
    def inside(self) -> bool:
        return self._depth > 0

    def hold(self) -> None:
        """Hold back interrupts from now on; may be called again."""
        if self._depth and self not in _holding and get_ident() == MAIN:
            handler = getsignal(SIGINT)
            if type(handler) is not _Gate:  # at first, and if the program has set another one since
                if not callable(handler) or self not in _open:
                    return
                signal.signal(SIGINT, _Gate(handler))
            self._held_at = self._depth
            self.is_broken = False
            _holding.append(self)

    def release(self) -> None:
        """Hold nothing back any more: the interrupted call is finished, not left half done."""
        self.is_broken = False
        if get_ident() == MAIN and self in _holding:
            _holding.remove(self)

    def is_pending(self) -> bool:
        return _Gate.pending is not None

    def let_through(self) -> None:
        """Let pending and later SIGINTs through, unless an outer block holds SIGINT back."""
        if get_ident() == MAIN:
            if self in _holding:
                if self._held_at < self._depth:
                    return
                _holding.remove(self)
            if _Gate.pending is not None and not _holding:
                gate = _Gate.pending
                _Gate.pending = None
                gate.call(gate.handler, SIGINT, None)

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is not None and self in _holding:
            self.is_broken = True
        self._depth -= 1
        if (_holding or _Gate.pending is not None) and self._depth < self._held_at:
            self.let_through()

    def close(self) -> None:
        """Restore the program's own handler if no environment is open any more."""
        _open.discard(self)
        if self in _holding and get_ident() == MAIN:
            _holding.remove(self)
        if not _open:
            _restore_handler()


class _Gate:
    """The handler of SIGINT while environments are open; ``handler`` is the program's own."""

    pending: ClassVar[_Gate | None] = (
        None  # the one that an interrupt reached while it was held back
    )

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not _open:  # the last environment was closed in a thread that cannot set a handler
            _restore_handler()
        if is_repeated(number):
            return
        if not _holding:
            self.call(self.handler, number, frame)
        elif _Gate.pending is None:
            _Gate.pending = self
        else:  # the one held back, then this one, for which the first may have set another handler
            _Gate.pending = None
            for interrupts in _holding:
                interrupts.is_broken = True
            _holding.clear()
            self.call(self.handler, number, frame)
            handler = getsignal(number)
            self.call(self.handler if handler is self else handler, number, frame)

    @staticmethod
    def call(
        handler: Callable[[int, FrameType | None], Any], number: int, frame: FrameType | None
    ) -> None:
        """Call the program's handler and mark its exceptions, of any type, such as `sys.exit`'s."""
        try:
            handler(number, frame)
        except BaseException as error:
            _attributes(error)[_MARK] = True
            raise


@contextlib.contextmanager
def deduplicated_interrupts() -> Iterator[Interrupts]:
    """Count simultaneous SIGINTs as one, even without an environment; then restore everything."""
    interrupts = Interrupts()
    had_a_gate = type(getsignal(SIGINT)) is _Gate
    try:
        with interrupts:
            interrupts.hold()  # for the gate
            interrupts.let_through()
            yield interrupts
    finally:
        interrupts.close()
        if not had_a_gate:
            _restore_handler()


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Hold SIGINT back for a moment, even without an environment; then restore everything."""
    with deduplicated_interrupts() as interrupts:
        interrupts.hold()
        yield


def is_interrupt(error: BaseException) -> bool:
    """Return whether the program's SIGINT handler raised this error: by its mark, or its type.

    An error has the mark if a gate was in front of the handler.
    """
    return issubclass(type(error), KeyboardInterrupt) or _MARK in _attributes(error)


def is_raised_by_handler(error: BaseException) -> bool:
    """Return whether a signal handler of the program raised this error.

    The error's type and text prove nothing: any code may raise the same.
    """
    if _MARK in _attributes(error):
        return True
    if get_ident() != MAIN:
        return False
    if issubclass(type(error), KeyboardInterrupt) and type(getsignal(SIGINT)) is not _Gate:
        return True
    handlers = [getattr(one, "__func__", one) for one in map(getsignal, signal.valid_signals())]
    codes = {
        getattr(one, "__code__", getattr(type(one).__call__, "__code__", None))
        for one in handlers
        if one
    }
    frames = traceback.walk_tb(BaseException.__dict__["__traceback__"].__get__(error))
    return any(frame.f_code in codes for frame, _ in frames)


def close_quietly(one: Any) -> None:
    """Close an abandoned object and ignore its errors, except those of a SIGINT handler."""
    try:
        one.close()
    except (Exception, SystemExit) as error:
        if is_interrupt(error):
            raise


def _restore_handler() -> None:
    gate = getsignal(SIGINT)
    if type(gate) is _Gate and get_ident() == MAIN:
        signal.signal(SIGINT, gate.handler)


def _reset_in_child() -> None:
    """Leave pending interrupts to the parent: a forked copy holds none of them back."""
    global MAIN
    MAIN = get_ident()
    _open.clear()
    _holding.clear()
    _last_counted.clear()
    _Gate.pending = None
    _restore_handler()


os.register_at_fork(after_in_child=_reset_in_child)


# in the order in which they were opened
_opened: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()


def at_exit(opened: Any) -> None:
    """Have ``close_at_exit`` called at the program's end if the object still exists.

    A forked copy of the program does not call the method.

    This precedes all exit handlers registered so far, such as that of a package that an environment
    has imported.
    """
    _opened[opened] = None
    atexit.unregister(_close_all)
    atexit.register(_close_all)  # those that came last are called first


def _close_all() -> None:
    """Close what is open, in reverse order of opening: wrappers before what they wrap."""
    with contextlib.ExitStack() as each:  # one that raises does not leave others open
        for opened in list(_opened):
            each.callback(opened.close_at_exit)


os.register_at_fork(after_in_child=_opened.clear)
