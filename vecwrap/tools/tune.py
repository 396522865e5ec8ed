"""Try the ways to run a pipeline on this machine, and recommend one.

Every measurement runs in its own process, which is killed at its deadline, so the time is bounded
whatever an environment does. What is derived from the measurements (``candidates``, ``recommend``)
is pure. Gymnasium's own vector classes are measured beside the candidates, for reference.
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
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from gymnasium import vector

from vecwrap.backends.workers.cores import usable_cores
from vecwrap.env.options import option_names
from vecwrap.env.saving import refuse_unread
from vecwrap.errors import PlanError, SpecError, VecwrapError
from vecwrap.pipeline import registry
from vecwrap.pipeline.backends import find_runner
from vecwrap.pipeline.build import build_plan
from vecwrap.pipeline.engines import NAMES as ENGINES
from vecwrap.pipeline.plan import Plan, plan, plan_into_folder
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.masks import MEMBER
from vecwrap.tools.throughput import (
    SEED,
    RunSteps,
    Throughput,
    action_batches,
    make_driver,
    make_stepper,
)

# Decided by tune; every other option of the pipeline's backend is the user's, and is kept.
TRIED = ("workers", "envs_per_worker", "parent_share")
FAVOURITE = "shmem"  # whose numbers of workers are varied
CLUSTER = "ray"  # several machines; its daemon would outlive the measuring process
SYNC = "Gymnasium SyncVectorEnv"
ASYNC = "Gymnasium AsyncVectorEnv"
MAX_WORKERS = 64
MAX_EACH = 8  # workers for each core, which environments that wait can use
TIE_SHARE = 0.1  # smaller differences count as noise

FIRST_BUDGET_SHARE = 0.4  # of the budget, at most
MEASURING_BUDGET_SHARE = 0.95  # of the budget; the rest is for closing
SAMPLES = 5
MAX_SAMPLE_SECONDS = 1.0


@dataclass(frozen=True)
class Candidate:
    """A way to run the pipeline, with so many worker processes; or, for reference, Gymnasium's."""

    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    processes: int = 0
    engine: str | None = None  # what steps the sub-environments; None: as in the pipeline

    @property
    def name(self) -> str:
        """As tables write it: only what is tried, as the other options are the pipeline's own."""
        if self.engine is not None:
            return f"engine {self.engine}"
        tried = (f"{key}={json.dumps(self.options[key])}" for key in self.options if key in TRIED)
        return ", ".join([self.backend, *tried])

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it replaces in the pipeline."""
        if self.engine is not None:
            return {"engine": self.engine, "backend": {"name": self.backend}}
        return {"backend": {"name": self.backend, **self.options}}

    def lines(self, *, evaluation: bool = False) -> tuple[str, ...]:
        """Lines to paste into a pipeline's file: for the pipeline, or for its section ``eval``."""
        return tuple(self._spec(evaluation).to_yaml().splitlines()[1:])

    def to_line(self, *, evaluation: bool = False) -> str | None:
        """The same for a one-line pipeline; None if a line cannot express it."""
        with contextlib.suppress(SpecError):
            return self._spec(evaluation).format().partition(" ")[2]
        return None

    def _spec(self, evaluation: bool) -> PipelineSpec:
        """A pipeline with these settings and an environment, which comes first."""
        if evaluation:
            return PipelineSpec("ENV", eval=self.settings)
        return PipelineSpec("ENV", **self.settings)


@dataclass(frozen=True)
class Trial:
    """The results of a candidate; if there are no rates, ``failed`` says why."""

    candidate: Candidate
    rates: Sequence[float] = ()  # environment steps a second over all rows, one per sample
    start_seconds: float | None = None  # from the start to the first observations
    failed: str = ""

    @property
    def rate(self) -> float:
        """The median of the samples."""
        return median(self.rates)

    @property
    def spread(self) -> float:
        """Half the range of the samples, as a fraction of the median."""
        return (max(self.rates) - min(self.rates)) / (2 * self.rate)

    @property
    def data(self) -> dict[str, Any]:
        """All of it, as plain data."""
        return {
            "name": self.candidate.name,
            **self.candidate.settings,
            "rates": self.rates,
            "rate": self.rate if self.rates else None,
            "start_seconds": self.start_seconds,
            "failed": self.failed,
        }


