"""What a rule is, and what it finds."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from vecwrap.layer_plan import PlannedLayer
from vecwrap.plan import Plan
from vecwrap.signatures import summary

__all__ = ["DOCS", "Fault", "Finding", "Rule", "Severity", "reasons", "rule"]

DOCS = "docs/checks.md"

Severity: TypeAlias = Literal["error", "warning"]


class Fault(NamedTuple):
    """One mistake, as a rule tells it.

    Attributes:
        place: the layer that should be moved, changed or left out, or a key of the pipeline.
        reason: what is wrong with it; a sentence that goes on after the layer's name.
        fix: what to do; a sentence.
        severity: where it is another than the rule's own: an error where ``build`` refuses this very layer.
    """

    place: PlannedLayer | str
    reason: str
    fix: str
    severity: Severity | None = None


@dataclass(frozen=True)
class Finding:
    """One mistake in a pipeline.

    Attributes:
        id: the rule's name; ``docs/checks.md`` has a section of that name.
        severity: ``"error"``: it cannot be built; ``"warning"``: it can, and is probably not what is wanted.
        file: where it was written, as the file's name was given; ``""`` for what stands in no file.
        line: the line in it, counted from 1; None where there is none.
        place: ``'wrappers[1] "framestack"'``, a key of the pipeline, or ``""``.
        layer: the layer's name, or ``""``.
        reason: what is wrong.
        fix: what to do; ``""`` where the reason says it.
        docs: where more is said, or ``""``.

    >>> from vecwrap.rules.check import check
    >>> (finding,) = check("CartPole-v1 n=2 backend=dummy | framestack:4")
    >>> finding.id, finding.severity, finding.where
    ('zero_padding', 'warning', 'wrappers[0] "framestack"')
    >>> finding.to_dict()["fix"]
    'Take padding=first.'
    """

    id: str
    severity: Severity
    file: str
    line: int | None
    place: str
    layer: str
    reason: str
    fix: str
    docs: str

    @property
    def where(self) -> str:
        """``'pong.yaml:7: wrappers[1] "framestack"'``."""
        file = f"{self.file}:{self.line}" if self.line is not None else self.file
        return ": ".join(filter(None, (file, self.place)))

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        parts = (self.where, f"{self.severity} {self.id}", " ".join(filter(None, (self.reason, self.fix))))
        return ": ".join(filter(None, parts))


class Rule:
    """A function that finds one kind of mistake; ``rule`` makes it.

    Its docstring is its documentation: a line that names the mistake, why it is one, and two pipelines, a line each,
    after ``Wrong:`` and ``Right:``. The tests run them: the one has this finding and the other none at all.

    Args:
        function: gives the faults of a plan. What no sub-environment could tell (``Spot.before``) may be None.
        severity: of its findings.
        strict: whether it looks only where ``--strict`` asks for it.
    """

    def __init__(self, function: Callable[[Plan], Iterable[Fault]], severity: Severity, *, strict: bool) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.severity: Severity = severity
        self.strict = strict

    def __call__(self, plan: Plan) -> Iterable[Fault]:
        """Give the faults."""
        return self._function(plan)

    @property
    def summary(self) -> str:
        """The mistake in one line."""
        return summary(self)

    @property
    def reasons(self) -> str:
        """Why it is one, in paragraphs."""
        return reasons(self)

    @property
    def wrong(self) -> str:
        """A pipeline that has this mistake, in a line."""
        return self._example("Wrong")

    @property
    def right(self) -> str:
        """The same pipeline without it."""
        return self._example("Right")

    def _example(self, word: str) -> str:
        match = re.search(rf"(?m)^ *{word}: ``(.*)``$", self.__doc__ or "")
        return match[1] if match else ""


def rule(severity: Severity, *, strict: bool = False) -> Callable[[Callable[[Plan], Iterable[Fault]]], Rule]:
    """Make a rule of a function.

    Args:
        severity: ``"error"`` for what ``build`` refuses, else ``"warning"``.
        strict: whether it looks only where ``--strict`` asks for it.
    """
    return lambda function: Rule(function, severity, strict=strict)


def reasons(target: Any) -> str:
    """A docstring after its first line, without the examples; a line for each paragraph, with blank lines between."""
    body = inspect.cleandoc(target.__doc__ or "").partition("\n")[2]
    paragraphs = re.split(r"\n\s*\n", re.sub(r"(?m)^(Wrong|Right): .*\n?", "", body))
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip())
