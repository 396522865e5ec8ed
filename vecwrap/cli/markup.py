"""Texts of docstrings as a terminal shows them: paragraphs, lists, tables, and names in backticks.

Backticks become a colour on a terminal; piped, they stay, since nothing else marks a name.
"""

import re
from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

CODE = "cyan"


def inline(text: str, console: Console, style: str = "") -> Text:
    """Return a paragraph, in which names in backticks have a colour on a terminal."""
    if not console.is_terminal:
        return Text(text, style=style)
    parts = re.split(r"`([^`]+)`", text)
    shown = Text(style=style)
    for number, part in enumerate(parts):
        if number % 2:
            shown.append(part, style=CODE)
        else:
            shown.append(part)
    return shown


def blocks(text: str, console: Console) -> Iterator[RenderableType]:
    """Yield the paragraphs, lists, tables and literal blocks of a text, in their order."""
    for block in text.replace("::\n", ":\n").removesuffix("::").split("\n\n"):
        if block.startswith("|"):
            yield _table(block, console)
        elif block.startswith("- "):
            yield _list(block, console)
        elif block.startswith(" "):
            yield Text(block, no_wrap=True, overflow="ignore")
        elif block:
            yield inline(block, console)


def _table(block: str, console: Console) -> Table:
    head, _, *rows = (_cells(line) for line in block.splitlines())
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in head:
        table.add_column(inline(title, console))
    for row in rows:
        table.add_row(*(inline(cell, console) for cell in row))
    return table


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _list(block: str, console: Console) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for item in re.split(r"^- ", block, flags=re.MULTILINE)[1:]:
        table.add_row("-", inline(" ".join(item.split()), console))
    return table
