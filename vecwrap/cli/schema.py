"""``vecwrap schema``: the JSON schema of pipeline files, read from the name tables and the signatures.

What a schema cannot express (wrappers in a wrong order, a number out of range) is left to ``vecwrap check``, and so are
the arguments within text such as ``framestack:4``.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import msgspec
import numpy as np
import typer

from vecwrap.cli.command import command
from vecwrap.cli.inspect import Row, argument_help, backend_rows, wrapper_rows
from vecwrap.errors import SpecError
from vecwrap.pipeline.build import build
from vecwrap.pipeline.signatures import REQUIRED, Parameter, Signature, holds_names, is_callable, members
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.pipeline.values import for_file
from vecwrap.pipeline.words import POSITIONAL
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.import_paths import PATTERN

Json = dict[str, Any]

_IMPORT_PATH: Json = {"type": "string", "pattern": f"^{PATTERN}$"}


@command("schema", "> pipeline.schema.json")
def print_schema() -> None:
    """Print the JSON schema of pipeline files, which lets editors complete and check them."""
    typer.echo(json.dumps(pipeline_schema(), indent=2, ensure_ascii=False))


def pipeline_schema() -> Json:
    """Return the JSON schema (draft 2020-12) of a pipeline file, with every registered wrapper and backend."""
    wrappers, keys = wrapper_rows(), _keys()
    extends: Json = {"properties": {"extends": {"type": "string"}}, "required": ["extends"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A vecwrap pipeline",
        "description": "Which environment, how many, which wrappers around it, which backend.",
        "type": "object",
        "properties": {
            "$schema": {"description": "Where an editor finds this schema; ignored."},
            "extends": {
                "type": ["string", "null"],
                "minLength": 1,
                "description": "A pipeline file that this one extends, relative to this one. The keys here override "
                "it: mappings are merged, lists are replaced.",
            },
            **keys,
            "eval": {
                "type": ["object", "null"],
                "description": keys["eval"].get("description", ""),  # python -OO has no docstrings
                "properties": {key: schema for key, schema in keys.items() if key != "eval"},
                "additionalProperties": False,
            },
        },
        "anyOf": [{"required": ["env"]}, extends],
        "if": {"not": extends},
        "then": {"properties": {"wrappers": {"$ref": "#/$defs/wrappers"}}},
        "additionalProperties": False,
        "$defs": {
            "wrappers": {
                "anyOf": [
                    {"type": "null"},
                    {"type": "array", "items": {"$ref": "#/$defs/wrapper"}},
                    {"type": "string", "description": "Wrappers in one line, with bars between them."},
                ]
            },
            "wrapper": _wrapper(wrappers),
            "changes": _changes(wrappers),
            "backend": _backend(backend_rows()),
            **{f"wrapper {row.name}": _arguments(row) for row in wrappers},
            **{f"settings {row.name}": _settings(row) for row in wrappers},
        },
    }


def _keys() -> dict[str, Json]:
    """The keys of a pipeline with their types, defaults and help."""
    helps = {**argument_help(build), **argument_help(PipelineSpec, "Attributes")}
    special: dict[str, Json] = {
        "autoreset": {
            "enum": list(dict.fromkeys([m.value for m in Autoreset] + [m.gymnasium.value for m in Autoreset]))
        },
        "env_kwargs": {"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}, "minItems": 1}]},
        "agents": {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
                dict(_NAMES),
                {"type": "object", "properties": {"pad": {"type": "boolean"}}, "additionalProperties": False},
            ]
        },
        "stats": {"type": "string", "minLength": 1},
        "backend": {"$ref": "#/$defs/backend"},
        "wrappers": {"anyOf": [{"$ref": "#/$defs/wrappers"}, {"$ref": "#/$defs/changes"}]},
        "eval": {},
    }
    parameters = [p for p in Signature.of(PipelineSpec, skip=0).parameters if p.name != "source"]
    schemas = {p.name: _or_null(special.get(p.name, json_type(p.annotation))) for p in parameters}
    one: Json = {"type": "string", "pattern": r"\S"}
    schemas["env"] = {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
    return {p.name: {**schemas[p.name], **_help(p, helps)} for p in parameters}


# -- wrappers ----------------------------------------------------------------------------------------------------------


def _wrapper(rows: Sequence[Row]) -> Json:
    """A wrapper by name, as text with arguments, or as a mapping of its name to its arguments."""
    mapping = {
        "type": "object",
        "properties": {row.name: {"$ref": f"#/$defs/wrapper {row.name}", "description": row.summary} for row in rows},
        "patternProperties": {_IMPORT_PATH["pattern"]: {}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {"anyOf": [*_names(row for row in rows if not _required(row)), _text(rows), mapping]}


def _changes(rows: Sequence[Row]) -> Json:
    """Changes to wrappers of another file, or of this one's main section."""
    return {
        "type": "object",
        "description": "Arguments to change, by the name of the wrapper, or by its number if a name occurs twice.",
        "properties": {
            row.name: {
                "anyOf": [{"$ref": f"#/$defs/settings {row.name}"}, {"$ref": f"#/$defs/wrapper {row.name}"}],
                "description": row.summary,
            }
            for row in rows
        },
        "patternProperties": {"^[0-9]+$": {}, _IMPORT_PATH["pattern"]: {}, "^[A-Z]\\w*$": {}},
        "additionalProperties": False,
    }


