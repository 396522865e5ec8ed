"""``vecwrap schema``: the JSON schema of pipeline files, read from the name tables and the signatures.

What a schema cannot express (layers in a wrong order, a number out of range) is left to ``vecwrap check``.
"""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import typer

from vecwrap.commands.catalogue import Row, argument_help, backend_rows, layer_rows
from vecwrap.commands.output import refuse_unwritable, write_out
from vecwrap.contract import Autoreset
from vecwrap.errors import SpecError
from vecwrap.signatures import REQUIRED, Parameter, Signature, json_type
from vecwrap.spec import PipelineSpec
from vecwrap.values import plain
from vecwrap.words import POSITIONAL

__all__ = ["pipeline_schema", "print_schema"]

Json = dict[str, Any]

# The grammar of layer_spec and scalars, in regular expressions valid in both Python and JavaScript.
_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'"""
_BARE = r"""[^\s"',:=|](?:[^,:=|]*[^\s,:=|])?"""
_BARE_AFTER_NAME = r"""[^\s"',:|](?:[^,:|]*[^\s,:|])?"""
_IMPORTED_ALONE = rf"{_DOTTED}:{_DOTTED}"
_IMPORTED = (rf"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+:{_DOTTED}(?::[^|]*)?", rf"{_DOTTED}:{_DOTTED}:[^|]*")


def print_schema(out: Path | None) -> None:
    """Print the schema, or write it to a file.

    Raises:
        SpecError: the file cannot be written.
    """
    if out is not None:
        refuse_unwritable(out)
    text = json.dumps(pipeline_schema(), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        typer.echo(text, nl=False)
        return
    write_out(out, text)


def pipeline_schema() -> Json:
    """Return the JSON schema (draft 2020-12) of a pipeline file, with every registered layer and backend."""
    layers, backends = layer_rows(), backend_rows()
    keys = _keys()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A vecwrap pipeline",
        "description": "Which environment, how many, which layers around it, which backend.",
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
        "anyOf": [{"required": ["env"]}, _EXTENDS],
        "if": {"not": _EXTENDS},
        "then": {"properties": {"wrappers": {"$ref": "#/$defs/layers"}}},
        "additionalProperties": False,
        "$defs": {
            "layers": {
                "anyOf": [
                    {"type": "null"},
                    {"type": "array", "items": {"$ref": "#/$defs/layer"}},
                    {"type": "string", "pattern": _pattern([_text_of(row) for row in layers], many=True)},
                ]
            },
            "layer": _layer(layers),
            "changes": _changes(layers),
            "backend": _backend(backends),
            **{f"layer {row.name}": _arguments(row) for row in layers},
            **{f"settings {row.name}": _settings(row, partial=True) for row in layers},
        },
    }


_EXTENDS: Json = {"properties": {"extends": {"type": "string"}}, "required": ["extends"]}


# -- the keys of a pipeline -------------------------------------------------------------------------------------------


def _keys() -> dict[str, Json]:
    """The keys of a pipeline with their types, defaults and help."""
    helps = argument_help(PipelineSpec, "Attributes")
    special: dict[str, Json] = {
        "autoreset": {
            "enum": list(dict.fromkeys([m.value for m in Autoreset] + [m.gymnasium.value for m in Autoreset]))
        },
        "env_kwargs": {"type": "object"},
        "stats": {"type": "string", "minLength": 1},
        "backend": {"$ref": "#/$defs/backend"},
        "wrappers": {"anyOf": [{"$ref": "#/$defs/layers"}, {"$ref": "#/$defs/changes"}]},
        "eval": {},
    }
    parameters = [p for p in Signature.of(PipelineSpec, skip=0).parameters if p.name != "source"]
    schemas = {p.name: _or_null(special.get(p.name, json_type(p.annotation))) for p in parameters}
    schemas["env"] = {"type": "string", "pattern": r"\S"}
    return {p.name: {**schemas[p.name], **_told(p, helps.get(p.name, ""))} for p in parameters}


def _told(parameter: Parameter, help_text: str) -> Json:
    """Help, and the default if a file can hold it."""
    told: Json = {"description": help_text} if help_text else {}
    default = parameter.default
    if default is None or (isinstance(default, (bool, int, float, str, tuple)) and default != ()):
        with contextlib.suppress(SpecError, ValueError):  # not plain data; and JSON has neither inf nor nan
            default = plain(default, parameter.name)
            json.dumps(default, allow_nan=False)
            told["default"] = default
    return told


def _value(parameter: Parameter) -> Json:
    """The schema of one argument; its default is allowed even if the type does not include it."""
    schema = json_type(parameter.annotation)
    return _or_null(schema) if parameter.default is None else schema


def _or_null(schema: Json) -> Json:
    if not schema or {"type": "null"} in schema.get("anyOf", [schema]):
        return schema
    return {"anyOf": [schema, {"type": "null"}]}


# -- layers -----------------------------------------------------------------------------------------------------------


def _layer(rows: list[Row]) -> Json:
    """A layer in any of the forms that a file may use."""
    alone = [{"const": row.name, "description": row.summary} for row in rows if not _required(row)]
    texts = {"type": "string", "pattern": _pattern([_text_of(row) for row in rows])}
    return {
        "anyOf": [
            *alone,
            texts,
            {
                "type": "object",
                "properties": {
                    row.name: {"$ref": f"#/$defs/layer {row.name}", "description": row.summary} for row in rows
                },
                "patternProperties": {f"^{_IMPORTED_ALONE}$": {}},
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 1,
            },
        ]
    }


