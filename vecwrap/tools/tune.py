"""Try the ways to run a pipeline on this machine, and recommend one.

Every measurement runs in its own process, which is killed at its deadline, so the time is bounded whatever an
environment does. What is derived from the measurements (``candidates``, ``recommend``) is pure.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from vecwrap.backends.workers.cores import usable_cores
from vecwrap.env.options import option_names
from vecwrap.env.random_actions import RandomActions
from vecwrap.env.saving import refuse_unread
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import PlanError, SpecError, SubEnvError, VecwrapError
from vecwrap.pipeline import registry
from vecwrap.pipeline.backends import find_runner
from vecwrap.pipeline.build import build_plan
from vecwrap.pipeline.plan import Plan, into, plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.step_result import Autoreset
from vecwrap.tools.bench import ASKED_FOR, driver
from vecwrap.tools.measure import SEED, Throughput

# Decided by tune; every other option of the pipeline's backend is the user's, and is kept.
TRIED = ("workers", "envs_per_worker", "parent_share")
CLUSTER = "ray"  # several machines; trying it would start a daemon that outlives the measuring process
MOST_WORKERS = 64
WAITING = 0.5  # of a core: a step that keeps less than this busy is waiting for something
TIE = 0.1  # smaller differences count as noise

FOR_THE_ENV = 0.4  # of the budget, at most
END = 0.95  # of the budget; the rest is for closing
SAMPLES = 5
LONGEST_SAMPLE = 1.0
LONGEST_LOOK = 2.0  # at one sub-environment's steps


@dataclass(frozen=True)
class EnvCost:
    """What one sub-environment costs, with the wrappers that run around each."""

    step_seconds: float  # mean
    steps: int  # how many were measured
    busy: float  # cores that a step keeps busy: 1 computes, near 0 waits
    first_seconds: float  # its imports, making it, and its first reset

    @property
    def waits(self) -> bool:
        """Whether a step waits more than it computes."""
        return self.busy < WAITING

    def __str__(self) -> str:
        return f"a step {'mostly waits' if self.waits else 'computes'}: {1e6 * self.step_seconds:,.0f} µs"


@dataclass(frozen=True)
class Candidate:
    """A way to run the pipeline, with so many worker processes."""

    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    processes: int = 0

    @property
    def name(self) -> str:
        """As tables write it: only what is tried, as the other options are the pipeline's own."""
        tried = (f"{key}={json.dumps(self.options[key])}" for key in self.options if key in TRIED)
        return ", ".join([self.backend, *tried])

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it replaces in the pipeline."""
        return {"backend": {"name": self.backend, **self.options}}

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
        return PipelineSpec("ENV", **({"eval": self.settings} if evaluation else self.settings))

    @property
    def simplicity(self) -> tuple[bool, bool, int, int]:
        """A sort key, lower is simpler: only this process; no share in the parent; fewer workers; fewer options."""
        return self.processes > 0, bool(self.options.get("parent_share")), self.processes, len(self.options)


@dataclass(frozen=True)
class Trial:
    """The results of a candidate; if there are no rates, ``failed`` says why."""

    candidate: Candidate
    rates: Sequence[float] = ()  # agent steps per second over all sub-environments, one per sample
    start_seconds: float | None = None  # from ``build`` to the first observations
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
class Situation:
    """The pipeline and the machine to choose for."""

    n: int
    cores: int
    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int | None = None
    favourite: str = "shmem"  # the backend that ``auto`` chooses; its workers are varied
    shares: bool = False  # whether that gives this process a share by default

    @property
    def kept(self) -> dict[str, Any]:
        """The options that tune does not decide."""
        return {key: value for key, value in self.options.items() if key not in TRIED and value is not None}


def backend_options() -> dict[str, frozenset[str]]:
    """Return the names of the options of all backends that can be imported, those of other packages too."""
    found = {}
    for name in registry.backends.names():
        with contextlib.suppress(SpecError, PlanError):
            found[name] = frozenset(option_names(find_runner(name, name).Options))
    return found


def candidates(backends: Mapping[str, frozenset[str]], now: Situation, cost: EnvCost) -> list[Candidate]:
    """Choose what to try, the current settings first; only backends that have the options which the pipeline sets."""
    usable = [
        name
        for name, options in backends.items()
        if options.issuperset(now.kept) and (name != CLUSTER or now.backend == CLUSTER)
    ]
    with_workers = [name for name in usable if "workers" in backends[name]]
    in_process = [name for name in usable if name not in with_workers]
    found = [_present(now, in_process), *(Candidate(name, now.kept) for name in in_process)]
    for name in sorted(with_workers, key=lambda name: name != now.favourite):
        found.append(_with_workers(name, now))
        if name == now.favourite:
            if "parent_share" in backends[name] and not now.kept and now.batch_size is None:
                found.append(_with_workers(name, now, parent_share=not now.shares))
            one_each = [min(now.n, MOST_WORKERS)] if cost.waits else []
            counts = {now.cores * 2, now.cores // 2, *one_each} - {min(now.cores, now.n)}
            found += [_with_workers(name, now, workers=k) for k in sorted(counts, reverse=True) if 1 <= k <= now.n]
    return [one for number, one in enumerate(found) if one not in found[:number]]


def _with_workers(name: str, now: Situation, **tried: Any) -> Candidate:
    return Candidate(name, {**tried, **now.kept}, min(tried.get("workers", now.cores), now.n))


def _present(now: Situation, in_process: Sequence[str]) -> Candidate:
    """The pipeline's current settings."""
    options = {key: value for key, value in now.options.items() if value is not None}
    each = options.get("envs_per_worker")
    workers = options.get("workers") or (-(-now.n // each) if each else min(now.cores, now.n))
    return Candidate(now.backend, options, 0 if now.backend in in_process else workers)


# -- what to recommend ------------------------------------------------------------------------------------------------


def recommend(trials: Iterable[Trial], cost: EnvCost, now: Candidate) -> tuple[Candidate, str] | None:
    """Choose the fastest, or the simplest of those as fast but for noise, and say why; None if none has rates."""
    measured = [trial for trial in trials if trial.rates]
    if not measured:
        return None
    best = max(measured, key=lambda trial: trial.rate)
    tied = [trial for trial in measured if trial.rate >= (1 - TIE) * best.rate]
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
        present = [trial for trial in measured if trial.candidate == now]
        reason += "".join(f" What the pipeline has now, {now.name}, did {trial.rate:,.0f}." for trial in present)
    return chosen.candidate, reason


# -- the search -------------------------------------------------------------------------------------------------------


@dataclass
class Tuned:
    """The results of a search."""

    situation: Situation
    now: Candidate
    cost: EnvCost
    trials: list[Trial]
    mode: str  # the autoreset mode of the measurements
    recommended: Candidate | None  # None if no candidate has rates
    reason: str = ""


def search(
    spec: PipelineSpec,
    budget: float,
    say: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = time.monotonic,
) -> Tuned:
    """Measure, try, and recommend within so many seconds; the pipeline's files go to a temporary folder.

    VecwrapError: not even one sub-environment could be measured in time.
    """
    start = clock()
    mode = Autoreset.parse(spec.autoreset)
    if mode in ASKED_FOR:  # when to request resets is up to the user's loop
        mode = Autoreset.SAME_STEP
    spec = spec.override(autoreset=mode.value)
    planned = plan(spec)
    refuse_unread(planned.pipeline.stats, spec.where("stats"))  # here, rather than in every candidate
    with tempfile.TemporaryDirectory(prefix="vecwrap-tune-") as folder:
        data = plan(into(spec, Path(folder))).pipeline.to_dict()
        data.pop("eval", None)
        say("one sub-environment")
        try:
            cost = EnvCost(**measured("environment", data, FOR_THE_ENV * budget))
        except Failed as error:
            raise VecwrapError(
                f"tune: one sub-environment, by itself, failed: {error}. See what it does there, or give a larger "
                "--budget."
            ) from None
        opening = clock() - start - cost.steps * cost.step_seconds  # no candidate takes much less to start
        situation = _situation(planned, spec)
        wanted = candidates(backend_options(), situation, cost)
        trials = []
        for number, candidate in enumerate(wanted):
            left = start + END * budget - clock()
            if left < opening:
                trials.append(Trial(candidate, failed="not tried: no time left"))
                continue
            say(f"{number + 1} of {len(wanted)}: {candidate.name}")
            limit = min(left, max(2 * left / (len(wanted) - number), 3 * opening))
            try:
                trials.append(Trial(candidate, **measured("candidate", {**data, **candidate.settings}, limit)))
            except Failed as error:
                trials.append(Trial(candidate, failed=str(error)))
    chosen, reason = recommend(trials, cost, wanted[0]) or (None, "")
    return Tuned(situation, wanted[0], cost, trials, mode.value, chosen, reason)


def _situation(planned: Plan, spec: PipelineSpec) -> Situation:
    backend = planned.pipeline.backend
    # Where there are several, `auto` only estimates what is measured here: workers are tried as if it had chosen them.
    by_itself = plan(spec.override(backend="auto" if planned.n == 1 else "shmem"))
    favourite, shares = by_itself.pipeline.backend.name, bool(by_itself.backend_options.get("parent_share"))
    return Situation(planned.n, usable_cores(), backend.name, dict(backend.options), spec.batch_size, favourite, shares)


# -- processes that measure -------------------------------------------------------------------------------------------

_BOOTSTRAP = """\
import json, sys
job = json.load(sys.stdin)
sys.path[:] = job.pop("path")
from vecwrap.tools.tune import answer
answer(**job)
"""


class Failed(Exception):
    """A measurement has no figures; the message says why."""


def measured(what: str, pipeline: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Measure an ``environment`` or a ``candidate`` in a fresh interpreter, which ends within so many seconds.

    It is in its own session, so that Ctrl-C reaches only this process, which then ends it.
    """
    job = {"path": sys.path, "what": what, "pipeline": pipeline, "seconds": seconds}
    command = [sys.executable, "-P", "-c", _BOOTSTRAP]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile() as words,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=words, start_new_session=True) as process,
    ):
        try:
            found, _ = process.communicate(json.dumps(job).encode(), seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done within {seconds:.1f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        if not found:
            words.seek(0)
            last = words.read().decode(errors="replace").strip().splitlines()[-1:]
            raise Failed(": ".join([f"the process ended with exit code {process.returncode}", *last]))
    figures: dict[str, Any] = json.loads(found)
    if "failed" in figures:
        raise Failed(figures["failed"])
    return figures


def answer(what: str, pipeline: dict[str, Any], seconds: float) -> None:
    """Write figures to stdout, in a process that measures."""
    signal.alarm(int(seconds) + 5)  # its parent may have been killed
    out = os.dup(1)
    os.dup2(2, 1)  # environments print
    try:
        found = {"environment": _one_environment, "candidate": _candidate}[what](pipeline, seconds)
    except Exception as error:
        text = str(error).strip().partition("\n")[0].rstrip(".")
        found = {"failed": text if isinstance(error, VecwrapError) else f"{type(error).__name__}: {text}"}
    os.write(out, json.dumps(found).encode())


def _one_environment(pipeline: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Make one sub-environment, reset it, and step it for a quarter of the time at most."""
    try:
        return _cost(PipelineSpec.from_dict(pipeline), seconds)
    except SubEnvError as error:  # which of how many does not matter here
        raise error.__cause__ or error from None


def _cost(spec: PipelineSpec, seconds: float) -> dict[str, Any]:
    start = time.perf_counter()
    with _alone(spec) as env:
        env.reset(seed=SEED)
        first_seconds = time.perf_counter() - start
        took: list[float] = []
        busy: list[float] = []
        draw = RandomActions(env, SEED)
        over = False
        end = time.perf_counter() + min(LONGEST_LOOK, seconds / 4)
        while not busy or time.perf_counter() < end:
            actions = draw()
            start, computed = time.perf_counter(), time.process_time()
            _, _, terminations, truncations, _ = env.step(actions)
            if not over:  # else the step was a reset
                busy.append((time.process_time() - computed) / (time.perf_counter() - start))
                took.append((time.perf_counter() - start) / env.num_envs)
            over = bool((terminations | truncations).any())
    return {
        "step_seconds": fmean(took),
        "steps": len(took),
        "busy": median(busy),  # the few steps that other programs interrupted only seem to wait
        "first_seconds": first_seconds,
    }


def _alone(spec: PipelineSpec) -> VecEnv:
    """One sub-environment, or game, in this process, with the wrappers that run around each; all, if they differ."""
    n = len(plan(spec).environment.factories)
    changes: dict[str, Any] = {"backend": "dummy", "batch_size": None, "autoreset": Autoreset.NEXT_STEP.value}
    return plan(spec.override(n=n, **changes)).start()


def _candidate(pipeline: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Build the pipeline and take samples, which together with the start fill half of the time at most."""
    spec = PipelineSpec.from_dict(pipeline)
    start = time.perf_counter()
    with build_plan(plan(spec)) as env:
        env.reset(seed=SEED)
        start_seconds = time.perf_counter() - start
        throughput = Throughput(driver(env, spec.batch_size), lambda: None)
        length = min(LONGEST_SAMPLE, max(0.01, (seconds / 2 - start_seconds) / SAMPLES))
        rates = [throughput.sample(length)["rate"] for _ in range(SAMPLES)]
    return {"rates": rates, "start_seconds": start_seconds}
