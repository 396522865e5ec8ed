"""The named layers, backends and findings, each with a description for the reader."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from vecwrap.errors import SpecError
from vecwrap.layer_plan import at_end
from vecwrap.layer_spec import read_layers
from vecwrap.preset import Preset
from vecwrap.registry import NameTable, backends, wrappers
from vecwrap.rules.check import REFUSALS
from vecwrap.rules.rules import RULES
from vecwrap.signatures import REQUIRED, Parameter, Signature, details, section, summary
from vecwrap.source import Source
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["Row", "RuleRow", "argument_help", "backend_rows", "layer_rows", "rule_rows"]

# Set by `build` and the pipeline directly, so not listed as options of a backend.
_PIPELINE_KEYS = ("autoreset", "copy", "batch_size", "start_index", "seed", "debug")


@dataclass(frozen=True)
class Row:
    """One name.

    Attributes:
        name: as pipelines write it.
        where: ``"worker"`` for a layer around each sub-environment, ``"parent"`` for one around the vector,
            ``"preset"`` for several layers under one name, ``""`` for a backend, or if unknown until it is built.
        summary: the first line of its docstring, or why it cannot be imported.
        parameters: with types and defaults.
        help: the docstring's text on each, if any.
        owner: the package that registered it.
        layers: of a preset, the layers that it stands for as a line, with the defaults of its parameters; else ``""``.
        any_name: whether it takes arguments of any name.
        any_position: whether it takes any number of arguments without a name.
        at_end: what a layer does at an episode's end, if known.
        details: the rest of its docstring, in paragraphs and blocks.
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
    at_end: str = ""
    details: str = ""


@dataclass(frozen=True)
class RuleRow:
    """One kind of finding.

    Attributes:
        name: its id.
        kind: ``"error"``, ``"warning"``, or ``"warning, with --strict"``.
        summary: the mistake in one line.
        reasons: why it is one, in paragraphs.
        wrong, right: a one-line pipeline that has it, and one that does not; ``""`` if there are none.
    """

    name: str
    kind: str
    summary: str
    reasons: str
    wrong: str = ""
    right: str = ""


def layer_rows() -> list[Row]:
    """Every named layer, sorted by name."""
    return [_row(wrappers, name, ()) for name in wrappers.names()]


def backend_rows() -> list[Row]:
    """Every named backend, sorted by name."""
    return [_row(backends, name, _PIPELINE_KEYS) for name in backends.names()]


def rule_rows() -> list[RuleRow]:
    """Every kind of finding: those that ``build`` refuses, then the rules, sorted by name."""
    refusals = [_rule_row(name, "error", text) for name, text in REFUSALS.items()]
    kinds = {name: f"{rule.severity}{', with --strict' * rule.strict}" for name, rule in sorted(RULES.items())}
    return refusals + [_rule_row(name, kind, RULES[name].faults.__doc__ or "") for name, kind in kinds.items()]


def _rule_row(name: str, kind: str, text: str) -> RuleRow:
    """Split a docstring: a summary, reasons, and two pipelines after ``Wrong:`` and ``Right:``."""
    summary, _, body = inspect.cleandoc(text).partition("\n")
    examples = dict(re.findall(r"(?m)^(Wrong|Right): ``(.*)``$", body))
    body = re.sub(r"(?m)^(Wrong|Right): .*\n?", "", body)
    paragraphs = (" ".join(paragraph.split()) for paragraph in body.split("\n\n"))
    reasons = "\n\n".join(filter(None, paragraphs))
    return RuleRow(name, kind, _plain(summary), _plain(reasons), examples.get("Wrong", ""), examples.get("Right", ""))


def _row(table: NameTable, name: str, without: tuple[str, ...]) -> Row:
    try:
        target = table.load(name)
        owner = table.entry(name).owner
    except SpecError as error:  # an extra that is not installed, or a name that two packages claim
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
        at_end(target) if table is wrappers and not isinstance(target, Preset) else "",
        _plain(details(target)),
    )


def _layers(target: Callable[..., Any]) -> str:
    if not isinstance(target, Preset) or any(p.default is REQUIRED for p in Signature.of(target, skip=0).parameters):
        return ""
    try:
        return " | ".join(map(str, read_layers(target(), Source(steps=(summary(target),)))))
    except Exception:  # one that rejects its own defaults; a pipeline that names it gets the error
        return ""


def _where(target: Callable[..., Any]) -> str:
    if isinstance(target, Preset):
        return "preset"
    if not isinstance(target, type):
        return ""
    if issubclass(target, VecEnvWrapper):
        return "parent"
    return "worker" if issubclass(target, gymnasium.Wrapper) else ""


def argument_help(target: Any, title: str = "Args") -> dict[str, str]:
    """Return a Google-style section's text for each name, in one line; a class's extends its base's."""
    help_texts = {}
    for documented in reversed(target.__mro__) if isinstance(target, type) else [target]:
        text = section(documented, title) or section(getattr(documented, "__dict__", {}).get("__init__"), title)
        for entry in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
            names, colon, words = entry.partition(":")
            for name in names.split(", ") if colon else ():
                help_texts[name.partition(" ")[0]] = _plain(" ".join(words.split()))
    return help_texts


def _plain(text: str) -> str:
    return text.replace("``", "`")
