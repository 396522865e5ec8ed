"""What rules look at: a plan's wrappers in their places, with the spaces before and after each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gymnasium import spaces

from vecwrap.pipeline.static_plan import StaticPlan
from vecwrap.pipeline.wrappers import PlannedWrapper
from vecwrap.rows.members import Key
from vecwrap.sources.space_probe import SpacesAt

# Wrappers of one kind. Gymnasium's do the same inside each sub-environment, and are named by their
# import paths.
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
STACKING = ("framestack", "gymnasium.wrappers.stateful_observation:FrameStackObservation")
REWARD_CLIPS = ("clip_reward", "gymnasium.wrappers.transform_reward:ClipReward")
FRAME_SKIPS: Mapping[str, str] = {  # the argument that says how many frames
    "atari": "frame_skip",
    "frame_skip": "frame_skip",
    "gymnasium.wrappers.stateful_observation:MaxAndSkipObservation": "skip",
    "gymnasium.wrappers.atari_preprocessing:AtariPreprocessing": "frame_skip",
}


@dataclass(frozen=True)
class PlacedWrapper:
    """A wrapper in its place in a plan, with the spaces inside and outside.

    Both are None if no sub-environment was made; ``after`` is None also if the wrapper is refused.
    """

    plan: StaticPlan
    index: int
    wrapper: PlannedWrapper
    input_spaces: SpacesAt | None
    output_spaces: SpacesAt | None

    @property
    def name(self) -> str:
        return self.wrapper.spec.name

    @property
    def label(self) -> str:
        """Its name within a sentence: ``framestack (wrappers[1])``."""
        return f"{self.name} ({self.wrapper.spec.source.label()})"

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The members of a Dict that it applies to; None for all."""
        keys = self.argument("keys")
        if isinstance(keys, (list, tuple)):
            return tuple(keys)
        return None

    @property
    def frames(self) -> int:
        """For how many frames one of ``FRAME_SKIPS`` holds an action."""
        return int(self.argument(FRAME_SKIPS[self.name], 4))

    def argument(self, name: str, default: Any = None) -> Any:
        return self.wrapper.spec.kwargs.get(name, default)

    def inside(self, *names: str) -> list[PlacedWrapper]:
        """The wrappers with these names that it wraps, inner first."""
        return [
            placed for placed in placed_wrappers(self.plan, *names) if placed.index < self.index
        ]

    def outside(self, *names: str) -> list[PlacedWrapper]:
        """The wrappers with these names that wrap it, inner first."""
        return [
            placed for placed in placed_wrappers(self.plan, *names) if placed.index > self.index
        ]

    def overlaps(self, other: PlacedWrapper) -> bool:
        """Whether both may apply to the same member of the observations."""
        return self.keys is None or other.keys is None or bool(set(self.keys) & set(other.keys))

    def boxes(self) -> dict[Key, spaces.Box]:
        """The Boxes among the observations that it applies to; empty if unknown."""
        space = None if self.input_spaces is None else self.input_spaces.observation_space
        if isinstance(space, spaces.Box):
            return {None: space}
        if not isinstance(space, spaces.Dict):
            return {}
        members = {
            key: member
            for key, member in space.spaces.items()
            if self.keys is None or key in self.keys
        }
        return {key: member for key, member in members.items() if isinstance(member, spaces.Box)}


def placed_wrappers(plan: StaticPlan, *names: str) -> Iterator[PlacedWrapper]:
    """The wrappers with these names, inner first; all if none is given."""
    spaces: tuple[SpacesAt | None, ...] = plan.spaces_at or (None,) * (len(plan.wrappers) + 1)
    for index, wrapper in enumerate(plan.wrappers):
        if not names or wrapper.spec.name in names:
            before, after = spaces[index : index + 2]
            yield PlacedWrapper(
                plan,
                index,
                wrapper,
                before,
                after if after is None or after.refusal is None else None,
            )
