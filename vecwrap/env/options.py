"""The options of how sub-environments run: objects whose fields are the only list of them.

Names, types and defaults are the fields', the help is the docstring's. Runners are made from them;
pipelines, commands, the schema, the docs and every check read them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from vecwrap.errors import PlanError, did_you_mean

__all__ = ["Options", "RestartOptions", "option_names"]


@dataclass(frozen=True)
class Options:
    """The options of a runner that has none; those of others derive from it.

    A derived class refuses values that make no sense in ``__post_init__``, with a ``PlanError``
    that begins with the option's name; their types fit.
    """


def option_names(options: type[Options]) -> tuple[str, ...]:
    """Return the names of the options; no method, which one of a stranger's options could hide."""
    return tuple([field.name for field in dataclasses.fields(options)])


@dataclass(frozen=True)
class RestartOptions(Options):
    """What becomes of a sub-environment that fails, or has run for long, on every backend.

    Attributes:
        on_failure: ``"raise"``, or ``"restart"``: a sub-environment that raises is recreated, as
            are those of a worker that dies or hangs; the episodes lost with them end truncated
            (docs/reliability.md).
        max_restarts: how often each may be recreated within ``restart_window``, and in a row
            without a step in between; None: no limit. The next failure is raised.
        restart_window: seconds; None: the whole run.
        restart_backoff: delay in seconds before recreating one that failed again without completing
            a step.
        recreate_every: after so many episodes each sub-environment is recreated before the next one
            begins, for simulators that leak memory; None: never.
    """

    on_failure: Literal["raise", "restart"] = "raise"
    max_restarts: int | None = 10
    restart_window: float | None = 60.0
    restart_backoff: float = 1.0
    recreate_every: int | None = None

    def __post_init__(self) -> None:
        if self.on_failure not in ("raise", "restart"):
            near = did_you_mean(str(self.on_failure), ("raise", "restart"))
            raise PlanError(
                f"on_failure: expected raise or restart, got {self.on_failure!r}.{near}"
            )
        if self.max_restarts is not None and self.max_restarts < 1:
            raise PlanError(
                "max_restarts: expected at least 1, or null for no limit, got "
                f'{self.max_restarts}; on_failure="raise" never restarts'
            )
        if self.restart_window is not None and not self.restart_window > 0:
            raise PlanError(
                "restart_window: expected seconds above 0, or null for the whole run, got "
                f"{self.restart_window}"
            )
        if not 0 <= self.restart_backoff < float("inf"):
            raise PlanError(f"restart_backoff: expected seconds from 0, got {self.restart_backoff}")

        if self.recreate_every is not None and self.recreate_every < 1:
            raise PlanError(
                "recreate_every: expected at least 1 episode, or null for never, got "
                f"{self.recreate_every}"
            )

    @property
    def restart(self) -> bool:
        return self.on_failure == "restart"
