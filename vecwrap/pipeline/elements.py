"""The words of a pipeline as they were written: its wrappers, its backend and its engine."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from vecwrap.backends.workers.options import ProcessOptions
from vecwrap.env.options import RestartOptions, option_names
from vecwrap.errors import SpecError
from vecwrap.pipeline.error_collector import for_each
from vecwrap.pipeline.scalars import MAX_PARTS, is_scalar, read_argument, split, write_scalar
from vecwrap.pipeline.source_map import SourceRef, fail
from vecwrap.pipeline.values import (
    ByContent,
    Settings,
    is_mapping,
    normalise,
    same_content,
    short_repr,
    to_data,
    to_file,
)
from vecwrap.sources.import_paths import import_path

# An import path or the name of another package's backend is given as ``{"name": ...}``, so that a
# type checker finds a mistyped name.
BackendName: TypeAlias = Literal["auto", "dummy", "threads", "subprocess", "shmem", "ray"]

_NAME = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_WITHOUT_COLON = re.compile(r"(?P<name>\w+)(?:\s*=\s*|\s+|\s*\((?=.*\)$))(?P<arguments>[^()]+)\)?")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_NO_SOURCE = SourceRef(steps=("wrapper",))
POSITIONAL = "*"  # the key for positional arguments in a mapping that has keywords too


class _Named(ByContent):
    """What wrappers, backends and engines share."""

    target: str | Callable[..., Any]

    @property
    def name(self) -> str:
        """The registered name or import path, or the object's own name."""
        if isinstance(self.target, str):
            return self.target
        return short_repr(self.target)

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, eq=False)
class WrapperSpec(_Named):
    """One wrapper as it was written: its target and its arguments."""

    # a registered name, an import path ``"module:attr"``, or in Python a class or any callable that
    # wraps
    target: str | Callable[..., Any]
    args: tuple[Any, ...] = ()  # positional arguments, after the environment
    kwargs: Mapping[str, Any] = field(default_factory=Settings)  # keyword arguments
    source: SourceRef = field(default=_NO_SOURCE, repr=False, compare=False)  # where it was written
    # the arguments that do not change the stream (paths); None until a plan has resolved the
    # wrapper
    not_hashed: frozenset[str] | None = field(default=None, repr=False, compare=False)
    # what a plan has filled in, which is not shown
    defaults: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", normalise(tuple(self.args)))
        object.__setattr__(self, "kwargs", Settings(self.kwargs))

    @classmethod
    def parse(cls, wrapper: Any, source: SourceRef = _NO_SOURCE) -> WrapperSpec:
        if isinstance(wrapper, WrapperSpec):
            return wrapper
        if isinstance(wrapper, str):
            return cls(*read_wrapper_text(wrapper, source), source=source)
        if isinstance(wrapper, Mapping):
            return cls(*_read_wrapper_mapping(wrapper, source), source=source)
        if callable(wrapper):
            return cls(*_read_wrapper_object(wrapper, source), source=source)
        remedy = ""
        if isinstance(wrapper, (list, tuple)) and wrapper and isinstance(wrapper[0], str):
            remedy = '. Arguments follow the name, as in "framestack:4" or {"framestack": 4}'
        return fail(
            source,
            (
                "expected a wrapper (a name, a mapping of one key, or a callable), got "
                f"{short_repr(wrapper)}{remedy}"
            ),
        )

    @functools.cached_property
    def where(self) -> str:
        """``'pong.yaml:7: wrappers[1] "framestack"'``."""
        return f'{self.source} "{self.name}"'

    def where_argument(self, key: str | int, name: str | None = None) -> str:
        """``'pong.yaml:8: wrappers[1] "framestack", argument k'``."""
        steps = [self.name, key]
        if not isinstance(key, str) and self.kwargs:
            steps.insert(1, POSITIONAL)
        place = self.source.at(*steps).location
        which = name or key
        if isinstance(which, int):
            which = f"number {which + 1}"
        return f'{place}{self.source.label()} "{self.name}", argument {which}'

    def format(self) -> str:
        return self._line(
            self._written_target(), self.kwargs, lambda value: to_line(value, self.where)
        )

    def _line(self, target: str, kwargs: Mapping[str, Any], write: Callable[[Any], str]) -> str:
        arguments = [
            *map(write, self.args),
            *(f"{key}={write(value)}" for key, value in kwargs.items()),
        ]
        module, colon, _ = target.partition(":")
        # an import path that would be read as a name with an argument
        as_name = colon and "." not in module
        return target + (":" if arguments or as_name else "") + ",".join(arguments)

    def to_data(self) -> Any:
        """Return the wrapper as plain data: a string, or a mapping of one key.

        It is the shortest form that holds the wrapper's arguments.
        """
        target = self._written_target()
        args = [to_file(value, self.where) for value in self.args]
        kwargs = to_file(self.kwargs, self.where)
        if kwargs and args:
            return {target: {POSITIONAL: args, **kwargs}}
        if kwargs:
            return {target: kwargs}
        if len(args) == 1 and args[0] is not None and is_scalar(args[0]):
            return {target: args[0]}
        if args:
            return {target: args}
        return self.format()

    def _written_target(self) -> str:
        if isinstance(self.target, str):
            return self.target
        return fail(
            self.where,
            (
                "an object of this process cannot be written down; move it into a module and give "
                "its import path"
            ),
        )

    def __str__(self) -> str:
        """The shortest string that is read as the same; objects of this process by name."""
        kwargs = {
            key: value
            for key, value in self.kwargs.items()
            if key not in self.defaults or not same_content(value, self.defaults[key])
        }
        try:
            return self._line(
                self._written_target(), kwargs, lambda value: to_line(value, self.where)
            )
        except SpecError:
            return self._line(self.name, kwargs, short_repr)


