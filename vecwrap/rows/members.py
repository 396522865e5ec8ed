"""What wrappers share about observations: Dict members, linear and flat forms, last rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from vecwrap.errors import CheckpointError, PlanError, did_you_mean, read_names
from vecwrap.rows.batch import Batch, copy, leaves, object_array, scatter, take
from vecwrap.rows.columns import make_column
from vecwrap.rows.saved import fitting
from vecwrap.rows.step_result import IntArray

Array = np.ndarray[Any, Any]
Key: TypeAlias = str | None
"""A member of a Dict space; None stands for the observation itself, if the space is not a Dict."""
Space: TypeAlias = spaces.Space[Any]


def choose(
    wrapper: str,
    space: Space,
    keys: tuple[str, ...] | None,
    fits: Callable[[Space], bool],
    expected: str,
    remedy: str,
) -> dict[Key, Any]:
    """Return the spaces that a wrapper applies to, by key; PlanError if they do not fit.

    The error reports what is ``expected``, and the ``remedy``.
    """
    if not isinstance(space, spaces.Dict):
        if keys is not None:
            raise PlanError(
                f"{wrapper}: keys: expected observations of a Dict space, got {space}; leave keys "
                "out, it has no members"
            )
        if not fits(space):
            raise PlanError(
                f"{wrapper}: expected observations of {expected}, got {space}; {remedy}"
            )
        return {None: space}
    if keys is not None:
        keys = check_keys(wrapper, space, keys)
    fitting = [key for key, member in space.spaces.items() if fits(member)]
    for key in space.spaces if keys is None else keys:
        if key not in fitting:
            if keys is None and fitting:
                remedy = (
                    "name those that it is for: keys=["
                    + ", ".join(f'"{name}"' for name in fitting)
                    + "]"
                )
            raise PlanError(
                f"{wrapper}: {name_of(key)}: expected {expected}, got {space[key]}; {remedy}"
            )
    return {key: space[key] for key in (space.spaces if keys is None else keys)}


def check_keys(
    wrapper: str, space: spaces.Dict, names: str | Iterable[str], argument: str = "keys"
) -> tuple[str, ...]:
    """Read names of a space's members; PlanError if they are none of its, or not each once."""
    keys: tuple[str, ...]
    known_first = isinstance(names, str) and names in space.spaces  # its name may hold a plus
    if known_first:
        keys = (str(names),)
    else:
        keys = read_names(names)
    known = list(space.spaces)
    for key in keys:
        if key not in known:
            near = did_you_mean(key, known)
            raise PlanError(
                f"{wrapper}: {argument}: expected members of the observations, {known}, got "
                f'"{key}".{near}'
            )
    if len(keys) == 0 or len(set(keys)) != len(keys):
        raise PlanError(
            f"{wrapper}: {argument}: expected one or more of {known}, each once, got {list(keys)}"
        )
    return keys


def replaced(space: Space, new: Mapping[Key, Space]) -> Space:
    if None in new:
        return new[None]
    space = deepcopy(space)
    assert isinstance(space, spaces.Dict)
    space.spaces.update({key: member for key, member in new.items() if key is not None})
    return space


def apply(functions: Mapping[Key, Callable[[Any], Any]], observations: Batch) -> Batch:
    if None in functions:
        return functions[None](observations)
    new = {key: functions[key](value) for key, value in observations.items() if key in functions}
    return {**observations, **new}


def of(batch: Batch, key: Key) -> Any:
    if key is None:
        return batch
    return batch[key]


def with_new(batch: Batch, new: Mapping[Key, Any]) -> Batch:
    if None in new:
        return new[None]
    return {**batch, **new}


def name_of(key: Key) -> str:
    if key is None:
        return "observations"
    return f"observations[{key!r}]"


def is_box(space: Space) -> bool:
    return isinstance(space, spaces.Box) and np.dtype(space.dtype).kind in "iuf"


Bounds: TypeAlias = float | list[Any] | Array
"""A number for all elements of a Box, or one for each, which NumPy broadcasts to its shape."""


