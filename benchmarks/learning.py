"""Whole loops of A2C and PPO on Pong: `python -m benchmarks.learning` prints their tables.

Pong with atari, framestack:4 and monitor (peers: their own wrappers), n = 8 and 16, and the net of
Mnih et al. (2013). The loops are the same for every vector environment. PyTorch's threads of OpenMP
spin for a while after each parallel computation (their default), sleep at once
(OMP_WAIT_POLICY=PASSIVE, set before torch is imported), or there is one thread
(torch.set_num_threads(1)); "one to act" has one while it acts and all while it updates. Each of
these has a process of its own, and all take turns. One table has agent steps a second; in brackets
how many times as many our default has beside the same threads. The other has the milliseconds of a
vector step: what this process computes in `step`, what it waits for there, acting and updating. It
takes five minutes on a quiet machine of two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from benchmarks.measure import CannotRun, Contender, Measurement, Sample, WorkResult, measure_rounds
from benchmarks.pages import publish, table
from benchmarks.report import describe_machine, figure, machine_line

LEAD = "vecwrap, default"
NAMES = (
    LEAD,
    "vecwrap shmem, no parent_share",
    "vecwrap dummy",
    "Gymnasium Sync",
    "Gymnasium Async",
    "SB3 SubprocVecEnv",
)
ON_REQUEST = ("vecwrap shmem, workers=8",)
LOOP_NAMES = ("A2C", "PPO")
STAGES = ("environments", "waiting", "acting", "updating")
THREADS: Mapping[str, tuple[Mapping[str, str], Sequence[str]]] = {
    "spinning": ({}, ()),
    "passive": ({"OMP_WAIT_POLICY": "PASSIVE"}, ()),
    "one thread": ({}, ("--torch-threads", "1")),
    "one to act": ({}, ("--acting-threads", "1")),
}
STAGES_ON_PAGE = (LEAD, "Gymnasium Async")
BEGIN = "<!-- loops: written by `python -m benchmarks.learning --publish` -->"
END = "<!-- end of loops -->"
OF_OPENMP = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Process:
    """A process that has the environments of one n beside one setting of threads."""

    def __init__(self, n: int, threads: str) -> None:
        variables, arguments = THREADS[threads]
        kept = {name: value for name, value in os.environ.items() if name not in OF_OPENMP}
        command = [sys.executable, "-m", "benchmarks.learning_process", "--n", str(n), *arguments]
        self._process = subprocess.Popen(
            command,
            env={**kept, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *question: Any) -> dict[str, Any]:
        """Return the answer of `learning_process.Side`; CannotRun if a contender cannot run."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {question[0]} has ended; its last words are above")
        answer: dict[str, Any] = json.loads(line)
        if "cannot" in answer:
            raise CannotRun(answer["cannot"])
        return answer

    def close(self) -> None:
        """End it, once its environments are closed."""
        self._process.communicate()


class LoopSampler:
    """A loop over an environment that another process has."""

    def __init__(self, process: Process, name: str, loop: str) -> None:
        self._process = process
        self._name = name
        self._loop = loop

    def sample(self, seconds: float) -> Sample:
        return self._process.ask(self._name, self._loop, seconds)

    def close(self) -> None:
        """The process closes its environments itself."""


def open_loop(process: Process, opened: set[Any], name: str, loop: str) -> LoopSampler:
    """Open an environment with the first loop over it."""
    if (process, name) not in opened:
        process.ask(name)
        opened.add((process, name))
    return LoopSampler(process, name, loop)


def measure(
    n: int,
    names: Sequence[str],
    loops: Sequence[str],
    threads: Sequence[str],
    rounds: int,
    seconds: float,
    make_process: Callable[[int, str], Any] = Process,
) -> list[Measurement]:
    """Measure each contender, loop and setting of threads in turn; names as of ``name_of``."""
    with contextlib.ExitStack() as stack:
        contenders = []
        opened: set[Any] = set()
        for setting in threads:
            process = make_process(n, setting)
            stack.callback(process.close)
            for name in names:
                side = "ours" if name.startswith("vecwrap") else "peer"
                contenders += [
                    Contender(
                        name_of(loop, setting, name),
                        side,
                        partial(open_loop, process, opened, name, loop),
                    )
                    for loop in loops
                ]
        return measure_rounds(contenders, rounds, seconds, warm_up=False)


def name_of(loop: str, threads: str, name: str) -> str:
    return f"{loop}, {threads}: {name}"


def rates(
    measured: Mapping[str, Measurement], loop: str, names: Sequence[str], threads: Sequence[str]
) -> list[list[str]]:
    """A row for each contender and a column for each setting of threads."""
    rows = [[f"{loop}, agent steps a second", *threads]]
    for name in names:
        cells = [name]
        for setting in threads:
            each = measured[name_of(loop, setting, name)]
            beside = [measured[name_of(loop, setting, other)] for other in names]
            ratio = WorkResult("", "", "", beside).ratio(each)
            cell = each.missing or figure(each.median("rate") or 0.0)
            if ratio is not None:
                cell += f" ({ratio.of_medians:.2f} ×)"
            cells.append(cell)
        rows.append(cells)
    return rows


def stage_times(
    measured: Mapping[str, Measurement], loop: str, names: Sequence[str], threads: Sequence[str]
) -> list[list[str]]:
    """A row for each contender and setting of threads, and a column for each stage."""
    rows = [[f"{loop}, ms a vector step", "threads", *STAGES]]
    for name in names:
        for setting in threads:
            each = measured[name_of(loop, setting, name)]
            if not each.missing:
                values = [median(each.values(stage)) for stage in STAGES]
                rows.append([name, setting, *(f"{value:.1f}" for value in values)])
    return rows


def tables(
    measured: Mapping[str, Measurement],
    n: int,
    loops: Sequence[str],
    names: Sequence[str],
    threads: Sequence[str],
    stages_of: Sequence[str],
) -> str:
    """Return the tables of one n; those of stages have some of the names only."""
    parts = []
    for loop in loops:
        for rows in (
            rates(measured, loop, names, threads),
            stage_times(measured, loop, stages_of, threads),
        ):
            rows[0][0] = f"n={n}, {rows[0][0]}"
            parts.append(table(rows))
    return "\n".join(parts)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learning",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--n", type=int, action="append", help="8 and 16; may be repeated")
    parser.add_argument(
        "--only", choices=NAMES + ON_REQUEST, action="append", help="may be repeated"
    )
    parser.add_argument("--loop", choices=LOOP_NAMES, action="append", help="may be repeated")
    parser.add_argument("--threads", choices=THREADS, action="append", help="may be repeated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one loop in one round")
    parser.add_argument(
        "--publish", action="store_true", help="write the tables into docs/performance.md too"
    )
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> None:
    options = arguments(given)
    names = options.only or NAMES
    loops = options.loop or LOOP_NAMES
    threads = options.threads or list(THREADS)
    machine = describe_machine()
    page = [f"Measured on: {machine_line(machine)}. Load before: {machine['load']}.\n"]
    print(page[0], flush=True)
    for n in options.n or (8, 16):
        measured = {
            each.name: each
            for each in measure(n, names, loops, threads, options.rounds, options.seconds)
        }
        print(tables(measured, n, loops, names, threads, names), flush=True)
        few = [name for name in STAGES_ON_PAGE if name in names]
        page.append(tables(measured, n, loops, names, threads, few))
    if options.publish:
        publish("\n".join(page), begin=BEGIN, end=END)


if __name__ == "__main__":
    main()
