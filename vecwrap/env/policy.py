"""How a policy is called, wherever one plays: in evaluations, as an opponent, in rollouts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import spaces

from vecwrap.rows.infos import detached_copy

_GENERATORS = frozenset({"rng", "rngs"})  # which go on where the policy left them
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class PolicyCall:
    """Calls a policy with those of the keywords that it declares, ``given``.

    A policy is a callable ``policy(observations)`` of batched observations that returns actions, or
    actions and a dict of extras; or a model with ``predict(observation, state, episode_start,
    deterministic)``, as in Stable-Baselines3, that returns actions and its next state.
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
        self._deterministic = deterministic

    def __call__(
        self,
        observations: Any,
        keywords: Mapping[str, Any],
        state: Any,
        episode_start: Any,
        action_space: Any,
    ) -> tuple[Any, Any]:
        """Return actions for m rows, and the next state; None if it has no state."""
        observations = detached_copy(observations)
        given = {name: keywords[name] for name in self.given}
        copied = {
            name: detached_copy(given[name]) for name in self.given if name not in _GENERATORS
        }
        given |= copied
        if self.has_state:
            given |= {
                "state": state,
                "episode_start": episode_start,
                "deterministic": self._deterministic,
            }
            actions, state = self._function(observations, **given)
            return actions, state
        result = self._function(observations, **given)
        has_extras = (
            type(result) is tuple and len(result) == 2 and isinstance(result[1], (dict, type(None)))
        )
        if has_extras and not isinstance(action_space, spaces.Tuple):
            return result[0], None
        return result, None


def _declared(function: Callable[..., Any]) -> frozenset[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some functions in C
        return frozenset()
    return frozenset(parameter.name for parameter in parameters if parameter.kind in _BY_NAME)
