"""A policy in front of an environment: what it is, and what it is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.env.action_masks import PLACES, draw_legal
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ArgumentError
from vecwrap.rows.infos import columns, row_of
from vecwrap.rows.step_result import BoolArray, StepResult
from vecwrap.sources.masks import METHOD


def look_on(wrapper: VecEnvWrapper) -> None:
    """Have the environment under a wrapper keep what is shown, for one that changes nothing and is there for a while.

    Its own masked resets show it again, however the playing ends.
    """
    wrapper.face.shown = wrapper.env.face.shown


class RandomPolicy:
    """Draws actions from an environment's space; legal ones where the environment says which are."""

    def __init__(self, env: VecEnv) -> None:
        self._space = env.action_space
        self._single = env.single_action_space

    def __call__(self, observations: Any, *, action_masks: BoolArray | None = None) -> Any:
        """Return actions of all rows."""
        if action_masks is None:
            return self._space.sample()
        return draw_legal(self._single, action_masks, self._space.np_random)


class Player(VecEnvWrapper):
    """Around an environment that a policy plays: `act` gives the policy what it declares, and returns its actions.

    A policy is a callable of batched observations, or has ``predict`` as in Stable-Baselines3. If it declares a keyword
    ``action_masks``, it gets the masks of the actions, (n, k) bool, and an environment without any is an error; if it
    declares ``infos``, it gets the infos that came with the observations.
    """

    def __init__(
        self, env: VecEnv, policy: Any, *, where: str = "evaluate: policy", deterministic: bool = True
    ) -> None:
        super().__init__(env)
        look_on(self)
        predict = getattr(policy, "predict", None)
        self._policy: Callable[..., Any] = predict if callable(predict) else policy
        if not callable(self._policy):
            raise TypeError(
                f"{where}: expected a callable from batched observations to actions, or a model with predict, got "
                f"{type(policy).__name__}"
            )
        declared = _declared(self._policy)
        self._is_model = callable(predict) or {"state", "episode_start"} <= declared
        self.given = declared & {METHOD, "infos"}
        self._where = where
        self._deterministic = deterministic
        self._masks = env.face.action_masks
        self._state: Any = None
        self._first = np.ones(env.num_envs, np.bool_)  # whose last observation opens an episode
        self._idle = np.zeros(env.num_envs, np.bool_)  # whose next action is not used
        self._infos: dict[str, Any] = {}

    def on_step(self, step: StepResult) -> None:
        """Note what the next actions depend on."""
        self._first[step.rows] = step.first
        self._idle[step.rows] = step.dones & ~step.first
        if not self.given:
            return
        if isinstance(step.rows, slice):
            self._infos = step.infos
        else:
            rows = [row_of(self._infos, i) for i in range(self.num_envs)]
            for k, i in enumerate(step.env_ids.tolist()):
                rows[i] = row_of(step.infos, k)
            self._infos = columns(rows)

    def act(self, observations: Any) -> Any:
        """Return the policy's actions for the observations just received."""
        keywords: dict[str, Any] = {}
        if self._is_model:
            keywords = {
                "state": self._state,
                "episode_start": self._first.copy(),
                "deterministic": self._deterministic,
            }
        if "infos" in self.given:
            keywords["infos"] = self._infos
        if METHOD in self.given:
            masks = self._masks.find(observations, self._infos, np.flatnonzero(~self._idle))
            if masks is None and not isinstance(self._policy, RandomPolicy):
                raise ArgumentError(
                    f"{self._where}: the policy takes {METHOD}, but {self.env!r} reports none, so it might choose "
                    f"illegal actions; expected {PLACES}. If all actions are legal, pass a callable without {METHOD}"
                )
            keywords[METHOD] = masks
        result = self._policy(observations, **keywords)
        if self._is_model:
            actions, self._state = result
            return actions
        has_extras = type(result) is tuple and len(result) == 2 and isinstance(result[1], (dict, type(None)))
        return result[0] if has_extras and not isinstance(self.single_action_space, spaces.Tuple) else result


def _declared(function: Callable[..., Any]) -> set[str]:
    """The names of the parameters that can be given by name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some functions in C
        return set()
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {parameter.name for parameter in parameters if parameter.kind in by_name}
