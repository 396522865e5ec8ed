"""Observers of the steps of an environment: the page, and a stopwatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from vecwrap.rows.batch import Batch
from vecwrap.rows.step_result import IntArray, StepResult


class StepObserver(Protocol):
    """An observer of the steps of an environment; never raises.

    Without one, a step makes no call for it.
    """

    def on_call(self) -> None:
        """The program has given actions, which no wrapper has seen yet, or asks for results."""

    def on_send(self, actions: Batch, env_ids: IntArray) -> None:
        """Handle rows about to be sent, or reset if there are no actions; may request frames."""

    def on_receive(self, step: StepResult) -> None:
        """These rows have arrived, as they are before any wrapper."""

    def on_return(self) -> None:
        """The program goes on: its actions have been sent, or its results are here."""


class Timer(Protocol):
    """Somebody who measures what a backend does; without one, a step makes no call for it."""

    def run(self, part: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the function's result, and time the call as wait, copy or parent_share."""
