"""Where the parts of a pipeline were written, and how an error says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from vecwrap.errors import SpecError, printable

MAX_DEPTH = 40  # of nested values
Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    file: str = ""  # a file's name as it was given, an option of a command, or ``""``
    line: int | None = None  # counted from 1; None if there are no lines
    directory: Path | None = None  # what paths written there are relative to; None: the working directory

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: " if self.line is not None else f"{self.file}: " if self.file else ""


@dataclass(frozen=True)
class Source:
    """Where a part of a spec was written, for errors."""

    # where its parts were written, by the steps that lead to them; ``()`` is the whole
    places: Mapping[Steps, Place] = field(default_factory=dict, repr=False)
    steps: Steps = ()  # which part: ``("wrappers", 1)``
    otherwise: Place = field(default_factory=Place, repr=False)  # the place of anything not in ``places``

    def at(self, *steps: str | int) -> Source:
        """Return the source of a part of this part."""
        return Source(self.places, (*self.steps, *steps), self.otherwise)

    def with_place(self, steps: Steps, place: Place) -> Source:
        """Return the same, with one part written elsewhere."""
        return Source({**self.places, steps: place}, self.steps, self.otherwise)

    @property
    def place(self) -> Place:
        """The place of this part, or of the smallest one that contains it."""
        steps = self.steps
        if not steps:
            return self.places.get((), self.otherwise)
        while steps and steps not in self.places:
            steps = steps[:-1]
        return self.places[steps] if steps else self.otherwise

    @property
    def file(self) -> str:
        """The name of the file that the whole was read from, or ``""``."""
        return self.places.get((), self.otherwise).file

    def label(self) -> str:
        """``"wrappers[1]"``, ``"backend.workers"``."""
        label = ""
        for step in self.steps:
            label += f"[{step}]" if isinstance(step, int) else f".{step}" if label else str(step)
        return printable(label) or "pipeline"

    def __str__(self) -> str:
        return f"{self.place}{self.label()}"


def fail(where: Source | str, message: str) -> NoReturn:
    """Raise a SpecError that begins with the place and ends with a full stop; long messages are cut."""
    message = printable(message if len(message) < 1000 else f"{message[:997]}...")
    raise SpecError(f"{where}: {message}{'' if message.endswith(('?', '.')) else '.'}")
