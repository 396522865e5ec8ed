"""The parts of an observation that a layer applies to: the observation itself, or members of a Dict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from vecwrap.batch import Batch
from vecwrap.errors import PlanError, did_you_mean
from vecwrap.parts.argument_checks import refuse_one_text

__all__ = ["Key", "apply", "choose", "name_of", "of", "refuse_missing", "replaced", "with_new"]

Key: TypeAlias = str | None
"""A member of a Dict space; None stands for the observation itself, if the space is not a Dict."""

Space: TypeAlias = spaces.Space[Any]


def choose(
    layer: str,
    space: Space,
    keys: tuple[str, ...] | None,
    fits: Callable[[Space], bool],
    expected: str,
    remedy: str,
) -> dict[Key, Any]:
    """Return the spaces that a layer applies to, by key.

    Args:
        layer: its name, for errors.
        space: of one observation.
        keys: which members of a Dict space; None means all.
        fits: whether the layer supports a space.
        expected: the supported spaces, for errors.
        remedy: what to do otherwise.

    Raises:
        PlanError: a missing key, keys without a Dict, or a space that the layer does not support.

    >>> camera = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    >>> choose("dim", spaces.Dict(camera=camera, door=spaces.Discrete(2)), None, is_box, "a Box", "")
    Traceback (most recent call last):
    ...
    vecwrap.errors.PlanError: dim: observations['door']: expected a Box, got Discrete(2); name those that it is for:
    keys=["camera"]
    """
    if not isinstance(space, spaces.Dict):
        if keys is not None:
            raise PlanError(
                f"{layer}: keys: expected observations of a Dict space, got {space}; leave keys out, it has no members"
            )
        if not fits(space):
            raise PlanError(f"{layer}: expected observations of {expected}, got {space}; {remedy}")
        return {None: space}
    if keys is not None:
        refuse_missing(layer, space, keys)
    fitting = [key for key, member in space.spaces.items() if fits(member)]
    for key in space.spaces if keys is None else keys:
        if key not in fitting:
            if keys is None and fitting:
                remedy = "name those that it is for: keys=[" + ", ".join(f'"{name}"' for name in fitting) + "]"
            raise PlanError(f"{layer}: {name_of(key)}: expected {expected}, got {space[key]}; {remedy}")
    return {key: space[key] for key in (space.spaces if keys is None else keys)}


def refuse_missing(layer: str, space: spaces.Dict, keys: tuple[str, ...], argument: str = "keys") -> None:
    """Raise PlanError unless all keys are members of the space, without repeats, and there is at least one."""
    refuse_one_text(f"{layer}: {argument}", keys)
    known = list(space.spaces)
    for key in keys:
        if key not in known:
            near = did_you_mean(key, known)
            raise PlanError(f'{layer}: {argument}: expected members of the observations, {known}, got "{key}".{near}')
    if not keys or len(set(keys)) != len(keys):
        raise PlanError(f"{layer}: {argument}: expected one or more of {known}, each once, got {list(keys)}")


def replaced(space: Space, new: Mapping[Key, Space]) -> Space:
    """Return a copy of a space with some members replaced, in the same order."""
    if None in new:
        return new[None]
    space = deepcopy(space)
    assert isinstance(space, spaces.Dict)
    space.spaces.update({key: member for key, member in new.items() if key is not None})
    return space


def apply(functions: Mapping[Key, Callable[[Any], Any]], observations: Batch) -> Batch:
    """Apply each function to its member; the rest are left unchanged."""
    if None in functions:
        return functions[None](observations)
    return {key: functions[key](value) if key in functions else value for key, value in observations.items()}


def of(batch: Batch, key: Key) -> Any:
    """Return a member of a batch, or the batch itself if it is not a dict."""
    return batch if key is None else batch[key]


def with_new(batch: Batch, new: Mapping[Key, Any]) -> Batch:
    """Return a batch with some members replaced; its own dict is left unchanged."""
    if None in new:
        return new[None]
    return {**batch, **new}


def name_of(key: Key) -> str:
    """Its name in errors."""
    return "observations" if key is None else f"observations[{key!r}]"


def is_box(space: Space) -> bool:
    """Whether it is a Box, of numbers that batches hold in one array."""
    return isinstance(space, spaces.Box) and np.dtype(space.dtype).kind in "iuf"
