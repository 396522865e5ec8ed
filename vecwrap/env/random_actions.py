"""Random play: legal actions wherever an environment says which are."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Any

import numpy as np

from vecwrap.env.action_masks import MASKED_SPACES, draw_legal
from vecwrap.env.vec_env import VecEnv
from vecwrap.rows.step_result import IntArray


class RandomActions:
    """Draws actions for an environment, whose own `step` or `send` receives them.

    An action depends only on the sub-environment, on how many it has had, and on its mask if the
    environment reports any. ``start`` is the number of the first sub-environment.
    """

    def __init__(self, env: VecEnv, seed: int, start: int = 0) -> None:
        self.env = env
        self.spaces = [deepcopy(env.single_action_space) for _ in range(env.num_envs)]
        self._may_be_masked = isinstance(env.single_action_space, MASKED_SPACES)
        for i, space in enumerate(self.spaces):
            space.seed(seed + start + i)

    def __call__(self, env_ids: Sequence[int] | IntArray | None = None) -> list[Any]:
        """Return an action for each of these sub-environments; None stands for all.

        None of these sub-environments may be pending.
        """
        if env_ids is None:
            ids = np.arange(len(self.spaces))
        else:
            ids = np.asarray(env_ids, np.int64)
        masks = None
        if self._may_be_masked:
            masks = self.env.call_state.action_masks.now(ids)
        if masks is None:
            return [self.spaces[i].sample() for i in ids.tolist()]
        return [
            draw_legal(self.spaces[i], masks[[i]], self.spaces[i].np_random)[0]
            for i in ids.tolist()
        ]

    def unused(self) -> Any:
        """Return an action for a row that will not act; the actions of other rows do not change."""
        return deepcopy(self.spaces[0]).sample()

    def continued(self, env: VecEnv) -> RandomActions:
        """Return a copy for another environment, which continues from the current random state.

        Drawing from the copy does not affect the actions drawn here.
        """
        other = copy(self)
        other.env = env
        other.spaces = deepcopy(self.spaces)
        return other
