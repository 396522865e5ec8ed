"""``backend: auto``: which backend a pipeline gets if it names none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium.envs.registration import EnvSpec

from vecwrap.backends.workers.cores import usable_cores
from vecwrap.pipeline.environments import of_module
from vecwrap.pipeline.words import PROCESS_OPTIONS

# Microseconds of a step on a core of about 3 GHz, by the module of the environment; the first that fits counts. Of
# others we know nothing: `vecwrap tune` measures.
STEP_COSTS = {
    "gymnasium.envs.classic_control.acrobot.": 35.0,
    "gymnasium.envs.classic_control.": 8.0,
    "gymnasium.envs.toy_text.": 8.0,
}
WRAPPER_COST = 5.0  # of a wrapper around a sub-environment
HAND_OVER = 100.0  # what it costs to hand a vector step to other processes and to be woken by them


def step_cost(entry_point: Any, num_wrappers: int) -> float | None:
    """Return what a step of an environment costs with its wrappers, in microseconds; None if that is not known."""
    known = of_module(STEP_COSTS, entry_point)
    return None if known is None else known + num_wrappers * WRAPPER_COST


def most_cost(specs: Sequence[EnvSpec | None], num_wrappers: int) -> float | None:
    """Return what a step of the dearest of these environments costs; None if one is not known."""
    costs = [None if spec is None else step_cost(spec.entry_point, num_wrappers) for spec in specs]
    known = [cost for cost in costs if cost is not None]
    return max(known) if len(known) == len(costs) else None


def choose(options: Mapping[str, Any], n: int, *, cost: float | None, in_part: bool) -> tuple[str, str]:
    """Return the name of a backend, and why.

    Args:
        options: of the backend, as far as given.
        n: how many sub-environments.
        cost: microseconds of a step of one of them; None if not known.
        in_part: whether ``recv`` takes some of the rows while others are still being stepped.
    """
    asked = [name for name in PROCESS_OPTIONS if options.get(name) is not None]
    if asked:
        return "shmem", f"{' and '.join(asked)} ask{'s' * (len(asked) == 1)} for worker processes"
    if options.get("on_failure") == "restart":
        return (
            "shmem",
            "on_failure=restart asks for worker processes, so that a crash takes no more than its own with it",
        )
    if n == 1:
        return "dummy", "one sub-environment is quickest in this process"
    saved = None if cost is None else n * cost * (1 - 1 / min(n, usable_cores()))
    if saved is not None and saved <= HAND_OVER and not in_part:
        return "dummy", f"{n} steps of so cheap an environment are quicker in this process than handed to others"
    return "shmem", f"{n} sub-environments share the cores; vecwrap tune measures whether another way is quicker"
