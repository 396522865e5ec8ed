"""Infos: from one dict per row to Gymnasium's dict of columns with masks, and lasting copies."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from vecwrap.rows.batch import object_array, row

DTYPES: dict[type, np.dtype[Any]] = {
    float: np.dtype(np.float64),
    bool: np.dtype(np.bool_),
    **{kind: np.dtype(kind) for kind in (np.float64, np.float32, np.int64, np.int32, np.bool_)},
}
_IMMUTABLE = frozenset({*DTYPES, int, str, bytes, complex, type(None)})
_INT64 = np.dtype(np.int64)
_EMPTY: dict[str, Any] = {}
# columns that the outermost environment writes
END_KEYS = frozenset({"final_obs", "_final_obs", "final_info", "_final_info"})
# nested dicts in an info: each becomes columns of its own, and Python's stack is limited
_MAX_DEPTH = 100


def snapshot(info: dict[str, Any]) -> dict[str, Any]:
    """Copy an info so that the sub-environment cannot change it afterwards.

    Values that cannot be copied are kept as they are.
    """
    copied = dict(info)
    for key, value in info.items():
        if type(value) not in _IMMUTABLE:
            _refuse_deep(key, value)
            copied[key] = detached_copy(value)
    return copied


def _refuse_deep(key: str, value: Any) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH + 1):
        # Each once: there may be cycles.
        dicts = {id(member): member for member in level if isinstance(member, dict)}
        if not dicts:
            return
        level = [member for outer in dicts.values() for member in outer.values()]
    raise ValueError(
        f"infos[{key!r}]: expected at most {_MAX_DEPTH} dicts within each other; leave it out"
    )


def detached_copy(value: Any, _around: tuple[int, ...] = ()) -> Any:
    """Copy a value of any kind; a value that cannot be copied is returned as it is.

    This includes values within dicts, lists and tuples.
    """
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.copy()
    try:
        return deepcopy(value)
    except Exception:  # a lock, a socket, an emulator: the reference is all there is
        kind = type(value)
        if kind not in (dict, list, tuple) or id(value) in _around:
            return value
        around = (*_around, id(value))
        if kind is dict:
            return {key: detached_copy(part, around) for key, part in value.items()}
        return kind(detached_copy(part, around) for part in value)


def without_keys(infos: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Free these keys and their masks; the environment's own columns get a ``_`` suffix."""
    for key in keys:
        taken = next((name for name in (key, f"_{key}") if name in infos), None)
        if taken is not None:
            free = _free_name(taken, infos)
            renamed = {taken: free, f"_{taken}": f"_{free}"}
            infos = {renamed.get(name, name): column for name, column in infos.items()}
    return infos


def _free_name(name: str, taken: Collection[str]) -> str:
    """The name with as many underscores appended as make it and its mask free."""
    while True:
        name += "_"
        if name not in taken and f"_{name}" not in taken:
            return name


