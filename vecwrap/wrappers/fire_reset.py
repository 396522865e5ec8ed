"""Games that wait for FIRE."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium

from vecwrap.wrappers.emulator.openings import (
    game_goes_on,
    meanings_of,
    opening_of,
    play_opening,
    refuse_actions,
)


class FireReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Press FIRE (action 1), then action 2, at each reset; games without FIRE are unchanged.

    Some games, such as Breakout, do not start until FIRE is pressed. Both actions are taken like
    the agent's: for a whole skip if outside ``frame_skip``. Outside ``episodic_life`` they are also
    pressed after a lost life. As in OpenAI Baselines and Stable-Baselines3 (SB3), except that the
    infos of the resets and steps are kept.

    If the episode ends meanwhile, a new one is started and the remaining actions are pressed; after
    a lost life, the next life is used.

    At an episode's end:
        FIRE and action 2 are pressed after the next reset.

    Args:
        env: a game of the Arcade Learning Environment, or one with its ``get_action_meanings``.

    Raises:
        PlanError: the environment has no action meanings, or has FIRE, but not as action 1 of three
            or more.

    Example:
        >>> import ale_py, gymnasium
        >>> gymnasium.register_envs(ale_py)
        >>> env = FireReset(gymnasium.make("BreakoutNoFrameskip-v4"))
        >>> observation, info = env.reset(seed=1)
        >>> info["episode_frame_number"]
        2
        >>> env.close()
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        meanings = meanings_of(env, "fire_reset")
        self._opening = opening_of(meanings)
        refuse_actions(env, "fire_reset", meanings, fire="leave the wrapper out")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        goes_on = partial(game_goes_on, self.env)
        return play_opening(self.env.reset, self.env.step, self._opening, seed, options, goes_on)
