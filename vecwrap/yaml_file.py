"""Reads and writes pipeline files: YAML 1.2 as plain values, each with its line.

Read from the parser's events, so nothing is constructed: a tag is an error, an alias counts as much as its target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vecwrap.document import Builder, reader
from vecwrap.errors import SpecError
from vecwrap.scalars import joined, read_yaml_scalar, write_yaml_scalar

__all__ = ["read_yaml", "write_yaml"]

# What the parser says, and the remedy; the first match counts.
_REMEDIES = (
    ("found character '\\t'", "Indent with spaces, not with tabs."),
    ("cannot start any token", "Text that begins with it needs quotes."),
    ("expected alphabetic or numeric character", "Text that begins with * or & needs quotes."),
    ("unknown escape character", "Between double quotes a backslash is written twice; between single quotes once."),
    ("a quoted scalar", "Is the quote that opens in line {line} closed?"),
    (
        "while parsing a flow",
        "Is the bracket that opens in line {line} closed? Text that holds a colon, a comma or a bracket needs quotes.",
    ),
    ("'<document start>'", "Is there a bracket too many?"),
    ("could not find expected ':'", 'Is what begins in line {line} a key? One ends with a colon and a space: "n: 4".'),
    ("sequence entries are not allowed", "The entries of a list stand below its key, one a line, or in brackets."),
    (
        "mapping values are not allowed",
        'Keys of one mapping begin in the same column; text that holds ": " needs quotes.',
    ),
    ("<block end>", "The entries of one list or mapping begin in the same column."),
)


@reader
def read_yaml(text: str, builder: Builder) -> None:
    """Read one YAML document."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            _take(event, builder)
    except SpecError:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{builder.name}:{mark.line + 1}" if mark is not None else builder.name
        said = " ".join(part for part in (error.context, error.problem) if part)
        began = error.context_mark or mark
        remedy = next((f" {remedy}" for words, remedy in _REMEDIES if words in said), "")
        if "found character '\\t'" in said and text.splitlines()[mark.line][: mark.column].strip():
            remedy = " A tab stands in this line; take a space."
        remedy = remedy.replace("{line}", str(began.line + 1 if began is not None else 1))
        raise SpecError(f"{place}: this is not YAML: {said}.{remedy}") from None
    except ReaderError as error:  # a character that no YAML holds
        line = text.count("\n", 0, error.position) + 1
        number = f"{error.character:04x}"
        raise SpecError(
            f"{builder.name}:{line}: this is not YAML: it holds the character U+{number.upper()}, which cannot stand "
            f'in it. Leave it out; between double quotes "\\u{number}" is that character.'
        ) from None
    except Exception as error:  # for some texts, ruamel raises errors that are not its own
        raise SpecError(f"{builder.name}: this is not YAML: {' '.join(str(error).split())}.") from None


def _take(event: Any, builder: Builder) -> None:
    """Pass what the parser found to the builder."""
    kind, line = type(event).__name__, event.start_mark.line + 1
    if kind == "ScalarEvent":
        builder.scalar(_scalar(event, line, builder), line, event.anchor)
    elif kind == "AliasEvent":
        builder.alias(event.anchor, line)
    elif kind in ("SequenceStartEvent", "MappingStartEvent"):
        if event.tag is not None:
            _refuse_tag(event, line, builder)
        builder.begin([] if kind == "SequenceStartEvent" else {}, line, event.anchor)
    elif kind in ("SequenceEndEvent", "MappingEndEvent"):
        builder.end()
    elif kind == "DocumentStartEvent":
        builder.new_document(line)


def _scalar(event: Any, line: int, builder: Builder) -> Any:
    if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
        _refuse_tag(event, line, builder)
    if event.style is not None or event.tag is not None:
        return joined(event.value)
    if event.value == "<<" and builder.at_key:
        builder.fail(
            line,
            "YAML 1.2 has no merge keys; a file builds upon another one with extends. Write what << stands for, or "
            '"<<" where that is a name',
        )
    try:
        return read_yaml_scalar(event.value)
    except ValueError as error:  # a number with too many digits
        builder.fail(line, str(error))


def _refuse_tag(event: Any, line: int, builder: Builder) -> None:
    builder.fail(line, f"the tag {event.tag} is not read: a pipeline file holds plain values only. Remove it")


def write_yaml(value: Mapping[str, Any], blocks: Sequence[str] = ()) -> str:
    """Write a mapping, one line per key.

    Args:
        value: keys to values of plain data.
        blocks: keys whose lists and mappings are written one entry per line.
    """
    return "\n".join(_lines(value, blocks)) + "\n"


def _lines(value: Mapping[str, Any], blocks: Sequence[str]) -> Iterator[str]:
    for key, entry in value.items():
        inside: list[str] = []
        if key in blocks and entry and isinstance(entry, (list, tuple)):
            inside = [f"- {_block_entry(part)}" for part in entry]
        elif key in blocks and entry and isinstance(entry, Mapping):
            inside = list(_lines(entry, blocks))
        yield f"{write_yaml_scalar(key)}:" if inside else f"{write_yaml_scalar(key)}: {_flow(entry)}"
        yield from (f"  {line}" for line in inside)


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
