"""The pages of ``--help``: usage, a description, arguments and options in groups, an example.

They have neither boxes nor columns of types, so they read the same on a terminal and in a file.
"""

import io
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from vecwrap.cli.output import Terminal

__all__ = ["Command", "Group", "UsageError", "help_page", "names_of"]

# The base class of the errors of calls, which typer has under no public name.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

MAX_COLUMNS = 100  # a longer line of prose is tiring to read


class _Helped:
    """Writes the page of a command; its base is one of typer's classes of commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(help_page(self, ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            parsed: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        except UsageError as error:
            if getattr(error, "ctx", None) is None:  # not every error of typer has it
                setattr(error, "ctx", ctx)  # noqa: B010
            raise
        return parsed


class Command(_Helped, TyperCommand):
    """A command with such a page."""


class Group(_Helped, TyperGroup):
    """All commands, with such a page."""


def help_page(command: Any, context: Any) -> str:
    """Return the page as text, with escape sequences for colours if the output is a terminal."""
    screen = Terminal()
    text = io.StringIO()
    width = min(screen.width, MAX_COLUMNS)
    console = Terminal(file=text, width=width, force_terminal=screen.is_terminal)
    console.print(
        Text.assemble(("Usage: ", "bold"), context.command_path, _usage(command, context))
    )
    for paragraph in _paragraphs(command.help):
        console.print()
        console.print(Text(paragraph))
    groups = _groups(command, context)
    of_all = max(len(name) for _, entries in groups for name, _ in entries)
    for title, entries in groups:
        longest = of_all
        if isinstance(command, TyperGroup):  # whose commands are shorter than its options
            longest = max(len(name) for name, _ in entries)
        console.print()
        console.print(Text(f"{title}:", style="bold"))
        console.print(_entries(entries, longest))
    for paragraph in _paragraphs(command.epilog):
        console.print()
        console.print(Text(paragraph))
    return text.getvalue()


def _usage(command: Any, context: Any) -> str:
    if isinstance(command, TyperGroup):
        return " COMMAND [OPTIONS]"
    pieces = [""]
    for parameter in command.get_params(context):
        if parameter.param_type_name != "argument":
            continue
        name = names_of(parameter)
        if not parameter.required:
            name = f"[{name}]"
        pieces.append(name)
    return " ".join([*pieces, "[OPTIONS]"])


def _paragraphs(text: str | None) -> Iterable[str]:
    return (" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n") if paragraph)


def _groups(command: Any, context: Any) -> Sequence[tuple[str, Sequence[tuple[str, str]]]]:
    """The groups of the page, each with its entries: arguments, commands, options."""
    groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
    if isinstance(command, TyperGroup):
        for name in command.list_commands(context):
            sub_command: Any = command.get_command(context, name)
            title = sub_command.rich_help_panel or "Commands"
            summary = next(iter(_paragraphs(sub_command.help)), "")
            groups.setdefault(title, []).append((name, summary))
    others = []
    for parameter in command.get_params(context):
        entry = (names_of(parameter), _help_of(parameter))
        title = getattr(parameter, "rich_help_panel", None)
        if parameter.param_type_name == "argument":
            groups["Arguments"].append(entry)
        elif title is None:
            others.append(entry)
        else:
            groups.setdefault(title, []).append(entry)
    groups["Options"] = others
    return [(title, entries) for title, entries in groups.items() if entries]


def names_of(parameter: Any) -> str:
    """``"-n, --n N"``: an option as it is written, or an argument's name."""
    if parameter.param_type_name == "argument":
        name = str(parameter.metavar or parameter.name.upper())
        if parameter.nargs == -1:
            return f"{name}..."
        return name
    names = ", ".join(sorted((*parameter.opts, *parameter.secondary_opts), key=len))
    if parameter.is_flag or parameter.metavar is None:
        return names
    return f"{names} {parameter.metavar}"


def _help_of(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split())
    default = parameter.default
    is_option = parameter.param_type_name == "option" and not parameter.is_flag
    if is_option and parameter.required:
        return f"{text} Required."
    if is_option and isinstance(default, float):
        return f"{text} Default: {default:g}."
    if is_option and isinstance(default, (str, int)):
        return f"{text} Default: {default}."
    return text


def _entries(entries: Sequence[tuple[str, str]], longest: int) -> Table:
    """Return names and texts in two columns, the first as wide as the longest name of the page."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True, min_width=longest + 2)
    table.add_column()
    for name, text in entries:
        table.add_row(f"  {name}", Text(text))
    return table
