"""The common case of a step on one screen: all rows at once, in one call, and nothing special about any of them.

Everything else takes the general path: a step in two halves, some of the rows, resets, restarts, frames that are asked
for, a stopwatch. The books' ``in_line`` is the one word that says which: whoever starts or changes something takes
it away, and the end of a general call gives it back. From ``begin_line`` on, the step is a pending call of the general
path too, which goes on with it if it turns out to be special: a row raises, an interrupt comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.env.books import Books
from vecwrap.rows.columns import ARRAY_SPACES, the_one
from vecwrap.rows.gymnasium_form import conform_actions
from vecwrap.rows.step_result import StepResult


class Line:
    """The way of a whole step through a chain; it does not keep the outermost wrapper alive."""

    def __init__(
        self,
        num_envs: int,
        single_action_space: spaces.Space[Any] | None,
        downwards: Sequence[Any],
        upwards: Sequence[Any],
        outermost: tuple[bool, bool],
    ) -> None:
        self.dtype: np.dtype[Any] | None = None
        self.shape: tuple[int, ...] | None = None  # None: no step can take it
        if isinstance(single_action_space, ARRAY_SPACES):
            self.dtype = the_one(np.dtype(single_action_space.dtype))
            self.shape = (num_envs, *(single_action_space.shape or ()))
        self._downwards = downwards
        self._upwards = upwards
        self._outermost = outermost

    def step(self, env: Any, books: Books, pending: Any, actions: np.ndarray[Any, Any]) -> StepResult | None:
        """Take the step with actions of ``dtype`` and ``shape``; None if the general path has to end it."""
        if self._outermost[0]:
            actions = _changed(env, actions)
        for wrapper in self._downwards:
            actions = _changed(wrapper, actions)
        books.interrupts.hold()
        pending.call = "step"
        books.begin_line()
        try:
            if not books.runner.step_whole(actions):
                return None
            step = books.collect_line()
            for wrapper in self._upwards:
                wrapper.on_step(step)
            if self._outermost[1]:
                env.on_step(step)
        except BaseException:
            books.leave_line()
            if not books.out:
                pending.call = None
            raise
        return step


def _changed(wrapper: Any, actions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    below: Any = wrapper.on_actions(actions, wrapper.core.books.all_ids)
    inner = wrapper.env.single_action_space
    if below is not actions or inner is not wrapper.single_action_space:
        below = conform_actions(inner, below, wrapper.num_envs, f"{type(wrapper).__name__}.on_actions")
    return below  # type: ignore[no-any-return]  # the form is the space's