# -- what to try -----------------------------------------------------------------------------------


def backend_options() -> dict[str, frozenset[str]]:
    """Return the names of the options of all backends that can be imported."""
    found = {}
    for name in registry.backends.names():
        with contextlib.suppress(SpecError, PlanError):
            found[name] = frozenset(option_names(find_runner(name, name).Options))
    return found


def candidates(planned: Plan, backends: Mapping[str, frozenset[str]]) -> list[Candidate]:
    """Choose what to try, the current settings first; of ``backends``, which have these options.

    A backend that lacks an option which the pipeline sets is left out.
    """
    now = planned.pipeline.backend
    given = {key: value for key, value in now.options.items() if value is not None}
    kept = {key: value for key, value in given.items() if key not in TRIED}
    cores = usable_cores()

    def candidate(name: str, options: Mapping[str, Any]) -> Candidate:
        if "workers" not in backends.get(name, TRIED):
            return Candidate(name, options)
        return Candidate(name, options, min(options.get("workers", cores), planned.n))

    found = [candidate(now.name, given)]
    for name in sorted(backends, key=lambda one: ("workers" in backends[one], one != FAVOURITE)):
        if not backends[name].issuperset(kept) or (name == CLUSTER and now.name != CLUSTER):
            continue
        found.append(candidate(name, kept))
        if name != FAVOURITE or planned.n == 1:
            continue
        if "parent_share" in backends[name] and not kept and planned.pipeline.batch_size is None:
            shares = plan(planned.written.override(backend=name)).backend_options
            found.append(candidate(name, {"parent_share": not shares.get("parent_share")}))
        most = min(planned.n, cores * MAX_EACH, MAX_WORKERS)
        for workers in sorted({cores * 2, cores // 2, most} - {min(cores, planned.n)}):
            if 1 <= workers <= planned.n:
                found += [candidate(name, {"workers": workers, **kept})]
    return [one for number, one in enumerate(found) if one not in found[:number]]


def engine_candidates(spec: PipelineSpec) -> tuple[list[Trial], dict[str, list[str]]]:
    """Choose the engines that can run the pipeline; the others' trials say why they cannot.

    Return the trials of all, and what each engine changes.
    """
    trials = []
    changes = {}
    mode = plan(spec).pipeline.autoreset_mode
    for name in ENGINES:
        if spec.engine is not None and spec.engine.name == name:
            continue  # with its options, it is among the others
        candidate = Candidate("auto", engine=name)
        try:
            planned = plan(spec.override(**candidate.settings))
        except (SpecError, PlanError) as error:
            trials.append(Trial(candidate, failed=str(error).partition("\n")[0]))
            continue
        trials.append(Trial(candidate))
        changes[candidate.name] = _changes(mode, planned)
    return trials, changes


def _changes(now: Autoreset, planned: Plan) -> list[str]:
    """What differs where an engine steps the sub-environments of a pipeline of this mode."""
    mode = planned.pipeline.autoreset_mode
    changes = ["its random numbers, and so its episodes, are its own"]
    if mode is not now:
        changes.append(f"autoreset: {mode.value} instead of {now.value}")
    absorbed = [wrapper for wrapper in planned.wrappers if wrapper.runs_in == "engine"]
    return changes + [f"{one.spec.name}: {one.difference or 'of the engine'}" for one in absorbed]


def references(planned: Plan) -> list[Candidate]:
    """Choose the vector classes of Gymnasium that can run the pipeline's sub-environments."""
    made = planned.environment
    if made.is_game or made.engine_rows is not None:
        return []
    if planned.n > MAX_WORKERS:  # AsyncVectorEnv starts a process for each
        return [Candidate(SYNC)]
    return [Candidate(SYNC), Candidate(ASYNC)]


# -- what to recommend -----------------------------------------------------------------------------


def recommend(trials: Iterable[Trial], now: Candidate) -> tuple[Candidate, str] | None:
    """Choose the fastest, or the simplest of those as fast but for noise, and say why.

    Simpler is what has no share in the parent, fewer workers, fewer options. None without rates.
    """
    measured = [trial for trial in trials if trial.rates]
    if not measured:
        return None
    best = max(measured, key=lambda trial: trial.rate)
    tied = [trial for trial in measured if trial.rate >= (1 - TIE_SHARE) * best.rate]
    chosen = min(
        tied,
        key=lambda trial: (
            trial.candidate.engine is not None,
            bool(trial.candidate.options.get("parent_share")),
            trial.candidate.processes,
            len(trial.candidate.options),
            -trial.rate,
        ),
    )
    reason = f"It is the quickest: {chosen.rate:,.0f} agent steps/s."
    if chosen is not best:
        reason = (
            f"It is the simplest of those that are as quick: {chosen.rate:,.0f} agent steps/s. "
            f"{best.candidate.name} did {best.rate / chosen.rate - 1:.0%} more, which may be noise."
        )
    if chosen.candidate == now:
        return now, f"{reason} The pipeline has it already."
    return chosen.candidate, reason


# -- the search ------------------------------------------------------------------------------------


@dataclass
class Tuned:
    """The results of a search; the candidates' first is what the pipeline has now."""

    planned: Plan
    mode: str  # the autoreset mode of the measurements
    trials: list[Trial]
    references: list[Trial]  # empty if Gymnasium's vector classes cannot run the pipeline
    recommended: Candidate | None  # None if no candidate has rates
    reason: str = ""
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by engines' names

    @property
    def left_out(self) -> list[str]:
        """The wrappers around the vector, without which the references are measured."""
        return [one.spec.name for one in self.planned.wrappers if one.runs_in == "parent"]

    def data(self, *, evaluation: bool = False) -> dict[str, Any]:
        """What was found, as plain data."""
        chosen = self.recommended
        return {
            "n": self.planned.n,
            "usable_cores": usable_cores(),
            "autoreset": self.mode,
            "candidates": [trial.data for trial in self.trials],
            "references": [{**trial.data, "left_out": self.left_out} for trial in self.references],
            "engines_change": self.changes,
            "now": self.trials[0].candidate.name,
            "recommendation": chosen
            and {
                **chosen.settings,
                "lines": chosen.lines(evaluation=evaluation),
                "reason": self.reason,
            },
        }


def search(
    spec: PipelineSpec,
    budget: float,
    say: Callable[[str], None] = lambda text: None,
    clock: Callable[[], float] = time.monotonic,
    *,
    engines: bool = False,
) -> Tuned:
    """Try, measure and recommend within so many seconds; files go to a temporary folder."""
    start = clock()
    written = spec
    mode = plan(spec).pipeline.autoreset_mode  # an engine has one of its own
    if mode in (Autoreset.DISABLED, Autoreset.EPISODIC):
        mode = Autoreset.SAME_STEP  # when to reset is up to the user's loop
    spec = spec.override(autoreset=mode.value)
    planned = plan(spec)
    refuse_unread(planned.pipeline.stats, spec.where("stats"))  # here, not in every candidate
    with tempfile.TemporaryDirectory(prefix="vecwrap-tune-") as folder:
        data = plan(plan_into_folder(spec, Path(folder))).pipeline.to_dict()
        data.pop("eval", None)
        ours = candidates(planned, backend_options())
        refused = []
        changes: dict[str, list[str]] = {}
        if engines:
            of_engines, changes = engine_candidates(written)
            ours[1:1] = [trial.candidate for trial in of_engines if not trial.failed]
            refused = [trial for trial in of_engines if trial.failed]
        wanted = [*ours, *references(planned)]
        trials = []
        least = FIRST_BUDGET_SHARE * budget  # what any has needed so far; half of it to start
        for number, candidate in enumerate(wanted):
            left = start + MEASURING_BUDGET_SHARE * budget - clock()
            if left < least / 2:
                trials.append(Trial(candidate, failed="not tried: no time left"))
                continue
            say(f"{number + 1} of {len(wanted)}: {candidate.name}")
            limit = min(left, max(2 * left / (len(wanted) - number), least))
            began = clock()
            try:
                settings = {**data, **candidate.settings}
                if candidate.engine is not None:
                    settings["autoreset"] = written.autoreset
                trials.append(Trial(candidate, **measured(settings, limit)))
                least = min(least, clock() - began)
            except MeasureError as error:
                trials.append(Trial(candidate, failed=str(error)))
    tried = trials[: len(ours)]
    chosen, reason = recommend(tried, ours[0]) or (None, "")
    compared = trials[len(ours) :]
    return Tuned(planned, mode.value, [*tried, *refused], compared, chosen, reason, changes)


# -- processes that measure ------------------------------------------------------------------------

_BOOTSTRAP = """\
import json, sys
job = json.load(sys.stdin)
sys.path[:] = job.pop("path")
from vecwrap.tools.tune import answer
answer(**job)
"""


class MeasureError(Exception):
    """A measurement has no figures; the message says why."""


def measured(pipeline: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Measure a candidate in a fresh interpreter, which ends within so many seconds.

    It is in its own session, so that Ctrl-C reaches only this process, which then ends it.
    """
    job = {"path": sys.path, "pipeline": pipeline, "seconds": seconds}
    command = [sys.executable, "-P", "-c", _BOOTSTRAP]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile() as words,
        subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=words,
            start_new_session=True,
        ) as process,
    ):
        try:
            found, _ = process.communicate(json.dumps(job).encode(), seconds)
        except subprocess.TimeoutExpired:
            raise MeasureError(f"not done within {seconds:.1f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        if not found:
            words.seek(0)
            last = words.read().decode(errors="replace").strip().splitlines()[-1:]
            said = f"the process ended with exit code {process.returncode}"
            raise MeasureError(": ".join([said, *last]))
    figures: dict[str, Any] = json.loads(found)
    if "failed" in figures:
        raise MeasureError(figures["failed"])
    return figures


def answer(pipeline: dict[str, Any], seconds: float) -> None:
    """Write figures to stdout, in a process that measures."""
    signal.alarm(int(seconds) + 5)  # its parent may have been killed
    out = os.dup(1)
    os.dup2(2, 1)  # environments print
    try:
        found = _candidate(pipeline, seconds)
    except Exception as error:
        text = str(error).strip().partition("\n")[0].rstrip(".")
        if not isinstance(error, VecwrapError):
            text = f"{type(error).__name__}: {text}"
        found = {"failed": text}
    os.write(out, json.dumps(found).encode())


def _candidate(pipeline: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Build the pipeline and take samples, which fill half of the time at most."""
    kind = pipeline["backend"]["name"]
    if kind in (SYNC, ASYNC):
        return _reference(kind, {**pipeline, "backend": "dummy"}, seconds)
    spec = PipelineSpec.from_dict(pipeline)
    start = time.perf_counter()
    with build_plan(plan(spec)) as env:
        env.reset(seed=SEED)
        return _rates(make_driver(env, spec.batch_size), start, seconds)


def _reference(kind: str, pipeline: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Run the sub-environments, with the wrappers around each, in a vector class of Gymnasium."""
    planned = plan(PipelineSpec.from_dict(pipeline))
    mode = planned.pipeline.autoreset_mode.gymnasium
    inside = [one.around_sub_env for one in planned.wrappers if one.runs_in == "worker"]
    makes = planned.environment.factories
    if not planned.environment.parts:
        makes *= planned.n
    thunks = [partial(wrapped, make, inside) for make in makes]
    start = time.perf_counter()
    vectorise = getattr(vector, kind.removeprefix("Gymnasium "))
    env = vectorise(thunks, copy=planned.pipeline.copy, autoreset_mode=mode)
    with contextlib.closing(env):
        if MEMBER in env.reset(seed=SEED)[1]:
            raise PlanError("it knows nothing of the environment's action masks")
        actions = action_batches(env.single_action_space, env.num_envs)
        return _rates(make_stepper(env.step, actions, env.num_envs), start, seconds)


def wrapped(make: Callable[[], Any], wrappers: Sequence[Callable[[Any], Any]]) -> Any:
    """Make an environment and put wrappers around it, inner first."""
    env = make()
    for wrapper in wrappers:
        env = wrapper(env)
    return env


def _rates(run: RunSteps, start: float, seconds: float) -> dict[str, Any]:
    start_seconds = time.perf_counter() - start
    throughput = Throughput(run)
    length = min(MAX_SAMPLE_SECONDS, max(0.01, (seconds / 2 - start_seconds) / SAMPLES))
    rates = [throughput.sample(length)["rate"] for _ in range(SAMPLES)]
    return {"rates": rates, "start_seconds": start_seconds}
