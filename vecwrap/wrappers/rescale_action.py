"""Actions between bounds of your choice, mapped to those of the environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError
from vecwrap.rows.batch import Batch
from vecwrap.rows.members import AffineMap, Bounds, box_between, is_box
from vecwrap.rows.step_result import IntArray


class RescaleAction(VecEnvWrapper):
    """Let the agent act between ``low`` and ``high``, whatever the environment's bounds are.

    ``low`` and ``high`` map exactly to the environment's bounds, and the values in between
    linearly. Values outside stay outside; to prevent that, put ``clip_action`` outside this
    wrapper.

    At an episode's end:
        Nothing.

    Args:
        env: what it wraps; its actions are a bounded Box of floats.
        low: the lowest action: a number, or one for each element, in a list or an array that NumPy
            broadcasts.
        high: the highest action, likewise.

    Raises:
        PlanError: the action space is not a Box of floats or has no bounds, or ``low`` and ``high``
            do not fit.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = RescaleAction(vecwrap.build("Pendulum-v1", n=2, backend="dummy"))
        >>> env.single_action_space, env.unwrapped.single_action_space
        (Box(-1.0, 1.0, (1,), float32), Box(-2.0, 2.0, (1,), float32))
        >>> observations, infos = env.reset(seed=1)
        >>> observations, rewards, *rest = env.step([[0.5], [1.0]])  # inside: [[1.0], [2.0]]
        >>> env.close()
    """

    def __init__(self, env: VecEnv, low: Bounds = -1.0, high: Bounds = 1.0) -> None:
        super().__init__(env)
        space: Any = env.single_action_space
        if not (is_box(space) and np.issubdtype(space.dtype, np.floating)):
            raise PlanError(
                f"rescale_action: expected actions of a Box of floats, got {space}; leave the "
                "wrapper out"
            )
        if not space.is_bounded():
            raise PlanError(
                f"rescale_action: expected actions with bounds, got {space}; if clip_action "
                "removed them, put it outside this wrapper"
            )
        outer = box_between("rescale_action", low, high, space, space.dtype)
        self._affine_map = AffineMap(outer, space)
        self.call_state.set_action_space(self, outer)

    def on_actions(self, actions: Batch, env_ids: IntArray) -> Batch:
        return self._affine_map(actions)
