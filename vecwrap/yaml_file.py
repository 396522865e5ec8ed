"""Reads and writes pipeline files: YAML 1.2 down to plain values, each with the line it stands on.

Read from the parser's events, so nothing is constructed: a tag is an error, an alias costs what it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from vecwrap.errors import SpecError
from vecwrap.scalars import read_yaml_scalar, write_yaml_scalar

__all__ = ["Document", "read_text", "read_yaml", "write_yaml"]

MAX_BYTES = 1_000_000
MAX_VALUES = 20_000  # aliases counted at what they stand for: a bomb is refused when it reaches this
MAX_DEPTH = 40

Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """What a file says, and where.

    Attributes:
        value: dicts, lists and scalars.
        lines: for the steps that lead to a value (``("wrappers", 1, "framestack")``) its line, counted from 1.
    """

    value: Any
    lines: Mapping[Steps, int] = field(default_factory=dict)


def read_text(path: Path) -> str:
    """Read a file of at most 1 MB.

    Raises:
        SpecError: where there is no such file, it is larger, or it is no UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SpecError(
            f"{path}: cannot be read ({error.strerror}). Is the path right, seen from {Path.cwd()}?"
        ) from None
    if len(data) > MAX_BYTES:
        raise SpecError(f"{path}: expected a pipeline file of at most 1 MB, got a larger one. Is it the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: expected text in UTF-8, got byte {data[error.start]:#x} at {error.start}.") from None


def read_yaml(text: str, name: str) -> Document:
    """Read one YAML document.

    Args:
        text: the file's text.
        name: the file's name, for errors.

    Raises:
        SpecError: with file and line.
    """
    if len(text) > MAX_BYTES:
        raise SpecError(f"{name}: expected a pipeline of at most 1 MB, got {len(text):,} characters.")
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return _Reader(name).read(YAML(typ="safe", pure=True).parse(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}" if mark is not None else name
        said = " ".join(part for part in (error.context, error.problem) if part)
        raise SpecError(f"{place}: this is not YAML: {said}.") from None
    except YAMLError as error:
        raise SpecError(f"{name}: this is not YAML: {' '.join(str(error).split())}.") from None


@dataclass
class _Open:
    """A list or mapping that has begun and not ended."""

    value: list[Any] | dict[Any, Any]
    steps: Steps
    line: int
    anchor: str | None
    size: int = 1
    key: Any = None
    has_key: bool = False
    key_lines: dict[Any, int] = field(default_factory=dict)


class _Reader:
    """Builds values from events; iteratively, so that no nesting is too deep for it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._lines: dict[Steps, int] = {}
        self._documents: list[Any] = []
        self._size = 0

    def read(self, events: Iterator[Any]) -> Document:
        for event in events:
            kind, line = type(event).__name__, event.start_mark.line + 1
            if kind == "ScalarEvent":
                self._add(self._scalar(event, line), 1, line, event.anchor)
            elif kind == "AliasEvent":
                if event.anchor not in self._anchors:
                    self._fail(line, f"*{event.anchor} stands for nothing: no &{event.anchor} is complete before it")
                self._add(*self._anchors[event.anchor], line, None)
            elif kind in ("SequenceStartEvent", "MappingStartEvent"):
                self._begin([] if kind == "SequenceStartEvent" else {}, event, line)
            elif kind in ("SequenceEndEvent", "MappingEndEvent"):
                done = self._open.pop()
                self._add(done.value, done.size, done.line, done.anchor, counted=True)
            elif kind == "DocumentStartEvent" and self._documents:
                self._fail(line, "a second document begins; expected one pipeline a file")
        return Document(self._documents[0] if self._documents else None, self._lines)

    def _scalar(self, event: Any, line: int) -> Any:
        tag = event.tag
        if tag not in (None, "!", "tag:yaml.org,2002:str"):
            self._fail(line, f"the tag {tag} is not read: a pipeline file holds plain values only. Remove it")
        if event.style is not None or tag is not None:
            return event.value
        try:
            return read_yaml_scalar(event.value)
        except ValueError:
            self._fail(line, f"a number of {len(event.value):,} digits is too long to be read")

    def _begin(self, value: list[Any] | dict[Any, Any], event: Any, line: int) -> None:
        if event.tag is not None:
            self._fail(line, f"the tag {event.tag} is not read: a pipeline file holds plain values only. Remove it")
        if len(self._open) >= MAX_DEPTH:
            self._fail(line, f"nested more than {MAX_DEPTH} deep")
        if self._open and isinstance(self._open[-1].value, dict) and not self._open[-1].has_key:
            self._fail(line, "expected a plain key, got a list or mapping")
        self._count(1, line)
        self._open.append(_Open(value, self._steps(), line, event.anchor))

    def _steps(self) -> Steps:
        if not self._open:
            return ()
        parent = self._open[-1]
        return (*parent.steps, len(parent.value) if isinstance(parent.value, list) else parent.key)

    def _add(self, value: Any, size: int, line: int, anchor: str | None, *, counted: bool = False) -> None:
        """Put a complete value where it belongs."""
        if not counted:
            self._count(size, line)
        if anchor is not None:
            self._anchors[anchor] = value, size
        if not self._open:
            self._lines[()] = line
            self._documents.append(value)
            return
        parent = self._open[-1]
        parent.size += size
        if isinstance(parent.value, list):
            self._lines[self._steps()] = line
            parent.value.append(value)
        elif not parent.has_key:
            self._key(parent, value, line)
        else:
            parent.value[parent.key] = value
            parent.has_key = False

    def _key(self, parent: _Open, key: Any, line: int) -> None:
        if isinstance(key, (list, dict)):
            self._fail(line, "expected a plain key, got a list or mapping")
        if key in parent.key_lines:
            self._fail(
                line, f'the key "{key}" stands here for the second time; the first is in line {parent.key_lines[key]}'
            )
        parent.key, parent.has_key = key, True
        parent.key_lines[key] = line
        self._lines[(*parent.steps, key)] = line

    def _count(self, size: int, line: int) -> None:
        self._size += size
        if self._size > MAX_VALUES:
            self._fail(
                line, f"the file stands for more than {MAX_VALUES:,} values, aliases counted; is this a pipeline?"
            )

    def _fail(self, line: int, message: str) -> NoReturn:
        raise SpecError(f"{self._name}:{line}: {message}{'' if message.endswith('?') else '.'}")


def write_yaml(value: Mapping[str, Any], blocks: Sequence[str] = ()) -> str:
    """Write a mapping, a line for each key.

    Args:
        value: keys to values of plain data.
        blocks: keys whose lists are written one entry a line.
    """
    lines = []
    for key, entry in value.items():
        if key in blocks and entry:
            lines.append(f"{key}:")
            lines.extend(f"  - {_block_entry(part)}" for part in entry)
        else:
            lines.append(f"{write_yaml_scalar(key)}: {_flow(entry)}")
    return "\n".join(lines) + "\n"


def _block_entry(value: Any) -> str:
    if isinstance(value, Mapping) and len(value) == 1:
        ((key, inner),) = value.items()
        return f"{write_yaml_scalar(key)}: {_flow(inner)}"
    return _flow(value)


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{write_yaml_scalar(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return write_yaml_scalar(value)
