"""What is played between a reset and the first action of the agent: no-ops, FIRE."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import gymnasium

from vecwrap.env_chain import wrappers_of
from vecwrap.errors import PlanError

__all__ = ["FIRE", "NOOP", "game_goes_on", "meanings_of", "play_opening"]

NOOP, FIRE = 0, 1
Env = gymnasium.Env[Any, Any]


def play_opening(
    env: Env, actions: Iterable[int], seed: int | None, options: dict[str, Any] | None
) -> tuple[Any, dict[str, Any]]:
    """Reset an environment and take the actions that open an episode.

    Where an action ends the episode, the environment is reset again as it was before, and the rest are taken; where
    only a life was lost, the reset is seedless, so that the game goes on.

    Args:
        env: what to play.
        actions: taken one by one, after the first reset (a generator may draw from the generator seeded by it).
        seed: as ``reset``.
        options: likewise.

    Returns:
        The last observation, and what the reset and the steps since reported, the latest value of each key.
    """
    observation, info = env.reset(seed=seed, options=deepcopy(options))  # an environment may write into its options
    for action in actions:
        observation, _, terminated, truncated, step_info = env.step(action)
        if terminated or truncated:
            observation, info = env.reset(seed=None if game_goes_on(env) else seed, options=deepcopy(options))
        else:
            info = {**info, **step_info}
    return observation, info


def game_goes_on(env: Env) -> bool:
    """Whether the episode that ended was a life, in a game that is not over."""
    return any(getattr(layer, "game_goes_on", False) for layer in wrappers_of(env))


def meanings_of(env: Env, layer: str) -> list[str]:
    """Give what the actions of a game mean.

    Raises:
        PlanError: the environment does not say; ``layer`` needs to know.
    """
    game: Any = env.unwrapped
    if not hasattr(game, "get_action_meanings"):
        raise PlanError(
            f"{layer}: expected a game that says what its actions mean (get_action_meanings, as those of ale-py do), "
            f"got {type(game).__name__}; leave the layer out"
        )
    return list(game.get_action_meanings())
