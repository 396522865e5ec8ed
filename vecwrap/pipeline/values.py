"""The values in specs: how they are kept, shown and compared; and scalars read and written as text.

Lines and pipeline files share the syntax of scalars. Nothing is ever evaluated.
"""

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
from typing import Any, NoReturn, TypeAlias, TypeGuard

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from vecwrap.errors import printable
from vecwrap.pipeline.source_map import MAX_DEPTH, SourceRef, fail
from vecwrap.sources.factories import with_parts
from vecwrap.sources.import_paths import import_path

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the default repr of an object
# Of one text, and wrappers in a pipeline; lists in files are counted as they are read.
MAX_PARTS = 1000


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
        text = value
        if len(value) > 60:
            text = f"{value[:57]}..."
        if text.isprintable():
            return f'"{text}"'
        return quoted(text)
    if is_scalar(value):
        return write_scalar(value)
    if isinstance(value, int):
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, functools.partial):
        return short_repr(value.func)
    if callable(value):
        return import_path(value) or callable_name(value)
    if not (is_mapping(value) or isinstance(value, (list, tuple))):
        text = repr(value)
        if len(text) <= 60:
            return text
        return f"{text[:57]}..."
    parts: list[str] = []
    for key in value:
        if depth > 2 or sum(map(len, parts)) > 200:
            parts.append("...")
            break
        if isinstance(value, Mapping):
            name = short_repr(key)
            if isinstance(key, str):
                name = printable(key)
            parts.append(f"{name}: {short_repr(value[key], depth + 1)}")
        else:
            parts.append(short_repr(key, depth + 1))
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
    envs = env
    if not isinstance(env, tuple):
        envs = (env,)
    names = list(dict.fromkeys(map(_name_of, envs)))
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _name_of(target: Any) -> str:
    """Name a maker: ``make(2)`` for a partial, ``lambda(i=2)`` for a function, a spec's id.

    The arguments of a function are its captured variables.
    """
    if isinstance(target, str):
        return target
    args: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    if isinstance(target, functools.partial):
        args = target.args
        named = target.keywords
    elif isinstance(target, FunctionType):
        named = dict(inspect.getclosurevars(target).nonlocals)
        # ``lambda i=i: ...``; other functions are rarely bound this way
        if target.__name__ == "<lambda>":
            named |= {p.name: p.default for p in inspect.signature(target).parameters.values()}
    values = [short_repr(value) for value in args if is_scalar(value)]
    values += [f"{name}={short_repr(value)}" for name, value in named.items() if is_scalar(value)]
    if values:
        return f"{callable_name(target)}({', '.join(values)})"
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
        parts: dict[Any, Any] = {}
        for key, inner in value.items():
            if type(key) not in _ATOMS:
                key = normalise(key, depth + 1)
            if type(inner) not in _ATOMS:
                inner = normalise(inner, depth + 1)
            parts[key] = inner
        if kind in (dict, Settings):
            return parts
        return with_entries(value, parts)
    if kind in (list, tuple, set):
        copies = list(value)
        for i, inner in enumerate(copies):
            if type(inner) not in _ATOMS:
                copies[i] = normalise(inner, depth + 1)
        return kind(copies)
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


def is_scalar(value: Any) -> bool:
    """Whether a spec string can hold the value."""
    if type(value) is int:
        return value.bit_length() <= MAX_BITS
    return value is None or type(value) in (bool, float, str)


def is_path(value: Any) -> bool:
    """Whether the value of a parameter for paths is one; some take other things too."""
    return isinstance(value, (str, os.PathLike))


def to_data(value: Any) -> Any:
    """Return a value's form in a file: a path's text, an enum's value, a set's sorted list.

    Anything else is returned as it is.
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
                if not (for_json or is_scalar(key)):
                    return default(value)
                if for_json and not isinstance(key, str):
                    if is_scalar(key):
                        key = json.dumps(key)
                    else:
                        key = str(key)
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


def to_json(value: Any, default: Callable[[Any], Any]) -> str:
    """Return the JSON text by which values are compared and hashed.

    ``otherwise`` has the same meaning as in ``to_builtins``.
    """
    return json.dumps(to_builtins(value, default, for_json=True), sort_keys=True)


def to_file(value: Any, where: str) -> Any:
    """Return a value as a file holds it; refuse what no file can."""

    def refuse(part: Any) -> NoReturn:
        kind = ""
        remedy = ""
        if is_mapping(part):
            kind = f", of the type {type(part).__name__},"
            remedy = ". Files hold plain dicts: dict(...)"
        fail(
            where, f"{short_repr(part)}{kind} is not plain data and cannot be written down{remedy}"
        )

    return to_builtins(value, refuse)


def same_content(one: Any, other: Any) -> bool:
    """Whether two values have the same content: objects are equal as Python says."""
    if type(one) in _ATOMS and type(other) in _ATOMS:
        return type(one) is type(other) and repr(one) == repr(other)
    objects: list[Any] = []
    others: list[Any] = []
    text = to_json(one, functools.partial(_collect, objects))
    return text == to_json(other, functools.partial(_collect, others)) and objects == others


def _collect(objects: list[Any], value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ["array", value.dtype.str, value.shape, value.tobytes().hex()]
    if isinstance(value, EnvSpec):
        return [
            "EnvSpec",
            to_builtins(vars(value), functools.partial(_collect, objects), for_json=True),
        ]
    objects.append(value)
    return ["object", len(objects)]


def import_path_or_name(value: Any) -> Any:
    """Return what represents an object in a hash: for callables, an import path or a name."""
    if isinstance(value, functools.partial):
        return to_builtins(
            [value.func, value.args, value.keywords], import_path_or_name, for_json=True
        )
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, int) or not callable(value):
        if isinstance(value, int):
            return short_repr(value)
        return _ADDRESS.sub("", repr(value))
    return import_path(value) or callable_name(value)


# -- scalars as text -------------------------------------------------------------------------------

Scalar: TypeAlias = bool | int | float | str | None

MAX_BITS = 4096  # of an integer: 1,234 digits at most, fewer than Python refuses to write

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_RADIX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
_NOT_A_NUMBER = re.compile(r"\.(nan|NaN|NAN)")
_YAML_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_PYTHON_WORDS: dict[str, float | None] = {
    **dict.fromkeys(("none", "None"), None),
    "inf": float("inf"),
    "+inf": float("inf"),
    "-inf": float("-inf"),
    "nan": float("nan"),
}
# What needs no quotes in a spec string; and in YAML, which is stricter.
_BARE = re.compile(r"(?![\[{])[^\s\"'=,:|\x00-\x20\x7f-\xa0]+")
_BARE_YAML = re.compile(r"[A-Za-z_/][\w./+-]*(:[\w./+-]+)*", re.ASCII)
_QUOTED = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'(?!')""", re.DOTALL)


