"""How the commands print: for machines, and names beside values."""

import os
import sys
from collections.abc import Iterable
from typing import Any

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["Terminal", "name_table", "print_json"]


class Terminal(Console):
    """Rich's console, which leaves it to its users what the end of a pipe means (`| head`); Rich would exit."""

    def on_broken_pipe(self) -> None:
        """Say nothing more, at the interpreter's exit neither.

        Raises:
            BrokenPipeError: always.
        """
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise BrokenPipeError


def print_json(data: Any, console: Console) -> None:
    """Print plain data as JSON, in colours on a terminal; what is infinite or no number is null, as JSON has it."""
    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    if console.is_terminal:
        console.print_json(text)
    else:
        print(text)  # noqa: T201


def name_table(lines: Iterable[tuple[str, RenderableType]]) -> Table:
    """Give names and values, one below the other; brackets in texts are no markup."""
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines:
        table.add_row(name, Text(value) if isinstance(value, str) else value)
    return table