def box_between(
    wrapper: str, low: Bounds, high: Bounds, source: spaces.Box, dtype: Any
) -> spaces.Box:
    """Return a Box of ``source``'s shape; a number leaves unbounded elements unbounded."""
    lows = _bound(wrapper, "low", low, source.low, source, dtype)
    highs = _bound(wrapper, "high", high, source.high, source, dtype)
    if not (lows < highs).all():
        raise PlanError(f"{wrapper}: expected low < high, got low={low} and high={high}")
    box = spaces.Box(lows, highs, dtype=dtype)
    if not np.isfinite(_moves(source, box)).all():
        raise PlanError(
            f"{wrapper}: expected bounds nearer to those of {source}, got low={low} and high={high}"
        )
    return box


def _bound(
    wrapper: str, name: str, given: Bounds, own: Array, source: spaces.Box, dtype: Any
) -> Array:
    """Return one bound of each element of a Box, infinite exactly if the bound in ``own`` is."""
    try:
        array = np.asarray(given)
        with np.errstate(over="ignore"):
            bound = np.broadcast_to(array, source.shape).astype(dtype)
        if array.dtype.kind not in "iuf":
            raise ValueError("of other things than numbers")
    except ValueError:
        raise PlanError(
            f"{wrapper}: {name}: expected a number, or one for each element of shape "
            f"{source.shape}, got {given}"
        ) from None
    own = own.astype(dtype)
    if not array.ndim:
        bound = np.where(np.isinf(source.low) & np.isinf(source.high), own, bound)
    for index in map(tuple, np.argwhere(bound != np.where(np.isinf(own), own, bound)).tolist()):
        raise PlanError(
            f"{wrapper}: {name}: element {list(index)} of {source} has no such bound, so it cannot "
            f"be scaled to {bound[index]}; write {own[index]} there, or give one number for all "
            "elements"
        )
    if (~np.isfinite(bound) & np.isfinite(own)).any():
        raise PlanError(
            f"{wrapper}: {name}: expected a finite number that {np.dtype(dtype)} can hold, got "
            f"{given}"
        )
    return bound


def _moves(source: spaces.Box, target: spaces.Box) -> Array:
    """By how much an element is moved that has one bound; 0 for others."""
    moves = np.zeros(source.shape, np.float64)
    lows = np.isfinite(source.low)
    highs = np.isfinite(source.high)
    with np.errstate(over="ignore"):
        np.subtract(target.low, source.low, out=moves, where=lows & ~highs, dtype=np.float64)
        np.subtract(target.high, source.high, out=moves, where=highs & ~lows, dtype=np.float64)
    return moves


class AffineMap:
    """Maps the bounds of a Box exactly to those of another, and other values linearly, outside too.

    An element with one bound is moved by the difference of the two; one without any stays as it is.
    """

    def __init__(self, source: spaces.Box, target: spaces.Box) -> None:
        self._dtype = target.low.dtype
        # Small integers fit a float32; anything else is computed in float64 and rounded once.
        small = source.low.dtype.kind in "iu" and source.low.dtype.itemsize <= 2
        self._work: Any = np.float32 if small and self._dtype == np.float32 else np.float64
        bounds = (source.low, source.high, target.low, target.high)
        made: list[Array] = [bound.astype(self._work) for bound in bounds]
        low, high, self._low, self._high = made
        unscaled = ~(np.isfinite(low) & np.isfinite(high))
        self._unscaled: Any = None
        if unscaled.any():
            self._unscaled = unscaled
            self._moved = _moves(source, target)[unscaled]
            for bound, value in zip((low, high, self._low, self._high), (0, 1, 0, 1), strict=True):
                bound[unscaled] = value
        with np.errstate(over="ignore"):
            # not between -1e308 and 1e308: computed at half the size
            fits = np.isfinite(high - low)
        self._size: Any = None
        if not fits.all():
            self._size = np.where(fits, 1.0, 0.5)
            low = low * self._size
            high = high * self._size
        self._start = low
        self._width = np.where(high > low, high - low, 1).astype(self._work)

    def __call__(self, values: Array) -> Array:
        """Map (m, *shape) values to a fresh array of the target's dtype."""
        if self._unscaled is None:
            return self._scaled(values)
        mapped = self._scaled(np.where(self._unscaled, 0, values))
        mapped[:, self._unscaled] = values[:, self._unscaled] + self._moved
        return mapped

    def _scaled(self, values: Array) -> Array:
        if self._size is not None:
            values = values * self._size
        # 0 at the low bound, 1 at the high one
        part = np.subtract(values, self._start, dtype=self._work) / self._width
        return np.asarray(self._low * (1 - part) + self._high * part).astype(
            self._dtype, copy=False
        )


