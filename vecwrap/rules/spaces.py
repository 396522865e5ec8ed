"""Layers on spaces that do not suit them, or no longer do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.plan import Plan
from vecwrap.rules.finding import Fault, rule
from vecwrap.rules.look import Spot, spots
from vecwrap.space_text import space_text

# These only change a space, so if it stays the same they do nothing; transpose reorders a cube without changing it.
_CHANGE_SPACES = (
    "clip_action", "dtype", "filter_obs", "flatten", "framestack", "rescale_action", "resize", "scale_obs",
)  # fmt: skip
# Other layers do nothing with these arguments.
_WITHOUT_EFFECT: Mapping[str, Mapping[str, Any]] = {
    "clip_reward": {"low": -np.inf, "high": np.inf},
    "frame_skip": {"frame_skip": 1},
    "scale_reward": {"factor": 1},
    "sticky_actions": {"repeat_action_probability": 0},
}


@rule("warning")
def changes_nothing(plan: Plan) -> Iterator[Fault]:
    """A layer that changes nothing.

    ``flatten`` of vectors, ``dtype`` to the existing dtype, ``rescale_action`` or ``scale_obs`` to the existing bounds,
    ``clip_action`` without bounds, ``scale_reward:1`` and the like: each costs time in every step, and misleads the
    reader. Often a different layer, or a different place, was intended.

    Wrong: ``CartPole-v1 | flatten``
    Right: ``FrozenLake-v1 | flatten``
    """
    for spot in spots(plan):
        if spot.name in _CHANGE_SPACES and spot.before is not None and spot.after is not None:
            before, after = spot.before, spot.after
            if (before.observation_space, before.action_space) == (after.observation_space, after.action_space):
                what = before.action_space if spot.name.endswith("_action") else before.observation_space
                yield Fault(spot.layer, f"it changes nothing: {space_text(what)} stays what it is.", "Leave it out.")
        arguments = _WITHOUT_EFFECT.get(spot.name, {})
        if arguments and all(spot.argument(key) == value for key, value in arguments.items()):
            given = ", ".join(f"{key}={value:g}" for key, value in arguments.items())
            yield Fault(spot.layer, f"it changes nothing with {given}.", "Leave it out, or give another value.")


@rule("error")
def extract_inside_dict(plan: Plan) -> Iterator[Fault]:
    """A layer that needs a Dict, outside one that extracts a member of it.

    After ``extract_obs`` there is one member and no Dict: nothing can be filtered or extracted, and there are no
    ``keys`` to name. ``build`` refuses it.

    Wrong: ``vecwrap.testing:ToyEnv env_kwargs.observations=mixed | extract_obs:position | extract_obs:mesh``
    Right: ``vecwrap.testing:ToyEnv env_kwargs.observations=mixed | extract_obs:position``
    """
    extracts = list(spots(plan, "extract_obs"))
    for spot in spots(plan):
        inner = next((extract for extract in extracts if extract.index < spot.index), None)
        if inner is None or spot.before is None or isinstance(spot.before.observation_space, spaces.Dict):
            continue
        if spot.name in ("extract_obs", "filter_obs"):
            yield Fault(spot.layer, f"it needs a Dict, but {_left(inner)}.", f'Put it before "{inner.name}".')
        elif spot.keys is not None and spot.after is None:
            yield Fault(
                spot.layer,
                f"its keys are members of a Dict, but {_left(inner)}.",
                f'Put it before "{inner.name}", or leave keys out.',
            )


def _left(extract: Spot) -> str:
    return f'{extract.label} leaves only "{extract.argument("key")}"'
