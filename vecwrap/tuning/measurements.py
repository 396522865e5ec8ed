"""Measurements of one sub-environment, and of the pipeline under each candidate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from vecwrap.errors import SpecError
from vecwrap.spec import PipelineSpec

__all__ = ["Candidate", "EnvCost", "Trial"]

WAITING = 0.5  # of a core: a step that keeps less than this busy is waiting for something


@dataclass(frozen=True)
class EnvCost:
    """What one sub-environment costs, with the layers that run around each.

    Attributes:
        step_seconds: mean of a step.
        step_spread: half the 5th-95th percentile range of step times; the tails are dropped because they reflect other
            load on the machine.
        steps: how many were measured.
        busy: cores that a step keeps busy on an idle machine: 1 computes, near 0 waits.
        reset_seconds: mean of a reset.
        first_seconds: making the first one, including imports, and its first reset.
        make_seconds: making a second one in the same process, and its first reset; None if there was no time.
        memory_mb: by how much that grew the process; None if unknown.
        observation_bytes: of one observation as it leaves the sub-environment.
    """

    step_seconds: float
    step_spread: float
    steps: int
    busy: float
    reset_seconds: float
    first_seconds: float
    make_seconds: float | None
    memory_mb: float | None
    observation_bytes: int

    @property
    def waits(self) -> bool:
        """Whether a step waits more than it computes."""
        return self.busy < WAITING

    @property
    def in_words(self) -> str:
        """What a step does."""
        doing = "mostly waits" if self.waits else "computes"
        return f"a step {doing}: {1e6 * self.step_seconds:,.0f} µs ± {1e6 * self.step_spread:,.0f}"

    def to_data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**vars(self), "waits": self.waits}


@dataclass(frozen=True)
class Candidate:
    """A way to run the pipeline.

    Attributes:
        backend: its name.
        options: its options.
        batch_size: how many rows ``recv`` waits for; None: the loop calls ``step``.
        processes: how many workers that makes; 0: all in this process.
        tried_options: the options being tried, for its name; the remaining ones are the pipeline's own.
    """

    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int | None = None
    processes: int = 0
    tried_options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As tables write it.

        >>> Candidate("shmem", {"workers": 4, "step_timeout": 9.0}, 8, 4, ("workers",)).name
        'shmem, workers=4, recv of 8'
        """
        parts = [self.backend, *(f"{key}={json.dumps(self.options[key])}" for key in self.tried_options)]
        return ", ".join(parts + ([f"recv of {self.batch_size}"] if self.batch_size is not None else []))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it replaces in the pipeline."""
        return {"backend": {"name": self.backend, **self.options}, "batch_size": self.batch_size}

    def lines(self, *, evaluation: bool = False) -> tuple[str, ...]:
        """Lines to paste into a pipeline's file: for the pipeline itself, or for its section ``eval``.

        >>> print(*Candidate("shmem", {"workers": 4, "on_failure": "restart"}, 8).lines(), sep="; ")
        backend: {name: shmem, workers: 4, on_failure: restart}; batch_size: 8
        >>> Candidate("dummy").lines(evaluation=True)
        ('eval:', '  backend: dummy')
        """
        return tuple(self._spec(evaluation).to_yaml().splitlines()[1:])

    def in_a_line(self, *, evaluation: bool = False) -> str | None:
        """The same for a one-line pipeline; None if a line cannot express it.

        >>> Candidate("shmem", {"workers": 4}, 8).in_a_line()
        'backend=shmem backend.workers=4 batch_size=8'
        """
        try:
            return self._spec(evaluation).format().partition(" ")[2]
        except SpecError:
            return None

    def _spec(self, evaluation: bool) -> PipelineSpec:
        """A pipeline with these settings and an environment, which comes first."""
        if evaluation:
            return PipelineSpec("ENV", eval={key: value for key, value in self.settings.items() if value is not None})
        return PipelineSpec("ENV", **self.settings)

    def does_as(self, other: Candidate) -> bool:
        """Whether both are the same settings."""
        return self.settings == other.settings

    @property
    def simplicity(self) -> tuple[bool, bool, int, int]:
        """A sort key, lower is simpler: only this process; no share in the parent; fewer workers; fewer options."""
        return self.processes > 0, bool(self.options.get("parent_share")), self.processes, len(self.options)


@dataclass(frozen=True)
class Trial:
    """The results of a candidate.

    Attributes:
        candidate: which.
        rates: agent steps per second over all sub-environments, one per sample.
        start_seconds: from ``build`` to the first observations.
        memory_mb: proportional memory of all its processes; None if unknown.
        failed: why there are no rates; ``""`` if there are.
        late: whether it failed only for lack of time.
    """

    candidate: Candidate
    rates: tuple[float, ...] = ()
    start_seconds: float | None = None
    memory_mb: float | None = None
    failed: str = ""
    late: bool = False

    @property
    def rate(self) -> float:
        """The median of the samples."""
        return median(self.rates)

    @property
    def spread(self) -> float:
        """Half the range of the samples, as a fraction of the median."""
        return (max(self.rates) - min(self.rates)) / (2 * self.rate) if self.rate else 0.0

    def to_data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "name": self.candidate.name,
            **self.candidate.settings,
            "rates": list(self.rates),
            "rate": self.rate if self.rates else None,
            "start_seconds": self.start_seconds,
            "memory_mb": self.memory_mb,
            "failed": self.failed,
        }
