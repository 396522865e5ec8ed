"""The parent's warning filters, as they travel to a worker: their categories by name.

Pickled, a category has the worker import what defines it. torch filters a warning of its own, so each worker of a
process that has imported torch would import it too: seconds, and hundreds of MB.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

__all__ = ["adopt", "named"]


def named(filters: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Put the module and name of each category in its place; what a script itself defines travels by value."""
    return [(action, message, _name(category), *where) for action, message, category, *where in filters]


def adopt(filters: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Put filters before those that are there, as far as their categories have been imported here.

    Returns:
        The others, for whose categories nothing can warn yet.
    """
    here, others = [], []
    for action, message, category, *where in filters:
        if isinstance(category, tuple):
            module, name = category
            try:
                category = attrgetter(name)(sys.modules[module])
            except (KeyError, AttributeError):
                others.append((action, message, (module, name), *where))
                continue
        here.append((action, message, category, *where))
    warnings.filters[:0] = here  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]
    return others


def _name(category: Any) -> Any:
    module, name = category.__module__, category.__qualname__
    with contextlib.suppress(KeyError, AttributeError):
        if module != "__main__" and attrgetter(name)(sys.modules[module]) is category:
            return module, name
    return category
