"""How a policy is called, wherever one plays: in evaluations, as an opponent, in rollouts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import spaces

from vecwrap.errors import ArgumentError
from vecwrap.rows.infos import detached_copy

_GENERATORS = frozenset({"rng", "rngs"})  # which go on where the policy left them
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class PolicyCall:
    """Calls a policy with those of the keywords that it declares, ``given``.

    A policy is a callable ``policy(observations)`` of batched observations that returns actions, or
    actions and a dict of extras; or a model with ``predict(observation, state, episode_start,
    deterministic)``, as in Stable-Baselines3, that returns actions and its next state. A callable
    that declares ``state`` and ``episode_start`` returns these two, or actions, extras and state.
    Observations, masks and infos are its own copies: what it writes into them changes nothing.
    """

    def __init__(
        self, policy: Any, keywords: frozenset[str], where: str, *, deterministic: bool
    ) -> None:
        predict = getattr(policy, "predict", None)
        self._function: Callable[..., Any] = predict if callable(predict) else policy
        if not callable(self._function):
            raise TypeError(
                f"{where}: expected a callable from batched observations to actions, or a model "
                f"with predict, got {type(policy).__name__}"
            )
        self.is_model = callable(predict)
        declared = _declared(self._function)
        self.given = declared & keywords
        self.has_state = self.is_model or {"state", "episode_start"} <= declared
        self._takes_deterministic = self.is_model or "deterministic" in declared
        self._deterministic = deterministic
        self._where = where

    def __call__(
        self,
        observations: Any,
        keywords: Mapping[str, Any],
        state: Any,
        episode_start: Any,
        action_space: Any,
    ) -> tuple[Any, Any]:
        """Return actions for m rows, and the next state; None if it has no state."""
        actions, _, state = self.with_extras(
            detached_copy(observations), keywords, state, episode_start, action_space
        )
        return actions, state

    def with_extras(
        self,
        observations: Any,
        keywords: Mapping[str, Any],
        state: Any,
        episode_start: Any,
        action_space: Any,
    ) -> tuple[Any, dict[str, Any], Any]:
        """Return actions for m rows, what the policy gave beside them, and the next state.

        The observations are the policy's own.
        """
        given = {name: keywords[name] for name in self.given}
        copied = {
            name: detached_copy(given[name]) for name in self.given if name not in _GENERATORS
        }
        given |= copied
        if self.has_state:
            given |= {"state": state, "episode_start": episode_start}
            if self._takes_deterministic:
                given["deterministic"] = self._deterministic
            return self._with_state(self._function(observations, **given))
        result = self._function(observations, **given)
        if _has_extras(result, action_space):
            return result[0], result[1] or {}, None
        return result, {}, None

    def _with_state(self, result: Any) -> tuple[Any, dict[str, Any], Any]:
        if isinstance(result, tuple) and len(result) == 2:
            return result[0], {}, result[1]
        is_triple = isinstance(result, tuple) and len(result) == 3
        if is_triple and isinstance(result[1], (dict, type(None))):
            return result[0], result[1] or {}, result[2]
        raise ArgumentError(
            f"{self._where}: expected (actions, state), or (actions, extras, state) with a dict or "
            f"None as extras, from a policy that takes state and episode_start, got "
            f"{_form(result)}"
        )


def _form(result: Any) -> str:
    if isinstance(result, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in result) or 'nothing'}"
    return type(result).__name__


def _has_extras(result: Any, action_space: spaces.Space[Any]) -> bool:
    """Whether a policy returned actions and extras; a pair may be actions of a Tuple space, too."""
    if type(result) is not tuple or len(result) != 2:
        return False
    if not isinstance(result[1], (dict, type(None))):
        return False
    return not (
        isinstance(action_space, spaces.Tuple)
        and len(action_space.spaces) == 2
        and isinstance(action_space.spaces[1], spaces.Dict)
    )


def _declared(function: Callable[..., Any]) -> frozenset[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some functions in C
        return frozenset()
    return frozenset(parameter.name for parameter in parameters if parameter.kind in _BY_NAME)
