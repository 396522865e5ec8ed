"""Queries for rules: the layers of a plan by name, the input of each, and the members it applies to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.layers import PlannedLayer
from vecwrap.parts.members import Key
from vecwrap.plan import Plan
from vecwrap.probe import Stage

__all__ = [
    "FRAME_SKIPS",
    "OBSERVATION_NORMALIZERS",
    "REWARD_NORMALIZERS",
    "STACKS",
    "Spot",
    "boxes",
    "is_image",
    "overlap",
    "spots",
]

# Layers of one kind. Gymnasium's do the same inside each sub-environment, and are named by their import paths.
OBSERVATION_NORMALIZERS = (
    "normalize",
    "normalize_obs",
    "gymnasium.wrappers.stateful_observation:NormalizeObservation",
)
REWARD_NORMALIZERS = (
    "normalize",
    "normalize_reward",
    "gymnasium.wrappers.stateful_reward:NormalizeReward",
)
STACKS = ("framestack", "gymnasium.wrappers.stateful_observation:FrameStackObservation")
FRAME_SKIPS: Mapping[str, tuple[str, int]] = {  # the argument that says how many frames, and its default
    "atari": ("frame_skip", 4),
    "frame_skip": ("frame_skip", 4),
    "gymnasium.wrappers.stateful_observation:MaxAndSkipObservation": ("skip", 4),
    "gymnasium.wrappers.atari_preprocessing:AtariPreprocessing": ("frame_skip", 4),
}


@dataclass(frozen=True)
class Spot:
    """A layer in its place.

    Attributes:
        index: how many layers are inside it.
        layer: the layer.
        before: what it wraps; None if no sub-environment was made.
        after: its result; None in that case too, or if it cannot be placed here.
    """

    index: int
    layer: PlannedLayer
    before: Stage | None
    after: Stage | None

    @property
    def name(self) -> str:
        """The layer's name or import path."""
        return self.layer.spec.name

    @property
    def label(self) -> str:
        """Its name within a sentence: ``framestack (wrappers[1])``."""
        return f"{self.name} ({self.layer.spec.source.label()})"

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The members of a Dict that it applies to; None for all."""
        keys = self.argument("keys")
        return tuple(keys) if isinstance(keys, (list, tuple)) else None

    def argument(self, name: str, default: Any = None) -> Any:
        """The layer's argument of a name, or its default."""
        return self.layer.spec.kwargs.get(name, default)


def spots(plan: Plan, *names: str) -> Iterator[Spot]:
    """Iterate over the layers with these names, inner first; over all if none is given."""
    stages: tuple[Stage | None, ...] = plan.stages or (None,) * (len(plan.layers) + 1)
    for index, layer in enumerate(plan.layers):
        if not names or layer.spec.name in names:
            before, after = stages[index : index + 2]
            yield Spot(index, layer, before, after if after is None or after.refusal is None else None)


def overlap(one: Spot, other: Spot) -> bool:
    """Whether two layers may apply to the same member of the observations."""
    return one.keys is None or other.keys is None or bool(set(one.keys) & set(other.keys))


def boxes(stage: Stage | None, keys: tuple[str, ...] | None) -> dict[Key, spaces.Box]:
    """The Boxes among the observations, or among these members of a Dict; empty if unknown."""
    space = None if stage is None else stage.observation_space
    if isinstance(space, spaces.Box):
        return {None: space}
    if not isinstance(space, spaces.Dict):
        return {}
    chosen = space.spaces if keys is None else {key: space[key] for key in keys if key in space.spaces}
    return {key: member for key, member in chosen.items() if isinstance(member, spaces.Box)}


def is_image(box: spaces.Box) -> bool:
    """Whether it looks like a uint8 image, or a stack of them."""
    return box.dtype == np.uint8 and len(box.shape) >= 2
