"""Calls to sub-environments other than steps and resets: their methods, attributes and states."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from vecwrap.env.backend_rows import BackendRows
from vecwrap.env.runner import Runner
from vecwrap.errors import ArgumentError, BackendError
from vecwrap.interrupts import is_interrupt
from vecwrap.sources.failure import errors_of


class Calls:
    """Calls of methods of the sources of a backend's rows."""

    def __init__(self, rows: BackendRows, runner: Runner) -> None:
        self._rows = rows
        self._runner = runner

    def request(
        self, method: str, ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> None:
        """Call a method of ``SubEnv`` on sub-environments, each with its arguments."""
        rows = self._rows
        rows.wait_until_made(ids)
        with rows.interrupts as interrupts:
            interrupts.hold()
            rows.fast = False
            if rows.broken is not None:
                raise rows.broken
            number = rows.values.begin(ids)
            try:
                self._runner.call(number, method, ids, arguments)
            except Exception as error:
                rows.values.end()
                rows.set_broken(error)
                raise

    def receive(self, ids: Sequence[int], timeout: float | None = None) -> tuple[Any, ...]:
        """Return what each returned; of several failures, raise the first."""
        rows = self._rows
        pending = rows.values
        deadline = None
        if timeout is not None:
            deadline = time.monotonic() + timeout
        try:
            with rows.interrupts as interrupts:
                while pending.awaited:
                    rows.advance(deadline)
                interrupts.let_through()
                if pending.lost is not None:
                    raise pending.lost
        except BaseException as error:
            if is_interrupt(error) or not isinstance(error, Exception):
                pending.end()
            raise
        if not pending.failures:
            return tuple(pending.values[i] for i in ids)
        if pending.failures[0].refused:  # by an engine, which does not have what was requested
            raise ArgumentError(pending.failures[0].message)
        errors = errors_of(pending.failures)
        errors[0].failures = errors
        raise errors[0]

    def now(
        self, method: str, arguments: Sequence[tuple[Any, ...]], ids: Sequence[int]
    ) -> tuple[Any, ...]:
        """Call a method of ``SubEnv`` on sub-environments, and return what each returned."""
        self.request(method, ids, arguments)
        return self.receive(ids)

    def of_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        return self.now(method, arguments, self._rows.all_ids.tolist())

    def of_all(self, method: str, arguments: Sequence[tuple[Any, ...]] = ()) -> list[Any]:
        """Call a repeatable method on all sub-environments; call it again if a worker dies.

        The second call includes the recreated sub-environments.
        """
        each = arguments or [()] * self._rows.num_rows
        try:
            return list(self.of_each(method, each))
        except BackendError:
            if not self._rows.restarts.is_on:
                raise
        return list(self.of_each(method, each))

    def set_attr(self, name: str, values: Any, ids: Sequence[int]) -> None:
        """Set an attribute, and remember it for sub-environments that are recreated."""
        rows = self._rows
        each = values
        if not isinstance(values, (list, tuple)):
            each = [values] * len(ids)
        if len(each) != len(ids):
            raise ArgumentError(
                f"set_attr({name!r}): expected one value or {len(ids)} values, got {len(each)}"
            )
        if rows.joint is not None:
            rows.joint.refuse_different(name, ids, each)
        have_it: Collection[int] = ids
        try:
            self.now("set_attr", [(name, value) for value in each], ids)
        except BaseException as error:
            if isinstance(error, Exception) and not is_interrupt(error):
                have_it = rows.values.values
            raise
        finally:
            # remember it where it succeeded, even if others failed; after an interrupt, everywhere
            for i, value in zip(ids, each, strict=True):
                if i in have_it:
                    rows.restarts.set_attribute(i, name, value)
