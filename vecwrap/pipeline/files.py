"""Reads pipeline files and the files they extend: YAML 1.2 and JSON values, each with its line.

A file is read as events, from which a ``Document`` assembles lists, dicts and scalars. Nothing is
constructed or evaluated, and its limits keep an untrusted file from filling the memory.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from vecwrap.env.untrusted import open_regular
from vecwrap.errors import SpecError
from vecwrap.pipeline.scalars import read_integer, read_yaml_scalar, write_yaml_scalar
from vecwrap.pipeline.source_map import MAX_DEPTH, SourceLocation, SourceMap, SourceRef, fail
from vecwrap.pipeline.values import short_repr

SUFFIXES = (".yaml", ".yml", ".json")
MAX_BYTES = 1_000_000
_STREAMS = ("/dev/stdin", "/dev/fd/")  # of this process, so not a stranger's
# an alias counts as much as its target: a bomb is refused when it reaches this
MAX_VALUES = 100_000

# Keys of a file that are not part of the pipeline: the file it extends, and where an editor finds
# the schema.
_EXTENDS = "extends"
_SCHEMA = "$schema"


# -- files and those that they extend --------------------------------------------------------------


def read_file(path: Path) -> tuple[Any, SourceRef]:
    """Read a file, JSON if it is named so, else YAML: its contents and where they were written."""
    text = read_text(path)
    name = str(path)
    read = read_yaml
    if path.suffix == ".json":
        read = read_json
    document = read(text, name, path.parent)
    return document.value, document.source


def read_text(path: Path, *, follow: bool = True) -> str:
    """Read a file of at most 1 MB, in UTF-8; with ``follow``, the path may be a link."""
    try:
        if str(path).startswith(_STREAMS):
            opened: IO[bytes] = path.open("rb")
        else:
            opened = open_regular(path, follow=follow)
        with opened as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise SpecError(
            f"{path}: cannot be read ({why}). Is the path right, relative to {Path.cwd()}?"
        ) from None
    if len(data) > MAX_BYTES:
        raise SpecError(
            f"{path}: expected a pipeline file of at most 1 MB, got a larger one. Is it the right "
            "file?"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(
            f"{path}: expected text in UTF-8, got byte {data[error.start]:#x} at {error.start}."
        ) from None


def lineage(data: Any, source: SourceRef) -> list[tuple[Mapping[Any, Any], SourceRef]]:
    """Follow ``extends``: return each file's other keys and its source, outermost base first."""
    found: list[tuple[Mapping[Any, Any], SourceRef]] = []
    file = source.location.file
    names = [file or "pipeline"]
    seen = []
    if is_file(file):
        seen.append(Path(file).resolve())
    while True:
        if not isinstance(data, Mapping):
            got = "an empty file"
            if not (data is None and source.location.file):
                got = short_repr(data)
            such_as = "env: CartPole-v1"
            if found:
                such_as = "n: 8"
            fail(source, f'expected the keys of a pipeline, such as "{such_as}", got {got}')
        found.append(
            ({key: value for key, value in data.items() if key not in (_EXTENDS, _SCHEMA)}, source)
        )
        base = data.get(_EXTENDS)
        if base is None:
            return found[::-1]
        at = source.at(_EXTENDS)
        if not isinstance(base, str) or not base:
            fail(at, f"expected the path of a pipeline file, got {short_repr(base)}")
        path = (at.location.directory or Path()) / base
        names.append(str(path))
        if is_folder(path):
            fail(
                at,
                (
                    f'expected the path of a pipeline file, got the folder "{path}"; name the file '
                    "in it"
                ),
            )
        if not is_file(path):  # a pipe is refused, too: it could block a reader
            fail(at, f"there is no file {path}")
        if path.resolve() in seen:
            fail(at, f"the files extend each other in a circle: {' > '.join(names)}")
        seen.append(path.resolve())
        data, source = read_file(path)


# Those of Path raise for a name that is too long.
is_file = os.path.isfile
is_folder = os.path.isdir


def names_file(text: str) -> bool:
    """Whether a text ends like a pipeline file's name and is not a one-line pipeline.

    A pipeline in one line may end in such a suffix, too.
    """
    return text.endswith(SUFFIXES) and not re.search(r"\||\s[\w.]+=", text)


# -- events to values ------------------------------------------------------------------------------


