"""Reads parameters of wrappers and backends from signatures, and checks arguments strictly.

The only validation library is msgspec, which no worker imports. Its ``Meta`` is not used: it
crashes the interpreter's garbage collection (msgspec's issue 717).
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import numpy as np

from vecwrap.errors import SpecError, did_you_mean, read_names
from vecwrap.pipeline import registry
from vecwrap.pipeline.error_collector import ErrorCollector
from vecwrap.pipeline.scalars import is_scalar, read_yaml_scalar
from vecwrap.pipeline.values import same_content, short_repr, to_data, to_file
from vecwrap.sources.import_paths import is_import_path

REQUIRED: Any = inspect.Parameter.empty  # instead of a default


@dataclass(frozen=True)
class Parameter:
    name: str  # its name
    annotation: Any = Any  # its type; ``Any`` if the signature has none
    default: Any = REQUIRED  # its default, or ``REQUIRED``
    by_position: bool = True  # whether it may be given without its name

    @functools.cached_property
    def written_default(self) -> Any:
        """The default as a file holds it, of the parameter's type if possible, or ``REQUIRED``."""
        if self.default is REQUIRED:
            return REQUIRED
        if is_scalar(self.default):
            literals = ()
            if get_origin(self.annotation) is Literal:
                literals = get_args(self.annotation)
            if self.default in literals or type(self.default) in members(self.annotation):
                return self.default
        try:
            made = converted(to_file(self.default, self.name), self.annotation)
        except (SpecError, DoesNotFit):
            if _is_data(self.default):
                return self.default
            return REQUIRED
        if _is_data(self.default):
            if _is_data(made):
                return made
            return self.default
        if made == self.default:
            return self.default
        return REQUIRED

    @property
    def takes_callable(self) -> bool:
        """Whether a file names the value, a callable or class, by its import path.

        Text stays text for a parameter that accepts text.
        """
        joined = members(self.annotation)
        return str not in joined and any(map(is_callable, joined))

    def is_default(self, value: Any) -> bool:
        """Whether a value is the default, or the same data."""
        default = self.default
        return value is default or (
            default is not REQUIRED and _is_data(default) and same_content(value, default)
        )

    @property
    def is_of_another_type(self) -> bool:
        """Whether the default is not quite of the parameter's type, such as 1000 for a float."""
        written = self.written_default
        return (
            written is not self.default
            and _is_data(self.default)
            and not same_content(written, self.default)
        )

    def __str__(self) -> str:
        text = self.name
        if self.annotation is not Any:
            text = f"{self.name}: {annotation_text(self.annotation)}"
        if self.default is REQUIRED:
            return text
        return f"{text} = {short_repr(self.default)}"


@dataclass(frozen=True)
class Bound:
    """Arguments that fit a signature."""

    args: tuple[Any, ...]  # those that can only be given by position
    # The rest, by name, converted to the signature's types; without defaults.
    kwargs: Mapping[str, Any]
    left_out: tuple[Parameter, ...]  # what was not given

    @property
    def defaults(self) -> dict[str, Any]:
        return {parameter.name: parameter.default for parameter in self.left_out}

    @property
    def writable(self) -> dict[str, Any]:
        """The defaults that a file can hold."""
        written = {}
        for parameter in self.left_out:
            if parameter.written_default is not REQUIRED:
                written[parameter.name] = parameter.written_default
        return written

    @property
    def complete(self) -> dict[str, Any]:
        """The keyword arguments with the defaults that a file can hold."""
        return {**self.kwargs, **self.writable}


