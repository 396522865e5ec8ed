"""The state of a PettingZoo game: its own ``state_dict()``, what makes it an AECEnv, and what wrappers remember."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from vecwrap.rows.infos import own_copy
from vecwrap.rows.saved import fitting
from vecwrap.sources.description import chain_of_game
from vecwrap.sources.saving import CannotSaveError, is_plain

_INTERFACE = (  # of PettingZoo's AECEnv and ParallelEnv, whoever wrote the game
    *("agents", "agent_selection", "rewards", "_cumulative_rewards"),
    *("terminations", "truncations", "infos", "_skip_agent_selection"),
)


def game_state(env: Any) -> list[dict[str, Any]]:
    return [{"wrapper": type(one).__qualname__, "state": _state_of(one)} for one in chain_of_game(env)]


def load_game_state(env: Any, states: Any) -> None:
    """Restore what ``game_state`` returned, in a game with the same wrappers."""
    chain = chain_of_game(env)
    names = [type(one).__qualname__ for one in chain]
    saved = [str(state["wrapper"]) for state in fitting(states, [], "env")]
    if names != saved:
        raise ValueError(f"expected a game of {' > '.join(saved)}, got {' > '.join(names)}")
    for one, state in zip(chain, states, strict=True):
        own = fitting(state["state"], {}, type(one).__qualname__)
        if not own.keys() <= {"own", "attributes"} or ("own" in own) != _has_own(one):
            raise ValueError(f"{type(one).__qualname__}: expected its own state, got {sorted(map(str, own))}")
        for name, value in fitting(own["attributes"], {}, "attributes").items():
            if name not in _INTERFACE and not (name in vars(one) and is_plain(vars(one)[name])):
                raise ValueError(f"{type(one).__qualname__}: expected what it remembers, got {name}")
            setattr(one, name, deepcopy(value))
        if "own" in own:
            one.load_state_dict(own_copy(own["own"]))


def _has_own(one: Any) -> bool:
    return hasattr(type(one), "state_dict") and hasattr(type(one), "load_state_dict")


def _state_of(one: Any) -> dict[str, Any]:
    if _has_own(one):
        attributes = {name: vars(one)[name] for name in _INTERFACE if name in vars(one) and is_plain(vars(one)[name])}
        return {"own": own_copy(one.state_dict()), "attributes": deepcopy(attributes)}
    if type(one).__module__.startswith("pettingzoo.utils."):
        return {"attributes": deepcopy({name: value for name, value in vars(one).items() if is_plain(value)})}
    raise CannotSaveError(f"the game's {type(one).__qualname__} offers no state_dict() and load_state_dict()")
