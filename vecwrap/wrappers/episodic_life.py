"""One episode per life."""

from __future__ import annotations

from typing import Any

import gymnasium

from vecwrap.errors import PlanError
from vecwrap.wrappers.emulator.openings import Lives


class EpisodicLife(Lives):
    """End an episode at every lost life, and continue with the next life at the reset that follows.

    As in the DeepMind lineage (Mnih et al. 2015; OpenAI Baselines, Stable-Baselines3): a life
    counts as lost if ``0 < lives < before``, checked after each step (a whole skip if outside
    ``frame_skip``); the last life ends with the game. An unseeded `reset` directly after a lost
    life takes one no-op (action 0) in the running game. Every other reset and, unlike in those
    libraries, every seeded one starts a new game. A ``monitor`` still reports whole games.

    At an episode's end:
        A lost life also ends an episode; the unseeded reset that follows continues the game, with a
        no-op.

    Args:
        env: a game of the Arcade Learning Environment (ale-py).

    Attributes:
        game_goes_on: True from the end of an episode by a lost life until the next reset.

    Raises:
        PlanError: the environment does not count lives.

    Example:
        >>> import ale_py, gymnasium
        >>> gymnasium.register_envs(ale_py)
        >>> env = EpisodicLife(gymnasium.make("SpaceInvadersNoFrameskip-v4"))
        >>> observation, info = env.reset(seed=1)
        >>> info["lives"]
        3
        >>> while not env.game_goes_on:
        ...     observation, reward, terminated, truncated, info = env.step(0)
        >>> terminated, info["lives"]
        (True, 2)
        >>> env.close()
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        if not hasattr(env.unwrapped, "ale"):
            raise PlanError(
                "episodic_life: expected a game of the Arcade Learning Environment (ale-py), "
                f"which counts lives, got {type(env.unwrapped).__name__}; leave the wrapper out"
            )
        super().__init__(env)
