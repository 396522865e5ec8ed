"""What an environment itself paid and reported, whatever the layers around it make of that."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

__all__ = ["Tap", "float_reward"]


class Tap(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Sits between the environment and the layers, and notes what the environment itself paid and reported.

    One agent step may be many steps of the environment (frame skip), and one reset may be several resets and steps
    (no-ops, a lost life); a layer may also begin a new game amid a step, as one that joins games does. Nothing that the
    environment pays is lost: what it pays after the beginning of a game counts towards the game's next agent step, and
    what a game pays that ends within a reset or amid a step towards that row.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._reward = 0.0
        self._done = False
        self._first = False
        self._closed: float | None = None  # what a game had still paid that ended before the newest began

    def has_wrapper_attr(self, name: str) -> bool:
        """Whether a layer within has it, or the environment: what is kept here is nobody else's."""
        return self.env.has_wrapper_attr(name)

    def get_wrapper_attr(self, name: str) -> Any:
        """Give it, of a layer within or of the environment."""
        return self.env.get_wrapper_attr(name)

    def set_wrapper_attr(self, name: str, value: Any, **kwargs: Any) -> Any:
        """Set it, on a layer within or on the environment."""
        return self.env.set_wrapper_attr(name, value, **kwargs)

    def step(self, action: Any) -> Any:
        """Step, and note the reward and whether the environment says that it ended."""
        result = self.env.step(action)
        self.record(result[1], bool(result[2]) or bool(result[3]))
        return result

    def reset(self, **kwargs: Any) -> Any:
        """Reset, and note that a new game begins."""
        result = self.env.reset(**kwargs)
        self.record_reset()
        return result

    def record(self, reward: Any, done: bool) -> None:
        """Note one step of the environment; a layer that drives the emulator past ``step`` calls this."""
        self._reward += float_reward(reward)
        self._done = self._done or done

    def record_reset(self) -> None:
        """Note a new game; a layer that drives the emulator past ``reset`` calls this."""
        if self._done and not self._first:
            self._closed = self._reward
        self._reward, self._done, self._first = 0.0, False, True

    @property
    def first(self) -> bool:
        """Whether a new game has begun since it was last asked."""
        return self._first

    def after_step(self) -> tuple[float, bool, bool]:
        """What the environment paid since it was last asked, whether its episode ended, and whether a new one runs."""
        if self._first and not self._done:
            return self.after_reset()
        reward, done = self._reward + (self._closed or 0.0), self._done
        self._reward, self._done, self._first, self._closed = 0.0, False, False, None
        return reward, done, False

    def after_reset(self) -> tuple[float, bool, bool]:
        """What a game that ended before the newest began still paid, whether one did, and whether a new game began."""
        closed, first = self._closed, self._first
        self._closed, self._first = None, False
        return closed or 0.0, closed is not None, first


def float_reward(reward: Any) -> float:
    """Give a reward as a float: Python and NumPy numbers, whole ones of any size, and arrays of one element.

    Raises:
        ValueError: for an array of any other size.
        TypeError: for what is no number.
    """
    if type(reward) is float:
        return reward
    array = np.asarray(reward)
    if array.size != 1:
        raise ValueError(f"reward: expected one number, got shape {array.shape}")
    if array.dtype.kind not in "biuf" and not isinstance(array.item(), int):  # NumPy has no number for 2**64 or more
        raise TypeError(f"reward: expected a number, got {reward!r}")
    return float(array.item())
