"""Which member of a pool is drawn as an opponent: rules that give each member a weight."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from vecwrap.errors import ArgumentError, SpecError, did_you_mean
from vecwrap.rows.step_result import FloatArray
from vecwrap.selfplay.scripted import RANDOM
from vecwrap.sources.import_paths import import_target, is_import_path, refuse_import

Rule: TypeAlias = Callable[[Sequence[str], FloatArray], Any]
"""``rule(members, win_rates)`` returns a weight for each of m members, (m,).

``members`` are names: scripted ones, then snapshots from the oldest to the newest. ``win_rates``
are the learner's estimated mean results against them, (m,) float64, strictly between 0 and 1.
"""

NAMES = ("latest", "uniform", "recent:SHARE", "pfsp", "pfsp:POWER", "pfsp:even", "only:NAME")


def latest(members: Sequence[str], win_rates: FloatArray) -> FloatArray:
    """Take the newest snapshot; without any, the last scripted member."""
    return np.asarray(np.arange(len(members)) == len(members) - 1, np.float64)


def uniform(members: Sequence[str], win_rates: FloatArray) -> FloatArray:
    """Take each member equally often (fictitious self-play, Heinrich et al. 2015)."""
    return np.ones(len(members))


def only(name: str) -> Rule:
    def rule(members: Sequence[str], win_rates: FloatArray) -> FloatArray:
        if name not in members:
            near = did_you_mean(name, members)
            raise ArgumentError(
                f'sample: there is no member "{name}".{near} Members: {", ".join(members)[:1000]}'
            )
        return np.asarray([float(member == name) for member in members])

    return rule


def recent(share: float) -> Rule:
    """Take each member of the most recent share equally often.

    Source: Bansal et al. 2018, whose δ is one minus the share.

    Scripted members are the oldest. The share is rounded up to whole members.
    """

    def rule(members: Sequence[str], win_rates: FloatArray) -> FloatArray:
        # 0.07 * 100 is a little more than 7; at least 1
        count = math.ceil(share * len(members) - 1e-9)
        return np.asarray(np.arange(len(members)) >= len(members) - count, np.float64)

    return rule


def pfsp(power: float) -> Rule:
    """Prefer members that win against the learner: ``(1 - x) ** power``.

    This is prioritised fictitious self-play.

    Vinyals et al. 2019 (AlphaStar), ``f_hard``.
    """
    return lambda members, win_rates: (1 - win_rates) ** power


def pfsp_even(members: Sequence[str], win_rates: FloatArray) -> FloatArray:
    """Prefer members as strong as the learner: ``x (1 - x)`` (Vinyals et al. 2019, ``f_var``)."""
    return win_rates * (1 - win_rates)


def rule_of(sample: str | Rule, where: str = "pool", *, imports: bool = True) -> Rule:
    """Return the rule that a name stands for: one of `NAMES`, an import path, or a rule itself."""
    if callable(sample):
        return sample
    if sample.startswith("only:"):
        return only(sample.removeprefix("only:"))
    name, _, argument = sample.partition(":")
    if not argument and name in ("latest", "uniform", "pfsp"):
        return {"latest": latest, "uniform": uniform, "pfsp": pfsp(2.0)}[name]
    if sample == "pfsp:even":
        return pfsp_even
    if name in ("recent", "pfsp"):
        return _with_number(name, argument, where)
    if is_import_path(sample):
        refuse_import(sample, f"{where}: sample", imports=imports)
        return import_target(sample, f"{where}: sample")
    near = did_you_mean(name, [each.partition(":")[0] for each in NAMES])
    raise SpecError(
        f'{where}: sample: expected {", ".join(NAMES)} or an import path "module:function", got '
        f"{sample!r}.{near}"
    )


def _with_number(name: str, argument: str, where: str) -> Rule:
    try:
        number = float(argument)
    except ValueError:
        number = math.nan
    if name == "recent" and 0 < number <= 1:
        return recent(number)
    if name == "pfsp" and 0 <= number < math.inf:
        return pfsp(number)
    expected = (
        "recent:SHARE with a share above 0 and up to 1"
        if name == "recent"
        else "pfsp:POWER with a power from 0"
    )
    raise SpecError(
        f'{where}: sample: expected {expected}, as in "{name}:0.5", got "{name}:{argument}"'
    )


def shares(
    rule: Rule, members: Sequence[str], win_rates: FloatArray, where: str = "pool"
) -> FloatArray:
    """Return the probability of each member under a rule, (m,) float64."""
    if not members:
        raise ArgumentError(
            f"{where}: expected members to draw from, got an empty pool; add one, for example "
            f'"{RANDOM}"'
        )
    given = rule(tuple(members), win_rates.copy())
    try:
        weights = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        weights = np.empty(0)
    if (
        weights.shape != (len(members),)
        or not np.isfinite(weights).all()
        or weights.min() < 0
        or not weights.sum() > 0
    ):
        raise ArgumentError(
            f"{where}: sample: expected {len(members)} finite weights, one for each of "
            f"{', '.join(members)}, none negative and not all 0, got {str(given)[:200]}"
        )
    weights = weights / weights.max()  # whose sum is finite
    return np.asarray(weights / weights.sum())


def pick(probabilities: FloatArray, number: float) -> int:
    """Return the index that a number from [0, 1) falls on."""
    reached = np.cumsum(probabilities)
    index = int(np.searchsorted(reached, number * reached[-1], side="right"))
    # rounding could take it past the last
    return min(index, int(np.flatnonzero(probabilities)[-1]))
