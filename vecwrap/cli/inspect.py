"""``vecwrap explain`` and ``check``: show a plan, and its mistakes."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from vecwrap.cli.command import (
    UNDERSTAND,
    Evaluation,
    Json,
    NoImports,
    Pipeline,
    Settings,
    command,
    count_option,
    terminal,
)
from vecwrap.cli.completion import one_of
from vecwrap.cli.output import print_json
from vecwrap.cli.pipelines import read_pipeline
from vecwrap.errors import PlanError, SpecError, printable_lines
from vecwrap.pipeline.check import REFUSALS, RULES, check, not_read, refuse_unknown
from vecwrap.pipeline.files import is_file, names_file
from vecwrap.pipeline.findings import Finding
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.testing.determinism import OF_STREAMS, STEPS, play_twice

# -- explain ---------------------------------------------------------------------------------------

_STYLES = {"head": "bold", "title": "dim", "name": "cyan", "plain": "", "note": "dim"}


@command("explain", UNDERSTAND, "examples/pong.yaml --set wrappers.framestack.k=2")
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


@command("check", UNDERSTAND, "examples/pong.yaml --strict")
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
        typer.Option(
            help="A finding to ignore. May be repeated.",
            metavar="ID",
            autocompletion=one_of(*REFUSALS, *OF_STREAMS, *RULES),
        ),
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
        count_option(
            help="Agent steps over all sub-environments in each run of --twice. Default: 2000."
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
    """Print a block for each finding; ``pipeline`` is named where a finding has no file.

    The first warning of a kind says where its kind is explained; an error explains itself.
    """
    explained = set()
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
        if finding.severity == "warning" and finding.id not in explained:
            explained.add(finding.id)
            lines.append(Text(f"see: vecwrap list {finding.id}", "dim"))
        for line in lines:
            if console.is_terminal:
                console.print(Padding(line, (0, 0, 0, 4)))
            else:
                console.print(Text("    ") + line)
        console.print()