def scalar(text: str, source: SourceRef) -> Any:
    """Read one scalar of a spec string."""
    if text.lstrip()[:1] in ("[", "{"):
        fail(
            source,
            (
                f"a line holds no lists or mappings, got {short_repr(text)}; write a file, or "
                "quotes if it is text"
            ),
        )
    try:
        return read_scalar(text)
    except ValueError as error:
        return fail(source, str(error))


def read_scalar(text: str) -> Scalar:
    """Read one argument of a spec string: a YAML 1.2 scalar, or Python's words, or quoted text.

    Python's words are ``None``, ``inf`` and ``nan``.
    """
    text = text.strip()
    if text[:1] in ('"', "'"):
        return _unquoted(text)
    if text in _PYTHON_WORDS:
        return _PYTHON_WORDS[text]
    return read_yaml_scalar(text)


def read_yaml_scalar(text: str) -> Scalar:
    """Read a plain scalar by YAML 1.2's core schema.

    ``1e-8`` is a number, ``no`` and ``1_000`` are text.
    """
    if text in _YAML_WORDS:
        return _YAML_WORDS[text]
    if _INT.fullmatch(text):
        return read_integer(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _RADIX.fullmatch(text):
        return read_integer(text, 0)
    if _INFINITY.fullmatch(text):
        if text[0] == "-":
            return float("-inf")
        return float("inf")
    if _NOT_A_NUMBER.fullmatch(text):
        return float("nan")
    return text


def read_integer(text: str, base: int = 10) -> int:
    number = None
    if len(text) < MAX_BITS:
        number = int(text, base)
    if number is None or number.bit_length() > MAX_BITS:
        raise ValueError(f"a number of {len(text):,} digits is too long to be read")
    return number


def write_scalar(value: Scalar) -> str:
    """Write one argument of a spec string, so that ``read_scalar`` reads it back."""
    if not isinstance(value, str):
        return _write_plain(value)
    if _BARE.fullmatch(value) and read_scalar(value) == value:
        return value
    return quoted(value)


def write_yaml_scalar(value: Scalar) -> str:
    """Write one scalar so that every YAML 1.2 parser reads it back."""
    if not isinstance(value, str):
        return _write_plain(value)
    # `on`, `yes` and the like are text in YAML 1.2, but quoted for older parsers.
    bare = _BARE_YAML.fullmatch(value) and value.lower() not in ("yes", "no", "on", "off")
    if bare and read_yaml_scalar(value) == value:
        return value
    return quoted(value)


def _write_plain(value: bool | float | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        if value:
            return "true"
        return "false"
    text = repr(value)
    return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(text, text)


_ESCAPES = {'"': '\\"', "\\": "\\\\"}


def quoted(text: str) -> str:
    """Write text between double quotes, with the escapes that JSON, YAML and spec strings share."""
    return '"' + "".join(_ESCAPES.get(char) or printable(char) for char in text) + '"'


def _unquoted(text: str) -> str:
    if not _QUOTED.fullmatch(text):
        raise ValueError(f"a quote that does not end where the text ends: {text}")
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        raise ValueError(f"unknown escape in {text}") from None


def split(text: str, separators: str, source: SourceRef) -> list[str]:
    """Split at separators outside quotes.

    A quote opens only where a value may begin: at the start, or after a space, a separator or an
    equals sign.
    """
    found: list[str] = []
    start = at = 0
    while at < len(text):
        char = text[at]
        if char in "\"'" and (at == 0 or text[at - 1].isspace() or text[at - 1] in "=:,|"):
            quote = _QUOTED.match(text, at)
            if quote is None:
                fail(source, f"a quote that does not end: {text[at:]}")
            at = quote.end()
        elif char in separators:
            found.append(text[start:at])
            start = at = at + 1
            if len(found) == MAX_PARTS:
                fail(source, f"expected at most {MAX_PARTS:,} parts in {short_repr(text)}")
        else:
            at += 1
    return [*found, text[start:]]
