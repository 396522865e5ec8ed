"""Episodes that start at a random moment."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium

from vecwrap.errors import at_least
from vecwrap.wrappers.emulator.openings import game_goes_on, noops, play_opening, refuse_actions


class NoopReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Take 1 to ``noop_max`` no-ops (action 0) at each reset, to vary a deterministic game's start.

    As in Mnih et al. (2015). The number is drawn as one ``integers(1, noop_max + 1)`` from the
    environment's own ``np_random``, as in OpenAI Baselines, Stable-Baselines3 (SB3) and Gymnasium's
    ``AtariPreprocessing``. If the episode ends meanwhile, a new one is started and the remaining
    no-ops are taken. Inside ``frame_skip``, as in these libraries, a no-op is one frame; inside
    ``episodic_life``, only new games start with no-ops.

    At an episode's end:
        The reset that follows takes 1 to ``noop_max`` no-ops.

    Args:
        env: a game whose action 0 does nothing; if it has action meanings, the first must be NOOP.
        noop_max: the maximum number of no-ops; 0 for none, in any game.

    Raises:
        PlanError: there is no such action, or ``noop_max`` is below 0.

    Example:
        >>> import ale_py, gymnasium
        >>> gymnasium.register_envs(ale_py)
        >>> env = NoopReset(gymnasium.make("PongNoFrameskip-v4"))
        >>> observation, info = env.reset(seed=1)
        >>> 1 <= info["episode_frame_number"] <= 30
        True
        >>> env.close()
    """

    def __init__(self, env: gymnasium.Env[Any, Any], noop_max: int = 30) -> None:
        super().__init__(env)
        self.noop_max: int = at_least("noop_reset: noop_max", noop_max, 0)
        game: Any = env.unwrapped
        if hasattr(game, "get_action_meanings"):
            meanings = game.get_action_meanings()
        else:
            meanings = ["NOOP"]
        refuse_actions(
            env, "noop_reset", meanings, "give noop_reset noop_max=0" if noop_max else ""
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        opening = noops(self.env, self.noop_max)
        goes_on = partial(game_goes_on, self.env)
        return play_opening(self.env.reset, self.env.step, opening, seed, options, goes_on)
