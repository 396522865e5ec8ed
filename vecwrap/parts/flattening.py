"""Observations as one vector each, batch-wise, as Gymnasium's ``flatten`` makes it of one."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.batch import Batch
from vecwrap.errors import PlanError

__all__ = ["flat", "flat_box"]

Array = np.ndarray[Any, Any]
Space = spaces.Space[Any]


def flat_box(layer: str, space: Space) -> spaces.Box:
    """Give the Box of a flattened observation.

    Args:
        layer: for errors.
        space: of one observation.

    Raises:
        PlanError: it has no flat form.
    """
    try:
        box = spaces.utils.flatten_space(space) if space.is_np_flattenable else None
    except NotImplementedError:  # a space that Gymnasium does not know
        box = None
    if not isinstance(box, spaces.Box):
        raise PlanError(
            f"{layer}: expected observations with a flat form of fixed size, got {space}; filter_obs, inside of this "
            "layer, leaves members of a Dict out"
        )
    return box


def flat(space: Space, observations: Batch) -> Array:
    """Flatten a batch: numbers in a row, Discrete values one-hot, text as indices of its characters.

    Args:
        space: of one observation.
        observations: m of them.

    Returns:
        (m, d), of the dtype that the parts have in common.

    >>> space = spaces.Dict(a=spaces.Discrete(3, start=1), b=spaces.MultiBinary(2))
    >>> flat(space, {"a": np.array([2]), "b": np.array([[1, 0]])})
    array([[0, 1, 0, 1, 0]])
    """
    if isinstance(space, spaces.Dict):
        return np.concatenate([flat(member, observations[key]) for key, member in space.spaces.items()], axis=1)
    if isinstance(space, spaces.Tuple):
        parts = zip(space.spaces, observations, strict=True)
        return np.concatenate([flat(member, part) for member, part in parts], axis=1)
    # These exactly: for a space that derives from one, Gymnasium may have been told another flat form.
    if type(space) in (spaces.Box, spaces.MultiBinary):
        return np.reshape(observations, (len(observations), -1))
    if type(space) is spaces.Discrete:
        return _one_hot(observations[:, None] - space.start, np.array([space.n]), space.dtype)
    if type(space) is spaces.MultiDiscrete:
        values = (observations - space.start).reshape(len(observations), -1)
        return _one_hot(values, space.nvec.reshape(-1), space.dtype)
    return np.stack([np.asarray(spaces.utils.flatten(space, value)) for value in observations])


def _one_hot(values: Array, sizes: Array, dtype: Any) -> Array:
    """(m, k) values below (k,) sizes as (m, sum of sizes) zeros and ones."""
    out = np.zeros((len(values), int(sizes.sum())), dtype=dtype)
    starts = np.cumsum(sizes) - sizes
    out[np.arange(len(values))[:, None], starts + values] = 1
    return out
