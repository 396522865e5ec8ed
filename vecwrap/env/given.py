"""Arrays that are given, normalised as the layers of a chain do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vecwrap.rows.normalizers import RewardNormalizer


def normalizers_of(layers: Sequence[Any], kind: type[Any]) -> list[Any]:
    """All that normalise observations, or rewards, inner first."""
    found = [half for layer in reversed(layers) for half in layer.normalizers() if isinstance(half, kind)]
    if not found:
        what, layer = ("rewards", "reward") if kind is RewardNormalizer else ("observations", "obs")
        raise LookupError(f"{layers[0]!r} has no layer that normalises {what}: normalize or normalize_{layer}")
    return found


def through(layers: Sequence[Any], kind: type[Any], values: Any, *, back: bool = False) -> Any:
    """Normalise values by all of them, or undo it."""
    found = normalizers_of(layers, kind)
    for normalizer in reversed(found) if back else found:
        values = normalizer.unnormalize(values) if back else normalizer.normalize(values)
    return values