@dataclass(frozen=True)
class Signature:
    """The parameters of a callable, after those that others fill in."""

    parameters: tuple[Parameter, ...]  # its parameters, in order
    any_position: bool = False  # whether it takes any number of arguments without a name
    any_name: bool = False  # whether it takes arguments of any name

    @property
    def names(self) -> list[str]:
        return [parameter.name for parameter in self.parameters]

    @classmethod
    def of(cls, target: Callable[..., Any], skip: int = 1) -> Signature:
        """Read a signature, without its first ``skip`` parameters (the environment)."""
        try:
            found = list(inspect.signature(target).parameters.values())
        except (TypeError, ValueError):
            return cls((), any_position=True, any_name=True)
        types_of = type_hints(target)
        parameters = []
        any_position = any_name = False
        for parameter in found:
            name = parameter.name
            if parameter.kind is parameter.VAR_POSITIONAL:
                any_position = True
            elif parameter.kind is parameter.VAR_KEYWORD:
                any_name = True
            else:
                by_position = parameter.kind is not parameter.KEYWORD_ONLY
                parameters.append(
                    Parameter(name, types_of.get(name, Any), parameter.default, by_position)
                )
        return cls(tuple(parameters[skip:]), any_position, any_name)

    def bind(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        where: str,
        where_argument: Callable[[str | int, str], str],
    ) -> Bound:
        given = dict(kwargs)
        keys: dict[str, str | int] = {name: name for name in kwargs}
        by_position = [parameter for parameter in self.parameters if parameter.by_position]
        for number, (parameter, value) in enumerate(zip(by_position, args, strict=False)):
            if parameter.name in kwargs:
                place = where_argument(parameter.name, parameter.name)
                raise SpecError(
                    f"{place}: is given twice, by its name and as number {number + 1} of those "
                    "without."
                )
            given[parameter.name] = value
            keys[parameter.name] = number
        rest = tuple(args[len(by_position) :])
        if rest and not self.any_position:
            most = "none"
            if by_position:
                most = f"at most {len(by_position)}"
            raise SpecError(
                f"{where}: expected {most} without a name, got {len(args)} arguments. "
                f"{self._takes()}"
            )
        errors = ErrorCollector()
        names = self.names
        for name in given:
            if not self.any_name and name not in names:
                near = did_you_mean(name, names)
                errors.add(
                    SpecError(
                        f"{where_argument(name, name)}: unknown argument.{near} {self._takes()}"
                    )
                )
        left_out = []
        for parameter in self.parameters:
            name = parameter.name
            if name not in given:
                left_out.append(parameter)
                if parameter.default is REQUIRED:
                    errors.add(
                        SpecError(f"{where}: the argument {parameter} is missing.{_see(where)}")
                    )
                continue
            try:
                is_default = parameter.is_default(given[name])
                if not is_default:
                    given[name] = converted(given[name], parameter.annotation)
            except DoesNotFit as error:
                errors.add(SpecError(f"{where_argument(keys[name], name)}: {error}"))
                continue
            if parameter.is_of_another_type and (
                is_default or same_content(given[name], parameter.written_default)
            ):
                del given[name]  # however it is written, the callable gets its own default
                left_out.append(parameter)
        errors.raise_all()
        first = []
        if rest:
            first = [given.pop(parameter.name, parameter.default) for parameter in by_position]
        return Bound((*first, *rest), given, tuple(left_out))

    def _takes(self) -> str:
        if not self.parameters:
            return "It takes no arguments."
        return f"It takes ({', '.join(map(str, self.parameters))})."


def _see(where: str) -> str:
    """Point to the description of the wrapper or backend that a place names, if it has one."""
    name = where.rpartition('"')[0].rpartition('"')[2]
    if name in registry.wrappers.names() or name in registry.backends.names():
        return f" `vecwrap list {name}` shows all of them."
    return ""


class DoesNotFit(Exception):
    """Why a value is not of a type: what was expected, and what was given."""


def checked(value: Any, annotation: Any, where: str) -> Any:
    """Do the same as ``fitted``, and raise SpecError with a place."""
    try:
        return converted(value, annotation)
    except DoesNotFit as error:
        raise SpecError(f"{where}: {error}") from None


def converted(value: Any, annotation: Any) -> Any:
    """Convert a value to a type if needed: an int to a float, a list to a tuple, a path to text.

    Text stays text.
    """
    if isinstance(annotation, str) or annotation is Any:
        return value
    if type(value) is annotation and is_scalar(value):
        return value
    joined = members(annotation)
    if (
        value is None
        and type(None) not in joined
        and any("none" in get_args(member) for member in joined)
    ):
        return "none"  # of a Literal; in a line the word is null
    if is_scalar(value) and (type(value) in joined or _is_number_for(value, joined)):
        return value
    named = isinstance(value, str) and is_import_path(value)
    if (named or callable(value)) and any(map(is_callable, joined)):
        return value  # msgspec cannot express these
    if isinstance(value, str) and any(map(holds_names, joined)) and all(read_names(value)):
        return converted(read_names(value), annotation)
    for member in joined:
        try:
            return _as_given(value, msgspec.convert(value, member, strict=True, dec_hook=_decode))
        except msgspec.ValidationError:
            continue
        except TypeError:  # a type that msgspec does not know
            return value
    if isinstance(value, PathLike) and str in joined:
        return to_data(value)
    raise DoesNotFit(
        f"expected {annotation_text(annotation)}, got "
        f"{short_repr(value)}.{written_as(value, joined)}"
    )


