"""``vecwrap list``: all wrappers, backends and findings, or some of them in full."""

import difflib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vecwrap.cli.command import UNDERSTAND, command, terminal
from vecwrap.cli.completion import one_of
from vecwrap.cli.markup import blocks, inline
from vecwrap.cli.names import Row, backend_rows, plain_text, wrapper_rows
from vecwrap.cli.output import PROSE_COLUMNS
from vecwrap.errors import SpecError
from vecwrap.pipeline import registry
from vecwrap.pipeline.check import REFUSALS, RULES, severity_of
from vecwrap.testing.determinism import OF_STREAMS

NEAR_NAMES = 3
NAMES = (
    *registry.wrappers.names(),
    *registry.backends.names(),
    *REFUSALS,
    *OF_STREAMS,
    *RULES,
)


@dataclass(frozen=True)
class RuleRow:
    """One kind of finding: severity, reason, a pipeline that has it and one that does not."""

    name: str
    kind: str
    summary: str
    reasons: str
    wrong: str = ""
    right: str = ""


@command("list", UNDERSTAND, "framestack zero_padding")
def list_names(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Only these wrappers, backends or findings, in full.",
            metavar="NAME",
            autocompletion=one_of(*NAMES),
        ),
    ] = None,
) -> None:
    """List wrappers and backends with their parameters and defaults, and the findings of check."""
    console = terminal()
    wrappers = wrapper_rows()
    backends = backend_rows()
    findings = rule_rows()
    if names:
        kinds = {
            **{row.name: _kind(row) for row in wrappers},
            **{row.name: "backend" for row in backends},
            **{row.name: f"finding of check: {row.kind}" for row in findings},
        }
        _print_in_full([*wrappers, *backends, *findings], kinds, names, console)
        return
    does = "what it does, and its parameters"
    _print_table(
        ["wrapper", "runs in", does],
        [(row.name, row.where, _described(row, console)) for row in wrappers],
        console,
    )
    _print_table(
        ["backend", does], [(row.name, _described(row, console)) for row in backends], console
    )
    _print_table(
        ["finding", "what check finds"],
        [(row.name, _described_rule(row, console)) for row in findings],
        console,
        gap=0,
    )


def _columns(console: Console) -> int:
    if console.is_terminal:
        return console.width
    return PROSE_COLUMNS


def _print_table(
    titles: Sequence[str], rows: Sequence[tuple[str | Text, ...]], console: Console, gap: int = 1
) -> None:
    """Print a table; ``gap`` lines are left free after each row."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, gap, 0), header_style="bold")
    for title in titles[:-1]:
        table.add_column(title, style="cyan" if title == titles[0] else "", no_wrap=True)
    table.add_column(titles[-1])
    for row in rows:
        table.add_row(*row)
    console.print(table, width=_columns(console), soft_wrap=False)


def _described(row: Row, console: Console) -> Text:
    text = inline(row.summary, console)
    if row.wrappers:
        text.append(f"\n  = {row.wrappers}")
    for parameter in row.parameters:
        text.append(f"\n  {parameter}", style="dim")
    if row.owner not in ("", "vecwrap"):
        text.append(f"\n  from {row.owner}", style="dim")
    return text


def _described_rule(row: RuleRow, console: Console) -> Text:
    text = inline(row.summary, console)
    text.append(f" ({row.kind})", style="dim")
    return text


# -- in full ---------------------------------------------------------------------------------------


def _print_in_full(
    rows: Sequence[Row | RuleRow],
    kinds: Mapping[str, str],
    names: Sequence[str],
    console: Console,
) -> None:
    known = {row.name: row for row in rows}
    for name in names:
        if name not in known:
            raise SpecError(
                f'list: there is no wrapper, backend or finding "{name}".{_nearest(name, known)}'
            )
    for number, name in enumerate(dict.fromkeys(names)):
        if number:
            console.print()
        row = known[name]
        if isinstance(row, RuleRow):
            parts = _rule_in_full(row, console)
        else:
            parts = _in_full(row, console)
        console.print(Text.assemble((name, "bold cyan"), "  ", (kinds[name], "dim")))
        for part in parts:
            console.print(part, width=_columns(console), soft_wrap=False)


def _nearest(name: str, known: Iterable[str]) -> str:
    """Name the one that was probably meant, or else the three that look most like it."""
    known = list(known)
    near = difflib.get_close_matches(name[:200], known, n=NEAR_NAMES, cutoff=0.0)
    if difflib.get_close_matches(name[:200], known, n=1):
        return f' Did you mean "{near[0]}"?'
    quoted = ", ".join(f'"{each}"' for each in near)
    return f" The nearest are {quoted}; `vecwrap list` shows all."


def _kind(row: Row) -> str:
    if row.where == "preset":
        return "preset of wrappers"
    if row.where:
        return f"wrapper, runs in the {row.where}"
    return "wrapper"


def _in_full(row: Row, console: Console) -> Iterator[RenderableType]:
    yield _indented(inline(row.summary, console))
    if row.wrappers:
        yield _indented(Text(f"= {row.wrappers}"))
    texts = [*blocks(row.details, console)]
    if row.at_end:
        at_end = f"At an episode's end: {row.at_end[:1].lower()}{row.at_end[1:]}"
        texts.append(inline(at_end, console))
    for text in texts:
        yield Text()
        yield _indented(text)
    if row.parameters:
        yield Text()
    for parameter in row.parameters:
        yield _indented(Text(str(parameter), style="bold"))
        if parameter.name in row.help:
            yield _indented(inline(row.help[parameter.name], console), 6)
    if row.owner not in ("", "vecwrap"):
        yield Text()
        yield _indented(Text(f"from {row.owner}", style="dim"))


def _rule_in_full(row: RuleRow, console: Console) -> Iterator[RenderableType]:
    yield _indented(inline(row.summary, console))
    for text in blocks(row.reasons, console):
        yield Text()
        yield _indented(text)
    yield Text()
    for word, line in (("wrong", row.wrong), ("right", row.right)):
        if line:
            yield _indented(Text.assemble((f"{word}: ", "dim"), line))


def _indented(part: RenderableType, columns: int = 2) -> Padding:
    return Padding(part, (0, 0, 0, columns))


# -- what the tables of names hold -----------------------------------------------------------------


def rule_rows() -> list[RuleRow]:
    """Every kind of finding: refusals of ``build``, then ``--twice``, then the rules by name."""
    rows = [_rule_row(name, "error", text) for name, text in REFUSALS.items()]
    rows += [
        _rule_row(name, f"{severity}, with --twice", text)
        for name, (severity, text) in OF_STREAMS.items()
    ]
    return rows + [
        _rule_row(name, severity_of(name), rule.__doc__ or "")
        for name, rule in sorted(RULES.items())
    ]


def _rule_row(name: str, kind: str, text: str) -> RuleRow:
    """Split a docstring: a summary, reasons, and two pipelines after ``Wrong:`` and ``Right:``."""
    summary, _, body = inspect.cleandoc(text).partition("\n")
    examples = dict(re.findall(r"(?m)^(Wrong|Right): ``(.*)``$", body))
    body = re.sub(r"(?m)^(Wrong|Right): .*\n?", "", body)
    paragraphs = (" ".join(paragraph.split()) for paragraph in body.split("\n\n"))
    reasons = "\n\n".join(filter(None, paragraphs))
    return RuleRow(
        name,
        kind,
        plain_text(summary),
        plain_text(reasons),
        examples.get("Wrong", ""),
        examples.get("Right", ""),
    )
