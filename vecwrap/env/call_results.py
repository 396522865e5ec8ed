"""The results of an environment's calls: Gymnasium's five-tuple, which is made of StepResults here.

A later call repeats the last observations, or needs the latest action masks: they are kept here.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from vecwrap.env.backend_rows import BackendRows
from vecwrap.env.row_protocol import NumberedRows
from vecwrap.rows import batch as batches
from vecwrap.rows import gymnasium_form
from vecwrap.rows.batch import Batch
from vecwrap.rows.infos import END_KEYS, columns, row_of, without_keys
from vecwrap.rows.step_result import BoolArray, FloatArray, IntArray, StepResult
from vecwrap.sources.masks import MEMBER

__all__ = ["CallResults", "FiveTuple", "KeptByWrapper", "LastObservations", "with_env_ids"]

FiveTuple = tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]


class LastObservations:
    """The observations that were last returned, so that a masked reset can repeat other rows."""

    is_kept_by_wrapper: ClassVar[bool] = False  # and so known, whoever is outermost

    def __init__(self, backend_rows: BackendRows, num_envs: int) -> None:
        self._backend_rows = backend_rows
        self._num_envs = num_envs
        self._batch: Batch = None  # None if the backend can provide them again
        # whether the backend's own observations were returned while the batch was still None
        self._unchanged = False

    def update(self, step: StepResult) -> None:
        """Keep observations; free if no wrapper changed them."""
        if not len(step.env_ids):
            return
        if self._batch is None:
            if step.observations is self._backend_rows.last_observations:
                self._unchanged = True
                return
            if self._unchanged:  # a wrapper changes observations only sometimes
                self._batch = self.all()
            else:
                self._batch = batches.empty_like(step.observations, self._num_envs)
        batches.scatter(self._batch, step.rows, step.observations)

    def all(self) -> Batch:
        batch = self._batch
        if batch is None:
            batch = self._backend_rows.slots.observations.batch()
        return batches.copy(batch)

    def load(self, batch: Batch) -> None:
        self._batch = batches.copy(batch)


class KeptByWrapper(LastObservations):
    """Those of a wrapper that keeps all rows for itself, and in its own saved state."""

    is_kept_by_wrapper: ClassVar[bool] = True

    def __init__(self, get_all: Callable[[], Batch]) -> None:
        self._get_all = get_all

    def update(self, step: StepResult) -> None:
        """Keep nothing."""

    def all(self) -> Batch:
        return self._get_all()

    def load(self, batch: Batch) -> None:
        """Load nothing."""


class CallResults:
    """What the calls of one environment of a chain return."""

    # whether ``final_obs`` is a batch of all rows, and not one observation for each row that ended
    dense_final_obs: bool = False
    # called with the rows of each result before it is made of them
    on_step: Callable[[StepResult], None] | None = None
    object_leaves: bool  # whether observations have any, which are converted for Gymnasium
    scalar_boxes: bool
    single_observation_space: spaces.Space[Any]

    def __init__(self, core: Any, numbered_rows: NumberedRows, num_envs: int) -> None:
        self._backend_rows: BackendRows = core.rows
        self._numbered_rows = numbered_rows
        self._num_envs = num_envs
        self.last_observations: LastObservations = LastObservations(core.rows, num_envs)
        # the latest action masks that infos had, as columns of n rows
        self.reported_masks: dict[str, Any] = {}
        # as the sub-environments return observations: wrappers may have removed the masks
        space = core.description.observation_space
        self._has_mask_member = (
            not core.is_engine and isinstance(space, spaces.Dict) and MEMBER in space.spaces
        )

    def set_space(self, single: spaces.Space[Any]) -> None:
        self.single_observation_space = single
        self.object_leaves = gymnasium_form.has_objects(single)
        self.scalar_boxes = gymnasium_form.has_scalar_boxes(single)

    def to_gymnasium(self, observations: Batch) -> Any:
        if self.object_leaves:
            return gymnasium_form.to_gymnasium(observations)
        return observations

    def five_tuple(self, step: StepResult) -> FiveTuple:
        """Gymnasium's five-tuple of m rows; built only here."""
        if self.on_step is not None:
            self.on_step(step)
        self.last_observations.update(step)
        infos = step.infos
        if self._backend_rows.agents:
            infos = self._with_game_infos(step, infos)
        if self._has_mask_member or MEMBER in infos:
            infos = self._with_masks(step, infos)
        if infos and not END_KEYS.isdisjoint(infos):
            infos = without_keys(infos, "final_obs", "final_info")
        if step.final_obs is not None:
            ended = step.first & step.dones
            final_obs = step.final_obs
            if not self.dense_final_obs:
                final_obs = self._final_observations(final_obs, ended)
            infos = {
                **infos,
                "final_obs": final_obs,
                "_final_obs": ended,
                "final_info": step.final_infos or {},
                "_final_info": ended.copy(),
            }
        return (
            self.to_gymnasium(step.observations),
            step.rewards,
            step.terminations,
            step.truncations,
            infos,
        )

    def _final_observations(self, batch: Batch, ended: BoolArray) -> np.ndarray[Any, Any]:
        """The observations of these rows as Gymnasium returns single ones, None in other rows."""
        final_obs = np.empty(len(ended), dtype=object)
        is_array = (
            type(batch) is np.ndarray
            and batch.ndim > 1
            and not (self.scalar_boxes or self.object_leaves)
        )
        for i in ended.nonzero()[0].tolist():
            if is_array:  # as below, in fewer calls
                final_obs[i] = batch[i].copy()
                continue
            row = batches.row(batch, i)
            if self.scalar_boxes:
                row = gymnasium_form.element(self.single_observation_space, row)
            final_obs[i] = row
        return final_obs

    @staticmethod
    def _with_game_infos(step: StepResult, infos: dict[str, Any]) -> dict[str, Any]:
        flags: dict[str, IntArray | BoolArray] = {"to_move": step.to_move, "alive": step.alive}
        if step.games_ended is not None:
            flags["games_ended"] = step.games_ended
        infos = dict(without_keys(infos, *flags))
        for name, column in flags.items():
            infos[name] = column.copy()
            infos[f"_{name}"] = np.ones(len(step.env_ids), dtype=np.bool_)
        return infos

    def _with_masks(self, step: StepResult, infos: dict[str, Any]) -> dict[str, Any]:
        """Return infos with the masks as an int8 column: all 0 for rows that do not act next."""
        idle = ~step.to_move
        if MEMBER in infos:
            self._keep_masks(step, infos)
        else:
            idle |= step.dones & ~step.first
            members = self._backend_rows.slots.observations.batch()[MEMBER]
            infos = {
                **infos,
                MEMBER: members[self._numbered_rows.sources(step.env_ids)],
                f"_{MEMBER}": np.ones(len(step.env_ids), dtype=np.bool_),
            }
        masks = infos[MEMBER]
        if isinstance(masks, np.ndarray) and masks.dtype.kind in "biu":
            infos = {**infos, MEMBER: masks.astype(np.int8)}
            infos[MEMBER][idle] = 0
        return infos

    def _keep_masks(self, step: StepResult, infos: dict[str, Any]) -> None:
        """Keep the action masks of these rows, which later results of other rows do not have."""
        masks = {key: copy(infos[key]) for key in (MEMBER, f"_{MEMBER}") if key in infos}
        if len(step.env_ids) == self._num_envs:
            self.reported_masks = masks
            return
        reported = self.reported_masks
        if reported.keys() == masks.keys() and all(
            _is_alike(reported[key], column) for key, column in masks.items()
        ):
            for key, column in masks.items():
                reported[key][step.env_ids] = column
            return
        rows = [row_of(reported, i) for i in range(self._num_envs)]
        for k, i in enumerate(step.env_ids.tolist()):
            rows[i] = row_of(masks, k)
        self.reported_masks = columns(rows)


def _is_alike(one: Any, other: Any) -> bool:
    return bool(
        isinstance(one, np.ndarray)
        and isinstance(other, np.ndarray)
        and one.dtype == other.dtype
        and one.shape[1:] == other.shape[1:]
    )


def with_env_ids(result: FiveTuple, step: StepResult) -> FiveTuple:
    return (*result[:4], {**without_keys(result[4], "env_id"), "env_id": step.env_ids.copy()})
