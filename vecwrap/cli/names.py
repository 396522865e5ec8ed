"""Describes registered wrappers and backends for ``vecwrap list`` and ``schema``."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from vecwrap.env.options import RestartOptions
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError, SpecError
from vecwrap.pipeline.backends import find_runner, signature_of
from vecwrap.pipeline.elements import read_wrappers
from vecwrap.pipeline.registry import NameTable, backends, wrappers
from vecwrap.pipeline.signatures import REQUIRED, Parameter, Signature, section
from vecwrap.pipeline.source_map import SourceRef
from vecwrap.pipeline.wrappers import end_note
from vecwrap.wrappers.presets import Preset


@dataclass(frozen=True)
class Row:
    """A wrapper or backend, as its docstring describes it.

    ``wrappers`` is the one-line form of a preset's wrappers.
    """

    name: str
    where: str  # "worker", "parent" or "preset"; "" for a backend, or if unknown until it is built
    summary: str  # or why it cannot be imported
    parameters: tuple[Parameter, ...]
    help: Mapping[str, str]  # on each parameter
    owner: str  # the package that registered it
    wrappers: str = ""
    any_name: bool = False
    any_position: bool = False
    at_end: str = ""
    details: str = ""


def wrapper_rows() -> list[Row]:
    """Every named wrapper, sorted by name."""
    return [_row(wrappers, name) for name in wrappers.names()]


def backend_rows() -> list[Row]:
    """Every named backend, sorted by name."""
    return [_row(backends, name) for name in backends.names()]


def _row(table: NameTable, name: str) -> Row:
    try:
        if table is wrappers:
            target: Any = table.load(name)
        else:
            target = find_runner(name, f'backend "{name}"')
        owner = table.entry(name).owner
    except (SpecError, PlanError) as error:  # a missing extra, or a name that two packages claim
        return Row(name, "", str(error), (), {}, "", any_name=True, any_position=True)
    if table is backends:
        help_of = argument_help(target.Options, "Attributes") | argument_help(
            RestartOptions, "Attributes"
        )
        signature = signature_of(target)
    else:
        help_of = argument_help(target)
        signature = Signature.of(target, skip=0 if isinstance(target, Preset) else 1)
    ending = ""
    if table is wrappers and not isinstance(target, Preset):
        ending = end_note(target)
    return Row(
        name,
        _where(target),
        plain_text(summary(target)),
        signature.parameters,
        help_of,
        owner,
        _wrappers(target, signature),
        signature.any_name,
        signature.any_position,
        ending,
        plain_text(details(target)),
    )


def _wrappers(target: Callable[..., Any], signature: Signature) -> str:
    if not isinstance(target, Preset) or any(p.default is REQUIRED for p in signature.parameters):
        return ""
    try:
        return " | ".join(map(str, read_wrappers(target(), SourceRef(steps=(summary(target),)))))
    except Exception:  # one that rejects its own defaults; a pipeline that names it gets the error
        return ""


def _where(target: Callable[..., Any]) -> str:
    if isinstance(target, Preset):
        return "preset"
    if not isinstance(target, type):
        return ""
    if issubclass(target, VecEnvWrapper):
        return "parent"
    if issubclass(target, gymnasium.Wrapper):
        return "worker"
    return ""


def summary(target: Any) -> str:
    """The first line of a docstring, or ``""``."""
    lines = (inspect.getdoc(target) or "").strip().splitlines()
    if lines:
        return lines[0]
    return ""


def details(target: Any) -> str:
    """Return a docstring's text between its first line and its sections and examples, or ``""``.

    Each paragraph is one line.

    Lists, tables and blocks are left as they are.
    """
    body = (inspect.getdoc(target) or "").partition("\n")[2]
    prose = re.split(r"^(?:[A-Z][\w' ]*:$|>>> )", body, maxsplit=1, flags=re.MULTILINE)[0].strip()
    paragraphs = prose.split("\n\n")
    for i, text in enumerate(paragraphs):
        if text[:1] not in "-| ":
            paragraphs[i] = " ".join(text.split())
    return "\n\n".join(paragraphs)


def argument_help(target: Any, title: str = "Args") -> dict[str, str]:
    """Return each argument's text in a Google-style section; a class extends its base's texts.

    Each text is one line.
    """
    help_texts = {}
    sources: Iterable[Any] = [target]
    if isinstance(target, type):
        sources = reversed(target.__mro__)
    for documented in sources:
        text = section(documented, title) or section(
            getattr(documented, "__dict__", {}).get("__init__"), title
        )
        for entry in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
            names, colon, words = entry.partition(":")
            if colon:
                for name in names.split(", "):
                    help_texts[name.partition(" ")[0]] = plain_text(" ".join(words.split()))
    return help_texts


def plain_text(text: str) -> str:
    return text.replace("``", "`")
