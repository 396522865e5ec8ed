"""Arrays that are given, normalised as the wrappers of a chain do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vecwrap.rows.normalizers import RewardNormalizer


def normalizers_of(chain: Sequence[Any], kind: type[Any]) -> list[Any]:
    """All that normalise observations, or rewards, inner first."""
    found = [half for wrapper in reversed(chain[:-1]) for half in wrapper.normalizers() if isinstance(half, kind)]
    if not found:
        what, wrapper = ("rewards", "reward") if kind is RewardNormalizer else ("observations", "obs")
        raise LookupError(f"{chain[0]!r} has no wrapper that normalises {what}: normalize or normalize_{wrapper}")
    return found


def through(chain: Sequence[Any], kind: type[Any], values: Any, *, back: bool = False) -> Any:
    """Normalise values by all of them, or undo it."""
    found = normalizers_of(chain, kind)
    for normalizer in reversed(found) if back else found:
        values = normalizer.unnormalize(values) if back else normalizer.normalize(values)
    return values
