"""Actions clipped to the bounds of the environment's action space."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError
from vecwrap.rows.batch import Batch
from vecwrap.rows.members import is_box
from vecwrap.rows.step_result import IntArray


class ClipAction(VecEnvWrapper):
    """Clip actions to the bounds of the action space; the agent may send any number.

    The action space that the agent sees has no bounds (for integers: those of their dtype).

    At an episode's end:
        Nothing.

    Args:
        env: what it wraps; its actions are a Box.

    Raises:
        PlanError: the action space is not a Box.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = ClipAction(vecwrap.build("Pendulum-v1", n=2, backend="dummy"))
        >>> env.single_action_space
        Box(-inf, inf, (1,), float32)
        >>> observations, infos = env.reset(seed=1)
        >>> observations, rewards, *rest = env.step([[100.0], [-0.5]])  # as [[2.0], [-0.5]]
        >>> env.close()
    """

    def __init__(self, env: VecEnv) -> None:
        super().__init__(env)
        space = env.single_action_space
        if not is_box(space):
            raise PlanError(
                f"clip_action: expected actions of a Box, got {space}; leave the wrapper out"
            )
        assert isinstance(space, spaces.Box)
        self._low = space.low.copy()
        self._high = space.high.copy()
        low = -np.inf
        high = np.inf
        if np.issubdtype(space.dtype, np.integer):
            low = np.iinfo(space.dtype).min
            high = np.iinfo(space.dtype).max
        self.call_state.set_action_space(self, spaces.Box(low, high, space.shape, space.dtype.type))

    def on_actions(self, actions: Batch, env_ids: IntArray) -> Batch:
        return np.clip(actions, self._low, self._high)
