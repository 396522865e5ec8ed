"""``vecwrap tune``: tries ways to run a pipeline, and recommends one."""

import contextlib
import time
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vecwrap.bench.report import figure
from vecwrap.commands.output import name_table, print_json
from vecwrap.commands.rollout import sigterm_as_ctrl_c
from vecwrap.errors import SpecError
from vecwrap.spec import PipelineSpec
from vecwrap.tuning.tune import Recommendation, Search, Tuned

__all__ = ["read_seconds", "tune_pipeline"]

_UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def read_seconds(text: str) -> float:
    """Read ``60s``, ``2min``, ``90``.

    >>> read_seconds("90"), read_seconds("1.5min")
    (90.0, 90.0)
    """
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    try:
        seconds = float(number) * _UNITS[text[len(number) :] or "s"]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise SpecError(f"--budget: expected seconds, as in 60s, or 2min, got {text!r}.")
    return seconds


def tune_pipeline(spec: PipelineSpec, *, budget: str, as_json: bool, console: Console, evaluation: bool = False) -> int:
    """Measure, try, and print the table with the recommendation; return the exit status.

    Of a pipeline's evaluation, the lines are for its section ``eval``. The status is 1 if no candidate could be
    measured, else 0; after Ctrl-C or SIGTERM, the shell's for that signal.
    """
    seconds, start = read_seconds(budget), time.monotonic()
    shown = console.is_terminal and not as_json
    with sigterm_as_ctrl_c() as number, console.status("") if shown else contextlib.nullcontext() as status:

        def say(text: str) -> None:
            if status is not None:
                status.update(f"{text} ({time.monotonic() - start:.0f} of {seconds:g} s)")

        try:
            tuned = Search(spec, seconds, say).run()
        except KeyboardInterrupt:
            console.print("interrupted; nothing is left running")
            return 128 + number[0]
    if as_json:
        print_json(_tuning_data(tuned, seconds, evaluation=evaluation), console)
    else:
        _show_tuning(tuned, seconds, console, evaluation=evaluation)
    return int(tuned.recommendation is None)


def _tuning_data(tuned: Tuned, budget: float, *, evaluation: bool) -> dict[str, Any]:
    return {
        "n": tuned.situation.n,
        "usable_cores": tuned.situation.cores,
        "autoreset": tuned.mode,
        "budget": budget,
        "environment": {**vars(tuned.cost), "waits": tuned.cost.waits},
        "candidates": [
            {
                "name": trial.candidate.name,
                **trial.candidate.settings,
                **{key: value for key, value in vars(trial).items() if key != "candidate"},
                "rate": trial.rate if trial.rates else None,
            }
            for trial in tuned.trials
        ],
        "now": tuned.now.name,
        "recommendation": tuned.recommendation and _recommended(tuned.recommendation, evaluation=evaluation),
    }


def _recommended(found: Recommendation, *, evaluation: bool) -> dict[str, Any]:
    pairs = [(found.candidate, found.reason), (found.other, found.other_reason)]
    mine, other = (
        each and {**each.settings, "lines": list(each.lines(evaluation=evaluation)), "reason": reason}
        for each, reason in pairs
    )
    return {**(mine or {}), "with_send_and_recv": other}


# -- what is shown ----------------------------------------------------------------------------------------------------


def _show_tuning(tuned: Tuned, budget: float, console: Console, *, evaluation: bool) -> None:
    cost, found = tuned.cost, tuned.recommendation
    rows = [
        ("one sub-environment", f"{cost.in_words}, {cost.busy:.0%} of a core; of {cost.steps:,} steps"),
        ("start-up", f"{_seconds(cost.first_seconds)} with its imports"),
    ]
    console.print(name_table(rows))
    console.print()
    console.print(_tuning_table(tuned))
    if tuned.mode != "same_step":
        console.print(Text(f"measured in the mode {tuned.mode}", style="dim"))
    console.print()
    if found is None:
        console.print(Text("No candidate could be measured: increase --budget, or see why they failed."))
        return
    console.print(Text(found.reason))
    for line in found.candidate.lines(evaluation=evaluation):
        console.print(Text(f"    {line}", style="bold green"))
    if (in_a_line := found.candidate.in_a_line(evaluation=evaluation)) is not None:
        console.print(Text(f"in one line: {in_a_line}", style="dim"))
    if found.other is not None:
        console.print(Text(f"\nA loop that calls send and recv, and acts on the rows that are ready, would do "
                           f"{found.other_reason}:"))  # fmt: skip
        for line in found.other.lines(evaluation=evaluation):
            console.print(Text(f"    {line}", style="bold"))
    if any(trial.late for trial in tuned.trials):
        more = f"\nSome had too little time; increase --budget above {budget:g}s to measure them."
        console.print(Text(more, style="dim"))
    cores = tuned.situation.cores
    console.print(Text(f"\nn={tuned.situation.n}, {cores} usable core{'s' * (cores != 1)}", style="dim"))


def _tuning_table(tuned: Tuned) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    right: Literal["right"] = "right"
    table.add_column("candidate", no_wrap=True)
    for title in ("agent steps/s", "±", "start", "MB"):
        table.add_column(title, justify=right, no_wrap=True)
    table.add_column("", overflow="fold")
    chosen = tuned.recommendation.candidate if tuned.recommendation else None
    for trial in tuned.trials:
        style = "bold green" if trial.candidate == chosen and trial.rates else ""
        remark = trial.failed or ("the pipeline has it now" if trial.candidate == tuned.now else "")
        rate = (figure(trial.rate), f"{trial.spread:.0%}") if trial.rates else ("–", "")
        start = "" if trial.start_seconds is None else _seconds(trial.start_seconds)
        memory = "" if trial.memory_mb is None else f"{trial.memory_mb:,.0f}"
        table.add_row(Text(trial.candidate.name), *rate, start, memory, Text(remark, style="dim"), style=style)
    return table


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1e3 * seconds:.1f} ms"
