"""Calls to sub-environments other than steps and resets: their methods, attributes and states."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from vecwrap.env.backend_rows import BackendRows
from vecwrap.errors import ArgumentError, BackendError
from vecwrap.interrupts import is_interrupt
from vecwrap.sources.failure import Failure, errors_of


class Calls:
    """Calls of methods of the sources of a backend's rows."""

    def __init__(self, rows: BackendRows) -> None:
        self._rows = rows

    def request(
        self, method: str, ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> None:
        """Call a method of ``SubEnv`` on sub-environments, each with its arguments."""
        rows = self._rows
        rows.wait_until_made(ids)
        with rows.interrupts as interrupts:
            interrupts.hold()
            rows.fast = False
            rows.request_call(method, ids, arguments)

    def receive(self, ids: Sequence[int], timeout: float | None = None) -> tuple[Any, ...]:
        """Return what each returned; of several failures, raise the first."""
        rows = self._rows
        try:
            with rows.interrupts:
                answered = rows.receive_values(timeout)
        except BaseException as error:
            if is_interrupt(error) or not isinstance(error, Exception):
                rows.values.end()
            raise
        self._raise_first(answered.failures)
        return tuple(answered.values[i] for i in ids)

    @staticmethod
    def _raise_first(failures: Sequence[Failure]) -> None:
        """Raise the first failure, with all failures attached; ArgumentError if it was refused.

        An engine refuses a call if it does not have what was requested.
        """
        if failures:
            if failures[0].refused:
                raise ArgumentError(failures[0].message)
            errors = errors_of(failures)
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
