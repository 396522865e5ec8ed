"""The environment's own rewards and ends, whatever the wrappers around it make of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from vecwrap.sources.failure import refuse_no_pair


class RawRewardRecorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Record the environment's own rewards and ends, inside of all wrappers.

    This wrapper sits between the environment and the other wrappers.

    One agent step may be many steps of the environment (frame skip), and one reset may be several
    resets and steps (no-ops, a lost life); a wrapper may also begin a new game within a step, as
    one that joins games does: with that the game before has ended, even if the environment itself
    would have continued it. No reward of the environment is lost: rewards after the beginning of a
    game count towards the game's next agent step, and those of a game that ends within a reset or a
    step towards that row.

    If the environment's rewards are several numbers, its own are those that the wrappers make of
    them.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._reward = 0.0
        self._done = False
        self.first = False  # whether a game has begun since the last query
        self.is_one_number = True  # what the environment pays in a step
        # Whether a reset now is a wrapper's own decision, which ends the running game.
        self.in_play = False
        # Remaining rewards of a game that ended before the newest began.
        self._closed: float | None = None

    def has_wrapper_attr(self, name: str) -> bool:
        """Return whether an inner wrapper or the environment has this attribute.

        Attributes of the recorder itself are private.
        """
        return self.env.has_wrapper_attr(name)

    def get_wrapper_attr(self, name: str) -> Any:
        return self.env.get_wrapper_attr(name)

    def set_wrapper_attr(self, name: str, value: Any, **kwargs: Any) -> Any:
        return self.env.set_wrapper_attr(name, value, **kwargs)

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.record(result[1], bool(result[2]) or bool(result[3]))
        return result

    def reset(self, **kwargs: Any) -> Any:
        result = self.env.reset(**kwargs)
        refuse_no_pair(result)
        self.record_reset()
        return result

    def record(self, reward: Any, done: bool) -> None:
        """Record one step of the environment.

        A wrapper that drives the emulator and bypasses ``step`` calls this method.
        """
        self._done = self._done or done
        if self.is_one_number:
            try:
                self._reward += float_reward(reward)
            except (TypeError, ValueError):
                # A wrapper may make one number of it; else it is refused there.
                self.is_one_number = False

    def record_reset(self) -> None:
        """Record a new game; a wrapper that bypasses ``reset`` to drive the emulator calls this."""
        if (self._done or self.in_play) and not self.first:
            self._closed = self._reward
        self._reward = 0.0
        self._done = False
        self.first = True
        self.in_play = True

    def after_step(self) -> tuple[float, bool, bool]:
        """Return the reward since the last query, and whether an episode ended or a game began.

        The reward is the environment's own, and so is the end of its episode.
        """
        if self.first and not self._done:
            return self.after_reset()
        reward = self._reward + (self._closed or 0.0)
        done = self._done
        self._reward = 0.0
        self._done = False
        self.first = False
        self._closed = None
        return reward, done, False

    def after_reset(self) -> tuple[float, bool, bool]:
        """Return the last closed game's reward, whether a game closed, and whether one began.

        The reward is what the game still paid before the newest game began.
        """
        closed = self._closed
        first = self.first
        self._closed = None
        self.first = False
        return closed or 0.0, closed is not None, first


# The types of rewards that the slots take as they are.
NUMBERS = frozenset({float, np.float64, int})
SEVERAL_NUMBERS = (
    "If a reward is several numbers, make one of them with a wrapper, as "
    "mo_gymnasium.wrappers.LinearReward does with weights, and leave the others in infos"
)


def float_reward(reward: Any) -> float:
    """Return a reward as a float.

    Python and NumPy numbers, integers of any size, and arrays of one element are accepted.
    """
    if isinstance(reward, (float, int)):
        return float(reward)
    array = np.asarray(reward)
    if array.size != 1:
        raise ValueError(f"reward: expected one number, got shape {array.shape}. {SEVERAL_NUMBERS}")
    # NumPy has no number for 2**64 or more.
    if array.dtype.kind not in "biuf" and not isinstance(array.item(), int):
        remedy = ""
        if isinstance(reward, Mapping):
            remedy = f". {SEVERAL_NUMBERS}"
        raise TypeError(f"reward: expected a number, got {reward!r}{remedy}")
    return float(array.item())
