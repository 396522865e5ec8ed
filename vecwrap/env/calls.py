"""Calls to sub-environments other than steps and resets: their methods, attributes and states."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from vecwrap.env.books import Books, errors_of
from vecwrap.env.runner import Runner
from vecwrap.errors import ArgumentError, BackendError
from vecwrap.interrupts import is_interrupt
from vecwrap.sources.failure import Failure


class Calls:
    """Asks a runner, which has books."""

    def __init__(self, books: Books, runner: Runner) -> None:
        self._books = books
        self.runner = runner
        self._done: Collection[int] = ()  # who has answered the last call

    @staticmethod
    def raise_first(failures: Sequence[Failure]) -> None:
        """Raise the first failure, with all of them; an ArgumentError if an engine does not have what was asked."""
        if failures:
            if failures[0].refused:
                raise ArgumentError(failures[0].message)
            errors = errors_of(failures)
            errors[0].failures = errors
            raise errors[0]

    def now(self, method: str, arguments: Sequence[tuple[Any, ...]], ids: Sequence[int]) -> tuple[Any, ...]:
        """Call a method of ``SubEnv`` on sub-environments, and return what each gave."""
        books = self._books
        self._done = ()
        books.wait_until_made(ids)
        with books.interrupts:
            books.interrupts.hold()
            self.runner.ask(method, ids, arguments)
            books.interrupts.let_through()
            try:
                values, failures = self.runner.answers(None)
            except Exception:
                self._done = self.runner.answered()
                raise
        self._done = values
        self.raise_first(failures)
        return tuple(values[i] for i in ids)

    def of_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        return self.now(method, arguments, self._books.all_ids.tolist())

    def of_all(self, method: str, arguments: Sequence[tuple[Any, ...]] = ()) -> list[Any]:
        """Call a method that may be called twice on all; if a worker dies meanwhile, again, replacements included."""
        each = arguments or [()] * self._books.num_rows
        try:
            return list(self.of_each(method, each))
        except BackendError:
            if self._books.recovery is None:
                raise
        return list(self.of_each(method, each))

    def set_attr(self, name: str, values: Any, ids: Sequence[int]) -> None:
        """Set an attribute, and remember it for sub-environments that are recreated."""
        recovery = self._books.recovery
        each = values if isinstance(values, (list, tuple)) else [values] * len(ids)
        if len(each) != len(ids):
            raise ArgumentError(f"set_attr({name!r}): expected one value or {len(ids)} values, got {len(each)}")
        self._books.refuse_different(name, ids, each)
        done: Collection[int] = ids
        try:
            self.now("set_attr", [(name, value) for value in each], ids)
        except BaseException as error:
            if isinstance(error, Exception) and not is_interrupt(error):
                done = self._done
            raise
        finally:  # remember it for those that succeeded, even if others failed; after an interrupt, for all
            if recovery is not None:
                for i, value in zip(ids, each, strict=True):
                    if i in done:
                        recovery.set_attribute(i, name, value)
