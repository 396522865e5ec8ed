"""``vecwrap tune``: tries ways to run a pipeline, and recommends one."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from vecwrap.bench.report import figure
from vecwrap.commands.output import name_table, print_json
from vecwrap.commands.rollout import sigterm_as_ctrl_c
from vecwrap.errors import SpecError
from vecwrap.spec import PipelineSpec
from vecwrap.tuning.measurements import EnvCost, Trial
from vecwrap.tuning.search import Budget, Search, Tuned

__all__ = ["read_seconds", "tune_pipeline"]

_UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def read_seconds(text: str) -> float:
    """Read ``60s``, ``2min``, ``90``.

    Raises:
        SpecError: anything else.

    >>> read_seconds("90"), read_seconds("1.5min")
    (90.0, 90.0)
    """
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :] or "s"
    try:
        seconds = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise SpecError(f"--budget: expected seconds, as in 60s, or 2min, got {text!r}.")
    return seconds


def tune_pipeline(spec: PipelineSpec, *, budget: str, as_json: bool, console: Console, evaluation: bool = False) -> int:
    """Measure, try, and print the table with the recommendation; return the exit status.

    Args:
        spec: the pipeline; its files go to a temporary folder meanwhile.
        budget: how long it may take: ``"60s"``.
        as_json: print JSON instead.
        console: where it is shown.
        evaluation: whether it is a pipeline's evaluation, so that the lines are for its section ``eval``.

    Returns:
        1 if no candidate could be measured, else 0; after Ctrl-C or SIGTERM, the shell's status for that signal.

    Raises:
        VecwrapError: the pipeline cannot be built, or not even one sub-environment could be measured.
    """
    seconds = read_seconds(budget)
    with sigterm_as_ctrl_c() as number, _progress(seconds, console, quiet=as_json) as show:
        clock = Budget(seconds)
        try:
            tuned = Search(spec, clock, lambda text: show(clock.spent, text), evaluation=evaluation).run()
        except KeyboardInterrupt:
            console.print("interrupted; nothing is left running")
            return 128 + number[0]
    if as_json:
        print_json(tuned.to_data(), console)
    else:
        _show(tuned, clock.spent, console)
    return int(tuned.recommendation is None)


@contextlib.contextmanager
def _progress(seconds: float, console: Console, *, quiet: bool) -> Iterator[Callable[[float, str], None]]:
    """A progress bar of the budget, on a terminal."""
    if quiet or not console.is_terminal:
        yield lambda spent, text: None
        return
    columns = BarColumn(bar_width=24), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=seconds)
        yield lambda spent, text: progress.update(task, completed=min(spent, seconds), description=text)


# -- what is shown ----------------------------------------------------------------------------------------------------


def _show(tuned: Tuned, seconds: float, console: Console) -> None:
    console.print(_environment(tuned.cost))
    console.print()
    console.print(_table(tuned))
    if tuned.mode != "same_step":
        console.print(Text(f"measured in the mode {tuned.mode}", style="dim"))
    console.print()
    recommendation = tuned.recommendation
    if recommendation is None:
        console.print(Text("No candidate could be measured: increase --budget, or see why they failed."))
        return
    console.print(Text(recommendation.reason))
    for line in recommendation.lines:
        console.print(Text(f"    {line}", style="bold green"))
    if (in_a_line := recommendation.in_a_line) is not None:
        console.print(Text(f"in one line: {in_a_line}", style="dim"))
    if recommendation.other_loop is not None:
        console.print(Text(f"\nA loop that calls send and recv, and acts on the rows that are ready, would do "
                           f"{recommendation.other_reason}:"))  # fmt: skip
        for line in recommendation.other_lines:
            console.print(Text(f"    {line}", style="bold"))
    if any(trial.late for trial in tuned.trials):
        console.print(
            Text(f"\nSome had too little time; increase --budget above {tuned.budget:g}s to measure them.", style="dim")
        )
    cores = f"{tuned.situation.cores} usable core{'s' * (tuned.situation.cores != 1)}"
    console.print(Text(f"\nn={tuned.situation.n}, {cores}, {seconds:.0f} s", style="dim"))


def _environment(cost: EnvCost) -> Table:
    """What one sub-environment costs."""
    again = "" if cost.make_seconds is None else f"; another one in the same process {_seconds(cost.make_seconds)}"
    memory = "" if cost.memory_mb is None else f", {_megabytes(cost.memory_mb)}"
    return name_table(
        [
            ("one sub-environment", f"{cost.in_words}, {cost.busy:.0%} of a core; of {cost.steps:,} steps"),
            ("reset", f"{1e6 * cost.reset_seconds:,.0f} µs"),
            ("start-up", f"{_seconds(cost.first_seconds)} with its imports{again}{memory}"),
            ("observation", f"{cost.observation_bytes:,} bytes"),
        ]
    )


def _megabytes(megabytes: float) -> str:
    """Format a size; one too small to show is not printed as zero.

    >>> _megabytes(0.004), _megabytes(12.34)
    ('under 0.1 MB', '12.3 MB')
    """
    return f"{megabytes:.1f} MB" if megabytes >= 0.1 else "under 0.1 MB"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1e3 * seconds:.1f} ms"


def _table(tuned: Tuned) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    right: Literal["right"] = "right"
    table.add_column("candidate", no_wrap=True)
    for title in ("agent steps/s", "±", "start", "MB"):
        table.add_column(title, justify=right, no_wrap=True)
    table.add_column("", overflow="fold")
    chosen = tuned.recommendation.candidate if tuned.recommendation else None
    for trial in tuned.trials:
        style = "bold green" if trial.candidate == chosen and trial.rates else ""
        remark = trial.failed or ("the pipeline has it now" if trial.candidate.does_as(tuned.now) else "")
        table.add_row(Text(trial.candidate.name), *_figures(trial), Text(remark, style="dim"), style=style)
    return table


def _figures(trial: Trial) -> tuple[Any, ...]:
    start = "" if trial.start_seconds is None else _seconds(trial.start_seconds)
    memory = "" if trial.memory_mb is None else f"{trial.memory_mb:,.0f}"
    if not trial.rates:
        return "–", "", start, memory
    return figure(trial.rate), f"{trial.spread:.0%}", start, memory
