"""The layers and backends that have names, with what a reader wants to know of each."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from vecwrap.errors import SpecError
from vecwrap.layer_spec import read_layers
from vecwrap.preset import Preset
from vecwrap.registry import NameTable, backends, wrappers
from vecwrap.signatures import REQUIRED, Parameter, Signature, section, summary
from vecwrap.source import Source
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["Row", "argument_help", "backend_rows", "layer_rows"]

# What `build` and the pipeline say by themselves, and so no option of a backend.
_PIPELINE_KEYS = ("autoreset", "copy", "batch_size", "start_index", "seed", "debug")


@dataclass(frozen=True)
class Row:
    """One name.

    Attributes:
        name: as pipelines write it.
        where: ``"worker"`` for a layer around each sub-environment, ``"parent"`` for one around the vector,
            ``"preset"`` for several layers under one name, ``""`` for a backend or where that shows only when it is
            built.
        summary: the first line of its docstring, or why it cannot be imported.
        parameters: with types and defaults.
        help: what the docstring says of each, where it says something.
        owner: the package that registered it.
        layers: of a preset, the layers that it stands for as a line, with the defaults of its parameters; else ``""``.
        any_name: whether it takes arguments of any name.
        any_position: whether it takes any number of arguments without a name.
    """

    name: str
    where: str
    summary: str
    parameters: tuple[Parameter, ...]
    help: Mapping[str, str]
    owner: str
    layers: str = ""
    any_name: bool = False
    any_position: bool = False


def layer_rows() -> list[Row]:
    """Every named layer, sorted by name."""
    return [_row(wrappers, name, ()) for name in wrappers.names()]


def backend_rows() -> list[Row]:
    """Every named backend, sorted by name."""
    return [_row(backends, name, _PIPELINE_KEYS) for name in backends.names()]


def _row(table: NameTable, name: str, without: tuple[str, ...]) -> Row:
    try:
        target = table.load(name)
        owner = table.entry(name).owner
    except SpecError as error:  # an extra that is not installed, or a name that is claimed twice
        return Row(name, "", str(error), (), {}, "", any_name=True, any_position=True)
    signature = Signature.of(target, skip=0 if isinstance(target, Preset) else 1)
    parameters = tuple(p for p in signature.parameters if p.name not in without)
    return Row(
        name,
        _where(target),
        _plain(summary(target)),
        parameters,
        argument_help(target),
        owner,
        _layers(target),
        signature.any_name,
        signature.any_position,
    )


def _layers(target: Callable[..., Any]) -> str:
    if not isinstance(target, Preset) or any(p.default is REQUIRED for p in Signature.of(target, skip=0).parameters):
        return ""
    return " | ".join(map(str, read_layers(target(), Source(steps=(summary(target),)))))


def _where(target: Callable[..., Any]) -> str:
    if isinstance(target, Preset):
        return "preset"
    if not isinstance(target, type):
        return ""
    if issubclass(target, VecEnvWrapper):
        return "parent"
    return "worker" if issubclass(target, gymnasium.Wrapper) else ""


def argument_help(target: Any, title: str = "Args") -> dict[str, str]:
    """What a section of docstrings in Google style says of each name, in a line; a class's add to its base's."""
    help_texts = {}
    for documented in reversed(target.__mro__) if isinstance(target, type) else [target]:
        text = section(documented, title) or section(vars(documented).get("__init__"), title)
        for entry in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
            names, colon, words = entry.partition(":")
            for name in names.split(", ") if colon else ():
                help_texts[name.partition(" ")[0]] = _plain(" ".join(words.split()))
    return help_texts


def _plain(text: str) -> str:
    return text.replace("``", "`")
