"""Actions that sometimes do not get through."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np

from vecwrap.batch import tree_map
from vecwrap.errors import PlanError

__all__ = ["StickyActions"]


class StickyActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Take the previous action instead of the one given, with some probability.

    Whether it does is drawn as one ``uniform()`` of the environment's own ``np_random`` at each step; an episode's
    first action is always taken, and nothing drawn for it. At equal seeds the actions are those of Gymnasium's
    ``StickyAction``. A layer of our own, because that one keeps the very object that it hands on: an environment that
    writes into its action (``action *= max_torque``), or a caller that fills one buffer again and again, changes what
    is repeated. Here a copy is kept. (Stable-Baselines3's draws for the first action too, with a no-op before it.)

    Inside of ``frame_skip`` it draws for each frame, as Machado et al. describe it, outside for each agent step. The
    emulator of Atari games can do it by itself, which is faster: ``atari:machado``.

    At an episode's end:
        The previous action is forgotten.

    Args:
        env: what it wraps.
        repeat_action_probability: how likely the previous action is taken, less than 1.

    Raises:
        PlanError: no such probability, or an Atari game whose emulator repeats actions already.

    Example:
        >>> import gymnasium
        >>> env = StickyActions(gymnasium.make("CartPole-v1"), 0.25)
        >>> observation, info = env.reset(seed=1)
        >>> observation, reward, terminated, truncated, info = env.step(1)
        >>> env.close()

    References:
        Machado et al. (2018), Revisiting the Arcade Learning Environment, JAIR 61, https://arxiv.org/abs/1709.06009.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], repeat_action_probability: float = 0.25) -> None:
        super().__init__(env)
        if not 0.0 <= repeat_action_probability < 1.0:
            raise PlanError(
                "sticky_actions: repeat_action_probability: expected 0 or more and less than 1, got "
                f"{repeat_action_probability}"
            )
        emulator: Any = getattr(env.unwrapped, "ale", None)
        own = emulator.getFloat("repeat_action_probability") if emulator is not None else 0.0
        if not math.isclose(own, 0.0, abs_tol=1e-6):
            raise PlanError(
                f"sticky_actions: expected a game without sticky actions, got one whose emulator repeats with {own:g}: "
                "make it with repeat_action_probability=0 (said to the layer atari where there is one, else in "
                "env_kwargs), or leave the layer out"
            )
        self.repeat_action_probability = repeat_action_probability
        self._previous: Any = None
        self._began = True  # no action was taken since the reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the last one's actions are forgotten."""
        self._previous, self._began = None, True
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take the action, or the previous one."""
        generator: np.random.Generator = self.env.unwrapped.np_random
        if self._began or generator.uniform() >= self.repeat_action_probability:
            self._previous, self._began = deepcopy(action), False
        return self.env.step(deepcopy(self._previous))

    def state_dict(self) -> dict[str, Any]:
        """Give the previous action."""
        return {"previous": deepcopy(self._previous), "began": self._began}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take in what ``state_dict`` gave."""
        self._previous, self._began = tree_map(_as_given, deepcopy(state["previous"])), bool(state["began"])


def _as_given(value: Any) -> Any:
    """A file holds NumPy's numbers as arrays without axes."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
