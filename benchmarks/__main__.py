"""`make bench`: every workload with our backends and the peers interleaved."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from benchmarks import pages
from benchmarks.environments import loops_per_microsecond
from benchmarks.workloads import Workload, workloads
from vecwrap.cli.measure import print_result, progress
from vecwrap.tools.measure import WorkResult, measure_rounds
from vecwrap.tools.report import describe_machine, machine_line, to_data

INTERRUPTED = 130  # 128 + SIGINT, as in shells
WIDTH = 160  # of tables that go to a file or a pipe


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog='Example: make bench BENCH_ARGS="--only cartpole-8,pong-8 --rounds 3"',
    )
    parser.add_argument("--only", metavar="KEYS", help="these workloads alone, with commas; see --list")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each contender (default: 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a sample lasts (default: 1)")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"), help="folder for files (default: runs/bench)")
    parser.add_argument("--publish", action="store_true", help="write the tables into docs/performance.md too")
    parser.add_argument("--list", action="store_true", help="print the keys and what they stand for")
    chosen = parser.parse_args(given)
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error(f"expected --rounds of 1 or more and --seconds above 0, got {chosen.rounds} and {chosen.seconds}")
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    """Run what was chosen; return the exit status: 0; 2 for an unknown key; 130 after Ctrl-C."""
    options = arguments(given)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, no_color=True, width=WIDTH, soft_wrap=True)
    machine = describe_machine()  # first: afterwards the load is our own
    machine["loops_per_us"] = loops_per_microsecond()
    works = workloads(machine["loops_per_us"])
    titles = {work.key: work.title for work in works}
    if options.list:
        for key, title in titles.items():
            print(f"{key:16} {title}")
        return 0
    keys = options.only.split(",") if options.only else list(titles)
    if unknown := [key for key in keys if key not in titles]:
        print(f"--only: there is no {', '.join(unknown)}; known are {', '.join(titles)}", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")  # the peers' own, which do not concern a reader here
    console.print(Text(machine_line(machine), style="dim"))
    results: list[WorkResult] = []
    status = 0

    def keep() -> None:
        """Write the results so far, in case the run is killed later."""
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "bench.md").write_text(pages.markdown(machine, results), encoding="utf-8")
        data = json.dumps(to_data(machine, results), indent=2)
        (options.out / "bench.json").write_text(data + "\n", encoding="utf-8")

    try:
        for work in works:
            if work.key in keys:
                results.append(run(work, options, console))
                print_result(results[-1], console)
                keep()
    except KeyboardInterrupt:
        console.print(Text("\ninterrupted; what was measured until then is kept", style="yellow"))
        status = INTERRUPTED
    if options.publish and not status:
        pages.publish(pages.tables(machine, results))
    console.print(Text(f"\nwritten to {options.out}/", style="dim"))
    return status


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
