"""The infos and terminal observations of engines as columns, whatever form they come in."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.errors import PlanError
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch, object_array
from vecwrap.rows.gymnasium_form import by_leaf, from_gymnasium
from vecwrap.rows.infos import columns, row_of, take_columns
from vecwrap.rows.step_result import BoolArray, Infos, IntArray, StepResult

__all__ = [
    "ENDS",
    "begins_game",
    "by_column",
    "merged",
    "num_rows_of",
    "of_rows",
    "put_finals",
    "rows_of_infos",
    "with_mask",
    "with_tensors",
]

ENDS = ("terminal_observation", "TimeLimit.truncated")  # in the infos of SB3 and SuperSuit


def rows_of_infos(engine: Any, infos: Any) -> list[dict[str, Any]]:
    """Return one info dict per row from an engine that returns infos as a list.

    SuperSuit does so, and rows may be None.

    None and an empty list stand for no infos.
    """
    rows = []
    if infos is not None:
        rows = list(infos)
    starts = getattr(engine, "idx_starts", ())
    if len(starts) == len(rows) + 1 and all(isinstance(ones, list) for ones in rows):
        # A reset of SuperSuit's workers gives a list for each of them: of (index among its rows,
        # info) if not empty.
        some = {
            start + i: info for start, ones in zip(starts, rows, strict=False) for i, info in ones
        }
        rows = [some.get(i, {}) for i in range(engine.num_envs)]
    if not rows and not isinstance(infos, dict):
        return [{}] * engine.num_envs
    for i, row in enumerate(rows):
        if row is None:
            rows[i] = {}
    if len(rows) != engine.num_envs or not all(isinstance(row, dict) for row in rows):
        raise PlanError(
            f"{type(engine).__name__}: expected infos as a dict of columns, or as a list of "
            f"{engine.num_envs} dicts, got {type(infos).__name__} of {len(rows)}"
        )
    return rows


def of_rows(infos: Infos, number: int) -> Infos:
    """The same infos, but an array of another length than the rows is a list.

    So it is a value for all rows, and not cut into them.
    """
    changed: Infos = {}
    for key, column in infos.items():
        if isinstance(column, dict):
            inside = of_rows(column, number)
            if inside is not column:
                changed[key] = inside
        elif type(column) is np.ndarray and column.ndim and len(column) != number:
            changed[key] = list(column)
    if changed:
        return {**infos, **changed}
    return infos


def by_column(engine: Any, infos: Any, dones: BoolArray | None = None) -> Infos:
    """An engine's infos as columns; those of a row that ended are its ``final_info`` too."""
    if isinstance(infos, dict):
        number = engine.num_envs
        if dones is not None:
            number = len(dones)
        return of_rows(infos, number)
    rows = rows_of_infos(engine, infos)
    own = [{key: value for key, value in row.items() if key not in ENDS} for row in rows]
    if dones is None or any(
        rows[i].get("terminal_observation") is None for i in np.flatnonzero(dones).tolist()
    ):
        return columns(own)
    ended: list[dict[str, Any]] = [{} for _ in own]
    for i in np.flatnonzero(dones).tolist():
        ended[i] = own[i]
    finals = object_array([row.get("terminal_observation") for row in rows])
    return {**columns(own), "final_obs": finals, "final_info": columns(ended)}


def final_infos(infos: Any) -> Infos:
    """Return the infos of ended episodes as columns.

    Some engines return these infos as an object array of dicts and None.
    """
    if isinstance(infos, np.ndarray):
        return columns([info or {} for info in infos.tolist()])
    return take_columns(infos or {}, slice(None))


def with_mask(infos: Infos, rows: BoolArray) -> Infos:
    """Return infos of which only these rows count, each column with its mask."""
    out: Infos = {}
    for key, column in infos.items():
        if key[:1] == "_" and key[1:] in infos:
            continue
        out[key] = column
        if isinstance(column, dict):
            out[key] = with_mask(column, rows)
        out[f"_{key}"] = infos.get(f"_{key}", rows) & rows
    return out


