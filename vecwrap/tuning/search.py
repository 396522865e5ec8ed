"""Measure the environment, try the candidates, and measure the close ones again; all within a budget."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vecwrap.backends.cores import usable_cores
from vecwrap.bench.ours import ASKED_FOR, into
from vecwrap.checkpoint import refuse_unread
from vecwrap.contract import Autoreset
from vecwrap.errors import VecwrapError
from vecwrap.plan import Plan, plan
from vecwrap.spec import PipelineSpec
from vecwrap.tuning.candidates import BackendKind, Situation, backend_kinds, candidates
from vecwrap.tuning.measurements import Candidate, EnvCost, Trial
from vecwrap.tuning.processes import Ended, Measurer, TooLate
from vecwrap.tuning.recommend import Recommendation, recommend, tied_with
from vecwrap.tuning.trial import MeasureEnv, TryCandidate

__all__ = ["Budget", "Search", "Tuned"]

FOR_THE_ENV = 0.4  # of the budget, at most
FOR_THE_FINAL = 0.25  # of the budget, reserved for measuring again
SAMPLES = 3  # of each candidate at first; in the final as many as time allows
MOST_ROUNDS = 9
END = 0.95  # of the budget; the rest is for closing
FINALISTS = 3
FIRST = 2  # the current settings, and what needs no process: these get enough time before others get any
FEW = 4  # the most parts that the time is divided into for them
CLOSE = 0.15  # candidates less than this behind are measured again
LONGEST_SAMPLE = 1.0
LONGEST_LOOK = 2.0  # at one sub-environment's steps


@dataclass
class Tuned:
    """The results of a search.

    Attributes:
        situation: the pipeline and the machine.
        now: the pipeline's current settings.
        cost: of one sub-environment.
        trials: of the candidates, in the order they were tried.
        recommendation: None if none with the pipeline's `batch_size` has rates.
        mode: the autoreset mode of the measurements.
        budget: how many seconds were available.
    """

    situation: Situation
    now: Candidate
    cost: EnvCost
    trials: list[Trial]
    mode: str
    budget: float
    recommendation: Recommendation | None = None

    def to_data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "n": self.situation.n,
            "usable_cores": self.situation.cores,
            "autoreset": self.mode,
            "budget": self.budget,
            "environment": self.cost.to_data(),
            "candidates": [trial.to_data() for trial in self.trials],
            "now": self.now.name,
            "recommendation": self.recommendation and self.recommendation.to_data(),
        }


class Budget:
    """Seconds, and how they are divided.

    Args:
        seconds: all of them.
        clock: in seconds.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.clock = clock
        self._start = clock()

    @property
    def spent(self) -> float:
        """How many have been used."""
        return self.clock() - self._start

    def until(self, share: float) -> float:
        """Return the time of the clock at which this share of the budget is used up."""
        return self._start + share * self.seconds

    def fair(self, parts: int, end: float) -> float:
        """Return the deadline of one of ``parts`` remaining parts: at most twice its share of the time to ``end``."""
        now = self.clock()
        return min(end, now + 2 * max(0.0, end - now) / max(1, parts))


