"""How costs grow: with the number of sub-environments, with an observation's bytes, with workers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.environments import BYTES, NOTHING, WORK
from benchmarks.peers import ALL_PEERS
from vecwrap.backends.cores import usable_cores
from vecwrap.bench.contender import Contender
from vecwrap.bench.ours import built, ideal
from vecwrap.bench.peers import peer_contenders
from vecwrap.bench.report import figure
from vecwrap.bench.results import Measurement
from vecwrap.bench.rounds import measure_rounds
from vecwrap.plan import plan
from vecwrap.spec import PipelineSpec

__all__ = ["Curve", "Grown", "curves", "measure", "print_curve"]

COUNTS = (1, 8, 64, 512, 1024)
SIZES = (32, 1024, 32 * 1024, 256 * 1024, 1024 * 1024)
MOST_PROCESSES = 64  # a peer with a process per sub-environment is not run with more
IDEAL = "ideal"
OURS = "vecwrap shmem"
ONE_PROCESS = "vecwrap dummy (one process)"


@dataclass(frozen=True)
class Curve:
    """One plot, not yet measured.

    Attributes:
        key: its short name, and the file's.
        title: what it shows.
        across: what grows, for the axis.
        points: its values.
        contenders: those at one point.
        everywhere: contenders that are the same at all points, and so measured once per round.
        overhead: whether to show the overhead of a step, in µs, rather than steps per second.
    """

    key: str
    title: str
    across: str
    points: tuple[int, ...]
    contenders: Callable[[int], Sequence[Contender]]
    everywhere: Callable[[], Sequence[Contender]] = tuple
    overhead: bool = True


@dataclass
class Grown:
    """A curve with its figures.

    Attributes:
        curve: which.
        lines: by contender, its points and their medians: µs of overhead per environment step, or env steps/s.
    """

    curve: Curve
    lines: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def to_data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"key": self.curve.key, "title": self.curve.title, "across": self.curve.across, "lines": self.lines}


def curves(loops_per_us: float) -> list[Curve]:
    """Return all curves."""
    cores = usable_cores()
    workers = tuple(range(1, 4 * cores + 1)) if cores <= 2 else tuple(cores * k // 2 for k in range(1, 9))
    work = {"microseconds": 100, "loops_per_us": loops_per_us}
    by_workers = [
        ("cartpole", "CartPole-v1", PipelineSpec("CartPole-v1", n=16 * cores)),
        ("work", "a step that computes for 100 µs", PipelineSpec(WORK, n=16 * cores, env_kwargs=work)),
    ]
    return [
        *(
            Curve(
                f"growth-{name}",
                words,
                "sub-environments",
                COUNTS,
                functools.partial(_by_count, env),
                lambda env=env: [ideal(plan(PipelineSpec(env)))],
            )
            for name, words, env in (
                ("cartpole", "CartPole-v1", "CartPole-v1"),
                ("nothing", "a step that does nothing", NOTHING),
            )
        ),
        Curve("growth-bytes", "bytes of an observation, n=8", "bytes", SIZES, _by_bytes),
        *(
            Curve(
                f"growth-workers-{name}",
                f"{words}, n={spec.n}",
                "workers",
                workers,
                functools.partial(_by_workers, spec),
                lambda spec=spec: [built(ONE_PROCESS, spec.override(backend="dummy")), ideal(plan(spec))],
                overhead=False,
            )
            for name, words, spec in by_workers
        ),
    ]


def _by_count(env: str, n: int) -> list[Contender]:
    spec = PipelineSpec(env, n=n)
    planned = plan(spec)
    contenders = [
        built(OURS, spec.override(backend="shmem")),
        built("vecwrap dummy", spec.override(backend="dummy")),
    ]
    if n <= MOST_PROCESSES:
        contenders += [
            each for each in peer_contenders(ALL_PEERS["gymnasium"], planned) if each.name == "Gymnasium Async"
        ]
    return [*contenders, *peer_contenders(ALL_PEERS["envpool"], planned)]


def _by_bytes(size: int) -> list[Contender]:
    spec = PipelineSpec(BYTES, n=8, backend="shmem", env_kwargs={"size": size})
    planned = plan(spec)
    peers = [each for each in peer_contenders(ALL_PEERS["gymnasium"], planned) if each.name == "Gymnasium Async"]
    ours = [built(OURS, spec), built("vecwrap shmem, copy=False", spec.override(copy=False))]
    return [*ours, *peers, ideal(planned)]


def _by_workers(spec: PipelineSpec, workers: int) -> list[Contender]:
    return [built(OURS, spec.override(backend={"name": "shmem", "workers": workers}))]


def measure(curve: Curve, rounds: int, seconds: float, say: Callable[[str], None]) -> Grown:
    """Measure a curve. All contenders at all points are interleaved, because points are compared with each other."""
    everywhere = curve.everywhere()
    at = {x: curve.contenders(x) for x in curve.points}
    apart = [replace(each, name=_at(each.name, x)) for x, contenders in at.items() for each in contenders]
    measured = {
        each.name: each
        for each in measure_rounds([*everywhere, *apart], rounds, seconds, say=lambda text: say(f"{curve.key}: {text}"))
    }
    grown = Grown(curve)
    for x, contenders in at.items():
        here = [(each, measured[each.name]) for each in everywhere]
        here += [(each, measured[_at(each.name, x)]) for each in contenders]
        for name, value in _values(here, curve.overhead):
            grown.lines.setdefault(name, []).append((x, value))
    return grown


def _at(name: str, x: int) -> str:
    """The name of a contender at one point of a curve."""
    return f"{name}, at {x:,}"


def _values(measured: Iterable[tuple[Contender, Measurement]], overhead: bool) -> list[tuple[str, float]]:
    """The values of a curve at one point.

    The overhead of a step is how much longer it takes than the ideal's, in µs: the part that no core's work explains.
    """
    rates = {(IDEAL if each.side == "reference" else each.name): m.median("rate") for each, m in measured}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if not overhead:
        return list(known.items())
    best = known.pop(IDEAL)
    return [(name, 1e6 / rate - 1e6 / best) for name, rate in known.items()]


def print_curve(grown: Grown, console: Console) -> None:
    """Print a curve's figures."""
    curve = grown.curve
    unit = "µs of overhead per environment step" if curve.overhead else "env steps/s"
    console.print(Text(f"\n{curve.title}: {unit}", style="bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(curve.across)
    for x in curve.points:
        table.add_column(f"{x:,}", justify="right")
    for name, points in grown.lines.items():
        values = dict(points)
        table.add_row(name, *(figure(values[x]) if x in values else "–" for x in curve.points))
    console.print(table)
