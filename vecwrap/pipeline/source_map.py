"""Where the parts of a pipeline were written, and how an error says so."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from vecwrap.errors import SpecError, printable

MAX_DEPTH = 40  # of nested values
Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class SourceLocation:
    file: str = ""  # a file's name as it was given, an option of a command, or ``""``
    line: int | None = None  # counted from 1; None if there are no lines
    # what paths written there are relative to; None: the working directory
    directory: Path | None = None

    def __str__(self) -> str:
        if self.line is not None:
            return f"{self.file}:{self.line}: "
        if self.file:
            return f"{self.file}: "
        return ""


@dataclass(frozen=True)
class SourceMap:
    """Where a value was written, and its parts, as nested as the value is."""

    location: SourceLocation = SourceLocation()
    parts: dict[str | int, SourceMap] = field(default_factory=dict)
    default_location: SourceLocation | None = None  # that of parts without a mark; None: ``place``

    def at(self, step: str | int) -> SourceMap:
        """Return the mark of a part."""
        if step in self.parts:
            return self.parts[step]
        if self.default_location is None:
            return SourceMap(self.location)
        return SourceMap(self.default_location)

    def with_part(self, steps: Steps, source_map: SourceMap) -> SourceMap:
        """Return the same, with another mark for one part."""
        if not steps:
            return source_map
        part = self.at(steps[0]).with_part(steps[1:], source_map)
        return dataclasses.replace(self, parts={**self.parts, steps[0]: part})


@dataclass(frozen=True)
class SourceRef:
    """A part of a spec, and where it was written, for errors."""

    source_map: SourceMap = field(default=SourceMap(), repr=False)
    steps: Steps = ()  # which part: ``("wrappers", 1)``

    def at(self, *steps: str | int) -> SourceRef:
        """Return the source of a part of this part."""
        mark = self.source_map
        for step in steps:
            mark = mark.at(step)
        return SourceRef(mark, (*self.steps, *steps))

    @property
    def location(self) -> SourceLocation:
        """The place of this part, or of the smallest one that contains it."""
        return self.source_map.location

    def label(self) -> str:
        """``"wrappers[1]"``, ``"backend.workers"``."""
        label = ""
        for step in self.steps:
            if isinstance(step, int):
                label += f"[{step}]"
            elif label:
                label += f".{step}"
            else:
                label = step
        return printable(label) or "pipeline"

    def __str__(self) -> str:
        return f"{self.location}{self.label()}"


def fail(where: SourceRef | str, message: str) -> NoReturn:
    """Raise a SpecError that begins with the place and ends with a period.

    Long messages are cut.
    """
    if len(message) >= 1000:
        message = f"{message[:997]}..."
    message = printable(message)
    if not message.endswith(("?", ".")):
        message += "."
    raise SpecError(f"{where}: {message}")
