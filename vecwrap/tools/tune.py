"""Try the ways to run a pipeline on this machine, and recommend one.

Every measurement runs in its own process, which is killed at its deadline, so the time is bounded whatever an
environment does. What is derived from the measurements (``candidates``, ``recommend``) is pure.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

from vecwrap.backends.workers.cores import usable_cores
from vecwrap.backends.workers.options import WorkerOptions
from vecwrap.env.options import option_names
from vecwrap.env.saving import refuse_unread
from vecwrap.errors import PlanError, SpecError, VecwrapError
from vecwrap.pipeline import registry
from vecwrap.pipeline.backends import find_runner
from vecwrap.pipeline.build import build_plan
from vecwrap.pipeline.plan import Plan, into, plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.step_result import Autoreset
from vecwrap.tools.bench import ASKED_FOR, driver
from vecwrap.tools.measure import SEED, Throughput, action_batches
from vecwrap.tools.processes import Ended, Measurer, TooLate, pss_mb

# Decided by tune; every other option of the pipeline's backend is the user's, and is kept.
TRIED = ("workers", "envs_per_worker", "parent_share")
# Options by which a user asks for worker processes, so that what happens there affects nothing else.
ISOLATION = (*WorkerOptions.LIMITS, "start_method")
CLUSTER = "ray"  # several machines; trying it would start a daemon that outlives the measuring process
MOST_WORKERS = 64
WAITING = 0.5  # of a core: a step that keeps less than this busy is waiting for something

TIE = 0.05  # smaller differences count as noise
CLOSE = 0.15  # candidates less than this behind the best are measured again
FINALISTS = 3

FOR_THE_ENV = 0.4  # of the budget, at most
FOR_THE_FINAL = 0.25  # of the budget, reserved for measuring again
END = 0.95  # of the budget; the rest is for closing
SAMPLES = 3  # of each candidate at first; in the final as many as time allows
MOST_ROUNDS = 9
LONGEST_SAMPLE = 1.0
LONGEST_LOOK = 2.0  # at one sub-environment's steps
MOST_STEPS = 20_000


@dataclass(frozen=True)
class EnvCost:
    """What one sub-environment costs, with the wrappers that run around each."""

    step_seconds: float  # mean
    step_spread: float  # half the range from the 5th to the 95th percentile: the tails reflect other load
    steps: int  # how many were measured
    busy: float  # cores that a step keeps busy: 1 computes, near 0 waits
    first_seconds: float  # its imports, making it, and its first reset

    @property
    def waits(self) -> bool:
        """Whether a step waits more than it computes."""
        return self.busy < WAITING

    def __str__(self) -> str:
        doing = "mostly waits" if self.waits else "computes"
        return f"a step {doing}: {1e6 * self.step_seconds:,.0f} µs ± {1e6 * self.step_spread:,.0f}"


@dataclass(frozen=True)
class Candidate:
    """A way to run the pipeline: with ``processes`` workers, and with ``recv`` of ``batch_size`` rows or ``step``."""

    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int | None = None
    processes: int = 0

    @property
    def name(self) -> str:
        """As tables write it: only what is tried, as the other options are the pipeline's own."""
        parts = [self.backend, *(f"{key}={json.dumps(self.options[key])}" for key in self.options if key in TRIED)]
        return ", ".join(parts + ([f"recv of {self.batch_size}"] if self.batch_size is not None else []))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it replaces in the pipeline."""
        return {"backend": {"name": self.backend, **self.options}, "batch_size": self.batch_size}

    def lines(self, *, evaluation: bool = False) -> tuple[str, ...]:
        """Lines to paste into a pipeline's file: for the pipeline itself, or for its section ``eval``."""
        return tuple(self._spec(evaluation).to_yaml().splitlines()[1:])

    def in_a_line(self, *, evaluation: bool = False) -> str | None:
        """The same for a one-line pipeline; None if a line cannot express it."""
        try:
            return self._spec(evaluation).format().partition(" ")[2]
        except SpecError:
            return None

    def _spec(self, evaluation: bool) -> PipelineSpec:
        """A pipeline with these settings and an environment, which comes first."""
        if evaluation:
            return PipelineSpec("ENV", eval={key: value for key, value in self.settings.items() if value is not None})
        return PipelineSpec("ENV", **self.settings)

    @property
    def simplicity(self) -> tuple[bool, bool, int, int]:
        """A sort key, lower is simpler: only this process; no share in the parent; fewer workers; fewer options."""
        return self.processes > 0, bool(self.options.get("parent_share")), self.processes, len(self.options)


