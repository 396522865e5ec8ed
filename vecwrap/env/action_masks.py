"""Which actions are legal now: the masks that environments report, wherever they report them."""

from __future__ import annotations

import math
import weakref
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import spaces

from vecwrap.errors import ArgumentError
from vecwrap.rows.batch import Batch, row
from vecwrap.rows.infos import row_of
from vecwrap.rows.step_result import BoolArray, IntArray
from vecwrap.sources.masks import MEMBER, METHOD

Waiting: TypeAlias = Literal["all", "none", "one"]
MASKED_SPACES = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
PLACES = (
    f'infos["{MEMBER}"] of each reset and step, a member "{MEMBER}" of Dict observations, or the '
    f"environment's method {METHOD}()"
)


class ActionMasks:
    """Finds the masks of an environment, in the first of `PLACES` that has any."""

    def __init__(self, env: Any) -> None:
        self._env: Any = weakref.proxy(env)  # a VecEnv, whose call state has this object
        self._has_method: bool | None = None

    @property
    def has_method(self) -> bool:
        """Whether every sub-environment has the method; asked once."""
        if self._has_method is None:
            core = self._env.core
            call_state = self._env.call_state
            call_state.refuse_pending(METHOD)
            ids = call_state.ids_of_call(None)
            try:
                self._has_method = all(core.calls.now("has_attr", [(METHOD,)] * len(ids), ids))
            except ArgumentError:  # an engine whose sub-environments cannot be reached
                self._has_method = False
        return self._has_method

    def find(
        self, observations: Any, infos: dict[str, Any], rows: IntArray, *, waiting: Waiting = "all"
    ) -> BoolArray | None:
        """Return the masks of all n rows, (n, k) bool; None if none of ``rows`` has a mask.

        k is the number that sb3-contrib counts.

        ``rows`` are those that act next; others are True throughout. ``waiting`` is what is legal
        for agents that are not to move: all, none, or the first of each dimension. Around an engine
        no other ``observations`` are known.
        """
        n = self._env.num_envs
        waits = self._env.core.slots.not_to_move[self._env.call_state.sources]
        rows = rows[~waits[rows]]
        if not len(rows):
            given: Any = []
        else:
            given = self._given(observations, infos, rows)
        if given is None:
            return None
        masks = np.ones((n, self._size()), np.bool_)
        if waiting != "all":
            masks[waits] = False
        if waiting == "one":
            masks[np.ix_(waits, self._firsts())] = True
        if isinstance(given, np.ndarray) and given.ndim == 2:
            masks[rows] = self._checked(given)
        else:
            for i, mask in zip(rows, given, strict=True):
                if isinstance(mask, (tuple, list)):
                    parts = mask
                else:
                    parts = (mask,)
                masks[i] = self._checked(np.concatenate([np.ravel(part) for part in parts])[None])
        return masks

    def now(self, env_ids: IntArray | None = None) -> BoolArray | None:
        """Return the masks of all n rows, (n, k) bool; all False for rows that do not act next."""
        call_state = self._env.call_state
        slots = self._env.core.slots
        at = call_state.sources
        idle = (slots.terminations[at] | slots.truncations[at]) & ~slots.first[at]
        acts = ~(idle | slots.not_to_move[at])
        if env_ids is not None:
            acts &= np.isin(call_state.pending.all_ids, env_ids)
        results = call_state.results
        masks = self.find(
            results.to_gymnasium(results.last_observations.all()),
            results.reported_masks,
            np.flatnonzero(acts),
            waiting="none",
        )
        if masks is not None:
            masks[~acts] = False
        return masks

    def refuse_illegal(self, actions: Batch, env_ids: IntArray) -> None:
        reported = self._env.call_state.results.reported_masks
        if (
            self._env.call_state.numbered_rows.in_flight
            and not reported
            and self._has_method is not False
        ):
            return  # some rows are pending, and others cannot be asked meanwhile
        masks = self.now(env_ids)
        if masks is None:
            return
        space = self._env.single_action_space
        places = places_of(space, actions)
        for position, i in enumerate(env_ids.tolist()):
            mask = masks[i]
            action = row(actions, position)
            if not mask.any() or mask[places[position]].all():
                continue
            agent = self._env.row_agents[i]
            who = f"sub-environment {i}"
            if agent:
                who += f" ({agent} in game {self._env.row_games[i]})"
            start = 0
            if isinstance(space, spaces.Discrete):
                start = int(space.start)
            raise ArgumentError(
                f"actions[{position}], for {who}: expected a legal action, one of "
                f"{(np.flatnonzero(mask) + start).tolist()}, got {action!r}; nothing was stepped"
            )

    def _given(self, observations: Any, infos: dict[str, Any], rows: IntArray) -> Any:
        """Return the masks of these rows as the environment has them; None if no row has a mask."""
        core = self._env.core
        seen = observations
        if not core.is_engine:
            seen = core.slots.observations.batch()  # before any wrapper of the vector
        if MEMBER in infos:
            column = infos[MEMBER]
            reported = infos.get(f"_{MEMBER}")
            if (
                isinstance(column, np.ndarray)
                and column.ndim == 2
                and reported is not None
                and reported[rows].all()
            ):
                return column[rows]
            found = [
                row_of({key: infos[key] for key in (MEMBER, f"_{MEMBER}") if key in infos}, i)
                for i in rows
            ]
            if missing := [int(i) for i, row in zip(rows, found, strict=True) if MEMBER not in row]:
                raise ArgumentError(
                    f'infos["{MEMBER}"]: expected a mask of every sub-environment that acts, got '
                    f"none of {missing}; report it in the info of every reset and step"
                )
            return [row[MEMBER] for row in found]
        if isinstance(seen, dict) and MEMBER in seen:
            at = rows
            if not core.is_engine:
                at = self._env.call_state.numbered_rows.sources(rows)
            if isinstance(seen[MEMBER], np.ndarray):
                return seen[MEMBER][at]
            return [row_of({MEMBER: seen[MEMBER]}, i)[MEMBER] for i in at]
        if self.has_method:
            some = None
            if not core.is_engine and len(rows) != self._env.num_envs:
                some = rows.tolist()
            answers = self._env.call(METHOD, indices=some)
            if some is None:
                return [answers[i] for i in rows]
            return list(answers)
        return None

    def _checked(self, masks: Any) -> Any:
        """Masks, a flat one a row; ArgumentError if they are none."""
        if masks.shape[1:] == (self._size(),) and (
            masks.dtype == np.bool_ or ((masks == 0) | (masks == 1)).all()
        ):
            return masks
        raise ArgumentError(
            f"{MEMBER}: expected {self._size()} zeros and ones for "
            f"{self._env.single_action_space}, got {masks[0].size} values of "
            f"{np.unique(masks)[:9].tolist()}"
        )

    def _firsts(self) -> list[int]:
        return [0, *np.cumsum(choices_of(self._env.single_action_space))[:-1].tolist()]

    def _size(self) -> int:
        return sum(choices_of(self._env.single_action_space))


