"""Pickling by value: objects that only the program itself defines are sent as a whole.

cloudpickle does that for functions and classes. Whatever else pickles by its name alone would be
looked up in the other process's ``__main__``, where it is not: caches (``functools.lru_cache``),
``NewType``, ``ParamSpec``. These are rebuilt from their parts here, or refused.
"""

from __future__ import annotations

import enum
import functools
import inspect
import io
import pickle
import sys
import types
import typing
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import cloudpickle

from vecwrap.sources.import_paths import import_path

_MAIN = ("__main__", "__mp_main__")
_Cache = type(functools.cache(int))
_OF_EVERY_MEMBER = {"_value_", "_name_", "__objclass__", "_sort_order_"}


def by_value(*values: Any) -> bytes:
    """Pickle values one by one, and by value whatever another process cannot import."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    for value in values:
        pickler.dump(value)
    return file.getvalue()


def read_each(pickled: bytes, count: int) -> list[Any]:
    """Unpickle ``count`` values.

    If a value cannot be read, the exception replaces that value and all later ones.
    """
    unpickler = pickle.Unpickler(io.BytesIO(pickled))
    values: list[Any] = []
    try:
        while len(values) < count:
            values.append(unpickler.load())
    except BaseException as error:  # it runs the program's code
        values += [error] * (count - len(values))
    return values


# -- how each kind is taken apart ------------------------------------------------------------------


def _code(code: types.CodeType) -> Any:
    """Pickle code with its file's name, which cloudpickle leaves out.

    The tracebacks of workers need the name.
    """
    kind, args = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return kind, tuple(code.co_filename if arg == "<dynamic-code>" else arg for arg in args)


def _weak_dict(weak: Any) -> Any:
    """Pickle the entries of a weak dict, as cloudpickle does for a ``WeakSet``.

    ``functools.singledispatch`` has such a dict.
    """
    items: Iterator[Any] = iter(list(weak.items()))
    return type(weak), (), None, None, items


def _cached_property(cached: functools.cached_property[Any]) -> Any:
    return (
        _empty_property,
        (type(cached),),
        {key: part for key, part in vars(cached).items() if key != "lock"},
    )


def _empty_property(kind: type[functools.cached_property[Any]]) -> Any:
    made = kind.__new__(kind)
    vars(made).update(vars(functools.cached_property(repr)))  # with a lock, before Python 3.12
    return made


def _cache(cache: Any) -> Any:
    """Pickle a cache without its entries.

    The function comes last, because it may call the cache itself.
    """
    parts = {key: part for key, part in vars(cache).items() if key != "cache_parameters"}
    if "__wrapped__" not in parts:
        raise pickle.PicklingError(f"{cache!r} has no __wrapped__, so what it calls is not known")
    parameters = cache.cache_parameters()
    return (
        _empty_cache,
        (parameters["maxsize"], parameters["typed"]),
        parts,
        None,
        None,
        _fill_cache,
    )


class _Later:
    """What a cache calls, before it is known what that is."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def _empty_cache(maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(_Later())


def _fill_cache(cache: Any, parts: dict[str, Any]) -> None:
    cache.__wrapped__.function = parts["__wrapped__"]
    vars(cache).update(parts)


def _new_type(kind: Any) -> Any:
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return typing.NewType, (kind.__name__, kind.__supertype__), names


def _parameters(kind: Any) -> Any:
    """Pickle a ``ParamSpec`` or a ``TypeVarTuple``."""
    return type(kind), (kind.__name__,)


_BY_NAME: dict[type, Callable[[Any], Any]] = {
    _Cache: _cache,
    typing.NewType: _new_type,
    typing.ParamSpec: _parameters,
    typing.TypeVarTuple: _parameters,
}


