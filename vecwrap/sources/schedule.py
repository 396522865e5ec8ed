"""What each reset of a sub-environment receives: seeds and options, episode by episode.

A schedule is sent to its sub-environments by value, once, and used there; so an autoreset costs no
message.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

from vecwrap.errors import ArgumentError

ScheduledReset: TypeAlias = tuple[int | None, dict[str, Any] | None]
"""Seed and options of one reset; None if there is none."""


def as_reset(value: Any) -> ScheduledReset:
    """Read an episode's entry of a schedule.

    The entry is a seed or None, or a pair of either and the options.
    """
    if isinstance(value, (tuple, list)) and len(value) == 2:
        seed, options = value
    else:
        seed = value
        options = None
    if options is not None and not isinstance(options, dict):
        raise ArgumentError(f"expected the options as a dict or None, got {options!r}")
    if seed is None:
        return None, options
    try:
        if isinstance(seed, bool):
            number = -1
        else:
            number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise ArgumentError(
            f"expected a seed of at least 0, None, or a pair of a seed and options, got {value!r}"
        )
    return number, options


@dataclass(frozen=True)
class Schedule:
    """The resets of ``num_envs`` sub-environments, each by its number of scheduled episodes."""

    seeds: tuple[ScheduledReset, ...] | Callable[[int, int], Any]
    num_envs: int
    start_index: int
    once: bool  # whether each entry of a list is played once, by one sub-environment
    replace: bool  # whether the schedule also replaces a seed given to a reset

    def reset(self, episode: int, index: int, options: dict[str, Any] | None) -> ScheduledReset:
        """Return the seed and the options of a sub-environment's episode.

        Options that were given to the reset take precedence.
        """
        seed, own = self._entry(episode, index)
        if own is not None:
            options = {**deepcopy(own), **(options or {})}
        return seed, options

    def _entry(self, episode: int, index: int) -> ScheduledReset:
        if callable(self.seeds):
            return as_reset(self.seeds(episode, self.start_index + index))
        count = len(self.seeds)
        if not self.once:
            return self.seeds[(index * count // self.num_envs + episode) % count]
        place = episode * self.num_envs + index
        if place < count:
            return self.seeds[place]
        return (None, None)
