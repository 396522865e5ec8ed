"""Observations scaled from the bounds of their space to bounds of your choice."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.rows import members
from vecwrap.rows.batch import Batch
from vecwrap.rows.members import AffineMap, Bounds, box_between


class ScaleObs(VecEnvWrapper):
    """Scale observations from their space's bounds to ``low`` and ``high``, by default 0 and 1.

    The bounds of the space map exactly to the new ones, and the values in between linearly.
    Elements without bounds, as CartPole's velocities, stay as they are. Integers become float32;
    floats keep their dtype.

    Args:
        env: what it wraps; its observations are a Box with bounds, or a Dict of such Boxes.
        low: the lowest observation: a number, or one for each element, in a list or an array that
            NumPy broadcasts to the shape. In these an element has ``-inf`` exactly if the space
            has.
        high: the highest observation, likewise, with ``inf``. An element with one bound, which only
            these can express, is moved by the difference.
        keys: which members of a Dict to scale; None means all.

    Raises:
        PlanError: the observation space is not a Box or has no bounds, an element has one and
            ``low`` and ``high`` are numbers, or they do not fit.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = ScaleObs(vecwrap.build("Pendulum-v1", n=2, backend="dummy"), -1, 1)
        >>> env.unwrapped.single_observation_space, env.single_observation_space
        (Box([-1. -1. -8.], [1. 1. 8.], (3,), float32), Box(-1.0, 1.0, (3,), float32))
        >>> env.close()
    """

    def __init__(
        self,
        env: VecEnv,
        low: Bounds = 0.0,
        high: Bounds = 1.0,
        *,
        keys: tuple[str, ...] | None = None,
    ) -> None:
        boxes = members.choose(
            "scale_obs",
            env.single_observation_space,
            keys,
            _is_bounded if np.ndim(low) == np.ndim(high) == 0 else members.is_box,
            "a Box with bounds",
            "normalize_obs scales by running statistics instead",
        )
        scaled = {
            key: box_between(
                "scale_obs", low, high, box, box.dtype if box.dtype.kind == "f" else np.float32
            )
            for key, box in boxes.items()
        }
        self._affine_maps = {key: AffineMap(box, scaled[key]) for key, box in boxes.items()}
        super().__init__(env, members.replaced(env.single_observation_space, scaled))

    def on_observations(self, observations: Batch) -> Batch:
        return members.apply(self._affine_maps, observations)


def _is_bounded(space: Any) -> bool:
    """Whether some elements have both bounds, and the others none."""
    if not members.is_box(space):
        return False
    has_low = np.isfinite(space.low)
    has_high = np.isfinite(space.high)
    return bool(has_low.any() and (has_low == has_high).all())
