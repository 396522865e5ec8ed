"""The form of a chain's saved state, checked before use: the file may be damaged or untrusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vecwrap.rows.columns import make_column
from vecwrap.rows.saved import fitting, fitting_list


def refuse_form(
    state: dict[str, Any],
    count: int,
    num_envs: int,
    num_sources: int,
    space: Any,
    conform: Callable[[Any], Any],
) -> None:
    """Refuse a state whose form ``state_dict`` does not return; wrappers check their own states."""
    fitting_list(state["wrappers"], count, "wrappers")
    for trains in fitting_list(state["training"], count, "training"):
        fitting(trains, False, "training")
    _refuse_seeds(state["build_seed"], "build_seed")
    if state["sub_envs"] is None:
        return
    like = make_column(space, num_envs, np.zeros).batch()
    fitting(state["shown"], like, "shown")
    _refuse_masks(state["masks"], num_envs)
    for i, row in enumerate(fitting_list(state["sub_envs"], num_sources, "sub_envs")):
        where = f"sub_envs[{i}]"
        _refuse_row(conform, row, where)
        if row["env"] is not None:
            fitting(row["env"], [], where)
        fitting(row["options"] or {}, {}, where)
        _refuse_seeds(row["seed_of_takeover"], where)
        for name in ("episode", "steps"):
            fitting(row[name], 0, f"{where}: {name}")
        for name in ("ended", "first"):
            fitting(row[name], False, where)
        for name in ("waits", "gone"):  # of games
            fitting(row.get(name, False), False, where)
        if "renewal" in row:
            _refuse_recreate_counter(row["renewal"], f"{where}: renewal")
        if "recovery" in row:
            _refuse_recovery(conform, row["recovery"], f"{where}: recovery")


def _refuse_masks(masks: Any, num_envs: int) -> None:
    fits = (
        isinstance(masks, np.ndarray)
        and masks.dtype == np.int8
        and masks.ndim == 2
        and len(masks) == num_envs
    )
    if masks is not None and not fits:
        raise ValueError(f"masks: expected None or ({num_envs}, k) int8, got another value")


def _refuse_row(conform: Callable[[Any], Any], row: Any, where: str) -> None:
    for name in ("over", "terminated", "truncated"):
        fitting(row[name], False, f"{where}: {name}")
    _refuse_seeds(row["seed"], where)
    conform(row["observation"])


def _refuse_recovery(conform: Callable[[Any], Any], recovery: dict[str, Any], where: str) -> None:
    _refuse_row(conform, recovery, where)
    fitting(recovery["lost"], False, where)
    fitting(recovery["lost_episodes"], 0, where)
    restarts = recovery["restarts"]
    for name in ("count", "in_vain"):
        fitting(restarts[name], 0, f"{where}: {name}")
    fitting(restarts["reason"], "", f"{where}: reason")
    for age in fitting(restarts["ages"], [], f"{where}: ages"):
        fitting(age, 0.0, f"{where}: ages")
    _refuse_attributes(recovery["attributes"], where)


def _refuse_recreate_counter(renewal: dict[str, Any], where: str) -> None:
    for name in ("episodes", "number"):
        fitting(renewal[name], 0, f"{where}: {name}")
    _refuse_attributes(renewal["attributes"], where)


def _refuse_attributes(attributes: Any, where: str) -> None:
    if any(
        not isinstance(name, str) or name.startswith("__")
        for name in fitting(attributes, {}, where)
    ):
        raise ValueError(f"{where}: expected names of attributes, none with two underscores")


def _refuse_seeds(seed: Any, where: str) -> None:
    if seed is not None and (type(seed) is not int or seed < 0):
        raise ValueError(f"{where}: expected a seed of at least 0 or None, got another value")
