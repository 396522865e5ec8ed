"""A mistake in a pipeline: as a rule finds it, and as it is reported with its place in a file."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from vecwrap.pipeline.elements import WrapperSpec
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.pipeline.wrappers import PlannedWrapper

Severity: TypeAlias = Literal["error", "warning"]


class RuleViolation(NamedTuple):
    """One mistake: the wrapper or key to change, the reason, and the fix."""

    place: PlannedWrapper | str
    reason: str
    fix: str


@dataclass(frozen=True)
class Finding:
    """One mistake in a pipeline.

    Attributes:
        id: the rule's name; ``docs/checks.md`` has a paragraph of that name.
        severity: ``"error"``: it cannot be built, or not be repeated; ``"warning"``: it can, but is
            probably not intended.
        file: the file, as its name was given; ``""`` if it is not in a file.
        line: the line in the file, counted from 1; None if there is none.
        place: ``'wrappers[1] "framestack"'``, a key of the pipeline, or ``""``.
        wrapper: the wrapper's name, or ``""``.
        reason: what is wrong.
        fix: what to do; ``""`` if the reason includes it.

    >>> import vecwrap
    >>> (finding,) = vecwrap.check("CartPole-v1 n=2 backend=dummy | framestack:4")
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
    wrapper: str
    reason: str
    fix: str = ""

    @property
    def where(self) -> str:
        """``'pong.yaml:7: wrappers[1] "framestack"'``."""
        file = self.file
        if self.line is not None:
            file = f"{self.file}:{self.line}"
        return ": ".join(filter(None, (file, self.place)))

    @property
    def docs(self) -> str:
        """Where to read more."""
        return f"docs/checks.md#{self.id}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {**dataclasses.asdict(self), "docs": self.docs}

    def __str__(self) -> str:
        parts = (
            self.where,
            f"{self.severity} {self.id}",
            " ".join(filter(None, (self.reason, self.fix))),
        )
        return ": ".join(filter(None, parts))


def finding_at(
    name: str, severity: Severity, fault: RuleViolation, written: PipelineSpec
) -> Finding:
    """Return a fault as a finding, with the place where the pipeline writes it."""
    found = fault.place
    if isinstance(found, PlannedWrapper):
        where = found.spec.source.location
        place = written_place(found)
        return Finding(
            name, severity, where.file, where.line, place, found.spec.name, fault.reason, fault.fix
        )
    where = written.source.at(*found.split(".")).location
    file = where.file or written.source.location.file
    return Finding(name, severity, file, where.line, found, "", fault.reason, fault.fix)


def written_place(wrapper: WrapperSpec | PlannedWrapper) -> str:
    """``'wrappers[1] "framestack"'``: a wrapper's place within its file."""
    source = wrapper.source if isinstance(wrapper, WrapperSpec) else wrapper.spec.source
    return wrapper.where.removeprefix(str(source.location))
