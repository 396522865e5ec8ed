"""`make baseline`: this tree beside 0.1.0 and Gymnasium's Sync, in one run, in turns.

Every case is opened by each contender in an interpreter of its own; they take turns, so that what
changes on the host meets all of them. Printed are the median microseconds of a vector step, and the
median over the turns of how many times faster this tree is than each other contender in the same
turn (above 1: this tree is faster).
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

LOOP = Path(__file__).with_name("baseline_loop.py")
CHAINS = {"": [], "monitor": ["monitor"], "chain": ["framestack:4", "normalize", "monitor"]}
PONG = ["atari", "framestack:4", "monitor"]


@dataclass(frozen=True)
class Case:
    """One environment, and how it is stepped; ``peer`` says whether Gymnasium's Sync takes part."""

    key: str
    env: str = "CartPole-v1"
    n: int = 8
    wrappers: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    balance: bool = False
    batch_size: int | None = None
    peer: bool = False


def cases() -> Iterator[Case]:
    """All cases, by key."""
    product = itertools.product((1, 8, 64), ("dummy", "shmem"), CHAINS.items(), (True, False))
    for n, backend, (name, wrappers), balance in product:
        key = "-".join(
            filter(None, ["cartpole", str(n), backend, name, "long" if balance else "random"])
        )
        has_peer = name != "chain"  # Gymnasium does not normalise observations in same-step mode
        yield Case(
            key,
            n=n,
            wrappers=wrappers,
            options={"backend": backend},
            balance=balance,
            peer=has_peer,
        )
    shmem = {"backend": "shmem"}
    yield Case("pong-8-shmem", "PongNoFrameskip-v4", wrappers=PONG, options=shmem)
    yield Case("send-recv-8-shmem", options={**shmem, "batch_size": 4}, batch_size=4)
    yield Case("restart-8-shmem", options={**shmem, "on_failure": "restart"})
    yield Case("next-step-8-shmem", options={**shmem, "autoreset": "next_step"})
    yield Case("next-step-8-dummy", options={"backend": "dummy", "autoreset": "next_step"})
    yield Case("subprocess-8", options={"backend": "subprocess"})


class Contender:
    """A process that runs `baseline_loop.py` in some interpreter."""

    def __init__(self, python: str, case: Case, peer: bool) -> None:
        words = [python, str(LOOP), json.dumps({**vars(case), "peer": peer})]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def read(self) -> str:
        """The next line of its answers."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(
                f"a contender ended with status {self.process.wait()}: {self.process.args!r}"
            )
        return line.strip()

    def measure(self, seconds: float) -> float:
        """Steps a second of one turn."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return float(self.read())

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def measure(
    case: Case, pythons: dict[str, str], turns: int, seconds: float
) -> dict[str, list[float]]:
    """Steps a second of every contender, turn by turn."""
    contenders = {name: Contender(python, case, peer=False) for name, python in pythons.items()}
    if case.peer:
        contenders["Gymnasium Sync"] = Contender(sys.executable, case, peer=True)
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    try:
        for contender in contenders.values():
            contender.read()
        for turn in range(turns):
            order = (
                list(contenders)[turn % len(contenders) :]
                + list(contenders)[: turn % len(contenders)]
            )
            for name in order:
                rates[name].append(contenders[name].measure(seconds))
    finally:
        for contender in contenders.values():
            contender.close()
    return rates


def ratio(ours: list[float], others: list[float]) -> float:
    """The median of the ratios within each turn."""
    return statistics.median(our / other for our, other in zip(ours, others, strict=True))


def main() -> None:
    """Measure the chosen cases and print a table; with ``--out`` every turn as JSON too."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.baseline", description=__doc__)
    parser.add_argument(
        "--against", required=True, help="the interpreter that has the other vecwrap"
    )
    parser.add_argument(
        "--name", default="0.1.0", help="what that vecwrap is called (default: 0.1.0)"
    )
    parser.add_argument(
        "--only", default="", help="cases whose key contains one of these, with commas"
    )
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument("--out", type=Path, help="a file for all turns, as JSON")
    options = parser.parse_args()
    wanted = [part for part in options.only.split(",") if part]
    chosen = [case for case in cases() if not wanted or any(part in case.key for part in wanted)]
    pythons = {"this tree": sys.executable, options.name: options.against}
    table = Table(
        Column("case", no_wrap=True),
        "this tree, µs",
        f"{options.name}, µs",
        "Sync, µs",
        f"× {options.name}",
        "× Sync",
    )
    turns: dict[str, dict[str, list[float]]] = {}
    console = Console()
    for case in chosen:
        rates = turns[case.key] = measure(case, pythons, options.turns, options.seconds)
        ours, before, sync = rates["this tree"], rates[options.name], rates.get("Gymnasium Sync")
        micros = [
            f"{1e6 / statistics.median(each):.1f}" if each else "" for each in (ours, before, sync)
        ]
        ratios = [f"{ratio(ours, each):.2f}" if each else "" for each in (before, sync)]
        table.add_row(case.key, *micros, *ratios)
        console.print(f"{case.key}: {micros[0]} µs, × {ratios[0]}", style="dim")
    console.print(table)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(turns))


if __name__ == "__main__":
    main()