def columns(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Turn m infos into columns; each key has a mask ``_key`` of the rows that have it.

    A key in the place of a mask, such as ``_lives`` beside ``lives``, gives a column with ``_``
    appended to its name. A column is a pure function of these rows' values: numbers get NumPy's
    ``result_type`` over the rows present (so 2.7 next to 1 stays 2.7), equal-shaped arrays are
    stacked, dicts become columns again, and all else is an object array; so are integers that no
    dtype can hold together, such as 1 and 2**63. In a row that lacks the key, a number is 0 and an
    object None.

    >>> columns([{"lives": 3}, {}])
    {'lives': array([3, 0]), '_lives': array([ True, False])}
    """
    if not any(rows):
        return {}
    out: dict[str, Any] = {}
    keys = dict.fromkeys(key for row in rows for key in row)
    taken = {f"_{key}" for key in keys}
    names: dict[str, str] = {}
    if not taken.isdisjoint(keys):
        clashing = sorted(taken.intersection(keys))
        taken = taken.union(keys)
        for key in clashing:
            names[key] = name = _free_name(key, taken)
            taken |= {name, f"_{name}"}
    for key in keys:
        present = [i for i, row in enumerate(rows) if key in row]
        name = names.get(key, key)
        out[name] = _column([rows[i][key] for i in present], present, len(rows))
        out[f"_{name}"] = np.array([key in row for row in rows], np.bool_)
    return out


def _column(values: list[Any], present: list[int], num_rows: int) -> Any:
    if isinstance(values[0], dict) and all(isinstance(value, dict) for value in values):
        rows: list[dict[str, Any]] = [_EMPTY] * num_rows
        for i, value in zip(present, values, strict=True):
            rows[i] = value
        return columns(rows)
    dtype, shape = _common_form(values)
    if dtype is None:
        column: np.ndarray[Any, Any] = np.full(num_rows, None, dtype=object)
        column[present] = object_array(values)
        return column
    column = np.zeros((num_rows, *shape), dtype=dtype)
    for i, value in zip(present, values, strict=True):
        column[i] = value
    return column


def _common_form(values: list[Any]) -> tuple[np.dtype[Any] | None, tuple[int, ...]]:
    """The dtype and row shape that hold all values as numbers, or (None, ()) if only objects do."""
    kinds = {type(value) for value in values}
    if len(kinds) == 1:
        (kind,) = kinds
        if kind in DTYPES:
            return DTYPES[kind], ()
        if kind is int and min(values) >= -(2**63) and max(values) < 2**63:
            return _INT64, ()
    dtypes = []
    shapes = set()
    for value in values:
        if not isinstance(value, (int, float, complex, np.number, np.bool_, np.ndarray)):
            return None, ()
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            return None, ()
        dtypes.append(array.dtype)
        shapes.add(array.shape)
    if len(shapes) != 1:
        return None, ()
    common = np.result_type(*dtypes)
    # int64 with uint64: a float would round them
    if common.kind in "fc" and all(dtype.kind in "biu" for dtype in dtypes):
        return None, ()
    return common, shapes.pop()


def row_of(infos: dict[str, Any], i: int) -> dict[str, Any]:
    """Return one row of columns, as the sub-environment returned it; fresh.

    A column without a mask is of all rows.
    """
    out = {}
    for key, column in infos.items():
        mask = infos.get(f"_{key}")
        if not (type(mask) is np.ndarray and mask.dtype == np.bool_ and mask.ndim == 1):
            mask = None  # the environment's own key, which has taken the mask's place
        if mask is None and str(key)[:1] == "_" and str(key)[1:] in infos:
            continue
        if mask is None or mask[i]:
            out[key] = _value(column, i)
    return out


# dtypes whose values are returned as Python's own
_ITEMS = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_))


def _value(column: Any, i: int) -> Any:
    if type(column) is np.ndarray and column.ndim == 1 and column.dtype in _ITEMS:
        return column.item(i)
    if isinstance(column, dict):
        return row_of(column, i)
    if isinstance(column, tuple):  # a batch of a Tuple space
        return tuple(_value(part, i) for part in column)
    if not isinstance(column, np.ndarray) or not column.ndim:
        return column  # an engine's, for all rows
    if column.dtype == object:
        value = detached_copy(column[i])
    else:
        value = row(column, i)
    if isinstance(value, (np.float64, np.int64, np.bool_)):
        return value.item()
    return value


def scatter_columns(
    infos: dict[str, Any], env_ids: np.ndarray[Any, Any], num_envs: int
) -> dict[str, Any]:
    """Spread columns of m rows over ``num_envs`` rows.

    Absent numbers are 0, texts "", objects None and masks False.
    """

    def spread(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: spread(item) for key, item in value.items()}
        if isinstance(value, tuple):
            return tuple(map(spread, value))
        if not isinstance(value, np.ndarray):
            return value
        out = np.zeros((num_envs, *value.shape[1:]), dtype=value.dtype)
        if value.dtype == object:
            out[:] = None
        out[env_ids] = value
        return out

    return {key: spread(value) for key, value in infos.items()}


def take_columns(infos: dict[str, Any], rows: Any) -> dict[str, Any]:
    """Copy these rows of an engine's infos, and all values that are not per row.

    The engine may reuse its arrays.
    """
    out: dict[str, Any] = {}
    for key, value in infos.items():
        if isinstance(value, dict):
            out[key] = take_columns(value, rows)
        elif isinstance(value, np.ndarray) and value.ndim:
            out[key] = _with_own_objects(np.array(value[rows]))
        else:
            out[key] = detached_copy(value)
    return out


def concatenated(parts: Sequence[tuple[dict[str, Any], int]]) -> dict[str, Any] | None:
    """Join the columns of several engines, given with their row counts; None if they differ."""
    first, _ = parts[0]
    if any(infos.keys() != first.keys() for infos, _ in parts):
        return None
    out: dict[str, Any] = {}
    for key in first:
        values = [(infos[key], number) for infos, number in parts]
        if all(isinstance(value, dict) for value, _ in values):
            inner = concatenated(values)
            if inner is None:
                return None
            out[key] = inner
        elif _fit_together(values):
            out[key] = _with_own_objects(np.concatenate([value for value, _ in values]))
        else:
            return None
    return out


def _fit_together(columns: Sequence[tuple[Any, int]]) -> bool:
    """Return whether these are arrays of as many rows each as is said, of one dtype and shape."""
    are_arrays = all(
        isinstance(column, np.ndarray) and column.shape[:1] == (number,)
        for column, number in columns
    )
    return are_arrays and len({(column.dtype, column.shape[1:]) for column, _ in columns}) == 1


def _with_own_objects(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array with copies of its objects, if it is one of objects."""
    if array.dtype != object:
        return array
    return object_array([detached_copy(value) for value in array.flat]).reshape(array.shape)