def flat_box(wrapper: str, space: Space) -> spaces.Box:
    """Return the Box of a flattened observation; PlanError if it has no flat form."""
    try:
        if space.is_np_flattenable:
            box = spaces.utils.flatten_space(space)
        else:
            box = None
    except NotImplementedError:  # a space that Gymnasium does not know
        box = None
    if not isinstance(box, spaces.Box):
        raise PlanError(
            f"{wrapper}: expected observations with a flat form of fixed size, got {space}; "
            "filter_obs, inside of this wrapper, leaves members of a Dict out"
        )
    return box


def flat(space: Space, observations: Batch) -> Array:
    """Flatten m observations to (m, d) like Gymnasium's ``flatten``, in the common dtype."""
    if isinstance(space, spaces.Dict):
        return np.concatenate(
            [flat(member, observations[key]) for key, member in space.spaces.items()], axis=1
        )
    if isinstance(space, spaces.Tuple):
        parts = zip(space.spaces, observations, strict=True)
        return np.concatenate([flat(member, part) for member, part in parts], axis=1)
    # These exactly: Gymnasium may know another flat form of a space that derives from one.
    if type(space) in (spaces.Box, spaces.MultiBinary):
        return np.reshape(observations, (len(observations), -1))
    if type(space) is spaces.Discrete:
        return _one_hot(observations[:, None] - space.start, np.array([space.n]), space.dtype)
    if type(space) is spaces.MultiDiscrete:
        values = (observations - space.start).reshape(len(observations), -1)
        return _one_hot(values, space.nvec.reshape(-1), space.dtype)
    return np.stack([np.asarray(spaces.utils.flatten(space, value)) for value in observations])


def _one_hot(values: Array, sizes: Array, dtype: Any) -> Array:
    """(m, k) values below (k,) sizes as (m, sum of sizes) zeros and ones."""
    out = np.zeros((len(values), int(sizes.sum())), dtype=dtype)
    starts = np.cumsum(sizes) - sizes
    out[np.arange(len(values))[:, None], starts + values] = 1
    return out


class LastRows:
    """The last value of each of n sub-environments; not shared with values put in or returned."""

    def __init__(self, space: spaces.Space[Any], num_envs: int) -> None:
        self._batch = make_column(space, num_envs, np.zeros).batch()
        self._is_plain = isinstance(self._batch, np.ndarray) and not self._batch.dtype.hasobject

    def put(self, rows: slice | IntArray, values: Batch) -> None:
        if self._is_plain:
            self._batch[rows] = values
        else:
            scatter(self._batch, rows, values)

    def of(self, rows: Any) -> Batch:
        """Return some rows; not to be written into."""
        return take(self._batch, rows)

    def all(self) -> Batch:
        return copy(self._batch)

    def state(self) -> list[Any]:
        state: list[Any] = [array for _, array in leaves(self.all())]
        for k, array in enumerate(state):
            if array.dtype == object:
                state[k] = array.tolist()
        return state

    def load(self, state: list[Any], where: str) -> None:
        """Restore the result of ``state``; ``where`` starts error messages."""
        own = [array for _, array in leaves(self._batch)]
        values = []
        for value in state:
            if isinstance(value, list):
                values.append(object_array(value))
            else:
                values.append(np.asarray(value))
        expected, got = ([leaf.shape for leaf in each] for each in (own, values))
        if expected != got:
            raise CheckpointError(
                f"{where}: expected arrays of shapes {expected}, got {got}; they are of another "
                "chain"
            )
        for leaf, value in zip(own, values, strict=True):
            scatter(leaf, ..., fitting(value, leaf, where))


class RowsKeptElsewhere(LastRows):
    """The same of rows that an inner wrapper keeps: nothing is kept here twice."""

    def __init__(
        self, space: spaces.Space[Any], num_envs: int, get_all: Callable[[], Batch]
    ) -> None:
        super().__init__(space, num_envs)  # what is loaded must fit
        self._get_all = get_all

    def put(self, rows: slice | IntArray, values: Batch) -> None:
        """Keep nothing."""

    def of(self, rows: Any) -> Batch:
        return take(self._get_all(), rows)

    def all(self) -> Batch:
        return self._get_all()