def _arguments(row: Row) -> Json:
    """The values allowed under a wrapper's name: arguments by name, the first one alone, none, or any list."""
    positional = [p for p in row.parameters if p.by_position]
    required = _required(row)
    by_name: Json = {"$ref": f"#/$defs/settings {row.name}"}
    if required:
        by_name["anyOf"] = [{"required": required}, {"required": [POSITIONAL]}]
    forms = [by_name, {"type": "array"}]
    if not required:
        forms.append({"type": "null"})
    if set(required) <= {p.name for p in positional[:1]}:
        alone: Json = {"not": {"type": ["array", "object", "null"]}}
        if positional:
            forms.append({"allOf": [_value(positional[0]), alone], **_help(positional[0], row.help)})
        elif row.any_position:
            forms.append(alone)
    return {"anyOf": forms}


def _settings(row: Row) -> Json:
    """Arguments by name, any of which may be missing; ``*`` holds a list of positional ones."""
    by_position = {POSITIONAL: {"type": "array", "description": "Positional arguments."}}
    return {
        "type": "object",
        "properties": _properties(row) | by_position,
        "additionalProperties": row.any_name,
    }


def _required(row: Row) -> list[str]:
    return [p.name for p in row.parameters if p.default is REQUIRED]


# -- backends ---------------------------------------------------------------------------------------------------------


def _backend(rows: Sequence[Row]) -> Json:
    """A backend by name, or as a mapping; without a name it is ``auto``."""
    options = {p.name: p for row in rows for p in row.parameters}
    helps = {name: text for row in rows for name, text in row.help.items()}
    auto = Row("auto", "", "The one that fits n.", tuple(options.values()), helps, "")
    imported = {"name": _IMPORT_PATH}
    return {
        "anyOf": [
            *_names([auto, *rows]),
            _IMPORT_PATH,
            _options(auto),
            *({**_options(row), "required": ["name"]} for row in rows),
            {"type": "object", "properties": imported, "required": ["name"]},
        ]
    }


def _options(row: Row) -> Json:
    return {
        "type": "object",
        "properties": {"name": {"const": row.name, "description": row.summary}, **_properties(row)},
        "additionalProperties": row.any_name,
    }


# -- what both have ---------------------------------------------------------------------------------------------------


def _names(rows: Iterable[Row]) -> list[Json]:
    return [{"const": row.name, "description": row.summary} for row in rows]


def _text(rows: Sequence[Row]) -> Json:
    """One of them as text: a known name, or an import path that no ``name:argument`` looks like."""
    names = "|".join(re.escape(row.name) + (r":\s*\S" if _required(row) else r"(?::|\s*$)") for row in rows)
    return {"type": "string", "pattern": rf"^\s*(?:{names}|{PATTERN}:|[A-Za-z_]\w*\.[\w.]*:[A-Za-z_])"}


def _properties(row: Row) -> dict[str, Json]:
    return {p.name: {**_value(p), **_help(p, row.help)} for p in row.parameters}


def _value(parameter: Parameter) -> Json:
    """The schema of one argument; null is allowed if it is the default, whatever the type says."""
    schema = json_type(parameter.annotation)
    return _or_null(schema) if parameter.default is None else schema


def _help(parameter: Parameter, texts: Mapping[str, str]) -> Json:
    """The description, and the default if a file can hold it."""
    text, default = texts.get(parameter.name, ""), parameter.default
    found: Json = {"description": text} if text else {}
    if default is None or (isinstance(default, (bool, int, float, str, tuple)) and default != ()):
        with contextlib.suppress(SpecError, ValueError):  # not plain data; and JSON has neither inf nor nan
            default = for_file(default, parameter.name)
            json.dumps(default, allow_nan=False)
            found["default"] = default
    return found


def _or_null(schema: Json) -> Json:
    if not schema or {"type": "null"} in schema.get("anyOf", [schema]):
        return schema
    return {"anyOf": [schema, {"type": "null"}]}


# -- types as JSON schemas --------------------------------------------------------------------------------------------


def json_type(annotation: Any) -> dict[str, Any]:
    """Return the JSON schema of what ``checked`` accepts from a file for a type; ``{}`` if that is anything."""
    if isinstance(annotation, str) or annotation is Any:
        return {}
    if len(joined := members(annotation)) > 1:
        return _any_of([json_type(member) for member in joined])
    if is_callable(annotation):
        return dict(_IMPORT_PATH)
    if holds_names(annotation):
        return _any_of([_json_schema(annotation), dict(_NAMES)])
    if get_origin(annotation) is Literal:
        return {"enum": list(get_args(annotation))}
    return _json_schema(annotation)


def _json_schema(annotation: Any) -> dict[str, Any]:
    try:
        schema = msgspec.json.schema(annotation, schema_hook=_json_type_of_class)
    except TypeError:
        return {}
    return _without_references(schema)


_NAMES: dict[str, Any] = {"type": "string", "pattern": r"^[^+]+(\+[^+]+)*$"}  # joined by +
_NOTHING: dict[str, Any] = {"not": {}}  # matches nothing in a file


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    if {} in schemas:
        return {}
    told = [schema for index, schema in enumerate(schemas) if schema != _NOTHING and schema not in schemas[:index]]
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
