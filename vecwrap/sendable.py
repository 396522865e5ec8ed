"""What cannot be sent to a worker, and which part of it is why."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from vecwrap.environments import MakeByCalling
from vecwrap.errors import PlanError
from vecwrap.values import callable_name, shown

__all__ = ["refuse_unsendable"]


def refuse_unsendable(factory: Any, where: str) -> None:
    """Refuse what cannot be sent to a worker, and name what in it cannot.

    Args:
        factory: a callable.
        where: how an error begins.

    Raises:
        PlanError: with the captured variable.
    """
    error = _pickling_error(factory)
    if error is None:
        return
    path = list(_culprit(factory, depth=0))
    what = " -> ".join(words for words, _ in path) or "it"
    last = path[-1][1] if path else factory
    raise PlanError(
        f"{where}: {callable_name(factory)} cannot be sent to a worker, because {what} is a {type(last).__qualname__}, "
        f'which cannot be pickled ({error}). Make it inside the factory, or use backend="dummy".'
    )


def _pickling_error(value: Any) -> Exception | None:
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return error
    return None


def _culprit(value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """The way to the innermost part that cannot be pickled."""
    if depth > 8:
        return
    for words, part in _parts(value):
        if _pickling_error(part) is not None:
            yield words, part
            yield from _culprit(part, depth + 1)
            return


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value drags along, in words."""
    if isinstance(value, (functools.partial, MakeByCalling)):
        yield from ((f'the argument "{name}"', part) for name, part in value.keywords.items())
        yield from ((f"the argument number {i + 1}", part) for i, part in enumerate(value.args))
        yield f"the function {callable_name(value.func)}", value.func
    elif inspect.ismethod(value):
        yield f"the object of its method {value.__name__}", value.__self__
    elif inspect.isfunction(value):
        captured = inspect.getclosurevars(value)
        yield from ((f'the captured variable "{name}"', part) for name, part in captured.nonlocals.items())
        yield from ((f'the global variable "{name}"', part) for name, part in captured.globals.items())
        signature = inspect.signature(value)
        yield from (
            (f'the default of "{p.name}"', p.default) for p in signature.parameters.values() if p.default is not p.empty
        )
    elif isinstance(value, Mapping):
        yield from ((f"its entry {shown(key)}", part) for key, part in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"its entry {i}", part) for i, part in enumerate(value))
    elif not isinstance(value, type) and hasattr(value, "__dict__"):
        yield from ((f'its attribute "{name}"', part) for name, part in vars(value).items())
