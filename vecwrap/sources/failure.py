"""An exception of a sub-environment in a form that can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vecwrap.errors import RemoteTraceback, SubEnvError, kind_of, text_of, traceback_of
from vecwrap.sources.old_api import old_api


@dataclass(frozen=True)
class Failure:
    index: int
    seed: int | None
    episode: int
    step: int
    action: Any
    during: str
    kind: str
    message: str
    traceback: str
    note: str = ""  # what was done about it
    autoreset: bool = False  # a step began the next episode, and its reset failed
    stepped: bool = False  # the step itself was done; its row lacks only the reset that failed after it
    refused: bool = False  # an engine was asked what it does not have
    whole: str = ""  # if all rows of its engine failed: what that is
    cause: BaseException | None = field(default=None, compare=False)

    def error(self) -> SubEnvError:
        steps = f"{self.step} step{'s' * (self.step != 1)}"
        place = f" of its episode {self.episode}, after {steps}" if self.episode else ""
        alone = self.during == "step" and not self.whole
        remedy = "\nThe others are unharmed; reset this one before it is stepped again." if alone else ""
        plain = self.action.item() if isinstance(self.action, np.generic) else self.action
        during, action = self.during, f" on action {plain!r}" if alone else ""
        if self.autoreset:
            during, place, action = "reset", f" after its episode {self.episode} of {steps}", ""
        seed = "unseeded" if self.seed is None else f"seed {self.seed}"
        error = SubEnvError(
            f"sub-environment {self.index} ({seed}){self.whole} raised {self.kind} in {during}{place}{action}: "
            f"{self.message}{self.note}{remedy}",
            index=self.index,
            seed=self.seed,
            episode=self.episode,
            step=self.step,
            action=self.action,
            during=self.during,
            kind=self.kind,
        )
        error.__cause__ = self.cause or RemoteTraceback(self.traceback)
        return error

    def is_of(self, env_ids: range) -> bool:
        texts = self.during, self.kind, self.message, self.traceback, self.note, self.whole
        return type(self.index) is int and self.index in env_ids and {*map(type, texts)} == {str} and not self.cause

    def without_cause(self) -> Failure:
        """Return the form to send: an environment's exceptions may not survive pickling."""
        return replace(self, cause=None)


def said_by(error: BaseException) -> str:
    """An exception's message, with what it means if an environment of the old Gym API caused it."""
    message = text_of(error)
    return message + old_api(error, message)


def make_failure(index: int, error: BaseException) -> Failure:
    return Failure(index, None, 0, 0, None, "make", kind_of(error), said_by(error), traceback_of(error), cause=error)
