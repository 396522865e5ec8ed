"""What cannot be sent to a worker is refused, and the part of it that is why is named."""

import functools
import threading
from typing import Any

import gymnasium
import pytest

from vecwrap.errors import PlanError
from vecwrap.pipeline.backends import refuse_unsendable
from vecwrap.pipeline.environments import find_environment


class Counter(gymnasium.Env[Any, Any]):
    def __init__(self, length: int = 4) -> None:
        self.length = length


class Holder:
    def __init__(self, lock: Any) -> None:
        self.inner = {"locks": [1, lock]}

    def make(self) -> Any:
        return Counter()


def factories_with(lock: Any) -> dict[str, Any]:
    def inner() -> Any:
        return lock and Counter()

    def outer() -> Any:
        return inner()

    def default(guard: Any = lock) -> Any:
        return Counter()

    return {
        'the captured variable "lock"': inner,
        'the captured variable "inner" -> the captured variable "lock"': outer,
        'the default of "guard"': default,
        'the argument "length"': functools.partial(Counter, length=lock),
        "the argument number 1": functools.partial(Counter, lock),
        (
            'the object of its method make -> its attribute "inner" -> its entry "locks" -> its '
            "entry 1"
        ): Holder(lock).make,
    }


@pytest.mark.parametrize("what", list(factories_with(None)))
def test_what_cannot_be_pickled_is_named(what: str) -> None:
    with pytest.raises(PlanError) as error:
        refuse_unsendable(factories_with(threading.Lock())[what], "env")
    text = str(error.value)
    assert (
        f"cannot be sent to a worker, because {what} is a lock, which cannot be pickled (" in text
    )
    assert text.endswith('Make it inside the factory, or use backend="dummy".')


def test_a_global_variable_and_a_method_are_named() -> None:
    script = """
import threading, gymnasium
LOCK = threading.Lock()
def make():
    return LOCK and None
class Guarded(gymnasium.Wrapper):
    def step(self, action):
        with LOCK:
            return super().step(action)
"""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(script, names)
    for what, factory in (
        ('the global variable "LOCK"', names["make"]),
        ('its "step" -> the global variable "LOCK"', names["Guarded"]),
    ):
        with pytest.raises(PlanError) as error:
            refuse_unsendable(factory, "env")
        assert f"because {what} is a lock, which" in str(error.value)


def test_what_can_be_pickled_passes() -> None:
    refuse_unsendable(lambda: Counter(), "env")
    refuse_unsendable(find_environment("CartPole-v1").factories[0], "env")


def test_what_has_only_a_name_in_the_script_is_rebuilt_or_refused() -> None:
    script = """
import functools, gymnasium, numpy
add = numpy.frompyfunc(lambda a, b: a + b, 2, 1)
@functools.cache
def table(k):
    return k and table(k - 1)
def cached():
    return table(3)
def named():
    return add(1, 2)
"""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(script, names)
    refuse_unsendable(names["cached"], "env")
    with pytest.raises(
        PlanError, match='the global variable "add" is a ufunc, which cannot be pickled'
    ):
        refuse_unsendable(names["named"], "env")
