"""Collects the mistakes of a pipeline, so that one error reports them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from vecwrap.errors import PlanError, SpecError, VecwrapError

_MAX_MISTAKES = 50
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class ErrorCollector:
    """Catches each error of a pipeline in a ``with``, so that all can be raised together."""

    def __init__(self) -> None:
        self.errors: list[VecwrapError] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if not isinstance(error, (SpecError, PlanError)):
            return False
        self.add(error)
        return True

    def add(self, error: VecwrapError) -> None:
        self.errors += error.mistakes or (error,)
        if len(self.errors) > _MAX_MISTAKES:
            self.raise_all()

    def raise_all(self, wrappers: Iterable[Any] = ()) -> None:
        """Raise what was caught: the only one, or one with a line for each."""
        if not self.errors:
            return
        error = self.errors[0]
        if len(self.errors) > 1:
            error = type(error)("\n".join(map(str, self.errors)))
            error.mistakes = tuple(self.errors)
        error.wrappers = tuple(wrappers)
        raise error from error.__cause__


def for_each(items: Iterable[_Item], read: Callable[[_Item], _Result]) -> tuple[_Result, ...]:
    """Return the result of a function for each item; the mistakes of all are raised together."""
    results = []
    errors = ErrorCollector()
    for item in items:
        try:
            results.append(read(item))
        except (SpecError, PlanError) as error:
            errors.add(error)
    errors.raise_all()
    return tuple(results)


def with_text(error: VecwrapError, text: str) -> VecwrapError:
    """Return an error with a text at its end, and at the end of each mistake that it lists."""
    mistakes = tuple(with_text(mistake, text) for mistake in error.mistakes)
    longer = type(error)("\n".join(map(str, mistakes)) or f"{error} {text}")
    longer.mistakes = mistakes
    longer.wrappers = error.wrappers
    return longer
