"""Rows of several results as one result: for objects that gather rows over several receptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vecwrap.rows.batch import Batch, object_array, take, tree_map
from vecwrap.rows.infos import columns, detached_copy, row_of
from vecwrap.rows.step_result import IntArray, StepResult

Row = tuple[StepResult, int]
"""A result, and which of its rows."""


_COLUMNS = (
    *(
        "rewards",
        "terminations",
        "truncations",
        "first",
        "acted",
        "completed",
        "observed",
        "to_move",
        "alive",
        "lost",
    ),
    *("raw_rewards", "raw_dones", "raw_first"),
)


def join(rows: Sequence[Row], env_ids: IntArray, num_envs: int, like: StepResult) -> StepResult:
    """Return these rows, maybe none, as a result of fresh arrays with other numbers; ``like`` is
    any such result.
    """
    if not rows:
        none: dict[str, Any] = {name: getattr(like, name)[:0] for name in _COLUMNS}
        return StepResult(
            env_ids=env_ids,
            rows=env_ids,
            observations=take(like.observations, slice(0)),
            infos={},
            **none,
        )
    ended = np.array([bool(step.first[k] and step.dones[k]) for step, k in rows])
    numbers: dict[str, Any] = {
        name: np.array([getattr(step, name)[k] for step, k in rows]) for name in _COLUMNS
    }
    final_obs = final_infos = raw_of_step = None
    if ended.any():
        final_obs = _gathered(
            rows, lambda step: step.observations if step.final_obs is None else step.final_obs
        )
        each = [
            row_of(step.final_infos or {}, k) if end else {}
            for (step, k), end in zip(rows, ended, strict=True)
        ]
        final_infos = columns(detached_copy(each))
    games_ended = None
    if any(step.games_ended is not None for step, _ in rows):
        games_ended = np.array(
            [0 if step.games_ended is None else step.games_ended[k] for step, k in rows]
        )
    if any(step.raw_of_step is not None for step, _ in rows):
        pairs = [(step.raw_of_step or (step.raw_rewards, step.raw_dones), k) for step, k in rows]
        raw_of_step = (
            np.array([paid[k] for (paid, _), k in pairs]),
            np.array([over[k] for (_, over), k in pairs]),
        )
    return StepResult(
        env_ids=env_ids,
        rows=slice(None) if len(env_ids) == num_envs else env_ids,
        observations=_gathered(rows, lambda step: step.observations),
        infos=columns(detached_copy([row_of(step.infos, k) for step, k in rows])),
        final_obs=final_obs,
        final_infos=final_infos,
        frames=_frames(rows, "frames"),
        final_frames=_frames(rows, "final_frames"),
        raw_of_step=raw_of_step,
        added=tuple(dict.fromkeys(name for step, _ in rows for name in step.added)),
        games_ended=games_ended,
        unplayed=tuple(
            game._replace(env_id=i)
            for (step, k), i in zip(rows, env_ids.tolist(), strict=True)
            for game in step.unplayed
            if game.env_id == step.env_ids[k]
        ),
        **numbers,
    )


def _gathered(rows: Sequence[Row], of: Callable[[StepResult], Batch]) -> Batch:
    def gather(*arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        values = [array[k] for array, (_, k) in zip(arrays, rows, strict=True)]
        if arrays[0].dtype == object:
            return object_array(detached_copy(values))
        return np.array(values, arrays[0].dtype).reshape((len(values), *arrays[0].shape[1:]))

    return tree_map(gather, *(of(step) for step, _ in rows))


def _frames(rows: Sequence[Row], name: str) -> tuple[Any, ...] | None:
    each = [getattr(step, name) for step, _ in rows]
    if all(frames is None for frames in each):
        return None
    return tuple(
        None if frames is None else frames[k] for frames, (_, k) in zip(each, rows, strict=True)
    )
