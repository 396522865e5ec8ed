"""Opponents that need no training: the random one."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from vecwrap.env.action_masks import choices_of, draw_legal
from vecwrap.errors import ArgumentError
from vecwrap.rows.batch import leaves
from vecwrap.rows.step_result import BoolArray

RANDOM = "random"


class RandomPolicy:
    """Acts uniformly at random among the legal actions.

    A row without a legal action, which is not to move, gets the first one.

    >>> policy = RandomPolicy(spaces.Discrete(3))
    >>> policy(np.zeros((2, 4)), action_masks=np.array([[0, 1, 0], [0, 0, 1]]), rng=np.random.default_rng(1))
    array([1, 2])

    Args:
        action_space: of one row.
    """

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.action_space = action_space

    def __call__(self, observations: Any, *, action_masks: Any = None, rng: np.random.Generator) -> Any:
        """Return actions for m rows of observations, whose masks are (m, k) bool or int8."""
        space, rows = self.action_space, len(leaves(observations)[0][1])
        if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
            return draw_legal(space, _checked(action_masks, rows, sum(choices_of(space))), rng)
        if action_masks is not None:
            raise ArgumentError(
                f"{RANDOM}: expected no action masks for {space}, got some; masks are for Discrete, MultiDiscrete and "
                "MultiBinary"
            )
        batched = batch_space(space, rows)
        batched.seed(int(rng.integers(2**31)))
        return batched.sample()


def _checked(masks: Any, rows: int, actions: int) -> BoolArray:
    checked: BoolArray = np.ones((rows, actions), np.bool_) if masks is None else np.asarray(masks, np.bool_)
    if checked.shape != (rows, actions):
        raise ArgumentError(f"{RANDOM}: expected action masks of shape {(rows, actions)}, got {checked.shape}")
    return checked
