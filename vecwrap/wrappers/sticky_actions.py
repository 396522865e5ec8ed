"""Actions that are sometimes replaced by the previous one."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np

from vecwrap.errors import PlanError
from vecwrap.rows.batch import tree_map


class StickyActions(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Take the previous action instead of the one given, with some probability.

    Each step draws one ``uniform()`` from the environment's own ``np_random``; an episode's first
    action is always taken, without a draw. For equal seeds the actions are those of Gymnasium's
    ``StickyAction``, but a copy is kept: an environment that writes into its action, or a caller
    that reuses one buffer, does not change what is repeated. (Stable-Baselines3's also draws for
    the first action, with a no-op as the previous one.)

    Inside ``frame_skip`` it draws for each frame, as Machado et al. describe, outside it for each
    agent step. For Atari games the emulator can do this itself, which is faster: ``atari:machado``.

    At an episode's end:
        The previous action is forgotten.

    Args:
        env: what it wraps.
        repeat_action_probability: the probability of taking the previous action, less than 1.

    Raises:
        PlanError: the probability is out of range, or an Atari game's emulator repeats actions
            already.

    Example:
        >>> import gymnasium
        >>> env = StickyActions(gymnasium.make("CartPole-v1"), 0.25)
        >>> observation, info = env.reset(seed=1)
        >>> observation, reward, terminated, truncated, info = env.step(1)
        >>> env.close()

    References:
        Machado et al. (2018), Revisiting the Arcade Learning Environment, JAIR 61,
        https://arxiv.org/abs/1709.06009.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], repeat_action_probability: float = 0.25
    ) -> None:
        super().__init__(env)
        if not 0.0 <= repeat_action_probability < 1.0:
            raise PlanError(
                "sticky_actions: repeat_action_probability: expected 0 or more and less than 1, "
                f"got {repeat_action_probability}"
            )
        emulator: Any = getattr(env.unwrapped, "ale", None)
        own = 0.0
        if emulator is not None:
            own = emulator.getFloat("repeat_action_probability")
        if not math.isclose(own, 0.0, abs_tol=1e-6):
            raise PlanError(
                "sticky_actions: expected a game without sticky actions, got one whose emulator "
                f"repeats actions with probability {own:g}; make it with "
                "repeat_action_probability=0 (in the wrapper atari if there is one, else in "
                "env_kwargs), or leave the wrapper out"
            )
        self.repeat_action_probability = repeat_action_probability
        self._previous: Any = None
        self._began = True  # no action has been taken since the reset

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._previous = None
        self._began = True
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        generator: np.random.Generator = self.env.unwrapped.np_random
        if self._began or generator.uniform() >= self.repeat_action_probability:
            self._previous = deepcopy(action)
            self._began = False
        return self.env.step(deepcopy(self._previous))

    def state_dict(self) -> dict[str, Any]:
        return {"previous": deepcopy(self._previous), "began": self._began}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._previous = tree_map(_as_given, deepcopy(state["previous"]))
        self._began = bool(state["began"])


def _as_given(value: Any) -> Any:
    """Unwrap a NumPy number, which a file stores as a 0-d array."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value[()]
    return value