def choices_of(space: spaces.Space[Any]) -> list[int]:
    """How many actions each dimension of a space has, whose masks stand side by side."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.ravel().tolist()
    if isinstance(space, spaces.MultiBinary):
        return [2] * math.prod(space.shape)
    raise ArgumentError(
        f"{MEMBER}: expected Discrete, MultiDiscrete or MultiBinary actions, got {space}"
    )


def places_of(space: spaces.Space[Any], actions: Batch) -> IntArray:
    """(m, d) int64.

    Where each action is in its mask, for each of its dimensions; -1: outside of the space.
    """
    if isinstance(space, spaces.Discrete):
        return np.asarray(actions - space.start, np.int64)[:, None]
    if isinstance(space, spaces.MultiDiscrete):
        firsts = np.array([0, *np.cumsum(space.nvec.ravel())[:-1]])
        inside = ((actions >= space.start) & (actions < space.start + space.nvec)).reshape(
            len(actions), -1
        )
        at = firsts + (actions - space.start).reshape(len(actions), -1)
        return np.asarray(np.where(inside, at, -1))
    flat = actions.reshape(len(actions), -1).astype(np.int64)
    return np.asarray(2 * np.arange(flat.shape[1]) + flat)


def draw_legal(space: spaces.Space[Any], masks: BoolArray, rng: np.random.Generator) -> Any:
    """Draw a legal action, each equally likely, for each of m rows; if none is legal, the first."""
    drawn = []
    for part in _dimensions(space, masks):
        chosen = np.floor(rng.random(len(part)) * part.sum(axis=1))
        drawn.append((np.cumsum(part, axis=1) > chosen[:, None]).argmax(axis=1))
    return _actions(space, drawn)


def legal_nearest_to_zero(space: spaces.Space[Any], masks: BoolArray) -> Any:
    """Return the legal action nearest to zero for each of m rows; if none is legal, the first."""
    parts = _dimensions(space, masks)
    chosen = []
    for part, start in zip(
        parts, np.broadcast_to(np.ravel(getattr(space, "start", 0)), len(parts)), strict=True
    ):
        distances = np.abs(np.arange(part.shape[1]) + start)
        chosen.append(np.where(part, distances, distances.max() + 1).argmin(axis=1))
    return _actions(space, chosen)


def _dimensions(space: spaces.Space[Any], masks: BoolArray) -> list[BoolArray]:
    return np.split(masks, np.cumsum(choices_of(space))[:-1], axis=1)


def _actions(space: spaces.Space[Any], chosen: list[IntArray]) -> Any:
    """Actions of m rows, from the place in its mask that is chosen in each dimension."""
    actions = np.stack(chosen, axis=1).reshape(len(chosen[0]), *(space.shape or ()))
    return (actions + getattr(space, "start", 0)).astype(space.dtype)


def masks_of(env: Any) -> BoolArray:
    masks: BoolArray | None = env.call_state.action_masks.now()
    if masks is None:
        raise ArgumentError(f"action_masks: {env!r} reports none; expected {PLACES}")
    return masks


def saved_masks(reported: dict[str, Any]) -> Any:
    """Return the last masks from infos for a saved state, (n, k) int8; None if there were none.

    The masks of rows that reported none are zeros.
    """
    masks = reported.get(MEMBER)
    have_masks = reported.get(f"_{MEMBER}")
    if not isinstance(masks, np.ndarray) or masks.ndim != 2 or have_masks is None:
        return None
    return (masks * have_masks[:, None]).astype(np.int8)


def loaded_masks(saved: Any) -> dict[str, Any]:
    """Return the masks of ``saved_masks`` as infos had them."""
    if saved is None:
        return {}
    return {MEMBER: saved.copy(), f"_{MEMBER}": saved.any(axis=1)}
