"""Each sub-environment's last value: n rows of a space, for layers that must report or show it again."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.batch import Batch, copy, leaves, object_array, scatter, take
from vecwrap.columns import make_column
from vecwrap.contract import IntArray
from vecwrap.errors import CheckpointError

__all__ = ["LastRows"]


class LastRows:
    """The last value of each sub-environment; not shared with values put in or returned.

    Args:
        space: of one value.
        num_envs: n.

    >>> last = LastRows(spaces.Box(0, 1, (2,)), 3)
    >>> last.put(np.array([1]), np.ones((1, 2), np.float32))
    >>> last.all().tolist()
    [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    """

    def __init__(self, space: spaces.Space[Any], num_envs: int) -> None:
        self._batch = make_column(space, num_envs, np.zeros).batch()

    def put(self, rows: slice | IntArray, values: Batch) -> None:
        """Write the values of some rows."""
        scatter(self._batch, rows, values)

    def of(self, rows: Any) -> Batch:
        """Return some rows; not to be written into."""
        return take(self._batch, rows)

    def all(self) -> Batch:
        """Return all rows, as fresh arrays."""
        return copy(self._batch)

    def state(self) -> list[Any]:
        """Return the leaves, as fresh arrays, or lists if they hold objects."""
        return [array.tolist() if array.dtype == object else array for _, array in leaves(self.all())]

    def load(self, state: list[Any], where: str) -> None:
        """Restore the result of ``state``; ``where`` starts error messages.

        Raises:
            CheckpointError: it is of another form.
        """
        own = [array for _, array in leaves(self._batch)]
        values = [object_array(value) if isinstance(value, list) else np.asarray(value) for value in state]
        expected, got = ([leaf.shape for leaf in each] for each in (own, values))
        if expected != got:
            raise CheckpointError(
                f"{where}: expected arrays of shapes {expected}, got {got}; they are of another chain"
            )
        for leaf, value in zip(own, values, strict=True):
            scatter(leaf, ..., value)
