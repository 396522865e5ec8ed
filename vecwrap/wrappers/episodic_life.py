"""One episode per life."""

from __future__ import annotations

from typing import Any

import gymnasium

from vecwrap.errors import PlanError
from vecwrap.parts.opening import NOOP, is_life_lost, lives_of

__all__ = ["EpisodicLife"]


class EpisodicLife(gymnasium.Wrapper[Any, Any, Any, Any]):
    """End an episode at every lost life, and continue with the next life at the reset that follows.

    As in the DeepMind lineage (OpenAI Baselines, Stable-Baselines3): a life counts as lost if ``0 < lives < before``,
    checked after each step (a whole skip if outside ``frame_skip``); the last life ends with the game. An unseeded
    `reset` directly after a lost life takes one no-op (action 0) in the running game. Every other reset and, unlike in
    those libraries, every seeded one starts a new game. A ``monitor`` still reports whole games.

    At an episode's end:
        A lost life also ends an episode; the unseeded reset that follows continues the game, with a no-op.

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

    References:
        Mnih et al. (2015), Human-level control through deep reinforcement learning, Nature 518.
    """

    game_goes_on: bool = False

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        if not hasattr(env.unwrapped, "ale"):
            raise PlanError(
                "episodic_life: expected a game of the Arcade Learning Environment (ale-py), which counts lives, got "
                f"{type(env.unwrapped).__name__}; leave the layer out"
            )
        self.game_goes_on = False
        self._lives = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start the next life if the game continues and no seed is given, else a new game.

        Args:
            seed: seeds the game; a seeded reset always starts a new one.
            options: passed on when a new game starts.
        """
        observation, info = (
            self._next_life(options)
            if self.game_goes_on and seed is None
            else self.env.reset(seed=seed, options=options)
        )
        self._lives = lives_of(self.env)
        self.game_goes_on = False
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and end the episode if a life was lost."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        before, self._lives = self._lives, lives_of(self.env)
        lost = is_life_lost(before, self._lives)
        self.game_goes_on = lost and not (terminated or truncated)
        return observation, reward, bool(terminated) or lost, bool(truncated), info

    def _next_life(self, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Continue the game with a no-op; if that ends the game, start a new one."""
        observation, _, terminated, truncated, info = self.env.step(NOOP)
        return self.env.reset(options=options) if terminated or truncated else (observation, info)
