"""Types as JSON schemas, so that an editor refuses what ``signatures.checked`` would refuse."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

__all__ = ["json_type"]


def json_type(annotation: Any) -> dict[str, Any]:
    """Return the JSON schema of what ``checked`` accepts from a file for a type; ``{}`` if that is anything.

    >>> json_type(int | None), json_type(Literal["zero", "first"])
    ({'anyOf': [{'type': 'integer'}, {'type': 'null'}]}, {'enum': ['zero', 'first']})
    """
    import msgspec

    if isinstance(annotation, str) or annotation is Any:
        return {}
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return _any_of([json_type(member) for member in get_args(annotation)])
    if origin is Literal:
        return {"enum": list(get_args(annotation))}
    try:
        schema = msgspec.json.schema(annotation, schema_hook=_json_type_of_class)
    except TypeError:
        return dict(_NOTHING) if (origin or annotation) is Callable else {}
    return _without_references(schema)


_NOTHING: dict[str, Any] = {"not": {}}  # matches nothing in a file


def _any_of(members: list[dict[str, Any]]) -> dict[str, Any]:
    if {} in members:
        return {}
    told = [member for index, member in enumerate(members) if member != _NOTHING and member not in members[:index]]
    return told[0] if len(told) == 1 else {"anyOf": told} if told else dict(_NOTHING)


def _json_type_of_class(wanted: Any) -> dict[str, Any]:
    wanted = get_origin(wanted) or wanted
    if wanted is object:
        return {}
    if issubclass(wanted, os.PathLike) or wanted is os.PathLike:
        return {"type": "string"}
    if issubclass(wanted, np.number):
        return {"type": "integer" if issubclass(wanted, np.integer) else "number"}
    return dict(_NOTHING)


def _without_references(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace references by what they refer to, or by ``{}`` if that contains references itself."""
    definitions = schema.pop("$defs", {})

    def resolved(part: Any) -> Any:
        if isinstance(part, list):
            return [resolved(inner) for inner in part]
        if not isinstance(part, dict):
            return part
        if "$ref" not in part:
            return {key: resolved(inner) for key, inner in part.items()}
        found = definitions[part["$ref"].rpartition("/")[2]]
        return {} if "$ref" in repr(found) else {key: inner for key, inner in found.items() if key != "title"}

    return dict(resolved(schema))
