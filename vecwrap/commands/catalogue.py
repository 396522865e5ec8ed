"""The layers and backends that have names, with what a reader wants to know of each."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from vecwrap.errors import SpecError
from vecwrap.layer_spec import read_layers
from vecwrap.preset import Preset
from vecwrap.registry import NameTable, backends, wrappers
from vecwrap.signatures import REQUIRED, Parameter, Signature, summary
from vecwrap.values import Source
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["Row", "backend_rows", "layer_rows"]

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
    """

    name: str
    where: str
    summary: str
    parameters: tuple[Parameter, ...]
    help: Mapping[str, str]
    owner: str
    layers: str = ""


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
        return Row(name, "", str(error), (), {}, "")
    signature = Signature.of(target, skip=0 if isinstance(target, Preset) else 1)
    parameters = tuple(p for p in signature.parameters if p.name not in without)
    return Row(
        name, _where(target), _plain(summary(target)), parameters, _argument_help(target), owner, _layers(target)
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


def _argument_help(target: Callable[..., Any]) -> dict[str, str]:
    """What the Args section of a docstring in Google style says, a line for each argument."""
    match = re.search(r"^Args:\n((?:    .*\n|\n)*)", f"{inspect.getdoc(target) or ''}\n", re.MULTILINE)
    entries = re.split(r"^    (?=\S)", match[1] if match else "", flags=re.MULTILINE)
    help_texts = {}
    for entry in entries[1:]:
        name, _, text = entry.partition(":")
        help_texts[name.partition(" ")[0]] = _plain(" ".join(text.split()))
    return help_texts


def _plain(text: str) -> str:
    return text.replace("``", "`")
