"""The two sides of a game, the learner's and its opponents': each sees and does what its own agents' spaces say."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.env.action_masks import choices_of
from vecwrap.rows.batch import Batch
from vecwrap.rows.step_result import BoolArray
from vecwrap.sources.description import joint_space
from vecwrap.sources.seats import padded_actions, padded_space

Space = spaces.Space[Any]


class Side:
    """Agents that are moved together, in rows which may have been padded for agents of the other side."""

    def __init__(self, rows: tuple[Space, Space], own: Sequence[tuple[Space, Space]] = ()) -> None:
        self._of_rows = rows
        self.observation_space, self.action_space = rows
        if own:
            seen, done = ([pair[k] for pair in own] for k in (0, 1))
            self.observation_space = deepcopy(joint_space(seen) or padded_space(seen))
            self.action_space = deepcopy(padded_actions(done))
        self._sees_less = not _alike(self.observation_space, rows[0])
        self.does_less = not _alike(self.action_space, rows[1])

    def seen(self, batch: Batch) -> Batch:
        """Return observations of rows without what was padded for others."""
        return _cut(batch, self.observation_space, self._of_rows[0]) if self._sees_less else batch

    def done(self, actions: Batch) -> Batch:
        space, wanted = self.action_space, self._of_rows[1]
        if not self.does_less or not isinstance(wanted, spaces.Box):
            return actions
        more = [(0, most - own) for own, most in zip(space.shape or (), wanted.shape, strict=True)]
        return np.pad(actions, [(0, 0), *more])

    def masks(self, masks: BoolArray) -> BoolArray:
        return masks[:, : sum(choices_of(self.action_space))] if self.does_less else masks


def _alike(one: Space, other: Space) -> bool:
    """Whether values of two spaces have the same form, whatever the bounds; of Discrete ones, as many."""
    return joint_space([one, other]) is not None and not (
        isinstance(one, spaces.Discrete) and isinstance(other, spaces.Discrete) and one.n != other.n
    )


def _cut(batch: Batch, own: Space, of_rows: Space) -> Batch:
    if isinstance(own, spaces.Dict) and isinstance(of_rows, spaces.Dict):
        return {key: _cut(batch[key], own[key], of_rows[key]) for key in own}
    if own.shape == of_rows.shape:
        return batch
    return np.ascontiguousarray(batch[(slice(None), *map(slice, own.shape or ()))])