def to_line(value: Any, where: str) -> str:
    """Write a value in a pipeline of one line; refuse one that only a file can hold."""
    value = to_data(value)
    if not is_scalar(value):
        fail(where, f"{short_repr(value)} cannot be written in a line; write the pipeline as YAML")
    return write_scalar(value)


_Parts: TypeAlias = tuple[str | Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]


def read_wrapper_text(text: str, source: SourceRef) -> _Parts:
    """``name``, ``name:arguments``, ``pkg.mod:attr``, ``pkg.mod:attr:arguments``.

    An import path has a dot before its first colon, or a second colon; nothing else is one.
    """
    first, *rest = split(text.strip(), ":", source)
    is_path = len(rest) > 1 or (bool(rest) and "." in first)
    if is_path:
        first = f"{first}:{rest.pop(0)}"
    name = checked_name(first, "wrapper", source, in_text=text)
    if len(rest) > 1:
        fail(f'{source} "{name}"', "text that holds a colon needs quotes")
    if rest and rest[0].strip():
        return name, *_read_arguments(rest[0], name, source)
    if rest and not is_path:
        fail(f'{source} "{name}"', "nothing follows the colon; leave it out or give an argument")
    return name, (), {}


def _read_arguments(
    text: str, name: str, source: SourceRef
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    wrong = ""
    for piece in split(text, ",", source):
        key, equals, value = piece.partition("=")
        key = key.strip()
        is_quoted = piece.strip()[:1] in ('"', "'")
        if equals and key.isidentifier():
            if key in kwargs:
                wrong = f"argument {key} is given twice"
            kwargs[key] = read_argument(value, source)
        elif not piece.strip():
            wrong = f'an argument is missing in "{text}"'
        elif kwargs:
            wrong = (
                f"{piece.strip()} stands after {next(iter(kwargs))}=; arguments without a name "
                "come first"
            )
        elif equals and not is_quoted:
            wrong = f"{key} is not an argument's name. Text that holds = needs quotes"
        elif ":" in piece and not is_quoted:
            wrong = "text that holds a colon needs quotes"
        else:
            args.append(read_argument(piece, source))
        if wrong:
            fail(f'{source} "{name}"', wrong)
    return tuple(args), kwargs


def _read_wrapper_mapping(wrapper: Mapping[Any, Any], source: SourceRef) -> _Parts:
    """Read ``{name: arg}``, ``{name: [args]}`` or ``{name: {key: value}}``.

    A key with a colon is an import path.
    """
    if len(wrapper) != 1:
        keys = list(wrapper)
        for i, key in enumerate(keys):
            if not isinstance(key, str):
                keys[i] = short_repr(key)
        remedy = "Settings of a wrapper go one level deeper: {name: {key: value}}"
        fail(
            source,
            (
                f"expected a mapping of one key, the wrapper's name, got {len(wrapper)} keys "
                f"({', '.join(keys)}). {remedy}"
            ),
        )
    ((name, given),) = wrapper.items()
    name = checked_name(name, "wrapper", source)
    return name, *read_arguments(given, f'{source} "{name}"')


def checked_name(name: Any, kind: str, source: SourceRef, *, in_text: str = "") -> str:
    """Return a name or an import path, and refuse anything else.

    ``in_text`` is the text that holds the name, and perhaps arguments.
    """
    text = ""
    if isinstance(name, str):
        text = name
    module, colon, attr = text.rpartition(":" if ":" in text else ".")
    is_path = bool(_DOTTED.fullmatch(module) and _DOTTED.fullmatch(attr))
    if _NAME.fullmatch(text) or (colon == ":" and is_path):
        return text
    got = short_repr(in_text or name)
    if colon == ":":
        fail(
            source,
            (
                f'expected an import path "module:attr", got {short_repr(text)}. Text that holds a '
                "colon needs quotes"
            ),
        )
    if is_path:
        path = f"{module}:{attr}"
        if in_text and "." not in module:
            path += ":"
        fail(source, f'got {got}. An import path has a colon before its last part: "{path}"')
    meant = _WITHOUT_COLON.fullmatch(in_text.strip())
    remedy = ""
    if meant:
        remedy = f'. Arguments follow a colon: "{meant["name"]}:{meant["arguments"].lstrip(": ")}"'
    return fail(source, f"expected the name of {_one(kind)}, got {got}{remedy}")


def _one(kind: str) -> str:
    article = "an" if kind == "engine" else "a"
    return f"{article} {kind}"


def read_arguments(given: Any, where: str) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Read the arguments below a wrapper's name: none, one, a list, or a mapping of names."""
    if given is None:
        return (), {}
    if isinstance(given, (list, tuple)):
        return tuple(given), {}
    if not is_mapping(given):
        return (given,), {}
    kwargs = dict(given)
    args = kwargs.pop(POSITIONAL, ())
    for key in kwargs:
        if not isinstance(key, str) or not key.isidentifier():
            fail(where, f"expected the name of an argument, got {short_repr(key)}")
    if not isinstance(args, (list, tuple)):
        fail(where, f'expected a list under "*" (arguments without a name), got {short_repr(args)}')
    return tuple(args), kwargs


def _read_wrapper_object(wrapper: Callable[..., Any], source: SourceRef) -> _Parts:
    if not isinstance(wrapper, functools.partial):
        return import_path(wrapper) or wrapper, (), {}
    if wrapper.args:
        fail(
            f'{source} "{short_repr(wrapper.func)}"',
            (
                f"the partial binds {short_repr(wrapper.args[0])} where the environment goes. Bind "
                "by keyword"
            ),
        )
    return import_path(wrapper.func) or wrapper.func, (), dict(wrapper.keywords)


def read_wrappers(wrappers: Any, source: SourceRef) -> tuple[WrapperSpec, ...]:
    """Read a list of wrappers, or one text with bars between them."""
    if isinstance(wrappers, str):
        wrappers = [part.strip() for part in split(wrappers, "|", source)]
    if not isinstance(wrappers, Sequence):
        mapping = ""
        if isinstance(wrappers, Mapping):
            mapping = ". A mapping changes the wrappers of a file that this one extends"
        fail(source, f"expected a list of wrappers, got {short_repr(wrappers)}{mapping}")
    if len(wrappers) > MAX_PARTS:
        fail(source, f"expected at most {MAX_PARTS:,} wrappers, got {len(wrappers):,}")
    return for_each(
        enumerate(wrappers), lambda entry: WrapperSpec.parse(entry[1], source.at(entry[0]))
    )


# -- the backend and the engine --------------------------------------------------------------------


# The options that a pipeline in Python may give besides the backend's name.
BACKEND_OPTIONS = (*option_names(ProcessOptions), *option_names(RestartOptions))


@dataclass(frozen=True, eq=False)
class BackendSpec(_Named):
    """Which backend runs the sub-environments, and with which options."""

    key: ClassVar[str] = "backend"
    default: ClassVar[str | None] = "auto"  # the name that options alone belong to
    example: ClassVar[str] = "backend.workers=2 in a line, {name: shmem, workers: 2} in a file"

    # a registered name, ``"auto"``, an import path, or in Python a backend class
    target: str | Callable[..., Any] = "auto"
    # those of ``BACKEND_OPTIONS``, and the backend's own
    options: Mapping[str, Any] = field(default_factory=Settings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", Settings(self.options))

    @classmethod
    def parse(cls, backend: Any, source: SourceRef) -> BackendSpec:
        """Read ``"shmem"``, ``{name: shmem, workers: 2}``, a class, a BackendSpec; None: auto."""
        if backend is None:
            return cls()
        return _read_named(cls, backend, source)

    def to_data(self) -> Any:
        """Return plain data that ``parse`` reads back, in the shortest form."""
        return _write_named(self)


@dataclass(frozen=True, eq=False)
class EngineSpec(_Named):
    """Which engine steps the sub-environments, and with which options of its own."""

    key: ClassVar[str] = "engine"
    default: ClassVar[str | None] = None
    example: ClassVar[str] = (
        "engine.num_threads=8 in a line, {name: envpool, num_threads: 8} in a file"
    )
    # options that do not change the stream
    not_hashed: ClassVar[frozenset[str]] = frozenset({"num_threads", "thread_affinity_offset"})

    # one of ``NAMES`` in pipeline/engines.py, an import path, or in Python a callable
    target: str | Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=Settings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", Settings(self.options))

    @classmethod
    def parse(cls, engine: Any, source: SourceRef) -> EngineSpec:
        """Read ``"envpool"``, ``{name: envpool, num_threads: 8}``, a callable, an EngineSpec."""
        return _read_named(cls, engine, source)

    def to_data(self) -> Any:
        """Return plain data that ``parse`` reads back, in the shortest form."""
        return _write_named(self)


_NamedSpec = TypeVar("_NamedSpec", BackendSpec, EngineSpec)


def _read_named(kind: type[_NamedSpec], value: Any, source: SourceRef) -> _NamedSpec:
    """Read a name, or a mapping of a name and options."""
    if isinstance(value, kind):
        return value
    written = value
    if not isinstance(value, Mapping):
        written = {"name": value}
    options = {key: option for key, option in written.items() if key != "name"}
    for key in options:
        if not isinstance(key, str):
            fail(source, f"expected a name for each option, got {short_repr(key)}")
    name = written.get("name", kind.default)
    if callable(name):
        return kind(import_path(name) or name, options)
    if isinstance(name, str) and re.search(r"=|:\d", name):
        fail(
            source,
            f"expected the name of {_one(kind.key)}, got {short_repr(name)}. Options are "
            f"written {kind.example}",
        )
    if written is value:
        source = source.at("name")
    return kind(checked_name(name, kind.key, source), options)


def _write_named(spec: BackendSpec | EngineSpec) -> Any:
    options = to_file(spec.options, spec.key)
    if not isinstance(spec.target, str):
        fail(spec.key, f"{spec.name} lives in this process only; give its import path")
    if options:
        return {"name": spec.target, **options}
    return spec.target
