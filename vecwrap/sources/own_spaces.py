"""Spaces that an environment may sample from: its own copies, seeded with it.

With its own spaces, an environment's stream follows from its seed.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np

from vecwrap.sources.description import Env, chain_of, chain_of_game

Space = gymnasium.Space[Any]
_NAMES = ("action_space", "observation_space")
# Spaces made of other parts; nobody draws from them.
_DERIVED = ("batch_node_space", "batch_edge_space", "stacked_feature_space")
# The owner by the id of a space.
_owners: weakref.WeakValueDictionary[int, Env] = weakref.WeakValueDictionary()


def own_spaces(env: Env) -> None:
    """Give an environment and its wrappers copies of the spaces that they share with others.

    Such a space belongs to a class or a module.

    Otherwise sub-environments in one process would draw from one generator, and those in another
    process would not. No wrapper's ``__dict__`` is looked at if nothing is shared: that would make
    CPython 3.11 and 3.12 keep its attributes in a dict from then on, and an environment like
    CartPole would step slower by a sixth.
    """
    base = env.unwrapped
    # The original, which so keeps its id, and what replaces it.
    copies: dict[int, tuple[Space, Space]] = {}
    for wrapper in reversed(chain_of(env)):
        for name in _NAMES:
            space = getattr(wrapper, name, None)
            if not isinstance(space, gymnasium.Space):
                continue
            of_the_class = space is inspect.getattr_static(type(wrapper), name, None)
            if of_the_class or _is_shared(space, base, copies):
                # A property; a space that cannot be copied or compared.
                with contextlib.suppress(Exception):
                    own = _with_own_generators(space, tried := dict(copies))
                    setattr(wrapper, name, own)
                    copies = tried
                    space = own
            _belongs(space, base)
        if copies:
            for name, value in vars(wrapper).items():
                if isinstance(value, gymnasium.Space) and id(value) in copies:
                    vars(wrapper)[name] = copies[id(value)][1]  # another name of a replaced space


def own_spaces_of_game(game: Any, agents: Sequence[Any]) -> None:
    """Give a game and its wrappers copies of the spaces that belong to another game."""
    base = game.unwrapped
    copies: dict[int, tuple[Space, Space]] = {}
    for holder in reversed(chain_of_game(game)):
        for name in _NAMES:
            own = {agent: getattr(holder, name)(agent) for agent in agents}
            if any(_is_shared(space, base, copies) for space in own.values()):
                with contextlib.suppress(Exception):
                    own = {
                        agent: _with_own_generators(space, copies) for agent, space in own.items()
                    }
                    setattr(holder, name, own.__getitem__)
            for space in own.values():
                _belongs(space, base)
        if not copies:
            continue
        held = {
            name: value
            for kind in reversed(type(holder).__mro__)
            for name, value in vars(kind).items()
        }
        for name, value in {**held, **vars(holder)}.items():
            own_value = _replaced(value, copies)
            if own_value is not value:  # another name of a replaced space
                setattr(holder, name, own_value)


def _replaced(value: Any, copies: dict[int, tuple[Space, Space]]) -> Any:
    """Return a space, or a dict, list or tuple of spaces, with the copies in place.

    The same object is returned if none of its spaces has a copy.
    """
    if isinstance(value, gymnasium.Space):
        return copies.get(id(value), (value, value))[1]
    parts: Iterable[Any] = ()
    if type(value) is dict:
        parts = value.values()
    elif type(value) in (list, tuple):
        parts = value
    if not any(id(part) in copies for part in parts):
        return value
    if type(value) is dict:
        return {key: _replaced(part, copies) for key, part in value.items()}
    return type(value)([_replaced(part, copies) for part in value])


def _is_shared(space: Space, base: Any, copies: dict[int, tuple[Space, Space]]) -> bool:
    return True in [
        id(part) in copies or _owners.get(id(part), base) is not base for part in _parts(space)
    ]


def _belongs(space: Space, base: Any) -> None:
    for part in _parts(space):
        with contextlib.suppress(TypeError):  # an environment without weak references
            _owners[id(part)] = base


def seed_spaces(env: Env, seed: int) -> None:
    for space in _all_spaces(env):
        space.seed(seed)


def space_states(env: Env) -> list[dict[str, Any] | None]:
    parts = [part for space in _all_spaces(env) for part in _parts(space)]
    generators: list[Any] = [part._np_random for part in parts]  # noqa: SLF001
    return [
        None if generator is None else generator.bit_generator.state for generator in generators
    ]


def load_space_states(env: Env, states: list[dict[str, Any] | None]) -> None:
    parts = [part for space in _all_spaces(env) for part in _parts(space)]
    if len(parts) != len(states):
        raise ValueError(f"expected the generators of {len(parts)} spaces, got {len(states)}")
    for part, state in zip(parts, states, strict=True):
        if state is not None:
            part.np_random.bit_generator.state = state


def _with_own_generators(space: Any, copies: dict[int, tuple[Space, Space]]) -> Any:
    """Copy a space without its generators.

    Bounds are shared, for they may be large and nobody writes into them.
    """
    known = {key: copied for key, (_, copied) in copies.items()}
    bounds = {
        id(value): value
        for part in _parts(space)
        for value in vars(part).values()
        if type(value) is np.ndarray
    }
    own = deepcopy(space, {**known, **bounds})
    if own != space:
        raise TypeError("a space without an == of its own would be another one than the others'")
    for part, of_own in zip(_parts(space), _parts(own), strict=True):
        of_own._np_random = None  # type: ignore[assignment]  # noqa: SLF001
        copies[id(part)] = part, of_own
    return own


def _parts(space: Space) -> list[Space]:
    """A space and all spaces in it; each has a generator of its own."""
    found = [space]
    for name, value in vars(space).items():
        if name in _DERIVED:
            continue
        if isinstance(value, dict):
            value = value.values()
        elif not isinstance(value, tuple):
            value = (value,)
        for part in value:
            if isinstance(part, gymnasium.Space):
                found += _parts(part)
    return found


def _all_spaces(env: Env) -> list[Space]:
    found = [getattr(wrapper, name, None) for wrapper in chain_of(env) for name in _NAMES]
    return list(
        {id(space): space for space in found if isinstance(space, gymnasium.Space)}.values()
    )
