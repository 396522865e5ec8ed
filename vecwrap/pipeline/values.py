"""The values in specs: how they are kept, shown, compared, and converted for files and JSON."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import os
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import FunctionType, MappingProxyType
from typing import Any, NoReturn, TypeGuard

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from vecwrap.errors import printable
from vecwrap.pipeline.scalars import is_scalar, short_text, shortened, write_scalar
from vecwrap.pipeline.source_map import MAX_DEPTH, fail
from vecwrap.sources.factories import with_parts
from vecwrap.sources.import_paths import import_path

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the default repr of an object


class Settings(dict[str, Any]):
    """An immutable mapping; its lists, sets and dicts are its own copies."""

    def __init__(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        if type(items) is not Settings:
            items = normalise(dict(items))
        super().__init__(items)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "the settings of a pipeline cannot be changed; its method override returns others"
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return Settings, (dict(self),)


class ByContent:
    """Compares dataclasses by their contents and types: ``1`` is not ``true``.

    A list and a tuple differ as well.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and same_content(self._content(), other._content())

    def _content(self) -> list[Any]:
        this: Any = self
        return [getattr(this, f.name) for f in dataclasses.fields(this) if f.compare]


def is_mapping(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    """Whether a value is a mapping of keys to values.

    A ``Dict`` space is a mapping for Python, but an object here.
    """
    return isinstance(value, Mapping) and not isinstance(value, gymnasium.Space)


def short_repr(value: Any, depth: int = 0) -> str:
    """Format a value briefly for an error or a plan.

    Text is in quotes, objects are shown by name, and anything else by its first parts.
    """
    if isinstance(value, str):
        return short_text(value)
    if is_scalar(value):
        return write_scalar(value)
    if isinstance(value, int):
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, functools.partial):
        return short_repr(value.func)
    if callable(value):
        return import_path(value) or callable_name(value)
    if not (is_mapping(value) or isinstance(value, (list, tuple))):
        return shortened(repr(value))
    parts: list[str] = []
    for item in value:
        if depth > 2 or sum(map(len, parts)) > 200:
            parts.append("...")
            break
        if not isinstance(value, Mapping):
            parts.append(short_repr(item, depth + 1))
            continue
        key = short_repr(item)
        if isinstance(item, str):
            key = printable(item)
        parts.append(f"{key}: {short_repr(value[item], depth + 1)}")
    if isinstance(value, Mapping):
        return f"{{{', '.join(parts)}}}"
    return f"[{', '.join(parts)}]"


def callable_name(target: Any) -> str:
    """The name of a callable, without its module; of an EnvSpec, its id."""
    if isinstance(target, EnvSpec):
        return target.id
    if isinstance(target, functools.partial):
        return callable_name(target.func)
    name = str(getattr(target, "__qualname__", None) or type(target).__qualname__)
    return name.rpartition(">.")[2].strip("<>")


def names_of(env: Any) -> str:
    """Name the makers of environments, with the plain values that distinguish them.

    Of a tuple, only the first few are named.
    """
    if not isinstance(env, tuple):
        return _name_of(env)
    names = list(dict.fromkeys(map(_name_of, env)))
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _name_of(target: Any) -> str:
    """Name a maker: ``make(2)`` for a partial, ``lambda(i=2)`` for a function, a spec's id.

    The arguments of a function are its captured variables.
    """
    if isinstance(target, str):
        return target
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(target, functools.partial):
        args = target.args
        kwargs = target.keywords
    elif isinstance(target, FunctionType):
        kwargs = dict(inspect.getclosurevars(target).nonlocals)
        # ``lambda i=i: ...``; other functions are rarely bound this way
        if target.__name__ == "<lambda>":
            kwargs |= {p.name: p.default for p in inspect.signature(target).parameters.values()}
    arguments = [short_repr(value) for value in args if is_scalar(value)]
    arguments += [f"{key}={short_repr(value)}" for key, value in kwargs.items() if is_scalar(value)]
    if arguments:
        return f"{callable_name(target)}({', '.join(arguments)})"
    return callable_name(target)


_ATOMS = frozenset((str, int, float, bool, type(None)))
_NO_INTS = _ATOMS - {int}  # of an int the size is looked at


