"""Games that wait for FIRE."""

from __future__ import annotations

from typing import Any

import gymnasium

from vecwrap.errors import PlanError
from vecwrap.parts.opening import knows_fire, meanings_of, opening_of, play_opening

__all__ = ["FireReset"]


class FireReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Press FIRE (action 1) and then action 2 at each reset, in games that know FIRE; others are left as they are.

    Some games, such as Breakout, stand still until FIRE is pressed. Both actions are taken as the agent's would be: for
    a whole skip outside of ``frame_skip``. Outside of ``episodic_life`` they are pressed after a lost life too. As in
    OpenAI Baselines and Stable-Baselines3 (SB3); but what the resets and steps report is not lost.

    An episode that ends meanwhile is begun again, and the rest is pressed; a life that is lost is followed by the next.

    At an episode's end:
        The reset that follows is followed by FIRE and action 2.

    Args:
        env: a game of the Arcade Learning Environment, or one with its ``get_action_meanings``.

    Raises:
        PlanError: the environment does not say what its actions mean, or FIRE is not action 1 of three or more.

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
        if self._opening and not knows_fire(meanings):
            raise PlanError(
                "fire_reset: expected actions of which the second is FIRE and a third follows, got "
                f"{', '.join(meanings)}: make the environment with full_action_space=True"
            )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, and press FIRE where the game knows it.

        Returns:
            The last observation, and what was reported until then.
        """
        return play_opening(self.env, self._opening, seed, options)
