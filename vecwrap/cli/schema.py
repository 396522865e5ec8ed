"""``vecwrap schema``: the JSON schema of pipeline files, with the names of wrappers and backends.

What a schema cannot express (wrappers in a wrong order, a number out of range) is left to ``vecwrap
check``, and so are the arguments of wrappers.
"""

import json
import re
import typing
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import typer

from vecwrap.cli.command import UNDERSTAND, command
from vecwrap.cli.names import Row, argument_help, backend_rows, wrapper_rows
from vecwrap.pipeline.build import build
from vecwrap.pipeline.engines import NAMES as ENGINES
from vecwrap.pipeline.fields import KEYS
from vecwrap.pipeline.signatures import REQUIRED
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.import_paths import PATTERN

Json = dict[str, Any]

_NULL: Json = {"type": "null"}


@command("schema", UNDERSTAND, "> pipeline.schema.json")
def print_schema() -> None:
    """Print the JSON schema of pipeline files, which lets editors complete and check them."""
    typer.echo(json.dumps(pipeline_schema(), indent=2, ensure_ascii=False))


def pipeline_schema() -> Json:
    """Return the JSON schema of a pipeline file, with all registered wrappers and backends.

    It follows draft 2020-12.
    """
    keys = _keys()
    section: Json = {
        "type": ["object", "null"],
        "properties": {**keys},
        "additionalProperties": False,
    }
    keys["eval"] = {
        **section,
        "description": argument_help(PipelineSpec, "Attributes").get("eval", ""),
    }
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
                "description": (
                    "A pipeline file that this one extends, relative to this one. The keys "
                    "here override it: mappings are merged, lists are replaced."
                ),
            },
            **keys,
        },
        "anyOf": [{"required": ["env"]}, extends],
        "additionalProperties": False,
        "$defs": {
            "wrapper": _wrapper(wrapper_rows()),
            "backend": _backend(backend_rows()),
            "engine": _engine(),
        },
    }


def _keys() -> dict[str, Json]:
    """The keys that an evaluation may have too, with their types and help."""
    env: Json = {"type": "string", "pattern": r"\S"}
    modes = [mode.value for mode in Autoreset] + [mode.gymnasium.value for mode in Autoreset]
    several: dict[str, list[Json]] = {
        "env": [env, {"type": "array", "items": env, "minItems": 1}],
        "autoreset": [{"enum": list(dict.fromkeys(modes))}, _NULL],
        "stats": [{"type": "string", "minLength": 1}, _NULL],
        "backend": [{"$ref": "#/$defs/backend"}, _NULL],
        "engine": [{"$ref": "#/$defs/engine"}, _NULL],
        "env_kwargs": [
            {"type": ["object", "null"]},
            {"type": "array", "items": {"type": "object"}, "minItems": 1},
        ],
        "agents": [
            {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True},
            {"type": ["string", "null"]},
            {
                "type": "object",
                "properties": {"pad": {"type": "boolean"}},
                "additionalProperties": False,
            },
        ],
        "wrappers": [
            {"type": "array", "items": {"$ref": "#/$defs/wrapper"}},
            {"type": ["string", "object", "null"]},
        ],
    }
    helps = {**argument_help(build), **argument_help(PipelineSpec, "Attributes")}
    hints = typing.get_type_hints(PipelineSpec)
    keys: dict[str, Json] = {}
    for key in [key for key in KEYS if key != "eval"]:
        if key in several:
            known = {"anyOf": several[key]}
        else:
            known = json_type(hints[key] | None)
        keys[key] = {**known, "description": helps.get(key, "")}  # python -OO has no docstrings
    return keys


def _wrapper(rows: Sequence[Row]) -> Json:
    """The schema of a wrapper: its name or import path, with or without arguments.

    Arguments are in the same text or below the name.
    """
    takes_more = {
        row.name: any(parameter.default is REQUIRED for parameter in row.parameters) for row in rows
    }
    alone = [row for row in rows if not takes_more[row.name]]
    names = "|".join(
        re.escape(name) + (r":\s*\S" if more else r"(?::|\s*$)")
        for name, more in takes_more.items()
    )
    # what is followed by arguments, or an import path, which no ``name:argument`` looks like
    text = {
        "type": "string",
        "pattern": rf"^\s*(?:{names}|{PATTERN}:|[A-Za-z_]\w*\.[\w.]*:[A-Za-z_])",
    }
    mapping = {
        "type": "object",
        "properties": {row.name: {"description": row.summary} for row in rows},
        "patternProperties": {f"^{PATTERN}$": {}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {"anyOf": [*_names(alone), text, mapping]}


def _backend(rows: Sequence[Row]) -> Json:
    """A backend: its name or import path, alone or with the options that any of them has."""
    auto = {"const": "auto", "description": "The one that fits n."}
    name: Json = {"anyOf": [auto, *_names(rows), {"type": "string", "pattern": f"^{PATTERN}$"}]}
    properties: dict[str, Json] = {"name": name}
    for row in rows:
        for parameter in row.parameters:
            text = row.help.get(parameter.name, "")
            properties[parameter.name] = {**json_type(parameter.annotation), "description": text}
    return {"anyOf": [name, {"type": "object", "properties": properties}]}


def _engine() -> Json:
    """An engine: its name or import path, alone or with options of its own."""
    name: Json = {"anyOf": [{"enum": list(ENGINES)}, {"type": "string", "pattern": f"^{PATTERN}$"}]}
    absorb = {"type": "boolean", "description": "Whether wrappers that it has itself are its own."}
    properties = {"name": name, "absorb": absorb}
    return {"anyOf": [name, {"type": "object", "properties": properties}]}


def json_type(annotation: Any) -> Json:
    """Return the JSON schema of a type; ``{}``, which takes anything, if it has none."""
    try:
        return msgspec.json.schema(annotation)
    except TypeError:
        return {}


def _names(rows: Iterable[Row]) -> list[Json]:
    return [{"const": row.name, "description": row.summary} for row in rows]
