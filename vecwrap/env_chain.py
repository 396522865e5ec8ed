"""The layers of one environment: the wrappers around it, and the environment itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium

__all__ = ["Env", "chain_of", "wrappers_of"]

Env = gymnasium.Env[Any, Any]


def chain_of(env: Env) -> Iterator[Env]:
    """Go through the layers of an environment, outermost first, down to the environment itself."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def wrappers_of(env: Env) -> Iterator[gymnasium.Wrapper[Any, Any, Any, Any]]:
    """Go through the wrappers of an environment, outermost first, without the environment itself."""
    return (layer for layer in chain_of(env) if isinstance(layer, gymnasium.Wrapper))
