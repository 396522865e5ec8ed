"""``vecwrap check``: what is wrong with pipelines, or probably not meant so."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from vecwrap.commands.output import print_json, printable_lines
from vecwrap.errors import PlanError, SpecError, paths_looked_at
from vecwrap.pipeline_file import is_file, is_folder, names_file
from vecwrap.rules.check import Finding, check, not_read, refuse_unknown
from vecwrap.spec import PipelineSpec

__all__ = ["check_pipelines", "show_findings"]

_STYLES = {"error": "bold red", "warning": "bold yellow"}


@dataclass(frozen=True)
class _Checked:
    """One pipeline and what was found in it."""

    pipeline: str
    findings: Sequence[Finding]


def check_pipelines(
    pipelines: Sequence[str],
    read: Callable[[str], PipelineSpec],
    console: Console,
    *,
    strict: bool = False,
    ignore: Collection[str] = (),
    as_json: bool = False,
) -> int:
    """Print what is found in each pipeline.

    Args:
        pipelines: files, or pipelines in one line.
        read: makes a spec of each.
        console: where it is shown.
        strict: whether warnings count too, and whether a seed is asked for.
        ignore: ids of findings that are meant so.
        as_json: print a list of findings instead.

    Returns:
        The exit status: 1 where there is an error, or with ``strict`` any finding; else 0.

    Raises:
        SpecError: a file that is not there or is a folder, or an id that no finding has.
    """
    refuse_unknown(ignore)
    for pipeline in pipelines:
        _refuse_what_is_no_file(pipeline)
    results = [_Checked(pipeline, _findings(pipeline, read, strict, ignore)) for pipeline in pipelines]
    if as_json:
        found = [{"pipeline": result.pipeline, **f.to_dict()} for result in results for f in result.findings]
        print_json(found, console)
    else:
        _show(results, console)
    counted = [f for result in results for f in result.findings if strict or f.severity == "error"]
    return int(bool(counted))


def _refuse_what_is_no_file(pipeline: str) -> None:
    """Refuse a file's name without a file: that is a mistake in the call, and not in a pipeline."""
    if not names_file(pipeline) or is_file(Path(pipeline)):
        return
    with paths_looked_at(SpecError):  # it may be there, and not ours to see
        Path(pipeline).exists()
    found = "expected a pipeline file, got a folder" if is_folder(Path(pipeline)) else "there is no such file"
    raise SpecError(f"{pipeline}: {found}. Is the path right, seen from {Path.cwd()}?")


def _findings(
    pipeline: str, read: Callable[[str], PipelineSpec], strict: bool, ignore: Collection[str]
) -> Sequence[Finding]:
    try:
        spec = read(pipeline)
    except (SpecError, PlanError) as error:
        return (not_read(error, pipeline),)
    return check(spec, strict=strict, ignore=ignore)


def _show(results: Sequence[_Checked], console: Console) -> None:
    """A line for a good pipeline, a block for each finding, and a sum."""
    for result in results:
        if not result.findings:
            console.print(Text.assemble(("good", "bold green"), f"  {result.pipeline}"))
        show_findings(result.findings, result.pipeline, console)
    findings = [finding for result in results for finding in result.findings]
    if findings:
        console.print(_sum(findings))


def show_findings(findings: Sequence[Finding], pipeline: str, console: Console) -> None:
    """Print a block for each finding.

    Args:
        findings: what was found.
        pipeline: what in, for findings that stand in no file.
        console: where they are shown.
    """
    for finding in findings:
        _show_finding(finding, pipeline, console)


def _sum(findings: Sequence[Finding]) -> Text:
    errors = sum(finding.severity == "error" for finding in findings)
    parts = [_count(errors, "error"), _count(len(findings) - errors, "warning")]
    ignoring = " --ignore ID leaves out what is meant so." if errors < len(findings) else ""
    return Text.assemble((f"{' and '.join(filter(None, parts))}.", "bold"), (ignoring, "dim"))


def _show_finding(finding: Finding, pipeline: str, console: Console) -> None:
    of_pipeline = finding.file not in ("", "--set")
    where = finding.where if of_pipeline else ": ".join(filter(None, (pipeline, finding.where)))
    severity = (finding.severity, _STYLES[finding.severity])
    console.print(Text.assemble(severity, "  ", (finding.id, "bold"), "  ", (printable_lines(where), "cyan")))
    lines = [Text(printable_lines(finding.reason))]
    lines += [Text.assemble(("fix: ", "dim"), printable_lines(finding.fix))] if finding.fix else []
    lines.append(Text(f"see: vecwrap list {finding.id}", "dim"))
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 4)) if console.is_terminal else Text("    ") + line)
    console.print()


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}" if number else ""
