"""Descriptions of newly made sub-environments, and the check that they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium import spaces

from vecwrap.errors import BackendError

__all__ = ["Description", "refuse_unequal"]


@dataclass
class Description:
    """A sub-environment's description of itself, returned in the start-up handshake; ``name`` is its class's."""

    observation_space: Any
    action_space: Any
    metadata: dict[str, Any]
    render_mode: str | None
    spec: Any
    name: str

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any]) -> Description:
        """Describe an environment."""
        return cls(
            getattr(env, "observation_space", None),
            getattr(env, "action_space", None),
            dict(env.metadata or {}),
            env.render_mode,
            env.spec,
            type(env.unwrapped).__name__,
        )

    def check(self, index: int) -> None:
        """Raise BackendError if a space is missing."""
        for what in ("observation_space", "action_space"):
            space = getattr(self, what)
            if not isinstance(space, spaces.Space):
                raise BackendError(
                    f"sub-environment {index} ({self.name}): expected {what} to be a gymnasium.spaces.Space, got "
                    f"{space!r}; set self.{what} in the environment's __init__",
                    env_ids=(index,),
                )


def refuse_unequal(descriptions: Sequence[tuple[int, Description]]) -> None:
    """Raise BackendError if sub-environments differ in a space, naming the first two that do."""
    first_index, first = descriptions[0]
    for index, other in descriptions:
        other.check(index)
        for what in ("observation_space", "action_space"):
            if getattr(other, what) != getattr(first, what):
                raise BackendError(
                    f"all sub-environments need the same {what}: sub-environment {first_index} has "
                    f"{getattr(first, what)}, sub-environment {index} has {getattr(other, what)}; "
                    "wrap them so that they agree, or build a vector of each",
                    env_ids=(first_index, index),
                )
