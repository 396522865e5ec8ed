"""Opponents that need no training: the random one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.env.action_masks import choices_of, draw_legal
from vecwrap.errors import ArgumentError
from vecwrap.rows.batch import leaves
from vecwrap.rows.gymnasium_form import conform_actions
from vecwrap.rows.step_result import BoolArray, FloatArray, IntArray

RANDOM = "random"


class RandomPolicy:
    """Acts uniformly at random among the legal actions.

    A row without a legal action, which is not to move, gets the first action.
    """

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.action_space = action_space

    def __call__(
        self,
        observations: Any,
        *,
        action_masks: Any = None,
        rng: np.random.Generator | None = None,
        rngs: Sequence[np.random.Generator] | None = None,
    ) -> Any:
        """Return actions for m rows, whose masks are (m, k) bool or int8.

        They are drawn from one generator, or from m.
        """
        space = self.action_space
        rows = len(leaves(observations)[0][1])
        drawer: Any = rng
        if rngs is not None:
            drawer = _Each(rngs)
        if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
            return draw_legal(space, _checked(action_masks, rows, sum(choices_of(space))), drawer)
        if action_masks is not None:
            raise ArgumentError(
                f"{RANDOM}: expected no action masks for {space}, got some; masks are for "
                "Discrete, MultiDiscrete and MultiBinary"
            )
        drawn = []
        for number in drawer.random(rows).tolist():
            space.seed(int(number * 2**31))
            drawn.append(space.sample())
        return conform_actions(space, drawn, rows)


class _Each:
    """Generators of rows in place of one for all."""

    def __init__(self, rngs: Sequence[np.random.Generator]) -> None:
        self._rngs = rngs

    def random(self, count: int) -> FloatArray:
        return np.array([rng.random() for rng in self._rngs])


def first_legal(observations: Any, *, action_masks: Any) -> IntArray:
    """Take the first legal of n actions, which begins every game alike."""
    return np.asarray(np.argmax(action_masks, axis=1))


def _checked(masks: Any, rows: int, actions: int) -> BoolArray:
    if masks is None:
        checked: BoolArray = np.ones((rows, actions), np.bool_)
    else:
        checked = np.asarray(masks, np.bool_)
    if checked.shape != (rows, actions):
        raise ArgumentError(
            f"{RANDOM}: expected action masks of shape {(rows, actions)}, got {checked.shape}"
        )
    return checked
