"""Argument checks shared by several layers; errors are PlanErrors that begin with the layer and the argument."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from vecwrap.errors import PlanError, did_you_mean

__all__ = ["check_info_key", "chosen_envs", "one_of", "refuse_one_text"]

_OF_THE_FACE = ("final_obs", "final_info", "env_id")  # infos keys that the outermost environment writes


def one_of(argument: str, value: Any, values: tuple[str, ...]) -> Any:
    """Return the value, if it is one of these; PlanError otherwise.

    >>> one_of("framestack: axis", "nwe", ("new", "channel"))
    Traceback (most recent call last):
    vecwrap.errors.PlanError: framestack: axis: expected new or channel, got "nwe". Did you mean "new"?
    """
    if value not in values:
        near = did_you_mean(str(value), values)
        raise PlanError(f'{argument}: expected {" or ".join(values)}, got "{value}".{near}')
    return value


def refuse_one_text(argument: str, names: Any) -> None:
    """Refuse a text instead of a list of names; otherwise its letters would count as names."""
    if isinstance(names, str):
        raise PlanError(f'{argument}: expected a list of names, got the text "{names}"; write ["{names}"]')


def chosen_envs(argument: str, envs: Iterable[int] | None, num_envs: int) -> tuple[int, ...]:
    """Return the chosen sub-environments, in order; None means all."""
    ids = tuple(operator.index(i) for i in (range(num_envs) if envs is None else envs))  # for JSON
    if not ids or len(set(ids)) != len(ids) or not all(0 <= i < num_envs for i in ids):
        raise PlanError(f"{argument}: expected indices from 0 to {num_envs - 1}, each once, got {list(ids)}")
    return ids


def check_info_key(argument: str, key: str, default: str) -> None:
    """Refuse a name for an infos column that is empty, a mask's, or one that the outermost environment writes."""
    if not key or key.startswith("_") or key in _OF_THE_FACE:
        raise PlanError(
            f"{argument}: expected a name without a leading underscore and none of {', '.join(_OF_THE_FACE)}, "
            f'got "{key}"; the default is "{default}"'
        )