def members(annotation: Any) -> tuple[Any, ...]:
    """The types that a union joins; of any other type, itself alone."""
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def holds_names(member: Any) -> bool:
    """Whether a type is that of lists of names, which may be written as one text."""
    inner = get_args(member)
    is_list = get_origin(member) in _LISTS and (len(inner) == 1 or inner[1:] == (...,))
    return is_list and str in members(inner[0])


_LISTS = (tuple, list, set, frozenset, Sequence, Collection, Iterable)


def is_callable(member: Any) -> bool:
    """Whether a type is of callables or classes, which a file names by their import paths."""
    return (get_origin(member) or member) in (Callable, type)


_BOOLS = {
    "true": "true",
    "yes": "true",
    "on": "true",
    "false": "false",
    "no": "false",
    "off": "false",
}


def written_as(value: Any, kinds: Sequence[Any]) -> str:
    """Suggest how to write a number or truth value given as text or as a float.

    For example ``" Write 4."``; ``""`` if there is nothing to suggest.
    """
    if isinstance(value, float) and int in kinds and value.is_integer():
        return f" Write {int(value)}."
    meant = ""
    if isinstance(value, str) and len(value) < 60:
        meant = _BOOLS.get(value.lower(), value)
    read = read_yaml_scalar(meant)
    fits = type(read) in kinds or (type(read) is int and float in kinds)
    if meant == "" or isinstance(read, str) or not fits:
        return ""
    return f" Write {meant}{', without quotes' if meant == value.lower() else ''}."


def _as_given(given: Any, made: Any) -> Any:
    """Return a converted value, but keep mappings and tuples of the user's own types as given."""
    if type(made) is dict:
        if type(given) is not dict:
            return given
        return {
            key: _as_given(old, new)
            for old, (key, new) in zip(given.values(), made.items(), strict=True)
        }
    if type(made) in (list, tuple):
        if type(given) not in (list, tuple):
            return given
        return type(made)(map(_as_given, given, made))
    return made


def annotation_text(annotation: Any) -> str:
    """Describe a type in an error or a table."""
    origin = get_origin(annotation)
    if origin is Literal:
        return " or ".join(map(short_repr, get_args(annotation)))
    if len(joined := members(annotation)) > 1:
        return " or ".join(map(annotation_text, joined))
    if annotation is None or annotation is type(None):
        return "null"
    if is_callable(annotation):
        if (origin or annotation) is Callable:
            return "a callable"
        return "a class"
    if isinstance(annotation, type) and origin is None:
        return {"str": "text", "Path": "a path", "PathLike": "a path"}.get(
            annotation.__name__, annotation.__name__
        )
    if origin is np.ndarray:
        return "an array"
    if getattr(origin, "__name__", "") == "PathLike":
        return "a path"
    return str(annotation).replace("typing.", "").replace("collections.abc.", "")


def section(target: Any, title: str) -> str:
    """The text of a section of a Google-style docstring, without its indentation, or ``""``."""
    text = f"{inspect.cleandoc(target.__doc__ or '')}\n"
    match = re.search(rf"^{re.escape(title)}:\n((?:    .*\n|\n)*)", text, re.MULTILINE)
    if match:
        return textwrap.dedent(match[1]).strip()
    return ""


def type_hints(target: Any) -> dict[str, Any]:
    """The types of a callable's parameters, by name; Any for those that cannot be found here."""
    function = target
    if isinstance(target, type):
        function = getattr(target, "__init__")  # noqa: B009
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):  # a callable object
        function = type(function).__call__
    try:
        return typing.get_type_hints(function)
    except Exception:
        pass
    found = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            found[name] = typing.get_type_hints(holder, getattr(function, "__globals__", {}))[name]
        except Exception:  # a name that only a type checker sees
            found[name] = Any
    return found


def _is_number_for(value: Any, joined: Sequence[Any]) -> bool:
    """Whether a value is a number for NumPy's types, as some of Gymnasium's wrappers declare."""
    wanted = tuple(
        member for member in joined if isinstance(member, type) and issubclass(member, np.number)
    )
    kinds = {int: (np.integer, np.floating), float: (np.floating,)}.get(type(value), ())
    if kinds:
        return any(issubclass(member, kinds) or member is np.number for member in wanted)
    return False


def _decode(wanted: type, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if (get_origin(wanted) or wanted) is PathLike:
        return Path(value)
    if issubclass(wanted, Path):
        return wanted(value)
    return value


def _is_data(value: Any) -> bool:
    return is_scalar(value) or (isinstance(value, (list, tuple)) and all(map(_is_data, value)))
