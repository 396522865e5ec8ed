"""Calls each distinct policy once for all of its rows, and holds the spaces of each side."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.env.action_masks import choices_of, places_of
from vecwrap.env.policy import PolicyCall
from vecwrap.errors import ArgumentError, VecwrapError, kind_of, text_of
from vecwrap.rows.batch import Batch, leaves, row, tree_map
from vecwrap.rows.columns import ARRAY_SPACES
from vecwrap.rows.gymnasium_form import conform_actions
from vecwrap.rows.saved import fitting
from vecwrap.rows.step_result import BoolArray, IntArray
from vecwrap.selfplay.pool import OpponentPool
from vecwrap.sources.description import joint_space
from vecwrap.sources.seats import padded_actions, padded_space

KEYWORDS = frozenset({"action_masks", "rng", "rngs"})


class IllegalMoveError(ArgumentError):
    """Some of a policy's moves, at the positions ``rows``, cannot be played."""

    def __init__(self, message: str, rows: IntArray) -> None:
        super().__init__(message)
        self.rows = rows


class Moves:
    """Asks the policies of a pool for moves."""

    def __init__(
        self,
        pool: OpponentPool,
        action_space: spaces.Space[Any],
        *,
        deterministic: bool,
        where: str,
    ) -> None:
        self.pool = pool
        self._space = action_space
        self._deterministic = deterministic
        self._where = where
        self._calls: dict[str, tuple[Any, PolicyCall]] = {}  # by name, each with its policy
        self._states: dict[int, Any] = {}  # what a policy with a state remembers, by row

    def begin(self, rows: Sequence[int]) -> None:
        for i in rows:
            self._states.pop(i, None)

    def choose(
        self,
        name: str,
        rows: IntArray,
        observations: Batch,
        masks: BoolArray | None,
        rngs: Sequence[np.random.Generator],
    ) -> Batch:
        """Return a member's moves in m rows; IllegalMoveError if some moves are not legal.

        The other rows' moves may then still be played.
        """
        call = self._call(name)
        keywords: dict[str, Any] = {"action_masks": masks, "rngs": rngs}
        if "rng" in call.given:
            keywords["rng"] = np.random.default_rng([int(rng.integers(2**32)) for rng in rngs])
        starts = np.array([i not in self._states for i in rows.tolist()])
        state = None
        if call.has_state:
            state = self._joined(rows.tolist())
        shapes = ", ".join(str(array.shape) for _, array in leaves(observations))
        who = f'{self._where}: opponent "{name}", given observations of shape {shapes}'
        try:
            actions, state = call(observations, keywords, state, starts, self._space)
        except Exception as error:
            said = text_of(error)[:500]
            raise ArgumentError(f"{who}, raised {kind_of(error)}: {said}") from error
        try:
            actions = conform_actions(self._space, actions, len(rows), "its actions")
        except VecwrapError as error:
            raise ArgumentError(f"{who}: {error}") from error
        if call.has_state:
            self._keep(rows.tolist(), state, who)
        self._refuse_illegal(actions, masks, who)
        return actions

    def _call(self, name: str) -> PolicyCall:
        policy = self.pool.policy(name)
        known = self._calls.get(name)
        if known is None or known[0] is not policy:
            call = PolicyCall(
                policy, KEYWORDS, f"{self._where}: {name}", deterministic=self._deterministic
            )
            self._calls[name] = known = policy, call
        return known[1]

    def _refuse_illegal(self, actions: Batch, masks: BoolArray | None, who: str) -> None:
        count = len(leaves(actions)[0][1])
        if masks is not None and isinstance(
            self._space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
        ):
            places = places_of(self._space, actions)
            legal = np.take_along_axis(
                masks, np.where(places < 0, 0, places) % masks.shape[1], axis=1
            )
            bad = ~(legal & (places >= 0) & (places < masks.shape[1])).all(axis=1)
        elif isinstance(self._space, ARRAY_SPACES):
            bad = np.array([not self._space.contains(row(actions, i)) for i in range(count)])
        else:
            bad = np.zeros(count, np.bool_)
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            legal_ones = ""
            if masks is not None:
                legal_ones = f"; legal are {np.flatnonzero(masks[first]).tolist()[:30]}"
            expected = f"expected a legal move of {self._space}{legal_ones}"
            raise IllegalMoveError(
                f"{who}: {expected}, got {row(actions, first)!r}", np.flatnonzero(bad)
            )

    def _joined(self, rows: Sequence[int]) -> Any:
        """Join the rows' states, with zeros for games that begin; None if all games begin."""
        known = next((self._states[i] for i in rows if i in self._states), None)
        if known is None:
            return None
        nothing = tree_map(np.zeros_like, known)
        each = [self._states.get(i, nothing) for i in rows]
        return tree_map(
            lambda *parts: np.stack(parts, axis=_axis(parts[0].ndim + 1)), each[0], *each[1:]
        )

    def _keep(self, rows: Sequence[int], state: Any, who: str) -> None:
        if state is None:
            return
        state = tree_map(np.asarray, state)
        for _, array in leaves(state):
            axis = _axis(array.ndim)
            if array.ndim <= axis or array.shape[axis] != len(rows):
                raise ArgumentError(
                    f"{who}: expected a state of {len(rows)} rows along axis {axis}, got an array "
                    f"of {array.shape}"
                )
        for k, i in enumerate(rows):
            self._states[i] = tree_map(
                lambda array, k=k: array.take(k, axis=_axis(array.ndim)).copy(), state
            )

    def state(self) -> dict[str, Any]:
        rows = sorted(self._states)
        remembered = [tree_map(np.copy, self._states[i]) for i in rows]
        return {"rows": rows, "remembered": remembered, "pool": self.pool.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        rows = [fitting(i, 0, "rows") for i in fitting(state["rows"], [], "rows")]
        remembered = fitting(state["remembered"], [], "remembered")
        self.pool.load_state_dict(fitting(state["pool"], {}, "pool"))
        self._states = {i: tree_map(np.copy, one) for i, one in zip(rows, remembered, strict=True)}
        self._calls = {}


def _axis(ndim: int) -> int:
    """The axis of a state's rows: the first, but the second of three axes.

    PyTorch's recurrent layers use this order.
    """
    return 1 if ndim == 3 else 0


Space = spaces.Space[Any]


class SeatAdapter:
    """Agents that are moved together, in rows that may be padded for the other side."""

    def __init__(self, rows: tuple[Space, Space], own: Sequence[tuple[Space, Space]] = ()) -> None:
        self._of_rows = rows
        self.observation_space, self.action_space = rows
        if own:
            seen, done = ([pair[k] for pair in own] for k in (0, 1))
            self.observation_space = deepcopy(joint_space(seen) or padded_space(seen))
            self.action_space = deepcopy(padded_actions(done))
        self._sees_less = not _alike(self.observation_space, rows[0])
        self.does_less = not _alike(self.action_space, rows[1])

    def observations(self, batch: Batch) -> Batch:
        """Return observations of rows without what was padded for others."""
        if self._sees_less:
            return _cut(batch, self.observation_space, self._of_rows[0])
        return batch

    def actions(self, actions: Batch) -> Batch:
        space = self.action_space
        wanted = self._of_rows[1]
        if not self.does_less or not isinstance(wanted, spaces.Box):
            return actions
        more = [(0, most - own) for own, most in zip(space.shape or (), wanted.shape, strict=True)]
        return np.pad(actions, [(0, 0), *more])

    def masks(self, masks: BoolArray) -> BoolArray:
        if self.does_less:
            return masks[:, : sum(choices_of(self.action_space))]
        return masks


def _alike(one: Space, other: Space) -> bool:
    """Whether values of two spaces have the same form, whatever the bounds.

    Two Discrete spaces also need the same number of values.
    """
    return joint_space([one, other]) is not None and not (
        isinstance(one, spaces.Discrete) and isinstance(other, spaces.Discrete) and one.n != other.n
    )


def _cut(batch: Batch, own: Space, of_rows: Space) -> Batch:
    if isinstance(own, spaces.Dict) and isinstance(of_rows, spaces.Dict):
        return {key: _cut(batch[key], own[key], of_rows[key]) for key in own}
    if own.shape == of_rows.shape:
        return batch
    return np.ascontiguousarray(batch[(slice(None), *map(slice, own.shape or ()))])
