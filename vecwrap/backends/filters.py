"""The parent's warning filters in the form sent to a worker: their categories by name.

Unpickling a category would import the module that defines it. torch adds a filter for a warning class of its own, so
the workers of any process that has imported torch would import it too: seconds, and hundreds of MB each.
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
    """Replace each category by its module and name; those that a script itself defines are sent by value."""
    return [(action, message, _name(category), *where) for action, message, category, *where in filters]


def adopt(filters: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Insert filters before the existing ones, if their categories have been imported here.

    Returns:
        The remaining filters, whose categories nothing can raise yet.
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
