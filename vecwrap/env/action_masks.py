"""Which actions are legal now: the masks that environments report, wherever they report them."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ArgumentError
from vecwrap.rows.infos import row_of
from vecwrap.rows.step_result import BoolArray, IntArray

MEMBER, METHOD = "action_mask", "action_masks"
PLACES = (
    f'infos["{MEMBER}"] of each reset and step, a member "{MEMBER}" of Dict observations, or the environment\'s method '
    f"{METHOD}()"
)


class ActionMasks:
    """Finds the masks of an environment, in the first of `PLACES` that has any."""

    def __init__(self, env: VecEnv) -> None:
        self._env = env
        self._has_method: bool | None = None

    @property
    def has_method(self) -> bool:
        """Whether every sub-environment has the method; asked once."""
        if self._has_method is None:
            core, n = self._env.core, self._env.num_envs
            self._env.face.refuse_pending(METHOD)
            try:
                self._has_method = all(core.calls.now("has_attr", [(METHOD,)] * n, range(n)))
            except ArgumentError:  # an engine whose sub-environments cannot be reached
                self._has_method = False
        return self._has_method

    def find(self, observations: Any, infos: dict[str, Any], rows: IntArray) -> BoolArray | None:
        """Return the masks of all n rows, (n, k) bool, True if legal; those not among ``rows`` are True throughout.

        k is as sb3-contrib counts: the number of actions, of a MultiDiscrete that of all its dimensions together, of a
        MultiBinary two for each.

        Args:
            observations: the latest ones, n rows; only looked at around an engine, of which no others are known.
            infos: those that came with them.
            rows: whose mask is needed, because they act next.

        Returns:
            The masks, or None if none of these rows has any.

        Raises:
            ArgumentError: a mask of the wrong form, or some of the rows have none.
        """
        core = self._env.core
        seen = observations if core.is_engine else core.slots.observations.batch()  # before any wrapper of the vector
        if not len(rows):
            return np.ones((self._env.num_envs, self._size()), np.bool_)
        if MEMBER in infos:
            found = [row_of({key: infos[key] for key in (MEMBER, f"_{MEMBER}") if key in infos}, i) for i in rows]
            if missing := [int(i) for i, row in zip(rows, found, strict=True) if MEMBER not in row]:
                raise ArgumentError(
                    f'infos["{MEMBER}"]: expected a mask of every sub-environment that acts, got none of {missing}; '
                    "report it in the info of every reset and step"
                )
            given = [row[MEMBER] for row in found]
        elif isinstance(seen, dict) and MEMBER in seen:
            given = [row_of({MEMBER: seen[MEMBER]}, i)[MEMBER] for i in rows]
        elif self.has_method:
            some = None if core.is_engine or len(rows) == self._env.num_envs else rows.tolist()
            answers = self._env.call(METHOD, indices=some)
            given = [answers[i] for i in rows] if some is None else list(answers)
        else:
            return None
        masks = np.ones((self._env.num_envs, self._size()), np.bool_)
        for i, mask in zip(rows, given, strict=True):
            masks[i] = self._flat(mask)
        return masks

    def _flat(self, given: Any) -> Any:
        parts = given if isinstance(given, (tuple, list)) else (given,)
        flat = np.concatenate([np.ravel(part) for part in parts])
        if flat.shape != (self._size(),) or not np.isin(flat, (0, 1)).all():
            raise ArgumentError(
                f"{MEMBER}: expected {self._size()} zeros and ones for {self._env.single_action_space}, got "
                f"{flat.size} values of {np.unique(flat)[:9].tolist()}"
            )
        return flat

    def _size(self) -> int:
        space = self._env.single_action_space
        if isinstance(space, spaces.Discrete):
            return int(space.n)
        if isinstance(space, spaces.MultiDiscrete):
            return int(space.nvec.sum())
        if isinstance(space, spaces.MultiBinary):
            return 2 * int(np.prod(space.shape))
        raise ArgumentError(f"{MEMBER}: expected Discrete, MultiDiscrete or MultiBinary actions, got {space}")
