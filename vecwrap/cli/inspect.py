"""``vecwrap explain``, ``check`` and ``list``: show a plan, its mistakes, and all names."""

import inspect
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vecwrap.cli.command import Evaluation, Json, NoImports, Pipeline, Settings, command, terminal
from vecwrap.cli.names import Row, backend_rows, plain_text, wrapper_rows
from vecwrap.cli.output import print_json
from vecwrap.cli.pipelines import read_pipeline
from vecwrap.errors import PlanError, SpecError, did_you_mean, printable_lines
from vecwrap.pipeline.check import REFUSALS, RULES, check, not_read, refuse_unknown, severity_of
from vecwrap.pipeline.files import is_file, names_file
from vecwrap.pipeline.findings import Finding
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.testing.determinism import OF_STREAMS, STEPS, play_twice

# -- explain ---------------------------------------------------------------------------------------

_STYLES = {"head": "bold", "title": "dim", "name": "cyan", "plain": "", "note": "dim"}


@command("explain", "examples/pong.yaml --set wrappers.framestack.k=2")
def explain(
    pipeline: Pipeline,
    settings: Settings = None,
    evaluation: Evaluation = False,
    no_imports: NoImports = False,
    as_json: Json = False,
) -> None:
    """Print the plan: each wrapper, its place, spaces, bytes, and effect at an episode's end."""
    spec = read_pipeline(pipeline, settings, evaluation=evaluation, imports=not no_imports)
    console = terminal()
    planned = plan(spec).with_spaces()
    if as_json:
        print_json(planned.explanation.to_dict(), console)
        return
    for line in planned.explanation.lines():
        text = Text.assemble(*((part, _STYLES[role]) for role, part in line))
        console.print(text, no_wrap=True, overflow="ignore", crop=False)


# -- check -----------------------------------------------------------------------------------------


@command("check", "examples/pong.yaml --strict")
def check_pipelines(
    pipelines: Annotated[
        list[str],
        typer.Argument(help="Pipeline files, or pipelines in one line.", metavar="PIPELINE"),
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 1 on warnings too.")
    ] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(help="A finding to ignore. May be repeated.", metavar="ID"),
    ] = None,
    twice: Annotated[
        bool,
        typer.Option(
            "--twice",
            help=(
                "Also play it with one seed: twice here, after a second reset, and in worker "
                "processes; name the first value that differs."
            ),
        ),
    ] = False,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Agent steps over all sub-environments in each run of --twice. Default: 2000.",
        ),
    ] = None,
    settings: Settings = None,
    evaluation: Evaluation = False,
    no_imports: NoImports = False,
    as_json: Json = False,
) -> int:
    """Look for mistakes in order and use; exit with status 1 if there are errors.

    Nothing is stepped without --twice.
    """
    if steps is not None and not twice:
        raise SpecError("--steps: expected --twice beside it; without that, nothing is stepped")
    read = partial(read_pipeline, settings=settings, evaluation=evaluation, imports=not no_imports)
    played = None
    if twice:
        played = steps or STEPS
    ignore = ignore or []
    console = terminal()
    refuse_unknown(ignore, [*REFUSALS, *OF_STREAMS, *RULES])
    for pipeline in pipelines:
        if names_file(pipeline) and not is_file(pipeline):
            read(pipeline)  # raises: a mistake in the call, and not in a pipeline
    found = [(pipeline, _findings(pipeline, read, ignore, played)) for pipeline in pipelines]
    every = [finding for _, findings in found for finding in findings]
    if as_json:
        data = [
            {"pipeline": pipeline, **finding.to_dict()}
            for pipeline, findings in found
            for finding in findings
        ]
        print_json(data, console)
    else:
        for pipeline, findings in found:
            if not findings:
                console.print(Text.assemble(("good", "bold green"), f"  {pipeline}"))
            _show_findings(findings, pipeline, console)
        if every:
            console.print(_sum(every))
    return int(any(strict or finding.severity == "error" for finding in every))


def _findings(
    pipeline: str, read: Callable[[str], PipelineSpec], ignore: Collection[str], steps: int | None
) -> Sequence[Finding]:
    try:
        spec = read(pipeline)
    except (SpecError, PlanError) as error:
        return not_read(error, pipeline)
    findings = check(spec, ignore=[name for name in ignore if name not in OF_STREAMS])
    if steps is None or any(finding.severity == "error" for finding in findings):
        return findings
    return [
        *findings,
        *(found for found in play_twice(spec, steps=steps) if found.id not in ignore),
    ]


