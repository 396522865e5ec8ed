"""The row protocol: how callers drive a vector environment, and what they may know of its rows.

Actions and requests for resets go down, StepResults come up; a reset is one too. A backend's rows
(``vecwrap.env.backend_rows``) are such rows, and so is what each wrapper makes of those within it.
Only the outermost environment, the one that the user calls, turns a StepResult into Gymnasium's
five-tuple.

A wrapper with a numbering of its own (fewer rows than it wraps, say) has an object of its own here;
it may step what is inside several times before it gives a row. ``receive`` may raise whenever it
waits: after a timeout it is called again, so such an object keeps in itself what it has begun;
after Ctrl-C ``drop_all`` is called. The rows inside are ``env.rows`` whenever they are driven: a
stopwatch puts others in their place for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from vecwrap.rows.batch import Batch
from vecwrap.rows.step_result import BoolArray, IntArray, StepResult

__all__ = ["NeedsReset", "NumberedRows", "Rows"]


class NeedsReset:
    """Which rows have ended, or were never reset, and must not be stepped before a reset."""

    def __init__(self, num_rows: int, *, resets_on_request: bool, agents: int = 0) -> None:
        self.ended: BoolArray = np.ones(num_rows, dtype=np.bool_)
        self.never_reset: BoolArray = np.ones(num_rows, dtype=np.bool_)
        self.any_ended: bool = True
        # whether an interrupt has ended the last call, since which no row was reset
        self.interrupted: bool = False
        self.resets_on_request = resets_on_request  # disabled mode
        # of a game, whose rows need a reset together, when it is over; 0 if these are no games
        self._agents = agents

    def update(self, step: StepResult) -> None:
        if self.any_ended:
            opened = step.env_ids[step.first]
            self.ended[opened] = self.never_reset[opened] = False
            self.any_ended = bool(self.ended.any())
            self.interrupted = self.interrupted and bool(self.never_reset.any())
        if self.resets_on_request:
            over = step.dones
            if self._agents and over.any():  # all rows of a game come together
                over = ~step.alive.reshape(-1, self._agents).any(axis=1).repeat(self._agents)
            ended = step.env_ids[over]
            if len(ended):
                self.require_reset(ended)

    def interrupt(self) -> None:
        """All rows need a reset, because an interrupt has ended a call."""
        self.ended[:] = True
        self.never_reset[:] = True
        self.any_ended = True
        self.interrupted = True

    def require_reset(self, env_ids: IntArray | Sequence[int] | slice) -> None:
        self.ended[env_ids] = self.any_ended = True


class Rows(Protocol):
    """The rows of an environment, driven from outside."""

    def send(self, actions: Batch, env_ids: IntArray) -> None:
        """Pass the actions of these rows, in the space's form, inwards.

        The call returns at once if the backend can.
        """

    def reset(
        self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        """Request resets of these rows."""

    def receive(self, count: int, timeout: float | None) -> StepResult:
        """Return ``count`` rows as soon as the rows have arrived.

        Past the timeout, WaitTimeoutError is raised, and no row is lost.
        """
        raise NotImplementedError


class NumberedRows(Rows, Protocol):
    """Rows with their own numbering, which know where each row is: mainly a backend's rows."""

    @property
    def in_flight(self) -> frozenset[int]:
        """The rows that are pending."""
        raise NotImplementedError

    @property
    def num_arrived(self) -> int:
        """How many of them ``receive`` would return at once."""
        raise NotImplementedError

    @property
    def needs_reset(self) -> NeedsReset:
        """Which of them need a reset."""
        raise NotImplementedError

    def drop_all(self) -> None:
        """An interrupt has ended a call: wait for nothing any more; all rows need a reset."""

    def sources(self, env_ids: IntArray) -> IntArray:
        """Return the backend's rows that stand for these: whose methods are called."""
        raise NotImplementedError

    def frame_rows(self, env_ids: IntArray) -> IntArray:
        """Return the backend's rows whose frames are these rows'."""
        raise NotImplementedError