class _Event(NamedTuple):
    """A parse event: a scalar, an alias, or the start or end of a list or mapping.

    The value of an alias is the name of its anchor.
    """

    kind: Literal["scalar", "alias", "[", "]", "{", "}"]
    line: int
    value: Any = None
    anchor: str | None = None


class Document:
    """The contents of a file, assembled from events, and where each of them was written.

    Attributes:
        value: dicts, lists and scalars.
        source: their lines, counted from 1, in the file of this name, and the folder that its paths
            are relative to.
    """

    def __init__(
        self, name: str, text: str, events: Iterator[_Event], directory: Path | None
    ) -> None:
        if len(text) > MAX_BYTES:
            raise SpecError(
                f"{name}: expected a pipeline of at most 1 MB, got {len(text):,} characters."
            )
        self._name = name
        self._directory = directory
        self._events = events
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._count = 0
        first = next(events, _Event("scalar", 1))
        whole = SourceMap(self._location(first), default_location=SourceLocation())
        self.value = self._value(first, whole, 0)
        self.source = SourceRef(whole)
        next(events, None)  # finds what stands behind it

    def _location(self, event: _Event) -> SourceLocation:
        return SourceLocation(self._name, event.line, self._directory)

    def _value(self, event: _Event, source_map: SourceMap, depth: int) -> Any:
        """The value that begins with this event; its parts are marked in its mark."""
        before = self._count
        if event.kind == "alias":
            if event.value not in self._anchors:
                fail(
                    f"{self._name}:{event.line}",
                    f"*{event.value} stands for nothing: no &{event.value} is complete before it",
                )
            value, size = self._anchors[event.value]
            self._add(size, event)
            return value
        self._add(1, event)
        if event.kind == "scalar":
            value = event.value
        elif depth >= MAX_DEPTH:
            fail(f"{self._name}:{event.line}", f"nested more than {MAX_DEPTH} deep")
        elif event.kind == "{":
            value = self._mapping(source_map, depth + 1)
        else:
            value = []
            while (inner := next(self._events)).kind != "]":
                part = source_map.parts[len(value)] = SourceMap(self._location(inner))
                value.append(self._value(inner, part, depth + 1))
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._count - before
        return value

    def _mapping(self, source_map: SourceMap, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while (event := next(self._events)).kind != "}":
            key: Any = []
            if event.kind in ("scalar", "alias"):
                key = self._value(event, SourceMap(), depth)
            if isinstance(key, (list, dict)):
                fail(f"{self._name}:{event.line}", "expected a plain key, got a list or mapping")
            if key in found:
                first = source_map.parts[key].location.line
                again = (
                    f'the key "{key}" stands here for the second time; the first is in line {first}'
                )
                fail(f"{self._name}:{event.line}", again)
            part = source_map.parts[key] = SourceMap(self._location(event))
            found[key] = self._value(next(self._events), part, depth)
        return found

    def _add(self, size: int, event: _Event) -> None:
        self._count += size
        if self._count > MAX_VALUES:
            fail(
                f"{self._name}:{event.line}",
                (
                    f"the file stands for more than {MAX_VALUES:,} values, aliases counted; is "
                    "this a pipeline?"
                ),
            )


# -- YAML ------------------------------------------------------------------------------------------

# What the parser says, and the remedy; the first match counts.
_REMEDIES = {
    "found character '\\t'": "Take spaces, not tabs.",
    "cannot start any token": "Text that begins with it needs quotes.",
    "unknown escape character": (
        "Between double quotes a backslash is written twice; between single quotes once."
    ),
    "while parsing a flow": "Text that holds a colon, a comma or a bracket needs quotes.",
    "could not find expected ':'": 'A key ends with a colon and a space: "n: 4".',
    "mapping values are not": (
        'Keys of one mapping begin in the same column; text that holds ": " needs quotes.'
    ),
}


_TEXT_TAGS = ("!", "tag:yaml.org,2002:str")
_BRACKETS: dict[str, Literal["[", "]", "{", "}"]] = {
    "SequenceStartEvent": "[",
    "SequenceEndEvent": "]",
    "MappingStartEvent": "{",
    "MappingEndEvent": "}",
}


def read_yaml(text: str, name: str, directory: Path | None = None) -> Document:
    """Read one YAML document.

    ``name`` appears in errors; paths in the document are relative to ``directory``.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    try:
        return Document(
            name, text, _yaml_events(YAML(typ="safe", pure=True).parse(text), name), directory
        )
    except SpecError:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = name
        if mark is not None:
            place = f"{name}:{mark.line + 1}"
        said = " ".join(part for part in (error.context, error.problem) if part)
        if error.context_mark is not None and error.context_mark.line != mark.line:
            said += f" (it begins in line {error.context_mark.line + 1})"
        remedy = next((f" {remedy}" for words, remedy in _REMEDIES.items() if words in said), "")
        raise SpecError(f"{place}: this is not YAML: {said}.{remedy}") from None
    except Exception as error:  # for some texts, ruamel raises errors that are not its own
        raise SpecError(f"{name}: this is not YAML: {' '.join(str(error).split())}.") from None


def _yaml_events(events: Iterator[Any], name: str) -> Iterator[_Event]:
    begun = False
    for event in events:
        kind = type(event).__name__
        line = event.start_mark.line + 1
        tag = getattr(event, "tag", None)
        if tag is not None and not (kind == "ScalarEvent" and tag in _TEXT_TAGS):
            remedy = "a pipeline file holds plain values only. Remove it"
            fail(f"{name}:{line}", f"the tag {tag} is not read: {remedy}")
        if kind == "ScalarEvent":
            yield _Event("scalar", line, _yaml_scalar(event, f"{name}:{line}"), event.anchor)
        elif kind == "AliasEvent":
            yield _Event("alias", line, event.anchor)
        elif kind in _BRACKETS:
            yield _Event(_BRACKETS[kind], line, anchor=getattr(event, "anchor", None))
        elif kind == "DocumentStartEvent":
            if begun:
                fail(f"{name}:{line}", "a second document begins; expected one pipeline a file")
            begun = True


def _yaml_scalar(event: Any, where: str) -> Any:
    if event.style is not None or event.tag is not None:
        text: str = event.value
        # joins JSON's pairs
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if event.value == "<<":
        fail(where, "YAML 1.2 has no merge keys; a file builds upon another one with extends")
    try:
        return read_yaml_scalar(event.value)
    except ValueError as error:  # a number with too many digits
        fail(where, str(error))


def write_yaml(value: Mapping[str, Any], blocks: Sequence[str] = ()) -> str:
    """Write a mapping, one line per key, or one per entry for the keys of ``blocks``."""
    return "\n".join(_lines(value, blocks)) + "\n"


def _lines(value: Mapping[str, Any], blocks: Sequence[str]) -> Iterator[str]:
    for key, entry in value.items():
        inside: list[str] = []
        if key in blocks and entry and isinstance(entry, (list, tuple)):
            inside = [f"- {_block_entry(part)}" for part in entry]
        elif key in blocks and entry and isinstance(entry, Mapping):
            inside = list(_lines(entry, blocks))
        if inside:
            yield f"{write_yaml_scalar(key)}:"
            yield from (f"  {line}" for line in inside)
        else:
            yield f"{write_yaml_scalar(key)}: {_flow(entry)}"


def _block_entry(value: Any) -> str:
    if isinstance(value, Mapping) and len(value) == 1:
        ((key, inner),) = value.items()
        return f"{write_yaml_scalar(key)}: {_flow(inner)}"
    return _flow(value)


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{write_yaml_scalar(key)}: {_flow(inner)}" for key, inner in value.items())
            + "}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return write_yaml_scalar(value)


# -- JSON ------------------------------------------------------------------------------------------

# of a text that is known to be JSON
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s"{}\[\]:,]+|\n')


def read_json(text: str, name: str, directory: Path | None = None) -> Document:
    """Read one JSON document; name and directory as for ``read_yaml``."""
    if text.strip():
        try:
            json.loads(text, parse_int=len)  # numbers are looked at when their line is known
        except json.JSONDecodeError as error:
            raise SpecError(f"{name}:{error.lineno}: this is not JSON: {error.msg}.") from None
        except RecursionError:
            raise SpecError(f"{name}: nested more than {MAX_DEPTH} deep.") from None
    return Document(name, text, _json_events(text, name), directory)


def _json_events(text: str, name: str) -> Iterator[_Event]:
    line = 1
    for match in _TOKEN.finditer(text):
        token: Any = match[0]
        if token == "\n":
            line += 1
        elif token in "[]{}":
            yield _Event(token, line)
        else:
            try:
                yield _Event("scalar", line, json.loads(token, parse_int=read_integer))
            except ValueError as error:  # a number with too many digits
                fail(f"{name}:{line}", str(error))