@dataclass
class Search:
    """A search for the best backend; ``run`` returns the result.

    Attributes:
        spec: the pipeline; its files go to a temporary folder meanwhile.
        budget: how long it may take.
        say: called with progress messages, now and then.
        kinds: the available backends; None: all that have a name.
        evaluation: whether the pipeline is another's evaluation, so that its lines are for that one's section ``eval``.
    """

    spec: PipelineSpec
    budget: Budget
    say: Callable[[str], None] = lambda text: None
    kinds: Sequence[BackendKind] | None = None
    evaluation: bool = False
    _openings: list[tuple[bool | None, float]] = field(default_factory=list, init=False, repr=False)

    def run(self) -> Tuned:
        """Measure, try, and recommend.

        Raises:
            VecwrapError: the pipeline cannot be built, or not even one sub-environment could be measured in time.
        """
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
            wanted, refused = candidates(backend_kinds() if self.kinds is None else self.kinds, situation, cost)
            trials = self._tried(wanted, data, self.budget.until(END - FOR_THE_FINAL))
            close = _close(trials, spec.batch_size)
            trials = self._again(close, trials, data) if len(close) > 1 else self._late_ones(trials, data)
        tuned = Tuned(situation, wanted[0], cost, trials, mode.value, self.budget.seconds)
        tuned.trials += refused
        found = recommend(tuned.trials, cost, batch_size=spec.batch_size, now=wanted[0])
        tuned.recommendation = found and dataclasses.replace(found, evaluation=self.evaluation)
        return tuned

    def _measured_env(self, data: Mapping[str, Any]) -> EnvCost:
        self.say("one sub-environment")
        began = self.budget.clock()
        end = self.budget.until(FOR_THE_ENV)
        job = MeasureEnv(data, min(LONGEST_LOOK, 0.1 * self.budget.seconds))
        figures: dict[str, Any] = {"make_seconds": None, "memory_mb": None}
        with Measurer(job, lambda: self.say("one sub-environment"), self.budget.clock) as process:
            try:
                while "done" not in figures:
                    figures |= process.hear(end)
                    if not self._openings:  # an interpreter, imports, an environment: no candidate takes much less
                        self._openings.append((None, self.budget.clock() - began))
            except TooLate:
                if "steps" not in figures:
                    doing = "its first steps" if "first_seconds" in figures else "making it and its first reset"
                    raise VecwrapError(
                        f"tune: one sub-environment was not done with {doing} within {FOR_THE_ENV:.0%} of "
                        f"--budget {self.budget.seconds:g}s; give more, or see what it does there."
                    ) from None
                process.end(kill=True)
            except Ended as error:
                if "steps" not in figures:
                    raise VecwrapError(f"tune: one sub-environment, by itself, failed: {error}") from None
        figures.pop("done", None)
        return EnvCost(**figures)

    def _tried(self, wanted: Sequence[Candidate], data: Mapping[str, Any], end: float) -> list[Trial]:
        trials: list[Trial] = []
        for number, candidate in enumerate(wanted):
            name = f"{number + 1} of {len(wanted)}: {candidate.name}"
            left = len(wanted) - number
            needed = self._needed(candidate)
            if end - self.budget.clock() < needed:
                trials.append(Trial(candidate, failed="not tried: no time left", late=True))
                continue
            # Better a few complete ones, and rows that say that they were not tried, than many that are cut off.
            deadline = self.budget.fair(min(left, FEW) if number < FIRST else left, end)
            deadline = min(end, max(deadline, self.budget.clock() + 2 * needed))
            length = min(LONGEST_SAMPLE, (end - self.budget.clock()) / left / (2 * SAMPLES))
            self.say(name)
            trials.append(self._one_by_one(candidate, data, length, deadline, name))
        return trials

    def _needed(self, candidate: Candidate) -> float:
        """How long a candidate takes to start, with its process and imports, judging by those like it."""
        alike = [seconds for workers, seconds in self._openings if workers == (candidate.processes > 0)]
        return min(alike or [seconds for _, seconds in self._openings], default=0.0)

    def _one_by_one(
        self, candidate: Candidate, data: Mapping[str, Any], length: float, deadline: float, name: str
    ) -> Trial:
        began = self.budget.clock()
        trial = Trial(candidate)
        rates: list[float] = []
        with Measurer(_job(candidate, data), lambda: self.say(name), self.budget.clock) as process:
            try:
                trial = dataclasses.replace(trial, **process.hear(deadline))
                self._openings.append((candidate.processes > 0, self.budget.clock() - began))
                for _ in range(SAMPLES):
                    process.ask(length)
                    rates.append(process.hear(deadline))
            except TooLate:
                process.end(kill=True)
                if not rates:
                    what = "start" if trial.start_seconds is None else "finish a sample"
                    return dataclasses.replace(
                        trial, failed=f"did not {what} within {deadline - began:.1f} s", late=True
                    )
            except Ended as error:
                return dataclasses.replace(trial, failed=str(error))
        return dataclasses.replace(trial, rates=tuple(rates))

    def _late_ones(self, trials: list[Trial], data: Mapping[str, Any]) -> list[Trial]:
        """Give the remaining time to those that had too little, if the best need not be measured again."""
        late = [trial.candidate for trial in trials if trial.late]
        second = dict(zip(map(id, late), self._tried(late, data, self.budget.until(END)), strict=True))
        return [second.get(id(trial.candidate), trial) for trial in trials]

    def _again(self, close: Sequence[Trial], trials: list[Trial], data: Mapping[str, Any]) -> list[Trial]:
        """Measure the best and those close to it in turn, all open at once, so that disturbances affect all alike."""
        end = self.budget.until(END)
        name = f"again: {' and '.join(trial.candidate.name for trial in close)}"
        rates: dict[int, list[float]] = {id(trial): [] for trial in close}
        with contextlib.suppress(TooLate, Ended), ExitStack() as stack:  # too late: all are killed at once
            running = []
            for trial in close:
                job = _job(trial.candidate, data)
                process = stack.enter_context(Measurer(job, lambda: self.say(name), self.budget.clock))
                process.hear(end)
                running.append((trial, process))
            length = min(LONGEST_SAMPLE, (end - self.budget.clock()) / (MOST_ROUNDS * len(running)))
            for number in range(MOST_ROUNDS):
                turn = number % len(running)
                for trial, process in [*running[turn:], *running[:turn]]:
                    process.ask(length)
                    rates[id(trial)].append(process.hear(end))
        whole = min(map(len, rates.values()))
        if whole < SAMPLES:
            return trials
        return [
            dataclasses.replace(trial, rates=tuple(rates[id(trial)][:whole])) if id(trial) in rates else trial
            for trial in trials
        ]


def _close(trials: Sequence[Trial], batch_size: int | None) -> list[Trial]:
    """The best for the pipeline's own loop, and those as good or nearly so."""
    measured = [trial for trial in trials if trial.rates and trial.candidate.batch_size == batch_size]
    if not measured:
        return []
    best = max(measured, key=lambda trial: trial.rate)
    near = [trial for trial in measured if trial.rate >= (1 - CLOSE) * best.rate]
    near += [trial for trial in tied_with(best, measured) if trial not in near]
    near.sort(key=lambda trial: (trial is not best, trial.candidate.simplicity))
    return near[:FINALISTS]


def _job(candidate: Candidate, data: Mapping[str, Any]) -> TryCandidate:
    return TryCandidate({**data, **candidate.settings})


def _situation(planned: Plan, spec: PipelineSpec) -> Situation:
    backend = planned.pipeline.backend
    by_itself = plan(spec.override(backend="auto"))
    favourite, shares = by_itself.pipeline.backend.name, bool(by_itself.backend_options.get("parent_share"))
    return Situation(planned.n, usable_cores(), backend.name, dict(backend.options), spec.batch_size, favourite, shares)
