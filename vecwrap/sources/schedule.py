"""What each reset of a sub-environment gets: seeds and options from a list or a function, episode by episode.

A schedule is sent to its sub-environment by value, once, and used there; so an autoreset costs no message.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from types import MethodType
from typing import Any, TypeAlias

from vecwrap.errors import ArgumentError
from vecwrap.rows.infos import own_copy
from vecwrap.rows.saved import fitting
from vecwrap.sources.saving import derives_from_plain, is_no_data, is_plain

Reset: TypeAlias = tuple[int | None, dict[str, Any] | None]
"""Seed and options of one reset; None if there is none."""
Rule: TypeAlias = Callable[[int], Reset]
"""What the k-th scheduled episode of one sub-environment gets."""


def as_reset(value: Any) -> Reset:
    """Read what a list or a function gives for one episode: a seed or None, or a pair of either and the options."""
    seed, options = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, None)
    if options is not None and not isinstance(options, dict):
        raise ArgumentError(f"expected the options as a dict or None, got {options!r}")
    if seed is None:
        return None, options
    try:
        number = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise ArgumentError(f"expected a seed of at least 0, None, or a pair of a seed and options, got {value!r}")
    return number, options


@dataclass(frozen=True)
class Told:
    """A rule that calls a function of the episode's number and the sub-environment's index."""

    function: Callable[[int, int], Any]
    index: int

    def __call__(self, episode: int) -> Reset:
        return as_reset(self.function(episode, self.index))

    def state(self) -> dict[str, Any]:
        """Return the function's state: its ``state_dict``, else its attributes that are plain values."""
        owner = self._owner()
        if hasattr(owner, "state_dict") and hasattr(owner, "load_state_dict"):
            return {"own": own_copy(owner.state_dict())}
        attributes = _attributes(owner)
        for name, value in attributes.items():
            if derives_from_plain(value):
                raise TypeError(
                    f"seed_each_episode: the attribute {name} of {type(owner).__name__} is a {type(value).__name__}, "
                    "which no file gives back as it is: offer state_dict() and load_state_dict()"
                )
        return {"attributes": {name: deepcopy(value) for name, value in attributes.items() if is_plain(value)}}

    def load(self, state: dict[str, Any]) -> None:
        owner = self._owner()
        if "own" in state:
            owner.load_state_dict(own_copy(state["own"]))
        else:
            attributes = fitting(state["attributes"], {}, "attributes")
            if refused := [name for name in attributes if is_no_data(type(owner), name)]:
                raise ValueError(f"expected what {type(owner).__name__} remembers, got its attributes {refused}")
            _attributes(owner).update(deepcopy(attributes))

    def _owner(self) -> Any:
        return self.function.__self__ if isinstance(self.function, MethodType) else self.function


@dataclass(frozen=True)
class Dealt:
    entries: Sequence[Reset]
    start: int
    step: int
    again: bool

    def __call__(self, episode: int) -> Reset:
        at = self.start + episode * self.step
        if self.again:
            return self.entries[at % len(self.entries)]
        return self.entries[at] if at < len(self.entries) else (None, None)


class Schedule:
    """The resets of one sub-environment; ``replace`` is whether it also replaces a seed given to a reset."""

    def __init__(self, rule: Rule, *, replace: bool = False) -> None:
        self.rule = rule
        self.replace = replace
        self.episodes = 0  # that were scheduled since it began

    def next(self, seed: int | None, options: dict[str, Any] | None) -> Reset:
        """Return the seed and options of a reset; a given seed restarts the schedule, given options go first."""
        if seed is not None:
            self.episodes = 0
            if not self.replace:
                return seed, options
        scheduled, own = self.rule(self.episodes)
        self.episodes += 1
        if own is not None:
            options = {**deepcopy(own), **(options or {})}
        return scheduled, options

    def state(self) -> dict[str, Any]:
        return {"episodes": self.episodes, "remembered": self.rule.state() if isinstance(self.rule, Told) else None}

    def load(self, state: dict[str, Any]) -> None:
        self.episodes = state["episodes"]
        if isinstance(self.rule, Told) and state["remembered"] is not None:
            self.rule.load(state["remembered"])


def _attributes(owner: Any) -> dict[str, Any]:
    """The attributes themselves; none of a class, which are shared by all."""
    return {} if isinstance(owner, type) else getattr(owner, "__dict__", {})
