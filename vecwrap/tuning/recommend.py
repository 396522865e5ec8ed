"""Which candidate to recommend, and why: a pure function of the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vecwrap.tuning.measurements import Candidate, EnvCost, Trial

__all__ = ["Recommendation", "margin", "recommend", "tied_with"]

FLOOR = 0.05  # smaller differences are noise, however similar the samples
CEILING = 0.25  # more noise than this does not make everything equal


@dataclass(frozen=True)
class Recommendation:
    """What to write into the pipeline.

    Attributes:
        candidate: which.
        reason: why, in a sentence or two.
        other_loop: an even better candidate for a loop that calls ``send`` and ``recv``, or None.
        other_reason: how much better.
        evaluation: whether it is for the pipeline's section ``eval``.
    """

    candidate: Candidate
    reason: str
    other_loop: Candidate | None = None
    other_reason: str = ""
    evaluation: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines to paste into the pipeline's file."""
        return self.candidate.lines(evaluation=self.evaluation)

    @property
    def in_a_line(self) -> str | None:
        """The same for a one-line pipeline; None if a line cannot express it."""
        return self.candidate.in_a_line(evaluation=self.evaluation)

    @property
    def other_lines(self) -> tuple[str, ...]:
        """Lines for the other loop; none if it is no better."""
        return self.other_loop.lines(evaluation=self.evaluation) if self.other_loop else ()

    def to_data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        other = self.other_loop
        other_data = other and {**other.settings, "lines": list(self.other_lines), "reason": self.other_reason}
        return {
            **self.candidate.settings,
            "lines": list(self.lines),
            "reason": self.reason,
            "with_send_and_recv": other_data,
        }


def margin(one: Trial, other: Trial) -> float:
    """Return the relative difference that two trials may have by chance."""
    return min(CEILING, max(FLOOR, one.spread, other.spread))


def tied_with(best: Trial, trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that may be as good as the best, including the best."""
    return [trial for trial in trials if trial.rate >= best.rate * (1 - margin(best, trial))]


def recommend(
    trials: Sequence[Trial], cost: EnvCost, *, batch_size: int | None, now: Candidate
) -> Recommendation | None:
    """Choose the fastest; of those that are as fast within the noise, the simplest.

    Args:
        trials: of all candidates.
        cost: of one sub-environment.
        batch_size: the pipeline's; candidates with another one need another loop, and are recommended separately.
        now: the pipeline's current settings.

    Returns:
        The recommendation, or None if no candidate for the pipeline's own loop has rates.
    """
    measured = [trial for trial in trials if trial.rates]
    same_loop = [trial for trial in measured if trial.candidate.batch_size == batch_size]
    if not same_loop:
        return None
    best = max(same_loop, key=lambda trial: trial.rate)
    chosen = min(tied_with(best, same_loop), key=lambda trial: (trial.candidate.simplicity, -trial.rate))
    sentences = [_why(chosen, best, cost)]
    if (present := _of(now, same_loop)) is not None:
        sentences.append(_beside_now(chosen, present))
    others = [trial for trial in measured if trial.candidate.batch_size != batch_size]
    other = max(others, key=lambda trial: trial.rate, default=None)
    if other is None or other.rate * (1 - margin(other, chosen)) <= chosen.rate:
        return Recommendation(chosen.candidate, " ".join(filter(None, sentences)))
    times = f"{other.rate / chosen.rate:.2f} × that ({other.rate:,.0f} agent steps/s)"
    return Recommendation(chosen.candidate, " ".join(filter(None, sentences)), other.candidate, times)


def _why(chosen: Trial, best: Trial, cost: EnvCost) -> str:
    if chosen is best:
        return f"It is the quickest: {chosen.rate:,.0f} agent steps/s, and {cost.in_words}."
    more = best.rate / chosen.rate - 1
    return (
        f"It is the simplest of those that are as quick: {chosen.rate:,.0f} agent steps/s. {best.candidate.name} did "
        f"{more:.0%} more, which is noise (up to {margin(best, chosen):.0%}); {cost.in_words}."
    )


def _beside_now(chosen: Trial, present: Trial) -> str:
    if chosen is present:
        return "The pipeline has it already."
    return f"What the pipeline has now, {present.candidate.name}, did {present.rate:,.0f}."


def _of(candidate: Candidate, trials: Sequence[Trial]) -> Trial | None:
    return next((trial for trial in trials if trial.candidate.does_as(candidate)), None)