@dataclass(frozen=True)
class Trial:
    """The results of a candidate; if there are no rates, ``failed`` says why."""

    candidate: Candidate
    rates: tuple[float, ...] = ()  # agent steps per second over all sub-environments, one per sample
    start_seconds: float | None = None  # from ``build`` to the first observations
    memory_mb: float | None = None  # of all its processes; None if unknown
    failed: str = ""

    @property
    def rate(self) -> float:
        """The median of the samples."""
        return median(self.rates)

    @property
    def spread(self) -> float:
        """Half the range of the samples, as a fraction of the median."""
        return (max(self.rates) - min(self.rates)) / (2 * self.rate) if self.rate else 0.0


# -- what to try ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BackendKind:
    """A backend with the names of its options."""

    name: str
    options: frozenset[str]

    def takes(self, option: str) -> bool:
        """Whether it has an option."""
        return option in self.options


@dataclass(frozen=True)
class Situation:
    """The pipeline and the machine to choose for."""

    n: int
    cores: int
    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int | None = None
    favourite: str = "shmem"  # the backend that ``auto`` chooses; its workers and batches are varied
    shares: bool = False  # whether that gives this process a share by default

    @property
    def kept(self) -> dict[str, Any]:
        """The options that tune does not decide."""
        return {key: value for key, value in self.options.items() if key not in TRIED and value is not None}

    @property
    def isolated(self) -> bool:
        """Whether the user asks for separate processes."""
        return any(key in self.kept for key in ISOLATION) or self.kept.get("on_failure") == "restart"


def backend_kinds() -> list[BackendKind]:
    """Return all named backends, including those of other packages, except any that cannot be imported."""
    kinds = []
    for name in registry.backends.names():
        try:
            kinds.append(BackendKind(name, frozenset(option_names(find_runner(name, name).Options))))
        except (SpecError, PlanError):
            continue
    return kinds


def candidates(kinds: Iterable[BackendKind], now: Situation, cost: EnvCost) -> list[Candidate]:
    """Choose what to try, the current settings first; only backends that have the options which the pipeline sets."""
    usable = [
        kind for kind in kinds if all(map(kind.takes, now.kept)) and (kind.name != CLUSTER or now.backend == CLUSTER)
    ]
    in_process = [kind for kind in usable if not kind.takes("workers")]
    with_workers = [kind for kind in usable if kind.takes("workers")]
    found = [_present(now, in_process), *(_candidate(kind, now) for kind in in_process)]
    for kind in sorted(with_workers, key=lambda kind: kind.name != now.favourite):
        found.append(_candidate(kind, now))
        if kind.name == now.favourite:
            found += _variants(kind, now, cost)
    return [one for number, one in enumerate(found) if one not in found[:number]]


