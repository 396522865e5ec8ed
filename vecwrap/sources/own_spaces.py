"""Spaces that an environment may sample from: its own, and seeded with it, so that its stream follows from its seed."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from copy import copy, deepcopy
from typing import Any

import gymnasium
from gymnasium import spaces

from vecwrap.rows.columns import ARRAY_SPACES
from vecwrap.sources.description import Env, chain_of

_NAMES = ("action_space", "observation_space")
_owners: weakref.WeakValueDictionary[int, Env] = weakref.WeakValueDictionary()  # by the id of a space


def own_spaces(env: Env) -> None:
    """Give an environment copies of the spaces that it shares with others: those of its class, or of a module.

    Otherwise sub-environments in one process would draw from one generator, and those in another process would not.
    """
    base = env.unwrapped
    for name in _NAMES:
        space = getattr(base, name, None)
        if not isinstance(space, gymnasium.Space):
            continue
        with contextlib.suppress(AttributeError, TypeError):  # a property; an object without weak references
            if name not in vars(base) or _owners.get(id(space), base) is not base:
                space = _with_own_generators(space)
                setattr(base, name, space)
            _owners[id(space)] = base


def seed_spaces(env: Env, seed: int) -> None:
    """Seed the spaces of an environment and of the wrappers around it, each once."""
    for space in _spaces_of(env):
        space.seed(seed)


def space_states(env: Env) -> list[dict[str, Any] | None]:
    """Return the state of each generator of these spaces and their parts, None where nothing has been drawn yet."""
    generators: list[Any] = [part._np_random for space in _spaces_of(env) for part in _parts(space)]
    return [None if generator is None else generator.bit_generator.state for generator in generators]


def load_space_states(env: Env, states: list[dict[str, Any] | None]) -> None:
    """Restore what ``space_states`` returned for an environment with the same spaces."""
    parts = [part for space in _spaces_of(env) for part in _parts(space)]
    if len(parts) != len(states):
        raise ValueError(f"expected the generators of {len(parts)} spaces, got {len(states)}")
    for part, state in zip(parts, states, strict=True):
        if state is not None:
            part.np_random.bit_generator.state = state


def _with_own_generators(space: Any) -> Any:
    """Copy a space without its generators; bounds are shared, for they may be large and nobody writes into them."""
    if isinstance(space, (*ARRAY_SPACES, spaces.Text)):
        own: Any = copy(space)
    elif isinstance(space, spaces.Dict):
        own = copy(space)
        own.spaces = {key: _with_own_generators(part) for key, part in space.spaces.items()}
    elif isinstance(space, spaces.Tuple):
        own = copy(space)
        own.spaces = tuple(map(_with_own_generators, space.spaces))
    else:
        return deepcopy(space)
    own._np_random = None
    return own


def _spaces_of(env: Env) -> list[gymnasium.Space[Any]]:
    """Return the spaces of an environment and of the wrappers around it, each once."""
    found = [getattr(layer, name, None) for layer in chain_of(env) for name in _NAMES]
    return list({id(space): space for space in found if isinstance(space, gymnasium.Space)}.values())


def _parts(space: gymnasium.Space[Any]) -> Iterator[gymnasium.Space[Any]]:
    """Give a space and all spaces in it; each has a generator of its own."""
    yield space
    for value in vars(space).values():
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,):
            if isinstance(part, gymnasium.Space):
                yield from _parts(part)