def normalise(value: Any, depth: int = 0) -> Any:
    """Copy lists, sets and Python's dicts; convert NumPy scalars; keep everything else."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, np.generic):
        return value.item()
    if depth > MAX_DEPTH:
        fail(short_repr(value), f"nested more than {MAX_DEPTH} deep")
    if kind in (dict, Settings, OrderedDict, defaultdict):
        entries: dict[Any, Any] = {}
        for key, part in value.items():
            if type(key) not in _ATOMS:
                key = normalise(key, depth + 1)
            if type(part) not in _ATOMS:
                part = normalise(part, depth + 1)
            entries[key] = part
        if kind in (dict, Settings):
            return entries
        return with_parts(value, entries)
    if kind in (list, tuple, set):
        parts = list(value)
        for i, part in enumerate(parts):
            if type(part) not in _ATOMS:
                parts[i] = normalise(part, depth + 1)
        return kind(parts)
    return value


def with_entries(mapping: Any, entries: Mapping[Any, Any]) -> Any:
    """Return a mapping of the same type with some entries replaced."""
    if type(mapping) in (dict, Settings):
        return {**mapping, **entries}
    if not isinstance(mapping, dict):
        fail(
            short_repr(mapping),
            f"a {type(mapping).__name__} is replaced as a whole; its parts cannot be changed",
        )
    return with_parts(mapping, entries)


def is_path(value: Any) -> bool:
    """Whether the value of a parameter for paths is one; some take other things too."""
    return isinstance(value, (str, os.PathLike))


def to_data(value: Any) -> Any:
    """Return the form that files and JSON have of a path, an enum or a set; anything else as it is.

    It is the path's text, the enum's value, or a sorted list. Parts of other values are not looked
    at: see ``to_builtins``.
    """
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Enum):
        return to_data(value.value)
    if isinstance(value, (set, frozenset)):
        parts = list(map(to_data, value))
        try:
            return sorted(parts)
        except TypeError:  # of several types, or of one without an order
            return sorted(parts, key=lambda part: to_json(part, import_path_or_name))
    return value


# Mappings that a file's own can stand in for; of other types, code expects more than a dict has.
_WRITABLE = (dict, Settings, OrderedDict, MappingProxyType)


def to_builtins(value: Any, default: Callable[[Any], Any], *, for_json: bool = False) -> Any:
    """Return a value as lists, dicts and scalars, for a file or for JSON.

    In JSON, keys are text, and any mapping is converted.

    Args:
        value: what a pipeline holds.
        default: what stands for a part that has no such form.
        for_json: whether to convert keys, and mappings that a file's own cannot stand in for.
    """
    kind = type(value)
    if kind in _NO_INTS or (kind is int and is_scalar(value)):
        return value
    if kind in (list, tuple):
        parts = list(value)
        for i, part in enumerate(parts):
            if type(part) not in _NO_INTS:
                parts[i] = to_builtins(part, default, for_json=for_json)
        return parts
    if kind in _WRITABLE or (for_json and is_mapping(value)):
        entries = {}
        for key, part in value.items():
            if type(key) is not str:
                key = to_data(key)
                if for_json:
                    key = _json_key(key)
                elif not is_scalar(key):
                    return default(value)
            if type(part) not in _NO_INTS:
                part = to_builtins(part, default, for_json=for_json)
            entries[key] = part
        return entries
    data = to_data(value)
    if data is not value:
        return to_builtins(data, default, for_json=for_json)
    if isinstance(value, (list, tuple)):
        return to_builtins(list(value), default, for_json=for_json)
    return default(value)


def _json_key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if is_scalar(key):
        return json.dumps(key)
    return str(key)


def to_json(value: Any, default: Callable[[Any], Any]) -> str:
    """Return the JSON text by which values are compared and hashed.

    ``default`` has the same meaning as in ``to_builtins``.
    """
    return json.dumps(to_builtins(value, default, for_json=True), sort_keys=True)


def to_file(value: Any, where: str) -> Any:
    """Return a value as a file holds it; refuse what no file can."""

    def refuse(part: Any) -> NoReturn:
        problem = "is not plain data and cannot be written down"
        if is_mapping(part):
            problem = f", of the type {type(part).__name__}, {problem}"
            fail(where, f"{short_repr(part)}{problem}. Files hold plain dicts: dict(...)")
        fail(where, f"{short_repr(part)} {problem}")

    return to_builtins(value, refuse)


def same_content(one: Any, other: Any) -> bool:
    """Whether two values have the same content: objects are equal as Python says."""
    if type(one) in _ATOMS and type(other) in _ATOMS:
        return type(one) is type(other) and repr(one) == repr(other)
    objects: list[Any] = []
    other_objects: list[Any] = []
    text = to_json(one, functools.partial(_collect, objects))
    other_text = to_json(other, functools.partial(_collect, other_objects))
    return text == other_text and objects == other_objects


def _collect(objects: list[Any], value: Any) -> Any:
    """Return the content of an array or EnvSpec; collect any other object, to compare it itself."""
    if isinstance(value, np.ndarray):
        return ["array", value.dtype.str, value.shape, value.tobytes().hex()]
    if isinstance(value, EnvSpec):
        fields = to_builtins(vars(value), functools.partial(_collect, objects), for_json=True)
        return ["EnvSpec", fields]
    objects.append(value)
    return ["object", len(objects)]


def import_path_or_name(value: Any) -> Any:
    """Return what represents an object in a hash: for callables, an import path or a name."""
    if isinstance(value, functools.partial):
        call = [value.func, value.args, value.keywords]
        return to_builtins(call, import_path_or_name, for_json=True)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, int):
        return short_repr(value)
    if not callable(value):
        return _ADDRESS.sub("", repr(value))
    return import_path(value) or callable_name(value)
