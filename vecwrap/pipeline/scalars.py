"""Plain values as text, and back: the syntax that spec strings and pipeline files share. Nothing is ever evaluated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TypeAlias

from vecwrap.errors import printable

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


def read_scalar(text: str) -> Scalar:
    """Read one argument of a spec string: YAML 1.2's scalars, Python's ``None``, ``inf`` and ``nan``, quoted text."""
    text = text.strip()
    if text[:1] in ('"', "'"):
        return _unquoted(text)
    if text in _PYTHON_WORDS:
        return _PYTHON_WORDS[text]
    return read_yaml_scalar(text)


def read_yaml_scalar(text: str) -> Scalar:
    """Read a plain scalar as YAML 1.2's core schema does: ``1e-8`` is a number, ``no`` and ``1_000`` are text."""
    if text in _YAML_WORDS:
        return _YAML_WORDS[text]
    if _INT.fullmatch(text):
        return read_integer(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _RADIX.fullmatch(text):
        return read_integer(text, 0)
    if _INFINITY.fullmatch(text):
        return float("-inf") if text[0] == "-" else float("inf")
    if _NOT_A_NUMBER.fullmatch(text):
        return float("nan")
    return text


def read_integer(text: str, base: int = 10) -> int:
    """Read an integer."""
    number = int(text, base) if len(text) < MAX_BITS else None
    if number is None or number.bit_length() > MAX_BITS:
        raise ValueError(f"a number of {len(text):,} digits is too long to be read")
    return number


def write_scalar(value: Scalar) -> str:
    """Write one argument of a spec string, so that ``read_scalar`` reads it back."""
    if not isinstance(value, str):
        return _write_plain(value)
    return value if _BARE.fullmatch(value) and read_scalar(value) == value else quoted(value)


def write_yaml_scalar(value: Scalar) -> str:
    """Write one scalar so that every YAML 1.2 parser reads it back."""
    if not isinstance(value, str):
        return _write_plain(value)
    # `on`, `yes` and the like are text in YAML 1.2, but quoted for older parsers.
    bare = _BARE_YAML.fullmatch(value) and value.lower() not in ("yes", "no", "on", "off")
    return value if bare and read_yaml_scalar(value) == value else quoted(value)


def _write_plain(value: bool | float | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(text, text)


def quoted(text: str) -> str:
    """Write text between double quotes, with the escapes that JSON, YAML and spec strings share."""
    return '"' + "".join(f"\\{char}" if char in '"\\' else printable(char) for char in text) + '"'


def _unquoted(text: str) -> str:
    if not _QUOTED.fullmatch(text):
        raise ValueError(f"a quote that does not end where the text ends: {text}")
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        raise ValueError(f"unknown escape in {text}") from None


def pieces(text: str, separators: str) -> Iterator[str]:
    """Split at separators outside quotes.

    A quote opens only where a value may begin: at the start, or after a space, a separator or an equals sign.
    """
    start = at = 0
    while at < len(text):
        char = text[at]
        if char in "\"'" and (at == 0 or text[at - 1].isspace() or text[at - 1] in "=:,|"):
            quote = _QUOTED.match(text, at)
            if quote is None:
                raise ValueError(f"a quote that does not end: {text[at:]}")
            at = quote.end()
        elif char in separators:
            yield text[start:at]
            start = at = at + 1
        else:
            at += 1
    yield text[start:]
