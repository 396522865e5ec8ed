"""``vecwrap load``: shows a run folder, checks that it can be rebuilt, and runs it again."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from vecwrap.checkpoint import read_state
from vecwrap.commands.check import show_findings
from vecwrap.commands.journal import COLUMNS
from vecwrap.commands.output import name_table, print_json
from vecwrap.commands.pipelines import read_settings
from vecwrap.commands.run import RunSettings, run_pipeline
from vecwrap.errors import SpecError
from vecwrap.plan import plan
from vecwrap.rules.check import Finding, check
from vecwrap.run_folder import PIPELINE, PROGRESS, VIDEOS, Run, read_run
from vecwrap.source import Place
from vecwrap.spec import PipelineSpec

__all__ = ["load_folder"]


def load_folder(
    folder: Path,
    settings: Sequence[str],
    chosen: RunSettings,
    console: Console,
    *,
    as_json: bool = False,
) -> int:
    """Show the contents of a run folder; run it if steps or episodes are given.

    Args:
        folder: written by ``vecwrap run --out``.
        settings: the values of ``--set``.
        chosen: how to run it.
        console: where it is shown.
        as_json: print it as JSON instead.

    Returns:
        The exit status: 1 if a finding of ``vecwrap check`` is an error, else 0, or that of the run.

    Raises:
        VecwrapError: it cannot be rebuilt, JSON was requested for a run, or a run's options were given without a run.
    """
    again = chosen.steps is not None or chosen.episodes is not None
    if as_json and again:
        raise SpecError("load: --json prints the folder's contents; leave out --steps and --episodes, or --json.")
    if not again and (idle := _for_a_run(chosen)):
        raise SpecError(f"load: {', '.join(idle)}: expected --steps or --episodes too; without them nothing is run.")
    run = read_run(folder)
    overrides = read_settings(settings)
    spec = run.pipeline("eval" if chosen.evaluation else "train", overrides, dict.fromkeys(overrides, Place("--set")))
    resolved = plan(spec).pipeline
    findings = check(spec)
    facts = _facts(run, resolved)
    if as_json:
        print_json({**facts, "findings": [finding.to_dict() for finding in findings]}, console)
        return _status(findings)
    _show(run, facts, findings, console)
    return run_pipeline(spec, chosen, console, loaded=run) if again else _status(findings)


def _for_a_run(chosen: RunSettings) -> list[str]:
    """The given options that apply only to a run."""
    default = RunSettings()
    names = ("policy", "out", "record", "snapshot", "interval")
    return [f"--{name}" for name in names if getattr(chosen, name) != getattr(default, name)]


def _status(findings: Sequence[Finding]) -> int:
    return int(any(finding.severity == "error" for finding in findings))


def _facts(run: Run, resolved: PipelineSpec) -> dict[str, Any]:
    """Everything known about a run, as plain data."""
    facts = {key: value for key, value in run.facts.items() if key not in ("pipeline", "versions")}
    return {
        "folder": str(run.folder),
        "pipeline": run.resolved.hash,
        **facts,
        "progress": _last_row(run.folder / PROGRESS),
        "statistics": None if run.statistics is None else _statistics(run.statistics),
        "files": _files(run.folder),
        "versions": dict(run.facts.get("versions", {})),
        "installed": {name: now for name, (_, now) in run.differences.items()},
        "rebuilt": resolved.to_dict(),
        "rebuilt_hash": resolved.hash,
    }


def _last_row(path: Path) -> dict[str, float | None] | None:
    """The last complete row of progress; None if there is none, or another program wrote the file."""
    if not path.is_file():
        return None
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        try:
            header, *rows = list(csv.reader(file)) or [[]]
        except csv.Error:
            return None
    whole = [row for row in rows if len(row) == len(header)]
    if tuple(header[: len(COLUMNS)]) != COLUMNS or not whole:
        return None
    return {name: _number(text) for name, text in zip(header, whole[-1], strict=True)}


def _number(text: str) -> float | None:
    """A finite number, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _statistics(path: Path) -> dict[str, dict[str, float]]:
    """How many values each layer's statistics have seen."""
    state = read_state(path)
    layers = zip(reversed(state["chain"]["layers"]), state["statistics"], strict=True)
    return {
        name: {key: values["count"] for key, values in statistics.items()} for name, statistics in layers if statistics
    }


def _files(folder: Path) -> list[str]:
    """The files there, except those that a rebuilt run wrote."""
    names = [path.name for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    return names + sorted(f"{VIDEOS}/{path.name}" for path in (folder / VIDEOS).glob("*.mp4"))


# -- how it is shown --------------------------------------------------------------------------------------------------


def _show(run: Run, facts: Mapping[str, Any], findings: Sequence[Finding], console: Console) -> None:
    console.print(name_table(_lines(facts)))
    for name, (then, now) in run.differences.items():
        console.print(Text.assemble(("warning", "bold yellow"), f"  {name} was {then}, {_installed(now)}"))
    show_findings(findings, str(run.folder / PIPELINE), console)


def _installed(now: str | None) -> str:
    return "and is not installed" if now is None else f"and {now} is installed: the stream may differ"


def _lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    rebuilt = facts["rebuilt"]
    layers = [layer if isinstance(layer, str) else next(iter(layer)) for layer in rebuilt.get("wrappers", ())]
    what = f"{rebuilt['env']}, n={rebuilt['n']}, layers {' > '.join(layers)}" if layers else rebuilt["env"]
    lines = [("run", f"{facts['folder']}, {_ended(facts)}"), ("pipeline", f"{facts['rebuilt_hash']}: {what}")]
    if facts["rebuilt_hash"] != facts["pipeline"]:
        lines.append(("the run's own", str(facts["pipeline"])))
    if "policy" in facts:
        lines.append(("policy", f"{facts['policy']}, seed {facts.get('seed')}"))
    if row := facts["progress"]:
        if row["steps"] is not None and row["time"] is not None:
            lines.append(("agent steps", f"{row['steps']:,.0f} in {row['time']:.1f} s"))
        if row["episodes"] is not None:
            lines.append(("episodes", f"{row['episodes']:,.0f}"))
        if row["score_mean"] is not None and row["score_std"] is not None:
            lines.append(("score", f"{row['score_mean']:.2f} ± {row['score_std']:.2f} over the last episodes"))
        if row["restarts"]:
            lines.append(("restarts", f"{row['restarts']:,.0f}"))
    if facts["statistics"]:
        seen = [
            f"{layer} {key}, {count:,.0f} values"
            for layer, counts in facts["statistics"].items()
            for key, count in counts.items()
        ]
        lines.append(("statistics", "; ".join(seen)))
    lines.append(("files", ", ".join(facts["files"])))
    if facts["versions"]:
        lines.append(("versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items())))
    return lines


def _ended(facts: Mapping[str, Any]) -> str:
    if "started" not in facts:
        return "of which nothing else is known"
    if facts.get("ended") is None:
        return f"started {facts['started']}: killed, or still running"
    return f"{facts.get('end')} {facts['ended']}"