def _sum(findings: Sequence[Finding]) -> Text:
    errors = sum(finding.severity == "error" for finding in findings)
    warnings = len(findings) - errors
    counts = [
        f"{n} {what}{'s' * (n != 1)}" for n, what in ((errors, "error"), (warnings, "warning")) if n
    ]
    ignoring = ""
    if warnings:
        ignoring = " --ignore ID suppresses intended findings."
    return Text.assemble((f"{' and '.join(counts)}.", "bold"), (ignoring, "dim"))


def _show_findings(findings: Sequence[Finding], pipeline: str, console: Console) -> None:
    """Print a block for each finding; ``pipeline`` is named where a finding has no file."""
    for finding in findings:
        of_pipeline = finding.file not in ("", "--set")
        where = finding.where
        if not of_pipeline:
            where = ": ".join(filter(None, (pipeline, finding.where)))
        severity = (finding.severity, "bold red" if finding.severity == "error" else "bold yellow")
        console.print(
            Text.assemble(
                severity, "  ", (finding.id, "bold"), "  ", (printable_lines(where), "cyan")
            )
        )
        lines = [Text(printable_lines(finding.reason))]
        if finding.fix:
            lines.append(Text.assemble(("fix: ", "dim"), printable_lines(finding.fix)))
        for line in (*lines, Text(f"see: vecwrap list {finding.id}", "dim")):
            if console.is_terminal:
                console.print(Padding(line, (0, 0, 0, 4)))
            else:
                console.print(Text("    ") + line)
        console.print()


# -- list ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RuleRow:
    """One kind of finding: severity, reason, a pipeline that has it and one that does not."""

    name: str
    kind: str
    summary: str
    reasons: str
    wrong: str = ""
    right: str = ""


@command("list", "framestack zero_padding")
def list_names(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Only these wrappers, backends or findings, in full.",
            metavar="NAME",
        ),
    ] = None,
) -> None:
    """List wrappers and backends with their parameters and defaults, and the findings of check."""
    names = names or []
    console = terminal()
    wrappers = wrapper_rows()
    backends = backend_rows()
    findings = rule_rows()
    known = [row.name for row in wrappers + backends] + [row.name for row in findings]
    for name in names:
        if name not in known:
            remedy = did_you_mean(name, known) or f" Known names: {', '.join(known)}."
            raise SpecError(f'list: there is no wrapper, backend or finding "{name}".{remedy}')
    in_full = bool(names)
    wrappers = [row for row in wrappers if row.name in (names or known)]
    backends = [row for row in backends if row.name in (names or known)]
    findings = [row for row in findings if row.name in (names or known)]
    does = "what it does, and its parameters"
    finds = "what check finds"
    if in_full:
        finds = "what check finds, and why it is a mistake"
    _print_table(
        ["wrapper", "runs in", does],
        [(row.name, row.where, _described(row, in_full)) for row in wrappers],
        console,
    )
    _print_table(
        ["backend", does], [(row.name, _described(row, in_full)) for row in backends], console
    )
    described = [(row.name, _described_rule(row, in_full)) for row in findings]
    _print_table(["finding", finds], described, console, gap=int(in_full))


def _print_table(
    titles: Sequence[str], rows: Sequence[tuple[str | Text, ...]], console: Console, gap: int = 1
) -> None:
    """Print a table, unless it is empty; ``gap`` lines are left free after each row."""
    if not rows:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, gap, 0), header_style="bold")
    for title in titles[:-1]:
        table.add_column(title, style="cyan" if title == titles[0] else "", no_wrap=True)
    table.add_column(titles[-1])
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _described(row: Row, in_full: bool) -> Text:
    text = Text(row.summary)
    if row.wrappers:
        text.append(f"\n  = {row.wrappers}")
    if in_full and row.details:
        text.append(f"\n\n{row.details}\n".replace("::\n", ":\n"))
    if in_full and row.at_end:
        text.append(f"\nAt an episode's end: {row.at_end[:1].lower()}{row.at_end[1:]}\n")
    for parameter in row.parameters:
        text.append(f"\n  {parameter}", style="dim")
        if in_full and parameter.name in row.help:
            text.append(f"\n    {row.help[parameter.name]}")
    if row.owner not in ("", "vecwrap"):
        text.append(f"\n  from {row.owner}", style="dim")
    return text


def _described_rule(row: RuleRow, in_full: bool) -> Text:
    text = Text(row.summary)
    text.append(f" ({row.kind})", style="dim")
    if in_full:
        text.append(f"\n{row.reasons}")
        for word, line in (("wrong", row.wrong), ("right", row.right)):
            if line:
                text.append(f"\n{word}: {line}", style="dim")
    return text


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
