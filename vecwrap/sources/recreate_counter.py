"""``recreate_every``: sources recreate their environments between episodes.

This helps with simulators that leak memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vecwrap.rows.infos import detached_copy
from vecwrap.rows.saved import is_plain

__all__ = ["RecreateCounter"]


class RecreateCounter:
    """When to recreate an environment, and which attributes and seed to carry over.

    A reset without a seed gives the new environment one that is derived from the last given seed
    and the number of renewals, with ``numpy.random.SeedSequence([seed, number])``: the stream is
    the same every time.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._episodes = 0  # of the environment that there is
        self._number = 0  # of renewals
        self.attributes: dict[str, Any] = {}  # what `set_attr` has set, in that order

    def is_due(self) -> bool:
        return self._episodes >= self._every

    def begin(self) -> None:
        """The environment is new."""
        self._episodes = 0
        self._number += 1

    def count_episode(self) -> None:
        self._episodes += 1

    def seed_now(self, seed: int | None) -> int | None:
        """Return the seed of a new environment's first reset that was given none.

        ``seed`` is the last seed that was given.
        """
        if seed is None:
            return None
        return int(np.random.SeedSequence([seed, self._number]).generate_state(1)[0])

    def note_attribute(self, name: str, value: Any) -> None:
        self.attributes.pop(name, None)
        self.attributes[name] = detached_copy(value)

    def state(self) -> dict[str, Any]:
        """Return what a file can hold: of the attributes, plain ones."""
        attributes = {
            name: detached_copy(value) for name, value in self.attributes.items() if is_plain(value)
        }
        return {"episodes": self._episodes, "number": self._number, "attributes": attributes}

    def load(self, state: dict[str, Any] | None) -> None:
        """Go on from a saved state; None: it was saved without ``recreate_every``."""
        if state is None:
            self._episodes = 0
            self._number = 0
            return
        self._episodes = state["episodes"]
        self._number = state["number"]
        others = {name: value for name, value in self.attributes.items() if not is_plain(value)}
        self.attributes = {**others, **detached_copy(state["attributes"])}
