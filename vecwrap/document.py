"""The contents of a pipeline file: plain values, each with its line, whatever the file format.

The reader of a format passes scalars and brackets to a ``Builder``, whose limits keep an untrusted file from filling
the memory. Nothing is constructed or evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from vecwrap.errors import SpecError
from vecwrap.scalars import printable

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_VALUES", "Builder", "Document", "Steps", "read_text", "reader"]

MAX_BYTES = 1_000_000
MAX_VALUES = 100_000  # an alias counts as much as its target: a bomb is refused when it reaches this
MAX_DEPTH = 40

Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """The contents of a file, and their lines.

    Attributes:
        value: dicts, lists and scalars.
        lines: the line of each value, counted from 1, by the steps that lead to it
            (``("wrappers", 1, "framestack")``); ``()`` is the whole.
    """

    value: Any
    lines: Mapping[Steps, int] = field(default_factory=dict)


def read_text(path: Path) -> str:
    """Read a file of at most 1 MB.

    Raises:
        SpecError: there is no such file, it is larger, or it is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise SpecError(f"{path}: cannot be read ({why}). Is the path right, relative to {Path.cwd()}?") from None
    if len(data) > MAX_BYTES:
        raise SpecError(f"{path}: expected a pipeline file of at most 1 MB, got a larger one. Is it the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: expected text in UTF-8, got byte {data[error.start]:#x} at {error.start}.") from None


@dataclass
class _Open:
    """A list or mapping that has begun but not ended."""

    value: list[Any] | dict[Any, Any]
    steps: Steps
    line: int
    anchor: str | None
    size: int = 1
    key: Any = None
    has_key: bool = False
    key_lines: dict[Any, int] = field(default_factory=dict)


class Builder:
    """Assembles values from the outside in, iteratively, so that no nesting is too deep for it.

    Args:
        name: the file's name, for errors.
        text: the file's text, whose length is limited too.

    Attributes:
        name: the file's name.
    """

    def __init__(self, name: str, text: str) -> None:
        if len(text) > MAX_BYTES:
            raise SpecError(f"{name}: expected a pipeline of at most 1 MB, got {len(text):,} characters.")
        self.name = name
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._lines: dict[Steps, int] = {(): 1}
        self._documents: list[Any] = []
        self._size = 0

    def scalar(self, value: Any, line: int, anchor: str | None = None) -> None:
        """Add a scalar: a value, or the key of the next one."""
        self._count(1, line)
        self._add(value, 1, line, anchor)

    @property
    def at_key(self) -> bool:
        """Whether the next value is the key of a mapping."""
        return bool(self._open) and isinstance(self._open[-1].value, dict) and not self._open[-1].has_key

    def alias(self, anchor: str, line: int) -> None:
        """Add an anchored value again; it counts as much as the original."""
        if anchor not in self._anchors:
            self.fail(line, f"*{anchor} stands for nothing: no &{anchor} is complete before it")
        value, size = self._anchors[anchor]
        self._count(size, line)
        self._add(value, size, line, None)

    def begin(self, value: list[Any] | dict[Any, Any], line: int, anchor: str | None = None) -> None:
        """Open a list or mapping."""
        if len(self._open) >= MAX_DEPTH:
            self.fail(line, f"nested more than {MAX_DEPTH} deep")
        if self.at_key:
            self.fail(line, "expected a plain key, got a list or mapping")
        self._count(1, line)
        self._open.append(_Open(value, self._steps(), line, anchor))

    def end(self) -> None:
        """Close the list or mapping that was opened last."""
        done = self._open.pop()
        self._add(done.value, done.size, done.line, done.anchor)

    def new_document(self, line: int) -> None:
        """Note the start of a document; a file may hold only one."""
        if self._documents:
            self.fail(line, "a second document begins; expected one pipeline a file")

    def document(self) -> Document:
        """Return the assembled document; an empty file holds None."""
        return Document(self._documents[0] if self._documents else None, self._lines)

    def fail(self, line: int, message: str) -> NoReturn:
        """Raise a SpecError with file and line."""
        raise SpecError(f"{self.name}:{line}: {printable(message[:400])}{'' if message.endswith('?') else '.'}")

    def _steps(self) -> Steps:
        if not self._open:
            return ()
        parent = self._open[-1]
        return (*parent.steps, len(parent.value) if isinstance(parent.value, list) else parent.key)

    def _add(self, value: Any, size: int, line: int, anchor: str | None) -> None:
        """Put a complete value where it belongs."""
        if anchor is not None:
            self._anchors[anchor] = value, size
        if not self._open:
            self._lines[()] = line
            self._documents.append(value)
            return
        parent = self._open[-1]
        parent.size += size
        if isinstance(parent.value, list):
            self._lines[self._steps()] = line
            parent.value.append(value)
        elif not parent.has_key:
            self._key(parent, value, line)
        else:
            parent.value[parent.key] = value
            parent.has_key = False

    def _key(self, parent: _Open, key: Any, line: int) -> None:
        if isinstance(key, (list, dict)):
            self.fail(line, "expected a plain key, got a list or mapping")
        if key in parent.key_lines:
            self.fail(
                line, f'the key "{key}" stands here for the second time; the first is in line {parent.key_lines[key]}'
            )
        parent.key, parent.has_key = key, True
        parent.key_lines[key] = line
        self._lines[(*parent.steps, key)] = line

    def _count(self, size: int, line: int) -> None:
        self._size += size
        if self._size > MAX_VALUES:
            self.fail(
                line, f"the file stands for more than {MAX_VALUES:,} values, aliases counted; is this a pipeline?"
            )


def reader(feed: Callable[[str, Builder], None]) -> Callable[[str, str], Document]:
    """Turn a function that passes a text's scalars and brackets to a builder into a reader of its format.

    Args:
        feed: takes the text and the builder.

    Returns:
        A function of a file's text and of its name, for errors. It returns the document, and raises a SpecError with
        file and line.
    """

    def read(text: str, name: str) -> Document:
        builder = Builder(name, text)
        feed(text, builder)
        return builder.document()

    read.__name__, read.__qualname__, read.__doc__ = feed.__name__, feed.__qualname__, feed.__doc__
    return read