def merged(infos: Infos, others: Infos, rows: BoolArray) -> Infos:
    """Return ``others`` in these rows, and ``infos`` in the rest; both have all rows."""
    if infos.keys() == others.keys() and all(
        type(column) is np.ndarray and column.dtype == getattr(others[key], "dtype", None)
        for key, column in infos.items()
        if not isinstance(column, dict)
    ):
        out: Infos = {}
        for key, column in infos.items():
            if isinstance(column, dict):
                out[key] = merged(column, others[key], rows)
            else:
                out[key] = column.copy()
                out[key][rows] = others[key][rows]
        return out
    return columns([row_of(others if other else infos, i) for i, other in enumerate(rows)])


def put_finals(
    name: str, space: spaces.Space[Any], result: StepResult, infos: Infos, dones: BoolArray
) -> Infos:
    """Add what belongs to the episodes that ended; return the infos under Gymnasium's names."""
    if "final_obs" not in infos:  # Gymnasium's name before 1.0, and ManiSkill's
        names = {"final_observation": "final_obs", "_final_observation": "_final_obs"}
        infos = {names.get(key, key): value for key, value in infos.items()}
    finals = infos.get("final_obs")
    if finals is None:
        raise PlanError(
            f'{name} resets in the same step but has no infos["final_obs"]: the terminal '
            "observation is lost; build it in next-step mode, or set its actual mode with "
            "autoreset="
        )
    result.final_obs = batches.copy(result.observations)
    ended = np.flatnonzero(dones)
    if batches.has_tensors(result.observations):
        _put_tensors(space, result.final_obs, ended, finals)
    elif _is_batch(space, finals):
        batch = from_gymnasium(space, finals)
        batches.scatter(result.final_obs, ended, batches.take(batch, ended))
    else:
        for i in ended.tolist():
            if finals[i] is not None:
                one = from_gymnasium(space, finals[i], single=True)
                batches.tree_map(partial(_put_leaf, i), result.final_obs, one)
    result.final_infos = final_infos(infos.get("final_info"))
    return infos


def with_tensors(space: spaces.Space[Any], result: Any, *, has_finals: bool) -> tuple[Any, ...]:
    """What an engine returned, with arrays in place of all tensors that are not observations.

    ``has_finals``: infos may have terminal ones.
    """
    observations, *others, infos = result
    finals: Infos = {}
    if has_finals and isinstance(infos, dict):
        names = ("final_obs", "final_observation")
        finals = {key: infos[key] for key in names if batches.has_tensors(infos.get(key))}
        infos = {key: value for key, value in infos.items() if key not in finals}
    infos = batches.in_numpy(infos)
    if finals:
        infos |= finals
    members = by_leaf(lambda leaf, part: part, space, observations)
    return members, *map(batches.in_numpy, others), infos


def _put_tensors(space: spaces.Space[Any], target: Batch, ended: IntArray, finals: Any) -> None:
    """Write terminal observations into the rows that ended, on their device."""
    if batches.has_tensors(finals) or _is_batch(space, finals):
        batches.scatter(target, ended, batches.take(finals, ended))
        return
    for i in ended.tolist():
        if finals[i] is not None:
            batches.scatter(target, i, finals[i])


def _is_batch(space: spaces.Space[Any], finals: Any) -> bool:
    """Whether terminal observations are one batch, not one for each row, as in Gymnasium.

    A batch of a Tuple space is a tuple.
    """
    if isinstance(finals, tuple):
        return isinstance(space, spaces.Tuple)
    return isinstance(finals, dict) or (isinstance(finals, np.ndarray) and finals.dtype != object)


def _put_leaf(i: int, target: np.ndarray[Any, Any], leaf: np.ndarray[Any, Any]) -> None:
    """Write the leaf of one row; a value without an array form is wrapped in an object array."""
    if leaf.dtype == object:
        target[i] = leaf[0]
    else:
        target[i] = leaf


def begins_game(infos: Infos) -> BoolArray:
    """Where a reset has begun a new game of EnvPool's, and not the next life of one."""
    begins: BoolArray = np.asarray(infos["elapsed_step"]) == 0
    return begins


def num_rows_of(observations: Any) -> int:
    """How many rows an engine's batch has; 0 if its form does not say."""
    while isinstance(observations, dict) and observations:
        observations = next(iter(observations.values()))
    if isinstance(observations, np.ndarray) or batches.is_tensor(observations):
        return len(observations)
    return 0
