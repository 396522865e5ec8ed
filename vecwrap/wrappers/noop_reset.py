"""Episodes that begin at a random moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium

from vecwrap.errors import PlanError
from vecwrap.parts.opening import NOOP, play_opening

__all__ = ["NoopReset"]


class NoopReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Take 1 to ``noop_max`` no-ops (action 0) at each reset, so that a deterministic game begins in many ways.

    How many is drawn as one ``integers(1, noop_max + 1)`` of the environment's own ``np_random``, as OpenAI Baselines,
    Stable-Baselines3 (SB3) and Gymnasium's ``AtariPreprocessing`` do. An episode that ends meanwhile is begun again,
    and the rest of them taken. Place it inside of ``frame_skip``, as they do, and a no-op is one frame; inside of
    ``episodic_life``, and only new games begin with them.

    At an episode's end:
        The reset that follows is followed by 1 to ``noop_max`` no-ops.

    Args:
        env: a game whose action 0 does nothing; one that says what its actions mean must call it NOOP.
        noop_max: the most no-ops.

    Raises:
        PlanError: there is no such action, or ``noop_max`` is below 1.

    Example:
        >>> import ale_py, gymnasium
        >>> gymnasium.register_envs(ale_py)
        >>> env = NoopReset(gymnasium.make("PongNoFrameskip-v4"))
        >>> observation, info = env.reset(seed=1)
        >>> 1 <= info["episode_frame_number"] <= 30
        True
        >>> env.close()

    References:
        Mnih et al. (2015), Human-level control through deep reinforcement learning, Nature 518.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], noop_max: int = 30) -> None:
        super().__init__(env)
        if noop_max < 1:
            raise PlanError(f"noop_reset: noop_max: expected 1 or more, got {noop_max}; leave the layer out for none")
        space = env.action_space
        if not isinstance(space, gymnasium.spaces.Discrete) or not space.contains(NOOP):
            raise PlanError(f"noop_reset: expected discrete actions, of which 0 does nothing, got {space}")
        game: Any = env.unwrapped
        meanings = game.get_action_meanings() if hasattr(game, "get_action_meanings") else ["NOOP"]
        if meanings[0] != "NOOP":
            raise PlanError(
                f"noop_reset: expected actions that begin with NOOP, got {', '.join(meanings)}: make the environment "
                "with full_action_space=True"
            )
        self.noop_max = noop_max

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, with no-ops.

        Returns:
            The last observation, and what was reported until then.
        """
        return play_opening(self.env, self._noops(), seed, options)

    def _noops(self) -> Iterator[int]:
        for _ in range(int(self.env.unwrapped.np_random.integers(1, self.noop_max + 1))):
            yield NOOP