def _enum(kind: Any, reduced: tuple[Any, ...]) -> Any:
    """Add aliases and the attributes of members, which cloudpickle leaves out.

    ``__init__`` or ``__new__`` of the enum has set these attributes.
    """
    make, args, (attributes, slots), items, pairs, set_state = reduced
    own = {member.name for member in kind}
    others = {
        name: (member.value, member.name)
        for name, member in kind.__members__.items()
        if name not in own
    }
    given: dict[str, dict[str, Any]] = {}
    for member in kind:
        given[member.name] = {
            key: part for key, part in vars(member).items() if key not in _OF_EVERY_MEMBER
        }
    state = {key: part for key, part in attributes.items() if key not in others}, slots
    return make, args, (set_state, state, given, others), items, pairs, _fill_enum


def _fill_enum(kind: Any, parts: tuple[Any, ...]) -> None:
    set_state, state, given, others = parts
    set_state(kind, state)
    for name, attributes in given.items():
        vars(kind.__members__[name]).update(attributes)
    for name, (value, first_name) in others.items():
        if name not in kind.__members__:
            member = kind(value)
            member._name_ = first_name
            kind._member_map_[name] = member
            type.__setattr__(kind, name, member)


class _BareClass:
    """Makes a class that has yet to get its parts, in the place of its metaclass.

    What the program's own metaclass and ``__init_subclass__`` did is among the parts. They are not
    called again: they might count the class twice, or look for what it has not got yet.
    """

    def __init__(self, kind: type) -> None:
        self.metaclass: Any = type(kind)
        self.calls: Any = next(one for one in inspect.getmro(type(kind)) if import_path(one))
        self.hooked = [
            one
            for one in kind.__mro__[1:]
            if "__init_subclass__" in vars(one) and not import_path(one)
        ]

    def __call__(self, *args: Any) -> Any:
        hooks = [
            (one, vars(one)["__init_subclass__"])
            for one in self.hooked
            if "__init_subclass__" in vars(one)
        ]
        for one, _ in hooks:
            type.__delattr__(one, "__init_subclass__")
        try:
            return self.calls.__new__(self.metaclass, *args)
        finally:
            for one, hook in hooks:
                type.__setattr__(one, "__init_subclass__", hook)


def _class(kind: type, reduced: tuple[Any, ...]) -> Any:
    if len(reduced) != 6:  # a class of the interpreter, such as that of None
        return reduced
    if isinstance(kind, enum.EnumMeta):
        return _enum(kind, reduced)
    bare = _BareClass(kind)
    if bare.calls is bare.metaclass and not bare.hooked:
        return reduced
    make, (_, *args), *rest = reduced
    return make, (bare, *args), *rest


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table: ClassVar = ChainMap(
        {
            types.CodeType: _code,
            weakref.WeakKeyDictionary: _weak_dict,
            weakref.WeakValueDictionary: _weak_dict,
        },
        cloudpickle.Pickler.dispatch_table,
    )

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        kind = type(obj)
        if reduced is not NotImplemented:
            if issubclass(kind, type):
                return _class(obj, reduced)
            return reduced
        if issubclass(kind, type) or kind is types.FunctionType:
            return NotImplemented  # it can be imported
        if issubclass(kind, functools.cached_property):
            return _cached_property(obj)
        reduce = self.dispatch_table.get(kind)
        if reduce is None:
            reduced = obj.__reduce_ex__(self.proto)
        else:
            reduced = reduce(obj)
        if not isinstance(reduced, str) or _can_be_imported(obj, reduced):
            return reduced
        if kind in _BY_NAME:
            return _BY_NAME[kind](obj)
        raise pickle.PicklingError(
            f"a {kind.__qualname__} is pickled by its name, and another process has no {reduced}; "
            "define it in a module that can be imported"
        )


def _can_be_imported(obj: Any, name: str) -> bool:
    """Whether ``name`` finds this very object in a module that another process imports."""
    module = pickle.whichmodule(obj, name)  # type: ignore[attr-defined]
    by_choice = any(
        f"{module}.".startswith(f"{one}.") for one in cloudpickle.list_registry_pickle_by_value()
    )
    if module in _MAIN or by_choice:
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is obj