def _changes(rows: list[Row]) -> Json:
    """Changes to layers of another file, or of this one's main section."""
    return {
        "type": "object",
        "description": "Arguments to change, by the name of the layer, or by its number if a name occurs twice.",
        "properties": {
            row.name: {
                "anyOf": [{"$ref": f"#/$defs/settings {row.name}"}, {"$ref": f"#/$defs/layer {row.name}"}],
                "description": row.summary,
            }
            for row in rows
        },
        "patternProperties": {"^[0-9]+$": {}, f"^{_IMPORTED_ALONE}$": {}, "^[A-Z]\\w*$": {}},
        "additionalProperties": False,
    }


def _arguments(row: Row) -> Json:
    """The values allowed under a layer's name: none, the first argument, a list of arguments, or a mapping."""
    positional = [p for p in row.parameters if p.by_position]
    needed = set(_required(row))
    forms: list[Json] = [_settings(row, partial=False)]
    if needed <= {p.name for p in positional}:
        forms.append(_list(row))
    if not needed:
        forms.append({"type": "null"})
    first = _value(positional[0]) if positional else {} if row.any_position else None
    if first is not None and needed <= {p.name for p in positional[:1]}:
        told = _told(positional[0], row.help.get(positional[0].name, "")) if positional else {}
        forms.append({"allOf": [first, {"not": {"type": ["array", "object", "null"]}}], **told})
    return {"anyOf": forms}


def _settings(row: Row, *, partial: bool) -> Json:
    """Arguments by name; ``*`` holds a list of positional ones."""
    schema: Json = {
        "type": "object",
        "properties": {
            **{p.name: {**_value(p), **_told(p, row.help.get(p.name, ""))} for p in row.parameters},
            POSITIONAL: {**_list(row, partial=True), "description": "Positional arguments."},
        },
        "additionalProperties": row.any_name,
    }
    if not partial and _required(row):
        schema["anyOf"] = [{"required": _required(row)}, {"required": [POSITIONAL]}]
    return schema


def _list(row: Row, *, partial: bool = False) -> Json:
    positional = [p for p in row.parameters if p.by_position]
    schema: Json = {"type": "array"}
    if positional:
        schema["prefixItems"] = [_value(p) for p in positional]
    if not row.any_position:
        schema |= {"items": False, "maxItems": len(positional)}
    if not partial and _required(row):
        schema["minItems"] = len(_required(row))
    return schema


def _required(row: Row) -> list[str]:
    return [p.name for p in row.parameters if p.default is REQUIRED]


def _text_of(row: Row) -> str:
    """A pattern of a layer or backend as text: ``framestack:4,padding=first``."""
    names = "|".join(re.escape(p.name) for p in row.parameters) if not row.any_name else r"[A-Za-z_]\w*"
    named = rf"(?:{names})\s*=\s*(?:{_QUOTED}|{_BARE_AFTER_NAME})?"
    unnamed = [p for p in row.parameters if p.by_position]
    items = [f"(?:{_QUOTED}|{_BARE})"] if unnamed or row.any_position else []
    items += [named] if names else []
    if not items:
        return re.escape(row.name)
    item = f"(?:{'|'.join(items)})"
    arguments = rf":\s*{item}(?:\s*,\s*{item})*"
    return re.escape(row.name) + (arguments if _required(row) else f"(?:{arguments})?")


def _pattern(texts: list[str], *, many: bool = False) -> str:
    """A pattern of one layer or backend as text, or of layers with bars between them."""
    one = f"(?:{'|'.join([*texts, *_IMPORTED])})"
    more = rf"(?:\s*\|\s*{one})*" if many else ""
    return rf"^\s*{one}{more}\s*$"


# -- backends ---------------------------------------------------------------------------------------------------------


def _backend(rows: list[Row]) -> Json:
    """A backend by name, as text with options, or as a mapping; without a name it is ``auto``."""
    auto = Row("auto", "", "The one that fits n.", _options_of_any(rows), _help_of_any(rows), "")
    named = [auto, *rows]
    texts = [_text_of(row) for row in named]
    return {
        "anyOf": [
            *({"const": row.name, "description": row.summary} for row in named),
            {"type": "string", "pattern": _pattern(texts)},
            *(_options(row, {"const": row.name}, needed=row is not auto) for row in named),
            {
                "type": "object",
                "properties": {"name": {"type": "string", "pattern": f"^{_IMPORTED_ALONE}$"}},
                "required": ["name"],
            },
        ]
    }


def _options(row: Row, name: Json, *, needed: bool) -> Json:
    options = {p.name: {**_value(p), **_told(p, row.help.get(p.name, ""))} for p in row.parameters}
    schema: Json = {
        "type": "object",
        "properties": {"name": {**name, "description": row.summary}, **options},
        "additionalProperties": row.any_name,
    }
    return {**schema, "required": ["name"]} if needed else schema


def _options_of_any(rows: list[Row]) -> tuple[Parameter, ...]:
    return tuple({p.name: p for row in rows for p in row.parameters}.values())


def _help_of_any(rows: list[Row]) -> dict[str, str]:
    return {name: text for row in rows for name, text in row.help.items()}
