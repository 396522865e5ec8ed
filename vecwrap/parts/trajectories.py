"""What happened to sub-environments since their episodes began, in arrays of fixed size, one row per agent step."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.batch import Batch, leaves
from vecwrap.columns import ARRAY_SPACES
from vecwrap.contract import BoolArray, IntArray
from vecwrap.errors import PlanError

__all__ = ["Trajectories", "columns_of", "flat"]

Array = np.ndarray[Any, np.dtype[Any]]


def columns_of(name: str, space: spaces.Space[Any], layer: str) -> dict[str, spaces.Space[Any]]:
    """Name the leaves of a space as ``flat`` names those of a batch.

    Raises:
        PlanError: a leaf without an array form, or two with the same name.

    >>> space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.Discrete(3), spaces.Discrete(4)]))
    >>> columns_of("actions", space, "a_layer")
    {'actions/a': Discrete(2), 'actions/b/0': Discrete(3), 'actions/b/1': Discrete(4)}
    """
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        members = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        columns: dict[str, spaces.Space[Any]] = {}
        for key, member in members:
            inner = columns_of(f"{name}/{key}", member, layer)
            if twice := columns.keys() & inner.keys():
                raise PlanError(f'{layer}: two members of {space} are called "{twice.pop()}" in a file; rename one')
            columns.update(inner)
        return columns
    if not isinstance(space, ARRAY_SPACES):
        raise PlanError(
            f"{layer}: {name}: expected Box, Discrete, MultiBinary or MultiDiscrete, or Dict and Tuple of these, got "
            f"{space}, which would have to be pickled. Leave it out with filter_obs, or change its form inside"
        )
    return {name: space}


def flat(name: str, batch: Batch) -> dict[str, Array]:
    """Return the arrays of a batch by name, ``"observations/camera"`` for the member ``"camera"``."""
    return {"/".join(map(str, (name, *path))): array for path, array in leaves(batch)}


class Trajectories:
    """The current part of the episode of each of m sub-environments.

    Args:
        observations: the leaves of the observations, by name.
        actions: likewise.
        num_rows: m.
        capacity: the maximum number of transitions in a part.

    Attributes:
        length: (m,) int64, the number of transitions in the part.
    """

    def __init__(
        self,
        observations: dict[str, spaces.Space[Any]],
        actions: dict[str, spaces.Space[Any]],
        num_rows: int,
        capacity: int,
    ) -> None:
        self.capacity = capacity
        self.length: IntArray = np.zeros(num_rows, dtype=np.int64)
        # np.empty: pages not yet written take no memory
        self._observations = {
            name: np.empty((num_rows, capacity + 1, *(space.shape or ())), space.dtype)
            for name, space in observations.items()
        }
        self._transitions: dict[str, Array] = {
            name: np.empty((num_rows, capacity, *(space.shape or ())), space.dtype) for name, space in actions.items()
        }
        for name in ("rewards", "raw_rewards"):
            self._transitions[name] = np.empty((num_rows, capacity))
        for name in ("terminations", "truncations", "raw_dones"):
            self._transitions[name] = np.empty((num_rows, capacity), dtype=np.bool_)

    def begin(self, rows: IntArray, observations: dict[str, Array]) -> None:
        """Begin episodes with their first observations."""
        self.length[rows] = 0
        for name, values in observations.items():
            self._observations[name][rows, 0] = values

    def add(self, rows: IntArray, transitions: dict[str, Array], observations: dict[str, Array]) -> None:
        """Add one transition per row, and the observation that it led to."""
        at = self.length[rows]
        for name, values in transitions.items():
            self._transitions[name][rows, at] = values
        for name, values in observations.items():
            self._observations[name][rows, at + 1] = values
        self.length[rows] += 1

    def full(self, rows: IntArray) -> BoolArray:
        """Return which of these rows are full."""
        return np.equal(self.length[rows], self.capacity)

    def part(self, row: int) -> dict[str, Array]:
        """Return the arrays of one row, as views: k transitions, k + 1 observations."""
        k = int(self.length[row])
        observations = {name: values[row, : k + 1] for name, values in self._observations.items()}
        return {**observations, **{name: values[row, :k] for name, values in self._transitions.items()}}

    def go_on(self, row: int) -> None:
        """Begin the next part of the same episode with the last observation of this one."""
        for values in self._observations.values():
            values[row, 0] = values[row, self.length[row]]
        self.length[row] = 0

    def state(self) -> list[dict[str, Array]]:
        """Return the contents of all rows."""
        return [{name: values.copy() for name, values in self.part(row).items()} for row in range(len(self.length))]

    def load_state(self, state: list[dict[str, Array]]) -> None:
        """Restore what ``state`` returned."""
        for row, part in enumerate(state):
            self.length[row] = len(part["rewards"])
            for name, values in part.items():
                whole = self._observations.get(name, self._transitions.get(name))
                assert whole is not None
                whole[row, : len(values)] = values
