"""Reads pipeline files in JSON as plain values, each with its line."""

from __future__ import annotations

import json
import re

from vecwrap.document import MAX_DEPTH, Builder, reader
from vecwrap.errors import SpecError
from vecwrap.scalars import read_integer

__all__ = ["read_json"]

# The tokens of a text that is known to be JSON.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s"{}\[\]:,]+|\n')


@reader
def read_json(text: str, builder: Builder) -> None:
    """Read one JSON document; a duplicate key is refused with both lines."""
    _check(text, builder.name)
    line = 1
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
        elif token in "{[":
            builder.begin({} if token == "{" else [], line)
        elif token in "}]":
            builder.end()
        elif token not in ",:":
            try:
                value = json.loads(token, parse_int=read_integer)
            except ValueError as error:  # a number with too many digits
                builder.fail(line, str(error))
            builder.scalar(value, line)


def _check(text: str, name: str) -> None:
    """Refuse what is not JSON; only the form of numbers is checked."""
    if not text.strip():
        return
    try:
        json.loads(text, parse_int=len)
    except json.JSONDecodeError as error:
        raise SpecError(f"{name}:{error.lineno}: this is not JSON: {error.msg}.") from None
    except RecursionError:
        raise SpecError(f"{name}: nested more than {MAX_DEPTH} deep.") from None
