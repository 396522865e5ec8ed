"""Rules and their findings."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from vecwrap.layers import PlannedLayer
from vecwrap.plan import Plan
from vecwrap.signatures import summary

__all__ = ["DOCS", "Fault", "Finding", "Rule", "Severity", "reasons", "rule"]

DOCS = "docs/checks.md"

Severity: TypeAlias = Literal["error", "warning"]


class Fault(NamedTuple):
    """One mistake, as a rule reports it.

    Attributes:
        place: the layer that should be moved, changed or left out, or a key of the pipeline.
        reason: what is wrong with it; a sentence that continues after the layer's name.
        fix: what to do; a sentence.
        severity: if different from the rule's own: an error if ``build`` refuses this particular layer.
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
        severity: ``"error"``: it cannot be built; ``"warning"``: it can, but is probably not intended.
        file: the file, as its name was given; ``""`` if it is not in a file.
        line: the line in the file, counted from 1; None if there is none.
        place: ``'wrappers[1] "framestack"'``, a key of the pipeline, or ``""``.
        layer: the layer's name, or ``""``.
        reason: what is wrong.
        fix: what to do; ``""`` if the reason includes it.
        docs: a link to more information, or ``""``.

    >>> from vecwrap.rules.check import check
    >>> (finding,) = check("CartPole-v1 n=2 backend=dummy | framestack:4")
    >>> finding.id, finding.severity, finding.where
    ('zero_padding', 'warning', 'wrappers[0] "framestack"')
    >>> finding.to_dict()["fix"]
    'Use padding=first.'
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
        """Return it as plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        parts = (self.where, f"{self.severity} {self.id}", " ".join(filter(None, (self.reason, self.fix))))
        return ": ".join(filter(None, parts))


class Rule:
    """A function that finds one kind of mistake; made by ``rule``.

    Its docstring is its documentation: a line that names the mistake, the reasons, and two one-line pipelines after
    ``Wrong:`` and ``Right:``. The tests run them: the first must have this finding and the second none at all.

    Args:
        function: returns the faults of a plan. ``Spot.before`` may be None, if no sub-environment could be made.
        severity: of its findings.
        strict: whether it applies only with ``--strict``.
    """

    def __init__(self, function: Callable[[Plan], Iterable[Fault]], severity: Severity, *, strict: bool) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.severity: Severity = severity
        self.strict = strict

    def __call__(self, plan: Plan) -> Iterable[Fault]:
        """Return the faults."""
        return self._function(plan)

    @property
    def summary(self) -> str:
        """The mistake in one line."""
        return summary(self)

    @property
    def reasons(self) -> str:
        """Why it is a mistake, in paragraphs."""
        return reasons(self)

    @property
    def wrong(self) -> str:
        """A one-line pipeline with this mistake."""
        return self._example("Wrong")

    @property
    def right(self) -> str:
        """The same pipeline without it."""
        return self._example("Right")

    def _example(self, word: str) -> str:
        match = re.search(rf"(?m)^ *{word}: ``(.*)``$", self.__doc__ or "")
        return match[1] if match else ""


def rule(severity: Severity, *, strict: bool = False) -> Callable[[Callable[[Plan], Iterable[Fault]]], Rule]:
    """Turn a function into a rule.

    Args:
        severity: ``"error"`` for mistakes that ``build`` refuses, else ``"warning"``.
        strict: whether it applies only with ``--strict``.
    """
    return lambda function: Rule(function, severity, strict=strict)


def reasons(target: Any) -> str:
    """A docstring after its first line, without examples; one line per paragraph, separated by blank lines."""
    body = inspect.cleandoc(target.__doc__ or "").partition("\n")[2]
    paragraphs = re.split(r"\n\s*\n", re.sub(r"(?m)^(Wrong|Right): .*\n?", "", body))
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip())
