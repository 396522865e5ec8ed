"""What cannot be sent to a worker, and which part of it is the cause."""

from __future__ import annotations

import dis
import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

from vecwrap.environments import MakeByCalling
from vecwrap.errors import PlanError
from vecwrap.values import callable_name, shown

__all__ = ["refuse_unsendable"]


def refuse_unsendable(factory: Any, where: str) -> None:
    """Refuse what cannot be sent to a worker, and name the part that cannot.

    Args:
        factory: a callable.
        where: how an error begins.

    Raises:
        PlanError: with the captured variable.
    """
    error = _pickling_error(factory)
    if error is None:
        return
    path = list(_culprit(factory, ()))
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


def _culprit(value: Any, outer: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """The path to the innermost part that cannot be pickled."""
    way = (*outer, value)
    if len(way) > 8:
        return
    for words, part in _parts(value):
        if not any(part is one for one in way) and _pickling_error(part) is not None:
            yield words, part
            yield from _culprit(part, way)
            return


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts that are pickled with a value, each with its description."""
    if isinstance(value, (functools.partial, MakeByCalling)):
        yield from ((f'the argument "{name}"', part) for name, part in value.keywords.items())
        yield from ((f"the argument number {i + 1}", part) for i, part in enumerate(value.args))
        yield f"the function {callable_name(value.func)}", value.func
    elif inspect.ismethod(value):
        yield f"the object of its method {value.__name__}", value.__self__
    elif inspect.isfunction(value):
        captured = inspect.getclosurevars(value)
        used = set(_names_of_globals(value.__code__))  # inspect mistakes the names of attributes for globals
        yield from ((f'the captured variable "{name}"', part) for name, part in captured.nonlocals.items())
        yield from ((f'the global variable "{name}"', part) for name, part in value.__globals__.items() if name in used)
        signature = inspect.signature(value)
        yield from (
            (f'the default of "{p.name}"', p.default) for p in signature.parameters.values() if p.default is not p.empty
        )
    elif isinstance(value, Mapping):
        yield from ((f"its entry {shown(key)}", part) for key, part in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"its entry {i}", part) for i, part in enumerate(value))
    elif isinstance(value, type):
        yield from ((f'its "{name}"', getattr(part, "__func__", part)) for name, part in vars(value).items())
    elif hasattr(value, "__dict__"):
        yield from ((f'its attribute "{name}"', part) for name, part in vars(value).items())


def _names_of_globals(code: types.CodeType) -> Iterator[str]:
    """The globals that a function uses, and those of the functions within it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_of_globals(constant)
