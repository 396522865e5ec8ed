"""What several layers ask of their arguments; an error says which layer's, and which."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from vecwrap.errors import PlanError, did_you_mean

__all__ = ["check_info_key", "chosen_envs", "one_of", "refuse_one_text"]

_OF_THE_FACE = ("final_obs", "final_info", "env_id")  # what it writes into infos


def one_of(argument: str, value: Any, values: tuple[str, ...]) -> Any:
    """Give the value, if it is one of these.

    Args:
        argument: the layer's name and the argument's.
        value: as it was given.
        values: what it may be.

    Raises:
        PlanError: it is none of them.

    >>> one_of("framestack: axis", "nwe", ("new", "channel"))
    Traceback (most recent call last):
    vecwrap.errors.PlanError: framestack: axis: expected new or channel, got "nwe". Did you mean "new"?
    """
    if value not in values:
        near = did_you_mean(str(value), values)
        raise PlanError(f'{argument}: expected {" or ".join(values)}, got "{value}".{near}')
    return value


def refuse_one_text(argument: str, names: Any) -> None:
    """Refuse a text in the place of a list of them, as whose names its letters would count.

    Args:
        argument: the layer's name and the argument's.
        names: as they were given.

    Raises:
        PlanError: it is one text.
    """
    if isinstance(names, str):
        raise PlanError(f'{argument}: expected a list of names, got the text "{names}"; write ["{names}"]')


def chosen_envs(argument: str, envs: Iterable[int] | None, num_envs: int) -> tuple[int, ...]:
    """Give which sub-environments are meant, in their order.

    Args:
        argument: the layer's name and the argument's.
        envs: their indices, each once; None means all.
        num_envs: n.

    Raises:
        PlanError: there are none, one is out of range or there twice.
    """
    ids = tuple(operator.index(i) for i in (range(num_envs) if envs is None else envs))  # for JSON
    if not ids or len(set(ids)) != len(ids) or not all(0 <= i < num_envs for i in ids):
        raise PlanError(f"{argument}: expected indices from 0 to {num_envs - 1}, each once, got {list(ids)}")
    return ids


def check_info_key(argument: str, key: str, default: str) -> None:
    """Refuse a name for a column of infos that means something else there.

    Args:
        argument: the layer's name and the argument's.
        key: the column's name.
        default: one that serves.

    Raises:
        PlanError: it is empty, a mask's, or one that the outermost environment writes.
    """
    if not key or key.startswith("_") or key in _OF_THE_FACE:
        raise PlanError(
            f"{argument}: expected a name without a leading underscore and none of {', '.join(_OF_THE_FACE)}, "
            f'got "{key}"; the default is "{default}"'
        )