def _variants(kind: BackendKind, now: Situation, cost: EnvCost) -> list[Candidate]:
    """The backend with the most to gain: the parent's share, numbers of workers, batch sizes."""
    found = []
    if kind.takes("parent_share") and not now.isolated and now.batch_size is None:
        found.append(_candidate(kind, now, parent_share=not now.shares))
    one_each = min(now.n, MOST_WORKERS)
    counts = {now.cores * 2, now.cores // 2, *([one_each] if cost.waits else [])} - {min(now.cores, now.n)}
    found += [_candidate(kind, now, workers=count) for count in sorted(counts, reverse=True) if 1 <= count <= now.n]
    sizes = [now.n // 2] if now.batch_size is None else [now.batch_size // 2, now.batch_size * 2]
    for size in sizes:
        if 1 <= size <= now.n:
            if cost.waits:
                found.append(_candidate(kind, now, size, workers=one_each))
            found.append(_candidate(kind, now, size))
    return found


def _candidate(kind: BackendKind, now: Situation, batch_size: int | None = None, **tried: Any) -> Candidate:
    workers = tried.get("workers", now.cores) if kind.takes("workers") else 0
    size = now.batch_size if batch_size is None else batch_size
    return Candidate(kind.name, {**tried, **now.kept}, size, min(workers, now.n))


def _present(now: Situation, in_process: Iterable[BackendKind]) -> Candidate:
    """The pipeline's current settings."""
    options = {key: value for key, value in now.options.items() if value is not None}
    each = options.get("envs_per_worker")
    workers = options.get("workers") or (-(-now.n // each) if each else min(now.cores, now.n))
    here = now.backend in {kind.name for kind in in_process}
    return Candidate(now.backend, options, now.batch_size, 0 if here else workers)


# -- what to recommend ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recommendation:
    """What to write into the pipeline, and why; ``other`` is better still, for a loop that calls send and recv."""

    candidate: Candidate
    reason: str
    other: Candidate | None = None
    other_reason: str = ""


def recommend(
    trials: Iterable[Trial], cost: EnvCost, *, batch_size: int | None, now: Candidate
) -> Recommendation | None:
    """Choose the fastest, or the simplest of those as fast but for noise; None if the pipeline's own loop has no rates.

    Candidates with another ``batch_size`` than the pipeline's need another loop, and are recommended separately.
    """
    measured = [trial for trial in trials if trial.rates]
    same_loop = [trial for trial in measured if trial.candidate.batch_size == batch_size]
    if not same_loop:
        return None
    best = max(same_loop, key=lambda trial: trial.rate)
    tied = [trial for trial in same_loop if trial.rate >= (1 - TIE) * best.rate]
    chosen = min(tied, key=lambda trial: (trial.candidate.simplicity, -trial.rate))
    if chosen is best:
        reason = f"It is the quickest: {chosen.rate:,.0f} agent steps/s, and {cost}."
    else:
        reason = (
            f"It is the simplest of those that are as quick: {chosen.rate:,.0f} agent steps/s. {best.candidate.name} "
            f"did {best.rate / chosen.rate - 1:.0%} more, which may be noise; {cost}."
        )
    if chosen.candidate == now:
        reason += " The pipeline has it already."
    else:
        present = [trial for trial in same_loop if trial.candidate == now]
        reason += "".join(f" What the pipeline has now, {now.name}, did {trial.rate:,.0f}." for trial in present)
    others = [trial for trial in measured if trial.candidate.batch_size != batch_size]
    other = max(others, key=lambda trial: trial.rate, default=None)
    if other is None or other.rate * (1 - TIE) <= chosen.rate:
        return Recommendation(chosen.candidate, reason)
    times = f"{other.rate / chosen.rate:.2f} × that ({other.rate:,.0f} agent steps/s)"
    return Recommendation(chosen.candidate, reason, other.candidate, times)


# -- the search -------------------------------------------------------------------------------------------------------


@dataclass
class Tuned:
    """The results of a search; no recommendation if none with the pipeline's ``batch_size`` has rates."""

    situation: Situation
    now: Candidate
    cost: EnvCost
    trials: list[Trial]
    mode: str  # the autoreset mode of the measurements
    recommendation: Recommendation | None


@dataclass
class Search:
    """A search for the best backend within a budget of seconds; the pipeline's files go to a temporary folder."""

    spec: PipelineSpec
    budget: float
    say: Callable[[str], None] = lambda text: None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._start = self.clock()
        self._opening = 0.0  # seconds for an interpreter, imports and an environment: no candidate takes much less

    def run(self) -> Tuned:
        """Measure, try, and recommend; VecwrapError if not even one sub-environment could be measured in time."""
        mode = Autoreset.parse(self.spec.autoreset)
        if mode in ASKED_FOR:  # when to request resets is up to the user's loop
            mode = Autoreset.SAME_STEP
        spec = self.spec.override(autoreset=mode.value)
        planned = plan(spec)
        refuse_unread(planned.pipeline.stats, spec.where("stats"))  # here, rather than in every candidate
        with tempfile.TemporaryDirectory(prefix="vecwrap-tune-") as folder:
            data = plan(into(spec, Path(folder))).pipeline.to_dict()
            data.pop("eval", None)
            cost = self._measured_env(data)
            situation = _situation(planned, spec)
            wanted = candidates(backend_kinds(), situation, cost)
            trials = self._final(self._tried(wanted, data), data)
        recommendation = recommend(trials, cost, batch_size=spec.batch_size, now=wanted[0])
        return Tuned(situation, wanted[0], cost, trials, mode.value, recommendation)

    def _until(self, share: float) -> float:
        return self._start + share * self.budget

    def _measured_env(self, data: Mapping[str, Any]) -> EnvCost:
        self.say("one sub-environment")
        end = self._until(FOR_THE_ENV)
        try:
            with Measurer(partial(measure_env, data, min(LONGEST_LOOK, 0.1 * self.budget))) as process:
                cost = EnvCost(**process.hear(end))
        except TooLate:
            raise VecwrapError(
                f"tune: one sub-environment was not made, reset and stepped within {FOR_THE_ENV:.0%} of --budget "
                f"{self.budget:g}s; give more, or see what it does there."
            ) from None
        except Ended as error:
            raise VecwrapError(f"tune: one sub-environment, by itself, failed: {error}") from None
        self._opening = self.clock() - self._start - cost.steps * cost.step_seconds
        return cost

    def _tried(self, wanted: Sequence[Candidate], data: Mapping[str, Any]) -> list[Trial]:
        """Try one after the other: better a few, and rows that say that they were not tried, than many cut off."""
        end = self._until(END - FOR_THE_FINAL)
        trials = []
        for number, candidate in enumerate(wanted):
            now = self.clock()
            if end - now < self._opening:
                trials.append(Trial(candidate, failed="not tried: no time left"))
                continue
            self.say(f"{number + 1} of {len(wanted)}: {candidate.name}")
            fair = (end - now) / (len(wanted) - number)
            deadline = min(end, now + max(2 * fair, 3 * self._opening))
            trials.append(self._one_by_one(candidate, data, min(LONGEST_SAMPLE, fair / (2 * SAMPLES)), deadline))
        return trials

    def _one_by_one(self, candidate: Candidate, data: Mapping[str, Any], length: float, deadline: float) -> Trial:
        began = self.clock()
        trial = Trial(candidate)
        rates: list[float] = []
        try:
            with Measurer(partial(try_candidate, {**data, **candidate.settings})) as process:
                trial = dataclasses.replace(trial, **process.hear(deadline))
                for _ in range(SAMPLES):
                    process.ask(length)
                    rates.append(process.hear(deadline))
        except TooLate:
            if not rates:
                what = "start" if trial.start_seconds is None else "finish a sample"
                why = f"did not {what} within {deadline - began:.1f} s"
                return dataclasses.replace(trial, failed=why)
        except Ended as error:
            return dataclasses.replace(trial, failed=str(error))
        return dataclasses.replace(trial, rates=tuple(rates))

    def _final(self, trials: list[Trial], data: Mapping[str, Any]) -> list[Trial]:
        """Measure the best few again in turn, all open at once, so that disturbances affect all alike."""
        mine = [trial for trial in trials if trial.rates and trial.candidate.batch_size == self.spec.batch_size]
        mine.sort(key=lambda trial: -trial.rate)
        best = [trial for trial in mine if trial.rate >= (1 - CLOSE) * mine[0].rate][:FINALISTS]
        if len(best) < 2:
            return trials
        end = self._until(END)
        self.say(f"again: {' and '.join(trial.candidate.name for trial in best)}")
        rounds: list[list[float]] = []
        with contextlib.suppress(TooLate, Ended), contextlib.ExitStack() as stack:  # too late: all are killed at once
            jobs = [partial(try_candidate, {**data, **trial.candidate.settings}) for trial in best]
            processes = [stack.enter_context(Measurer(job)) for job in jobs]
            for process in processes:
                process.hear(end)
            length = min(LONGEST_SAMPLE, (end - self.clock()) / (MOST_ROUNDS * len(best)))
            for _ in range(MOST_ROUNDS):
                rates = []
                for process in processes:
                    process.ask(length)
                    rates.append(process.hear(end))
                rounds.append(rates)
        if len(rounds) < SAMPLES:
            return trials
        again = dict(zip(map(id, best), zip(*rounds, strict=True), strict=True))
        return [dataclasses.replace(trial, rates=again.get(id(trial), trial.rates)) for trial in trials]


def _situation(planned: Plan, spec: PipelineSpec) -> Situation:
    backend = planned.pipeline.backend
    # Where there are several, `auto` only estimates what is measured here: workers are tried as if it had chosen them.
    by_itself = plan(spec.override(backend="auto" if planned.n == 1 else "shmem"))
    favourite, shares = by_itself.pipeline.backend.name, bool(by_itself.backend_options.get("parent_share"))
    return Situation(planned.n, usable_cores(), backend.name, dict(backend.options), spec.batch_size, favourite, shares)


# -- what the measuring processes run ---------------------------------------------------------------------------------


def measure_env(pipeline: Mapping[str, Any], seconds: float, connection: Connection) -> None:
    """Make one sub-environment, reset it, and step it for some seconds; send the fields of an ``EnvCost``."""
    clock, computing = time.perf_counter, time.process_time
    start = clock()
    env = plan(PipelineSpec.from_dict(dict(pipeline))).factories[0]()
    env.reset(seed=SEED)
    first_seconds = clock() - start
    steps: list[float] = []
    computed: list[float] = []
    batches = action_batches(env.action_space, 1, as_list=True)
    began = clock()
    while not steps or (clock() - began < seconds and len(steps) < MOST_STEPS):
        (action,) = batches[len(steps) % len(batches)]
        start, start_computing = clock(), computing()
        _, _, terminated, truncated, _ = env.step(action)
        computed.append(computing() - start_computing)
        steps.append(clock() - start)
        if terminated or truncated:
            env.reset()
    twentieths = quantiles(steps, n=20) if len(steps) > 1 else [0.0]
    figures = {
        "step_seconds": fmean(steps),
        "step_spread": (twentieths[-1] - twentieths[0]) / 2,
        "steps": len(steps),
        "busy": busy_share(steps, computed),
        "first_seconds": first_seconds,
    }
    env.close()
    connection.send(("figures", figures))


def busy_share(steps: Sequence[float], computed: Sequence[float]) -> float:
    """Return how many cores steps keep busy on an idle machine, from the seconds that each took and computed.

    A step interrupted by another program seems to wait. So a quarter of the time is enough: the share reached by the
    busiest steps that together make up a quarter of all steps' time.

    >>> busy_share([1, 1, 1, 9], [1, 1, 1, 1])  # the last was interrupted
    1.0
    >>> busy_share([1, 1, 1, 99], [1, 1, 1, 1]) < 0.02  # now and then it waits, for most of the time
    True
    """
    quarter = sum(steps) / 4
    for share, seconds in sorted(((c / s, s) for s, c in zip(steps, computed, strict=True) if s), reverse=True):
        quarter -= seconds
        if quarter <= 0:
            return share
    return 1.0


def try_candidate(pipeline: Mapping[str, Any], connection: Connection) -> None:
    """Build the pipeline, send how long that took, then the rate of a sample for each length requested."""
    spec = PipelineSpec.from_dict(dict(pipeline))
    start = time.perf_counter()
    with build_plan(plan(spec)) as env:
        env.reset(seed=SEED)
        seconds = time.perf_counter() - start
        pids = [os.getpid(), *(worker.pid for worker in env.health().workers if worker.pid is not None)]
        parts = [part for pid in pids if (part := pss_mb(pid)) is not None]
        memory = sum(parts) if len(parts) == len(pids) else None
        connection.send(("started", {"start_seconds": seconds, "memory_mb": memory}))
        throughput = Throughput(driver(env, spec.batch_size), lambda: None)
        while True:
            connection.send(("rate", throughput.sample(connection.recv())["rate"]))
