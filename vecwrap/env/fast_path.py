"""The fast path: a step of all rows at once, in one call, without special cases.

Everything else takes the general path: a step in two halves, some of the rows, resets, restarts,
frames that are asked for, a stopwatch. ``BackendRows.fast`` says which: whoever starts or changes
something sets it to False, and the end of a general call may set it again. If such a step turns out
to be special (a row raises), the general path goes on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.env.backend_rows import BackendRows
from vecwrap.rows.columns import ARRAY_SPACES, only_instance
from vecwrap.rows.gymnasium_form import conform_actions
from vecwrap.rows.step_result import StepResult


class FastPath:
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
            self.dtype = only_instance(np.dtype(single_action_space.dtype))
            self.shape = (num_envs, *(single_action_space.shape or ()))
        self._downwards = downwards
        self._upwards = upwards
        self._outermost = outermost

    def step(
        self, env: Any, rows: BackendRows, pending: Any, actions: np.ndarray[Any, Any]
    ) -> StepResult | None:
        """Step with actions of ``dtype`` and ``shape``; None if the general path must end it."""
        if self._outermost[0]:
            actions = _changed(env, actions)
        for wrapper in self._downwards:
            actions = _changed(wrapper, actions)
        rows.interrupts.hold()
        pending.call = "step"
        try:
            step = rows.step_all(actions)
            if step is None:
                return None
            for wrapper in self._upwards:
                wrapper.on_step(step)
            if self._outermost[1]:
                env.on_step(step)
        except BaseException:
            rows.leave_fast_path()
            if not rows.in_flight:
                pending.call = None
            raise
        return step


def _changed(wrapper: Any, actions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    below: Any = wrapper.on_actions(actions, wrapper.core.rows.all_ids)
    inner = wrapper.env.single_action_space
    if below is not actions or inner is not wrapper.single_action_space:
        below = conform_actions(
            inner, below, wrapper.num_envs, f"{type(wrapper).__name__}.on_actions"
        )
    return below  # type: ignore[no-any-return]  # the form is the space's
