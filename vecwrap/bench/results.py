"""Figures and what is derived from them: medians, pairwise ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from vecwrap.bench.contender import QUANTITIES, Contender, Side

__all__ = ["Measurement", "Ratio", "WorkResult"]


@dataclass
class Measurement:
    """The figures of one contender.

    Attributes:
        name: the contender's.
        side: the contender's.
        note: what it does differently from the others.
        rounds: a sample for each round, in order: figures by quantity.
        missing: why there are none; ``""`` if there are.
    """

    name: str
    side: Side
    note: str = ""
    rounds: list[dict[str, float]] = field(default_factory=list)
    missing: str = ""

    @classmethod
    def of(cls, contender: Contender) -> Measurement:
        """Return an empty one."""
        return cls(contender.name, contender.side, contender.note)

    def values(self, quantity: str) -> list[float]:
        """Return one figure per round; empty if it has none, or stopped halfway."""
        return [] if self.missing else [sample[quantity] for sample in self.rounds if quantity in sample]

    def median(self, quantity: str) -> float | None:
        """Return the median over the rounds, or None."""
        values = self.values(quantity)
        return median(values) if values else None


@dataclass(frozen=True)
class Ratio:
    """How many times as good one contender is as another: above 1, it is faster or takes less.

    Attributes:
        of_medians: the ratio of the medians.
        low, high: the smallest and the largest ratio within one round.
    """

    of_medians: float
    low: float
    high: float


@dataclass
class WorkResult:
    """The results of all contenders on one workload.

    Attributes:
        key: its short name.
        title: what is done.
        how: what the sides have in common, and where they differ.
        measurements: one for each contender, ours first.
    """

    key: str
    title: str
    how: str
    measurements: Sequence[Measurement]

    @property
    def quantities(self) -> list[str]:
        """The quantities that were measured."""
        return [q for q in QUANTITIES if any(m.values(q) for m in self.measurements)]

    @property
    def lead(self) -> Measurement | None:
        """The contender that the others are compared with: the first of ours that has figures."""
        return next((m for m in self.measurements if m.side == "ours" and m.rounds and not m.missing), None)

    def find(self, name: str) -> Measurement | None:
        """Return the measurement of that name."""
        return next((m for m in self.measurements if m.name == name), None)

    def ratio(self, ours: str, other: str, quantity: str = "rate") -> Ratio | None:
        """Compare two contenders; None if one of them has no figures."""
        pair = self.find(ours), self.find(other)
        if pair[0] is None or pair[1] is None:
            return None
        mine, theirs = pair[0].values(quantity), pair[1].values(quantity)
        if not mine or not theirs:
            return None
        if not QUANTITIES[quantity].more_is_better:
            mine, theirs = theirs, mine
        by_round = [a / b for a, b in zip(mine, theirs, strict=True)]
        return Ratio(median(mine) / median(theirs), min(by_round), max(by_round))

    def to_data(self) -> dict[str, Any]:
        """Plain data, for JSON: every sample, the medians, and the ratio of each of ours to every other."""
        data: dict[str, Any] = {"key": self.key, "title": self.title, "how": self.how, "contenders": []}
        for m in self.measurements:
            medians = {q: value for q in self.quantities if (value := m.median(q)) is not None}
            entry = {"name": m.name, "side": m.side, "note": m.note, "missing": m.missing}
            data["contenders"].append({**entry, "medians": medians, "rounds": m.rounds})
        data["ratios"] = [
            {
                "ours": ours.name,
                "other": other.name,
                "quantity": q,
                "of_medians": ratio.of_medians,
                "low": ratio.low,
                "high": ratio.high,
            }
            for q in self.quantities
            for ours in self.measurements
            for other in self.measurements
            if ours.side == "ours" and ours is not other and (ratio := self.ratio(ours.name, other.name, q)) is not None
        ]
        return data
