"""The actions between a reset and the agent's first one (no-ops, FIRE), and the detection of lost lives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import gymnasium

from vecwrap.env_chain import wrappers_of
from vecwrap.errors import PlanError

__all__ = [
    "NOOP",
    "game_goes_on",
    "is_life_lost",
    "knows_fire",
    "lives_of",
    "meanings_of",
    "opening_of",
    "play_opening",
]

NOOP, FIRE, AFTER_FIRE = 0, 1, 2
Env = gymnasium.Env[Any, Any]


def play_opening(
    env: Env, actions: Iterable[int], seed: int | None, options: dict[str, Any] | None
) -> tuple[Any, dict[str, Any]]:
    """Reset an environment and take the actions that open an episode.

    If an action ends the episode, the environment is reset again in the same way, and the remaining actions are taken;
    if only a life was lost, the reset is unseeded, so that the game continues.

    Args:
        env: the environment.
        actions: taken one by one, after the first reset (so they may be drawn from the generator that it seeded).
        seed: as ``reset``.
        options: likewise.

    Returns:
        The last observation, and the infos of the reset and the steps since, merged, the latest value of each key.
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


def lives_of(env: Env) -> int:
    """How many lives a game of the Arcade Learning Environment has left."""
    return int(env.unwrapped.ale.lives())  # type: ignore[attr-defined]


def is_life_lost(before: int, lives: int) -> bool:
    """Whether a step in which the lives went from ``before`` to ``lives`` ends the episode of a life.

    0 lives are left to the game to report: Q*bert, for example, shows 0 for some frames while still running.

    >>> is_life_lost(3, 2), is_life_lost(1, 0), is_life_lost(2, 3)
    (True, False, False)
    """
    return 0 < lives < before


def opening_of(meanings: Sequence[str]) -> tuple[int, ...]:
    """Return the actions that start a game that waits for FIRE; none for a game without FIRE.

    >>> opening_of(["NOOP", "FIRE", "RIGHT"]), opening_of(["NOOP", "UP"])
    ((1, 2), ())
    """
    return (FIRE, AFTER_FIRE) if "FIRE" in meanings else ()


def knows_fire(meanings: Sequence[str]) -> bool:
    """Whether the actions of ``opening_of`` are as expected: FIRE is the second, and there is a third.

    >>> knows_fire(["NOOP", "FIRE", "RIGHT"]), knows_fire(["FIRE", "NOOP", "RIGHT"]), knows_fire(["NOOP", "FIRE"])
    (True, False, False)
    """
    return len(meanings) > AFTER_FIRE and meanings[FIRE] == "FIRE"


def meanings_of(env: Env, layer: str) -> list[str]:
    """Return the meanings of a game's actions.

    Raises:
        PlanError: the environment does not provide them; ``layer`` needs them.
    """
    game: Any = env.unwrapped
    if not hasattr(game, "get_action_meanings"):
        raise PlanError(
            f"{layer}: expected a game with action meanings (get_action_meanings, as those of ale-py have), "
            f"got {type(game).__name__}; leave the layer out"
        )
    return list(game.get_action_meanings())
