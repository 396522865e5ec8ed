"""How the commands print: JSON for machines, and tables of names and values."""

import contextlib
import ctypes
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from vecwrap.errors import printable_lines, truncate

PIPED_COLUMNS = 10_000  # where a file reads it, nothing is folded or cut off
PROSE_COLUMNS = 120  # but what is to be read as a page is folded here


class Terminal(Console):
    """A Rich console that prints text as it is: no markup, no emoji, no foreign escape sequences.

    Lines that are not for a terminal end without blanks. A broken pipe (`| head`) is an error for
    the caller to decide on; Rich would exit.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        if self.is_terminal or self.quiet:
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        text = "\n".join(line.rstrip(" ") for line in captured.get().split("\n"))
        try:
            self.file.write(text)
            self.file.flush()
        except BrokenPipeError:
            self.on_broken_pipe()

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """Escape control characters in all printed text, whether from a file or an environment."""
        for segment in super().render(renderable, options):
            plain = segment.control or segment.text.isprintable() or segment.text == "\n"
            if plain:
                yield segment
            else:
                yield Segment(printable_lines(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Print nothing more, not even at interpreter exit, and raise."""
        self.quiet = True
        discard_output()
        raise BrokenPipeError


_results: list[tuple[Console, str]] = []  # what is printed when result_alone ends


def print_json(data: Any, console: Console) -> None:
    """Print plain data as JSON, in colour on a terminal.

    Infinities and NaN become null, since JSON lacks them.
    """
    finite = json.loads(json.dumps(msgspec.to_builtins(data)), parse_constant=lambda name: None)
    # as ASCII, which every terminal can show
    _results.append((console, json.dumps(finite, indent=2)))


@contextlib.contextmanager
def result_alone() -> Iterator[None]:
    """Keep stdout for ``print_json``; everything else goes to stderr.

    That includes the output of C libraries and of other processes.
    """
    flush_output()
    out = sys.stdout
    descriptor = None
    sys.stdout = sys.stderr
    with contextlib.suppress(OSError):  # one of the two is closed
        descriptor = os.dup(1)
        os.dup2(2, 1)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)  # C's buffered output would appear at exit
        sys.stdout = out
        if descriptor is not None:
            os.dup2(descriptor, 1)
            os.close(descriptor)
        while _results:
            console, text = _results.pop(0)
            if console.is_terminal:
                console.print_json(text)
            else:
                print(text)  # noqa: T201


def escape_what_cannot_be_shown() -> None:
    """Escape characters that the output's encoding lacks, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def flush_output() -> None:
    """Flush printed output, before Python does at exit with its own error messages."""
    if sys.stdout is not None:
        sys.stdout.flush()


def discard_output() -> None:
    """Discard unwritten output, now and at Python's exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def name_table(lines: Iterable[tuple[str, RenderableType]]) -> Table:
    """Return a table of names and values; brackets in text are not markup."""
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines:
        if isinstance(value, str):
            value = Text(printable_lines(truncate(value, 2000)))
        table.add_row(truncate(name, 200), value)
    return table


def figures_table(name: str, *titles: str, whole: bool = False) -> Table:
    """Return an empty table of figures, whose long names are folded unless ``whole`` is true.

    A name is long if it does not fit the terminal.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(name, overflow="ellipsis" if whole else "fold", no_wrap=whole)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def say_where(address: str, console: Console) -> None:
    console.print(Text.assemble(("page  ", "bold"), address), soft_wrap=True)


def say_interrupted(what: str, console: Console) -> None:
    """Say that Ctrl-C or SIGTERM ended the command, and what is left of it."""
    console.print(Text(f"interrupted; {what}"))
