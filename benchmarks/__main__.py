"""`make bench`: a pipeline, or every workload, with our backends and the peers interleaved."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from benchmarks import pages
from benchmarks.comparison import compare_pipeline
from benchmarks.environments import loops_per_microsecond
from benchmarks.measure import WorkResult, measure_rounds
from benchmarks.peers import PEERS, read_names
from benchmarks.report import describe_machine, machine_line, result_table, to_data
from benchmarks.workloads import Workload, workloads
from vecwrap.cli.measure import progress
from vecwrap.cli.output import figures_table
from vecwrap.cli.pipelines import read_pipeline
from vecwrap.errors import PlanError, SpecError, VecwrapError

INVALID = 2  # an invalid call or pipeline, as in vecwrap's commands
INTERRUPTED = 130  # 128 + SIGINT, as in shells
WIDTH = 160  # of tables that go to a file or a pipe


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog='Examples: make bench PIPELINE=my.yaml BENCH_ARGS="--vs gymnasium,sb3"; '
        'make bench BENCH_ARGS="--only cartpole-8,pong-8 --rounds 3"',
    )
    parser.add_argument(
        "pipeline", nargs="?", help="a file, or a pipeline in one line (default: the workloads)"
    )
    parser.add_argument(
        "--vs", metavar="PEERS", help=f"of the pipeline's peers these alone: {', '.join(PEERS)}"
    )
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", help="set a key of it; may be repeated"
    )
    parser.add_argument(
        "--only", metavar="KEYS", help="these workloads alone, with commas; see --list"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="samples of each contender (default: 5)"
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="how long a sample lasts (default: 1)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/bench"),
        help="folder for files (default: runs/bench)",
    )
    parser.add_argument(
        "--publish", action="store_true", help="write the tables into docs/performance.md too"
    )
    parser.add_argument(
        "--list", action="store_true", help="print the keys and what they stand for"
    )
    chosen = parser.parse_args(given)
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error(
            f"expected --rounds of 1 or more and --seconds above 0, got {chosen.rounds} and "
            f"{chosen.seconds}"
        )
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    """Run what was chosen; return the exit status: 0; 2 for an unknown key; 130 after Ctrl-C."""
    options = arguments(given)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, no_color=True, width=WIDTH, soft_wrap=True)
    warnings.simplefilter("ignore")  # the peers' own, which do not concern a reader here
    machine = describe_machine()  # first: afterwards the load is our own
    if options.pipeline:
        return of_pipeline(options, machine, console)
    machine["loops_per_us"] = loops_per_microsecond()
    works = workloads(machine["loops_per_us"])
    titles = {work.key: work.title for work in works}
    if options.list:
        for key, title in titles.items():
            print(f"{key:16} {title}")
        return 0
    keys = options.only.split(",") if options.only else list(titles)
    if unknown := [key for key in keys if key not in titles]:
        print(
            f"--only: there is no {', '.join(unknown)}; known are {', '.join(titles)}",
            file=sys.stderr,
        )
        return INVALID
    console.print(Text(machine_line(machine), style="dim"))
    results: list[WorkResult] = []
    status = 0
    try:
        for work in works:
            if work.key in keys:
                results.append(run(work, options, console))
                print_result(results[-1], console)
                keep(machine, results, options.out)  # in case the run is killed later
    except KeyboardInterrupt:
        console.print(Text("\ninterrupted; what was measured until then is kept", style="yellow"))
        status = INTERRUPTED
    if options.publish and not status:
        pages.publish(pages.tables(machine, results))
    console.print(Text(f"\nwritten to {options.out}/", style="dim"))
    return status


def of_pipeline(options: argparse.Namespace, machine: dict[str, Any], console: Console) -> int:
    """Compare a user's pipeline."""
    try:
        spec = read_pipeline(options.pipeline, options.set)
        peers = [PEERS[name] for name in (read_names(options.vs) if options.vs else PEERS)]
        with progress(console) as say:
            result = compare_pipeline(spec, peers, options.rounds, options.seconds, say=say)
    except VecwrapError as error:
        print(f"error: {error}", file=sys.stderr)
        return INVALID if isinstance(error, (SpecError, PlanError)) else 1
    except KeyboardInterrupt:
        print("interrupted; nothing is left running", file=sys.stderr)
        return INTERRUPTED
    console.print(Text(machine_line(machine), style="dim"))
    print_result(result, console)
    keep(machine, [result], options.out)
    console.print(Text(f"\nwritten to {options.out}/", style="dim"))
    return 0


def keep(machine: dict[str, Any], results: Sequence[WorkResult], out: Path) -> None:
    """Write the results so far."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "bench.md").write_text(pages.markdown(machine, results), encoding="utf-8")
    data = json.dumps(to_data(machine, results), indent=2)
    (out / "bench.json").write_text(data + "\n", encoding="utf-8")


def print_result(result: WorkResult, console: Console) -> None:
    """Print one piece of work: a table per quantity, then remarks, then the contenders without
    figures and why.
    """
    console.print(Text(f"\n{result.title}", style="bold"))
    console.print(Text(result.how, style="dim"))
    for quantity in result.quantities:
        header, *rows = [row[:-1] for row in result_table(result, quantity) if row[1] != "–"]
        table = figures_table(*header, whole=True)
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)
    for m in result.measurements:
        if m.missing:
            console.print(Text(f"{m.name}: ", style="yellow") + Text(m.missing))
        elif m.note:
            console.print(Text(f"{m.name}: {m.note}", style="dim"))


def run(work: Workload, options: argparse.Namespace, console: Console) -> WorkResult:
    """Measure one workload."""
    rounds = min(options.rounds, work.most_rounds) if work.most_rounds else options.rounds
    with progress(console) as say:
        measured = measure_rounds(
            work.contenders(),
            rounds,
            options.seconds,
            warm_up=work.warm_up,
            say=lambda text: say(f"{work.key}: {text}"),
        )
    return WorkResult(work.key, work.title, work.how, measured)


if __name__ == "__main__":
    sys.exit(main())
