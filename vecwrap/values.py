"""The values that specs are made of: unchangeable settings, where they were written, how they compare and read."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from vecwrap.errors import SpecError
from vecwrap.scalars import pieces, quoted, read_scalar, write_scalar
from vecwrap.yaml_file import Steps

__all__ = [
    "Settings",
    "Source",
    "callable_name",
    "canonical",
    "copied",
    "fail",
    "fail_where",
    "identity",
    "import_path",
    "is_scalar",
    "plain",
    "scalar",
    "shown",
    "split",
]


class Settings(Mapping[str, Any]):
    """A mapping that cannot be changed; its lists and dicts are copies of its own."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        self._items = {key: copied(value) for key, value in (items or {}).items()}

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)


@dataclass(frozen=True)
class Source:
    """Where a part of a spec was written, for errors.

    Attributes:
        file: the file's name as it was given, or ``""``.
        directory: that paths are relative to.
        lines: the lines of that file.
        steps: which part: ``("wrappers", 1)``.
    """

    file: str = ""
    directory: Path | None = None
    lines: Mapping[Steps, int] = field(default_factory=dict, repr=False)
    steps: Steps = ()

    def at(self, *steps: str | int) -> Source:
        """Give the place of a part of this part."""
        return dataclasses.replace(self, steps=(*self.steps, *steps))

    def prefix(self) -> str:
        """``"pong.yaml:7: "``, or ``""`` for what stands in no file."""
        if not self.file:
            return ""
        for length in range(len(self.steps), 0, -1):
            if self.steps[:length] in self.lines:
                return f"{self.file}:{self.lines[self.steps[:length]]}: "
        if self.steps:
            return ""  # not from the file
        return f"{self.file}:{self.lines.get((), 1)}: "

    def label(self) -> str:
        """``"wrappers[1]"``, ``"backend.workers"``."""
        label = ""
        for step in self.steps:
            label += f"[{step}]" if isinstance(step, int) else f".{step}" if label else str(step)
        return label or "pipeline"

    def __str__(self) -> str:
        return self.prefix() + self.label()


def import_path(target: Any) -> str | None:
    """Give ``"module:qualname"`` where that finds this very object, from another process too; else None.

    >>> import_path(Path), import_path(lambda env: env)
    ('pathlib:Path', None)
    """
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or "<" in name:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is target else None


def shown(value: Any) -> str:
    """Write a value for an error or a plan, in few words: text in quotes, objects by their names.

    >>> shown("four"), shown(None), shown([1, 2]), shown(Path)
    ('"four"', 'null', '[1, 2]', 'pathlib:Path')
    """
    if isinstance(value, str):
        text = value if len(value) <= 60 else f"{value[:57]}..."
        return f'"{text}"' if text.isprintable() else quoted(text)
    if is_scalar(value):
        return write_scalar(value)
    if isinstance(value, functools.partial):
        return shown(value.func)
    if callable(value):
        return import_path(value) or callable_name(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {shown(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(shown, value)) + "]"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def callable_name(target: Any) -> str:
    """What a callable calls itself, without its module."""
    if isinstance(target, functools.partial):
        return callable_name(target.func)
    name = str(getattr(target, "__qualname__", None) or type(target).__qualname__)
    return name.rpartition("<locals>.")[2].strip("<>")


def copied(value: Any) -> Any:
    """A copy of lists and dicts; NumPy's scalars become Python's; everything else is itself."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: copied(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    return value


def is_scalar(value: Any) -> bool:
    """Whether a spec string can hold the value."""
    return value is None or type(value) in (bool, int, float, str)


def canonical(value: Any) -> Any:
    """What equality compares: lists and tuples say the same, ``1``, ``1.0`` and ``true`` do not."""
    if isinstance(value, Mapping):
        return "mapping", tuple(sorted((str(key), canonical(inner)) for key, inner in value.items()))
    if isinstance(value, (list, tuple)):
        return "list", tuple(map(canonical, value))
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, value.tobytes()
    if is_scalar(value):
        return type(value).__name__, repr(value)
    return "object", value


def plain(value: Any, where: str) -> Any:
    """Lists, dicts and scalars only, for a file."""
    if is_scalar(value):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(inner, where) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner, where) for inner in value]
    if isinstance(value, Path):
        return str(value)
    return fail_where(where, f"{shown(value)} is no plain data and cannot be written down")


def identity(value: Any) -> Any:
    """Give plain data that stands for a value in a hash: a callable is its import path, or its name and its code."""
    if isinstance(value, functools.partial):
        return [identity(value.func), identity(list(value.args)), identity(value.keywords)]
    if isinstance(value, Mapping):
        return {str(key): identity(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [identity(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_scalar(value):
        return value
    if not callable(value):
        return repr(value)
    code = getattr(value, "__code__", None)
    return import_path(value) or [callable_name(value), "" if code is None else _fingerprint(code)]


def _fingerprint(code: types.CodeType) -> str:
    constants = [_fingerprint(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return hashlib.sha256(repr((code.co_code, constants, code.co_names)).encode()).hexdigest()[:12]


def split(text: str, separators: str, source: Source) -> list[str]:
    """Split at separators outside quotes."""
    try:
        return [piece for piece, _ in pieces(text, separators)]
    except ValueError as error:
        return fail(source, str(error))


def scalar(text: str, source: Source) -> Any:
    """Read one scalar of a spec string."""
    try:
        return read_scalar(text)
    except ValueError as error:
        return fail(source, str(error) if len(text) < 200 else "a number too long to be read")


def fail(source: Source, message: str) -> NoReturn:
    """Raise a SpecError that begins with the place."""
    fail_where(str(source), message)


def fail_where(where: str, message: str) -> NoReturn:
    """Raise a SpecError that begins with ``where`` and ends with a full stop."""
    raise SpecError(f"{where}: {message}{'' if message.endswith(('?', '.')) else '.'}")
