"""Slots: one row of storage per sub-environment, for all data between it and the parent.

The same slots serve every backend. They differ in where the arrays live: in this process (dummy),
in each of two processes with the values sent through a pipe (subprocess), or in memory that both
share (shmem).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from vecwrap.rows.batch import (
    Allocate,
    Batch,
    has_tensors,
    in_numpy,
    leaves,
    put_rows,
    recycle,
    take,
)
from vecwrap.rows.batch import copy as copy_batch
from vecwrap.rows.columns import Column, TensorColumn, make_column
from vecwrap.rows.info_cells import MAX_LAYOUTS, RowInfos
from vecwrap.rows.infos import columns, concatenated, row_of, take_columns
from vecwrap.rows.step_result import BoolArray, FloatArray, Infos, IntArray, StepResult

_WHOLE = slice(None)


class Slots:
    """All columns of ``num_rows`` sub-environments.

    Attributes:
        shared: whether the parent and its workers see the same rows.
        observations, final_observations, actions: columns of the spaces' leaves.
        rewards, raw_rewards: (num_rows,) float64.
        scheduled: (num_rows,) float64. How many episodes a schedule has supplied.
        acted, completed, observed, terminations, truncations, first, raw_dones, raw_first:
            (num_rows,) bool.
        not_to_move, left: (num_rows,) bool. Of agents in games: not ``to_move``, not ``alive``.
        lost: (num_rows,) bool. Written only by the parent.
        infos, final_infos: of rows, and of the episodes that ended in them.
        has_infos: whether any info was ever put here.
        frames, final_frames: the frames of rows that have one.
        raw_of_step: of rows in whose reset a game ended, ``raw_rewards`` and ``raw_dones`` before
            that reset.
        one_source: whether one source in this process owns all rows; its results are passed on as
            they are, instead of row by row.
        needs_arrays: whether somebody reads observations, which a source may give as tensors.
        target: memory of n rows where a step of all rows may write observations that ``can_move``,
            instead of into the column's own; None: nowhere else.
    """

    observations: Column | TensorColumn
    final_observations: Column | TensorColumn
    rewards: FloatArray
    raw_rewards: FloatArray
    scheduled: FloatArray
    acted: BoolArray
    completed: BoolArray
    observed: BoolArray
    terminations: BoolArray
    truncations: BoolArray
    first: BoolArray
    raw_dones: BoolArray
    raw_first: BoolArray
    not_to_move: BoolArray
    left: BoolArray
    lost: BoolArray

    def __init__(
        self,
        num_rows: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        allocate: Allocate = np.zeros,
        shared: bool = False,
        first_row: int = 0,
    ) -> None:
        self.num_rows = num_rows
        self.shared = shared
        self.observations = make_column(observation_space, num_rows, allocate, shared=shared)
        self.final_observations = make_column(observation_space, num_rows, allocate, shared=shared)
        self.actions: Column = make_column(
            action_space, num_rows, allocate, shared=shared, path="action"
        )
        self._numbers = allocate((3, num_rows), np.float64)
        self._flags = allocate((11, num_rows), np.bool_)
        self.rewards, self.raw_rewards, self.scheduled = self._numbers
        self.acted, self.completed, self.observed, self.terminations, self.truncations = (
            self._flags[:5]
        )
        self.first, self.raw_dones, self.raw_first = self._flags[5:8]
        self.not_to_move, self.left, self.lost = self._flags[8:]
        self._uneventful_flags = bytes([1] * (3 * num_rows) + [0] * (8 * num_rows))
        self._yes = np.ones(num_rows, dtype=np.bool_)
        self._no = np.zeros(num_rows, dtype=np.bool_)
        self._yes.flags.writeable = self._no.flags.writeable = False
        base = MAX_LAYOUTS * first_row  # no two writers give a layout the same number
        self.infos: RowInfos = RowInfos(num_rows, allocate, base)
        self.final_infos: RowInfos = RowInfos(num_rows, allocate, base)
        self.frames: dict[int, Any] = {}
        self.final_frames: dict[int, Any] = {}
        self.raw_of_step: dict[int, tuple[float, bool]] = {}
        # What rows may have that is not in shared memory.
        self._unshared: tuple[dict[int, Any], ...] = (
            self.infos.others,
            self.final_infos.others,
            self.frames,
            self.final_frames,
            self.raw_of_step,
        )
        self.has_infos: bool = False
        self._blocks: dict[int, tuple[range, Infos, Infos]] = {}  # of engines, by their first row
        self.one_source = False
        self.needs_arrays: bool = False
        self.target: Batch = None
        self._result: StepResult | None = None  # of the one source, until it is collected
        self.needs_pipe: bool = self.observations.needs_pipe

    def recycle(self) -> None:
        """Recycle memory allocated at every step: an environment's observation, or a batch."""
        recycle(sum(leaf.nbytes for _, leaf in leaves(self.observations.batch())))

    def own_actions(self, actions: Batch) -> Sequence[Any]:
        """Return each row's own action from those of all rows; an environment may write into it."""
        if isinstance(actions, np.ndarray) and not self.actions.needs_pipe:
            return actions.copy()  # type: ignore[return-value]  # a sequence of rows
        self.actions.fill(slice(None), actions)
        return self.actions.get_all(range(self.num_rows))

    def rest(self, rows: slice, *, keep_dones: bool = False) -> None:
        """Have nothing happen in rows; ``keep_dones``: what has ended goes on saying so."""
        self._numbers[:2, rows] = 0.0
        if keep_dones:
            self._flags[:3, rows] = self._flags[5:8, rows] = False
        else:
            self._flags[:8, rows] = False

    # -- infos and frames --------------------------------------------------------------------------

    def put_info(self, row: int, info: dict[str, Any]) -> None:
        self.has_infos = True
        self.infos.put(row, info)

    def put_final_info(self, row: int, info: dict[str, Any]) -> None:
        self.has_infos = True
        self.final_infos.put(row, info)

    def put_columns(self, rows: range, infos: Infos, final_infos: Infos) -> None:
        """Store the infos of an engine's rows, as columns, without a copy.

        The slots own these infos from now on.
        """
        self._blocks[rows.start] = rows, infos, final_infos

    def put_result(self, rows: range, result: StepResult) -> None:
        """Store an engine's result for all its rows; the slots own its arrays from now on."""
        self.put_columns(rows, result.infos, result.final_infos or {})
        if not self.one_source:
            self._write(slice(rows.start, rows.stop), result)
            _spread_frames(self.frames, rows, result.frames)
            _spread_frames(self.final_frames, rows, result.final_frames)
            return
        self._result = result
        self.observations.keep(result.observations)
        self.terminations[:] = result.terminations
        self.truncations[:] = result.truncations
        self.first[:] = result.first

    def takes_tensors(self, batch: Batch) -> bool:
        """Whether these are tensors that nobody reads as arrays."""
        return self.one_source and not self.needs_arrays and has_tensors(batch)

    def hold_tensors(self, like: Batch) -> None:
        """Hold observations as tensors such as these, on their device."""
        if not isinstance(self.observations, TensorColumn):
            self.observations = TensorColumn(self.observations, like, self.num_rows)
            self.final_observations = TensorColumn(self.final_observations, like, self.num_rows)

    def read_observations(self) -> None:
        """Have observations in arrays from now on, those that are here already too."""
        self.needs_arrays = True
        if isinstance(self.observations, TensorColumn):
            self.observations = self.observations.as_arrays()
        if isinstance(self.final_observations, TensorColumn):
            self.final_observations = self.final_observations.as_arrays()
        if self._result is not None:
            self._result.observations = in_numpy(self._result.observations)
            self._result.final_obs = in_numpy(self._result.final_obs)

    def put_rows(self, rows: Sequence[int], result: StepResult) -> None:
        """Store the result of some rows of an engine, in their order, without infos and frames."""
        self._write(list(rows), result)

    def forget_frames(self, rows: range) -> None:
        _spread_frames(self.frames, rows, None)

    def forget_result(self) -> None:
        self._result = None

    def _write(self, at: slice | list[int], result: StepResult) -> None:
        self.observations.fill(at, result.observations)
        if result.final_obs is not None:
            self.final_observations.fill(at, result.final_obs)
        self.rewards[at] = result.rewards
        self.raw_rewards[at] = result.raw_rewards
        self.terminations[at] = result.terminations
        self.truncations[at] = result.truncations
        self.acted[at] = result.acted
        self.completed[at] = result.completed
        self.observed[at] = result.observed
        self.first[at] = result.first
        self.raw_dones[at] = result.raw_dones
        self.raw_first[at] = result.raw_first

    def own_infos(self, row: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a row's info from its environment, and the final info of an ended episode."""
        for rows, infos, final_infos in self._blocks.values():
            if row in rows:
                return row_of(infos, row - rows.start), row_of(final_infos, row - rows.start)
        return dict(self.infos.get(row)), dict(self.final_infos.get(row))

    def forget_info(self, row: int) -> None:
        self.infos.forget(row)
        self.frames.pop(row, None)
        for rows, *_ in list(self._blocks.values()):
            if row in rows:
                self._blocks[rows.start] = rows, {}, {}

    def forget_final_info(self, row: int) -> None:
        """Drop those of the episode that ended in it."""
        self.final_infos.forget(row)
        self.final_frames.pop(row, None)
        self.raw_of_step.pop(row, None)

    # -- from one process to another ---------------------------------------------------------------

    def entirely_shared(self, rows: Sequence[int]) -> Sequence[int]:
        """Return which rows, just written, are entirely in shared memory; frames never are."""
        if self.needs_pipe or not self.shared or (self._blocks and self._blocks_of(rows)):
            return ()
        if not any(self._unshared):
            return rows
        return [row for row in rows if not any(row in kept for kept in self._unshared_of(row))]

    def _unshared_of(self, row: int) -> Sequence[dict[int, Any]]:
        ended = self.first[row] and (self.terminations[row] or self.truncations[row])
        if ended:
            return self._unshared
        return (self.infos.others, self.frames)

    def export(self, rows: Sequence[int]) -> Any:
        """Return the parts of these rows that must go through the pipe; None for absent parts."""
        index = list(rows)
        ended = [
            row
            for row in index
            if self.first[row] and (self.terminations[row] or self.truncations[row])
        ]
        learnt = self.infos.new_layouts(), self.final_infos.new_layouts()
        numbers = None
        cells = None
        if not self.shared:
            numbers = (self._numbers[:, index], self._flags[:, index])
            cells = self.infos.export_cells(index)
        final = None
        if ended:
            final_cells = None
            if not self.shared:
                final_cells = self.final_infos.export_cells(ended)
            final = (
                ended,
                self.final_observations.export(ended),
                _pick(self.final_infos.others, ended),
                final_cells,
                _pick(self.final_frames, ended),
                _pick(self.raw_of_step, ended),
            )
        return (
            numbers,
            self.observations.export(index),
            final,
            _pick(self.infos.others, index),
            cells,
            _pick(self.frames, index),
            learnt if any(learnt) else None,
            [(len(own), own.start, *infos) for own, *infos in self._blocks_of(index)] or None,
        )

    def mark_exported(self) -> None:
        self.infos.mark_exported()
        self.final_infos.mark_exported()

    def load(
        self, rows: Sequence[int], payload: Any, offset: int = 0, of_writer: range | None = None
    ) -> None:
        """Load the result of ``export`` in another process, whose row r is our row ``offset + r``.

        ``of_writer`` are that process's rows here. Anything else raises some exception,
        before or after it is loaded into these rows, but into no others.
        """
        index = [offset + row for row in rows]
        numbers, observations, final, infos, cells, frames, learnt, blocks = payload
        _refuse_malformed(rows, final, infos, frames)
        if (numbers is None) is not self.shared:
            raise ValueError("expected numbers in one place")
        if numbers is not None:
            self._numbers[:, index], self._flags[:, index] = numbers
        if observations is not None:
            self.observations.load(index, observations)
        if final is not None:
            ended, final_observations, final_infos, final_cells, final_frames, raw_of_step = final
            at = [offset + row for row in ended]
            self.final_observations.load(at, final_observations)
            _spread(self.final_infos.others, at, final_infos)
            _spread(self.final_frames, at, final_frames)
            _spread(self.raw_of_step, at, raw_of_step)
            if not self.shared:
                self.final_infos.load_cells(at, final_cells)
        _spread(self.infos.others, index, infos)
        _spread(self.frames, index, frames)
        if not self.shared:
            self.infos.load_cells(index, cells)
        self._load_blocks(index, offset, blocks, of_writer)
        if learnt is not None:
            base = 0
            if of_writer is not None:
                base = MAX_LAYOUTS * of_writer[0]
            self.infos.add_layouts(learnt[0], base)
            self.final_infos.add_layouts(learnt[1], base)

    def load_shared(self, rows: Sequence[int]) -> None:
        """Record that these rows are entirely in shared memory."""
        for kept in self._unshared:
            if kept:
                for row in rows:
                    kept.pop(row, None)
        if self._blocks:
            self._load_blocks(rows, 0, None, None)

    def _load_blocks(
        self,
        rows: Sequence[int],
        offset: int,
        blocks: Sequence[tuple[int, int, Infos, Infos]] | None,
        of_writer: range | None,
    ) -> None:
        for own, *_ in self._blocks_of(rows):
            self._blocks[own.start] = own, {}, {}
        for number, first, infos, final_infos in blocks or ():
            own = range(offset + first, offset + first + number)
            if (
                of_writer is None
                or not set(own) <= set(of_writer)
                or {type(infos), type(final_infos)} != {dict}
            ):
                raise ValueError("expected the infos of an engine among these rows")
            self._blocks[own.start] = own, infos, final_infos

    # -- to the wrappers ---------------------------------------------------------------------------

    def collect(self, env_ids: IntArray, *, copy: bool = True) -> StepResult:
        """Return these rows as a StepResult of fresh arrays, or of views with ``copy=False``.

        Views of the slots are returned if possible.
        """
        result = self._result
        if result is not None:
            self._result = None
            if len(env_ids) == self.num_rows:
                result.env_ids = env_ids
                return result
            self._write(_WHOLE, result)
            everyone = range(self.num_rows)
            _spread_frames(self.frames, everyone, result.frames)
            _spread_frames(self.final_frames, everyone, result.final_frames)
        if len(env_ids) == self.num_rows:
            flags = self._flags.tobytes()
            if flags == self._uneventful_flags and not self.frames:
                return self._collect_uneventful(env_ids, copy)
        return self._collect(env_ids, copy)

    def _collect_uneventful(self, env_ids: IntArray, copy: bool) -> StepResult:
        """All rows, if each acted and nothing else happened: the common case, during episodes."""
        numbers = self._numbers
        observations = self.observations.batch()
        if copy:
            numbers = numbers.copy()
            observations = copy_batch(observations)
        yes = self._yes
        no = self._no
        terminations = no.copy()
        truncations = no.copy()
        infos: Infos = {}
        if self._blocks:
            infos = self._of_blocks(range(self.num_rows), 1)
        elif self.infos.others or self.infos.known:
            infos = self.infos.columns(_WHOLE, range(self.num_rows))
        step = StepResult(  # by position, which takes half the time
            env_ids,
            _WHOLE,
            observations,
            numbers[0],  # rewards
            terminations,
            truncations,
            no,  # first
            yes,  # acted
            yes,  # completed
            yes,  # live
            yes,  # to_move
            yes,  # alive
            no,  # lost
            numbers[1],  # raw_rewards
            no,  # raw_dones
            no,  # raw_first
            infos,
        )
        step.uneventful_flags = terminations, truncations, yes, no
        return step

    def _collect(self, env_ids: IntArray, copy: bool) -> StepResult:
        whole = len(env_ids) == self.num_rows
        rows: Any = slice(None)
        indices: Sequence[int] = range(self.num_rows)
        numbers = self._numbers
        flags = self._flags
        observations = self.observations.batch()
        if not whole:
            rows = env_ids
            indices = env_ids.tolist()
            numbers = numbers[:, rows]
            flags = flags[:, rows]
            observations = take(observations, rows)
        if copy and whole:
            numbers = numbers.copy()
            flags = flags.copy()
            observations = copy_batch(observations)
        elif copy and self.needs_pipe:  # the arrays are fresh, but not the objects in them
            observations = copy_batch(observations)
        (
            acted,
            completed,
            live,
            terminations,
            truncations,
            first,
            raw_dones,
            raw_first,
            not_to_move,
            left,
            lost,
        ) = flags
        if self._blocks:
            infos = self._of_blocks(indices, 1)
        else:
            infos = self.infos.columns(rows, indices)
        step = StepResult(
            env_ids,
            rows,
            observations,
            numbers[0],  # rewards
            terminations,
            truncations,
            first,
            acted,
            completed,
            live,
            ~not_to_move,  # to_move
            ~left,  # alive
            lost,
            numbers[1],  # raw_rewards
            raw_dones,
            raw_first,
            infos,
        )
        ended = [
            (k, indices[k]) for k in (first & (terminations | truncations)).nonzero()[0].tolist()
        ]
        if ended:
            self._add_ends(step, ended, indices)
        if self.frames and any(i in self.frames for i in indices):
            step.frames = tuple(self.frames.get(i) for i in indices)
        return step

    def _add_ends(
        self, step: StepResult, ended: Sequence[tuple[int, int]], indices: Sequence[int]
    ) -> None:
        """Add what belongs to the episodes that ended, by place and row of each."""
        step.final_obs = copy_batch(step.observations)
        put_rows(step.final_obs, ended, self.final_observations.batch())
        if self._blocks:
            step.final_infos = self._of_blocks(indices, 2)
        else:
            step.final_infos = self.final_infos.columns(step.rows, indices, [k for k, _ in ended])
        if self.final_frames and any(i in self.final_frames for _, i in ended):
            frames = {i: self.final_frames.get(i) for _, i in ended}
            step.final_frames = tuple(frames.get(i) for i in indices)
        if self.raw_of_step and any(i in self.raw_of_step for _, i in ended):
            paid = step.raw_rewards.copy()
            over = step.raw_dones.copy()
            step.raw_of_step = paid, over
            for k, i in ended:
                paid[k], over[k] = self.raw_of_step.get(i, (paid[k], over[k]))

    def _blocks_of(self, rows: Sequence[int]) -> list[tuple[range, Infos, Infos]]:
        """The blocks that engines among these rows have reported, if any, by ascending row."""
        reported = [block for _, block in sorted(self._blocks.items()) if block[1] or block[2]]
        if not reported:
            return []
        requested = set(rows)
        return [block for block in reported if not requested.isdisjoint(block[0])]

    def _of_blocks(self, indices: Sequence[int], which: Literal[1, 2]) -> Infos:
        """Return the infos of engines, or the infos of their ended episodes, for these rows."""
        if not indices:
            return {}
        for block in self._blocks.values():
            rows = block[0]
            if indices[0] in rows and indices[-1] in rows:
                if len(indices) == len(rows):
                    return take_columns(block[which], slice(None))
                return take_columns(block[which], [i - rows.start for i in indices])
        blocks = self._blocks_of(indices)
        if not blocks:
            return {}
        if sum(len(block[0]) for block in blocks) == len(indices):
            joined = concatenated([(block[which], len(block[0])) for block in blocks])
            if joined is not None:
                return joined
        wanted = set(indices)
        infos = {
            i: row_of(block[which], i - block[0].start)
            for block in blocks
            for i in wanted.intersection(block[0])
        }
        return columns([infos.get(i, {}) for i in indices])


def _refuse_malformed(rows: Sequence[int], final: Any, *of_rows: Any) -> None:
    """Raise ValueError for parts of an export of other rows or of the wrong type."""
    if final is None:
        final = ([], None, None, None, None, None)
    ended, _, final_infos, _, final_frames, raw_of_step = final
    infos, frames = of_rows
    dicts = [*(infos or {}).values(), *(final_infos or {}).values()]
    pairs = [*(raw_of_step or {}).values()]
    if not set(ended) <= set(rows) or {*map(type, dicts)} - {dict} or {*map(type, pairs)} - {tuple}:
        raise ValueError("expected infos, frames and ends of these rows")
    if {type(one) for one in (infos, frames, final_infos, final_frames, raw_of_step)} - {
        dict,
        type(None),
    }:
        raise ValueError("expected dicts by row")
    for paid, over in pairs:
        float(paid), bool(over)


def _pick(values: dict[int, Any], rows: Sequence[int]) -> dict[int, Any] | None:
    if not values:
        return None
    return {position: values[row] for position, row in enumerate(rows) if row in values} or None


def _spread_frames(target: dict[int, Any], rows: range, frames: Sequence[Any] | None) -> None:
    if target:
        for row in rows:
            target.pop(row, None)
    if frames is not None:
        pairs = zip(rows, frames, strict=True)
        target.update((row, frame) for row, frame in pairs if frame is not None)


def _spread(target: dict[int, Any], rows: Sequence[int], values: dict[int, Any] | None) -> None:
    for position, row in enumerate(rows):
        if values is not None and position in values:
            target[row] = values[position]
        elif target:
            target.pop(row, None)
