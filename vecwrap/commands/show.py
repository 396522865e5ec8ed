"""``vecwrap list``: all names, each with a description."""

import itertools
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vecwrap.commands.catalogue import Row, RuleRow, backend_rows, layer_rows, rule_rows
from vecwrap.commands.output import print_json
from vecwrap.errors import SpecError, did_you_mean
from vecwrap.signatures import REQUIRED, in_words
from vecwrap.values import shown

__all__ = ["list_names"]


def list_names(names: Sequence[str], console: Console, *, as_json: bool = False) -> None:
    """Print layers, backends and findings with what they do.

    Args:
        names: only these, in full; all if empty.
        console: where it is shown.
        as_json: print them as JSON instead.

    Raises:
        SpecError: for an unknown name.
    """
    layers, backends, rules = layer_rows(), backend_rows(), rule_rows()
    known = [row.name for row in layers + backends] + [row.name for row in rules]
    for name in names:
        if name not in known:
            remedy = did_you_mean(name, known) or f" Known names: {', '.join(known)}."
            raise SpecError(f'list: there is no layer, backend or finding "{name}".{remedy}')
    if names:
        layers = [row for row in layers if row.name in names]
        backends = [row for row in backends if row.name in names]
        rules = [row for row in rules if row.name in names]
    if as_json:
        data = {"layers": [_data(row) for row in layers], "backends": [_data(row) for row in backends]}
        print_json({**data, "findings": [vars(row) for row in rules]}, console)
        return
    for title, rows in (("layer", layers), ("backend", backends)):
        if rows:
            console.print(_table(title, rows, in_full=bool(names)))
    if rules:
        console.print(_rule_table(rules, in_full=bool(names)))


def _rule_table(rows: Sequence[RuleRow], in_full: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, int(in_full), 0), header_style="bold")
    table.add_column("finding", style="cyan", no_wrap=True)
    table.add_column("what check finds, and why it is a mistake" if in_full else "what check finds")
    for row in rows:
        text = Text(row.summary)
        text.append(f" ({row.kind})", style="dim")
        if in_full:
            text.append(f"\n{row.reasons}")
            for word, line in (("wrong", row.wrong), ("right", row.right)):
                text.append(f"\n{word}: {line}" if line else "", style="dim")
        table.add_row(row.name, text)
    return table


def _data(row: Row) -> dict[str, Any]:
    parameters = [
        {
            "name": parameter.name,
            "type": in_words(parameter.annotation),
            "default": None if parameter.default is REQUIRED else shown(parameter.default),
            "required": parameter.default is REQUIRED,
            "help": row.help.get(parameter.name, ""),
        }
        for parameter in row.parameters
    ]
    return {
        "name": row.name,
        "runs_in": row.where,
        "summary": row.summary,
        "details": row.details,
        "at_an_episodes_end": row.at_end,
        "stands_for": row.layers,
        "owner": row.owner,
        "parameters": parameters,
    }


def _table(title: str, rows: Sequence[Row], in_full: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0), header_style="bold")
    table.add_column(title, style="cyan", no_wrap=True)
    if title == "layer":
        table.add_column("runs in", no_wrap=True)
    table.add_column("what it does, and its parameters")
    for row in rows:
        text = Text(row.summary)
        if row.layers:
            text.append(f"\n  = {row.layers}")
        if in_full and row.details:
            details = "\n\n".join(map(_in_columns, row.details.split("\n\n")))
            text.append(f"\n\n{details}\n".replace("::\n", ":\n"))
        if in_full and row.at_end:
            text.append(f"\nAt an episode's end: {row.at_end[:1].lower()}{row.at_end[1:]}\n")
        for parameter in row.parameters:
            text.append(f"\n  {parameter}", style="dim")
            if in_full and parameter.name in row.help:
                text.append(f"\n    {row.help[parameter.name]}")
        if row.owner not in ("", "vecwrap"):
            text.append(f"\n  from {row.owner}", style="dim")
        table.add_row(row.name, *([row.where] if title == "layer" else []), text)
    return table


def _in_columns(block: str) -> str:
    r"""Format a docstring's table for a terminal; return any other block as it is.

    >>> print(_in_columns("| space | stacked |\n|---|---|\n| (D,) | (k, D) |"))
    space  stacked
    (D,)   (k, D)
    """
    if not block.startswith("| "):
        return block
    first, _, *others = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
    columns = [
        [cell.ljust(max(map(len, column))) for cell in column]
        for column in itertools.zip_longest(first, *others, fillvalue="")
    ]
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))
