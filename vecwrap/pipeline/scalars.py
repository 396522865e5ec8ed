"""Scalars read and written as text, and a spec string split into its parts.

Lines and pipeline files share the syntax of scalars. Nothing is ever evaluated.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

from vecwrap.errors import printable
from vecwrap.pipeline.source_map import SourceRef, fail

Scalar: TypeAlias = bool | int | float | str | None

MAX_BITS = 4096  # of an integer: 1,234 digits at most, fewer than Python refuses to write
# Of one text, and wrappers in a pipeline; lists in files are counted as they are read.
MAX_PARTS = 1000

_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_RADIX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
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


def is_scalar(value: Any) -> bool:
    """Whether a spec string can hold the value."""
    if type(value) is int:
        return value.bit_length() <= MAX_BITS
    return value is None or type(value) in (bool, float, str)


def shortened(text: str) -> str:
    """Return a text, or its beginning if it is longer than 60 characters."""
    if len(text) <= 60:
        return text
    return f"{text[:57]}..."


def short_text(text: str) -> str:
    """Return a text in quotes for an error or a plan, shortened."""
    text = shortened(text)
    if text.isprintable():
        return f'"{text}"'
    return quoted(text)


def read_argument(text: str, source: SourceRef) -> Any:
    """Read one argument of a spec string; SpecError says where it was written."""
    if text.lstrip()[:1] in ("[", "{"):
        got = f"got {short_text(text)}; write a file, or quotes if it is text"
        fail(source, f"a line holds no lists or mappings, {got}")
    try:
        return read_scalar(text)
    except ValueError as error:
        return fail(source, str(error))


def read_scalar(text: str) -> Scalar:
    """Read a scalar of a spec string: one of YAML 1.2, or Python's words, or quoted text.

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
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    return text


def read_integer(text: str, base: int = 10) -> int:
    if len(text) < MAX_BITS:
        number = int(text, base)
        if number.bit_length() <= MAX_BITS:
            return number
    raise ValueError(f"a number of {len(text):,} digits is too long to be read")


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
    text = json.dumps(value)
    return {"Infinity": ".inf", "-Infinity": "-.inf", "NaN": ".nan"}.get(text, text)


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
    parts: list[str] = []
    start = at = 0
    while at < len(text):
        char = text[at]
        if char in "\"'" and (at == 0 or text[at - 1].isspace() or text[at - 1] in "=:,|"):
            quote = _QUOTED.match(text, at)
            if quote is None:
                fail(source, f"a quote that does not end: {text[at:]}")
            at = quote.end()
        elif char in separators:
            parts.append(text[start:at])
            start = at = at + 1
            if len(parts) == MAX_PARTS:
                fail(source, f"expected at most {MAX_PARTS:,} parts in {short_text(text)}")
        else:
            at += 1
    return [*parts, text[start:]]
