"""Plain values, which can be copied, saved and restored without running code, and states."""

from __future__ import annotations

import inspect
import math
import operator
import time
from collections import deque
from copy import deepcopy
from types import FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers.utils import RunningMeanStd

from vecwrap.rows.infos import detached_copy
from vecwrap.rows.saved import fitting, is_plain
from vecwrap.sources.description import Env, chain_of, chain_of_game

_OF_ENVIRONMENTS = {"np_random", "np_random_seed", "ale_held_action"}
_GYMNASIUM = "gymnasium."
_OURS = "vecwrap."
_CLOCK = "episode_start_time"  # of RecordEpisodeStatistics: a time on this process's clock
_NO_STATE = frozenset(
    {
        *("_saved_kwargs", "_action_space", "_observation_space", "_metadata", "_cached_spec"),
        *(
            "checked_reset",
            "checked_step",
            "checked_render",
            "checked_data_reuse",
            "close_called",
            "_previous_data",
        ),
        *("_env_device", "_target_device"),  # what arrays are converted to
        *("window", "clock"),  # for display
    }
)
_NO_STATE_TYPES = (
    gymnasium.Env,
    gymnasium.Space,
    EnvSpec,
    FunctionType,
    MethodType,
    ModuleType,
    type,
)


class CannotSaveError(Exception):
    """A wrapper whose state cannot be determined."""


def env_state(env: Env) -> list[dict[str, Any]]:
    return [{"wrapper": _name(wrapper), "state": _state_of(wrapper)} for wrapper in chain_of(env)]


def load_env_state(env: Env, states: list[dict[str, Any]]) -> None:
    wrappers = _with_states(chain_of(env), states, "sub-environment")
    for wrapper, state in wrappers:
        _refuse(wrapper, state)
    for wrapper, state in wrappers:
        _load(wrapper, state)


def _with_states(
    chain: list[Any], states: list[Any], what: str
) -> list[tuple[Any, dict[str, Any]]]:
    """Return each part of a chain with its saved state; ValueError if these are of other parts."""
    names = list(map(_name, chain))
    saved = [str(state["wrapper"]) for state in states]
    if names != saved:
        raise ValueError(f"expected a {what} of {' > '.join(saved)}, got {' > '.join(names)}")
    return [
        (one, fitting(state["state"], {}, _name(one)))
        for one, state in zip(chain, states, strict=True)
    ]


def _name(wrapper: Any) -> str:
    return type(wrapper).__qualname__


def _state_of(wrapper: Env) -> dict[str, Any]:
    state: dict[str, Any] = {}
    match _entry(wrapper):
        case "own":
            state["own"] = detached_copy(wrapper.state_dict())  # type: ignore[attr-defined]
        case "ale":
            state.update(_ale_state(wrapper.unwrapped))
        case _:
            state["attributes"] = _attributes(wrapper)
    is_env = not isinstance(wrapper, gymnasium.Wrapper)
    if is_env and wrapper._np_random is not None:  # noqa: SLF001
        state["np_random"] = wrapper._np_random.bit_generator.state  # noqa: SLF001
        state["np_random_seed"] = wrapper._np_random_seed  # noqa: SLF001
    return state


def offers_state(one: Any) -> bool:
    """Whether its class has ``state_dict`` and ``load_state_dict``."""
    return hasattr(type(one), "state_dict") and hasattr(type(one), "load_state_dict")


def _entry(wrapper: Env) -> str:
    if offers_state(wrapper):
        return "own"
    if type(wrapper).__module__.startswith("ale_py.") and hasattr(wrapper, "ale"):
        return "ale"
    if isinstance(wrapper, gymnasium.Wrapper) and type(wrapper).__module__.startswith(
        (_GYMNASIUM, _OURS)
    ):
        return "attributes"
    kind = "wrapper" if isinstance(wrapper, gymnasium.Wrapper) else "environment"
    raise CannotSaveError(
        f"the {kind} {_name(wrapper)} offers no state_dict() and load_state_dict()"
    )


def _refuse(wrapper: Env, state: dict[str, Any]) -> None:
    expected = {_entry(wrapper)}
    if not isinstance(wrapper, gymnasium.Wrapper):
        expected |= _OF_ENVIRONMENTS
    if not {_entry(wrapper)} <= state.keys() <= expected:
        raise ValueError(
            f"{_name(wrapper)}: expected the entries {sorted(expected)}, got "
            f"{sorted(map(str, state))}"
        )
    if "ale" in state:
        fitting(state["ale"], np.zeros(np.shape(state["ale"]), np.uint8), "ale")
    for name, value in fitting(state.get("attributes", {}), {}, "attributes").items():
        _refuse_attribute(wrapper, name, value)


def _load(wrapper: Env, state: dict[str, Any]) -> None:
    if "own" in state:
        wrapper.load_state_dict(detached_copy(state["own"]))  # type: ignore[attr-defined]
    if "ale" in state:
        _load_ale(wrapper.unwrapped, state)
    _load_attributes(wrapper, state.get("attributes", {}))
    if "np_random" in state:
        wrapper.np_random.bit_generator.state = state["np_random"]
        seed = state.get("np_random_seed", wrapper._np_random_seed)  # noqa: SLF001
        if seed is not None:
            seed = operator.index(seed)
        wrapper._np_random_seed = seed  # noqa: SLF001


def _ale_state(game: Any) -> dict[str, Any]:
    serialized = game.ale.cloneState(include_rng=True).__getstate__()
    if isinstance(serialized, bytes):
        data = serialized
    else:
        data = serialized[0]
    state: dict[str, Any] = {"ale": np.frombuffer(data, dtype=np.uint8).copy()}
    if is_sticky(game):
        for name in ("continuous", "sound_obs"):
            if getattr(game, name, False):
                raise CannotSaveError(
                    f"the environment {_name(game)} has {name}=True and sticky actions, and the "
                    "emulator's state leaves out what these depend on: make it with "
                    "repeat_action_probability=0, and take the wrapper sticky_actions"
                )
        state["ale_held_action"] = find_held_action(game)
    return state


def _load_ale(game: Any, state: dict[str, Any]) -> None:
    import ale_py

    saved = ale_py.ALEState.__new__(ale_py.ALEState)
    data = state["ale"].tobytes()
    template = game.ale.cloneState(include_rng=True).__getstate__()
    if not isinstance(template, bytes):
        data = (data,)
    saved.__setstate__(data)
    restore(game, saved, state.get("ale_held_action"))  # of sticky games


def _attributes(wrapper: Env) -> dict[str, Any]:
    given = inspect.signature(type(wrapper).__init__).parameters
    state = {}
    for name, value in vars(wrapper).items():
        if name in _NO_STATE or name.lstrip("_") in given or _is_no_state(value):
            continue
        if isinstance(value, RunningMeanStd):
            value = vars(value)
        if name == _CLOCK:
            state[name] = time.perf_counter() - value
        elif is_plain(value):
            state[name] = deepcopy(value)
        elif type(wrapper).__module__.startswith(_GYMNASIUM):
            raise CannotSaveError(
                f"the wrapper {_name(wrapper)} may keep state that cannot be saved: its attribute "
                f"{name} is of type {type(value).__name__}"
            )
    return state


def _load_attributes(wrapper: Env, state: dict[str, Any]) -> None:
    for name, value in state.items():
        if name == _CLOCK:
            setattr(wrapper, name, time.perf_counter() - value)
        elif isinstance(statistics := getattr(wrapper, name, None), RunningMeanStd):
            vars(statistics).update(deepcopy(value))
        else:
            setattr(wrapper, name, deepcopy(value))


def _refuse_attribute(wrapper: Env, name: str, value: Any) -> None:
    given = inspect.signature(type(wrapper).__init__).parameters
    if name in _NO_STATE or name.lstrip("_") in given or is_no_data(type(wrapper), name):
        raise ValueError(
            f"expected what {_name(wrapper)} remembers, got its attribute {name}, which it is made "
            "with; no state of vecwrap's holds that"
        )
    own = vars(wrapper).get(name)
    if isinstance(own, RunningMeanStd):
        known = {"mean": np.asarray(own.mean), "var": np.asarray(own.var), "count": np.zeros(())}
        fitting({key: np.asarray(part) for key, part in value.items()}, known, name)
    elif own is not None and value is not None and _form(own) != _form(value):
        raise TypeError(f"{_name(wrapper)}: {name}: expected {_form(own)}, got {_form(value)}")


def is_no_data(kind: type, name: str) -> bool:
    """Return whether an attribute is a method, a property or Python's own, like ``__dict__``."""
    on_class = getattr(kind, name, None)
    return name.startswith("__") or callable(on_class) or inspect.isdatadescriptor(on_class)


def _form(value: Any) -> str:
    """Describe a value's kind, which a saved value must match.

    Numbers are one kind, and so are arrays of numbers.
    """
    if (
        isinstance(value, (np.ndarray, np.generic, int, float))
        and np.asarray(value).dtype.kind in "biufc"
    ):
        return "an array of numbers" if np.ndim(value) else "a number"
    if isinstance(value, deque):
        return f"deque of at most {value.maxlen}"
    return type(value).__name__


def _is_no_state(value: Any) -> bool:
    """Return whether a wrapper only uses this value, and keeps no state in it.

    Callable objects may hold state.
    """
    return isinstance(value, _NO_STATE_TYPES) or (
        callable(value) and not getattr(value, "__dict__", None)
    )


NOOP = 0
MIN_PROBABILITY = 1e-12
"""The accepted probability that none of a number of ticks took the given action."""

MAX_TICKS = 10_000
"""The most ticks played for each action that is tried, some 50 µs each."""


def is_sticky(game: Any) -> bool:
    return 0.0 < _probability(game) < 1.0


def find_held_action(game: Any) -> int:
    """Find an action equivalent to the one that a sticky game's emulator holds.

    Raise LookupError if there is none.
    """
    ale = game.ale
    if _ticks_until_taken(game) > MAX_TICKS:
        raise LookupError(
            f"repeat_action_probability={_probability(game):g} is too near to 1 for the action to "
            "be found that the emulator holds"
        )
    state = ale.cloneState(include_rng=True)
    try:
        expected = [_tick(ale) for _ in range(_ticks_until_taken(game))]
        for action in dict.fromkeys([*ale.getMinimalActionSet(), *ale.getLegalActionSet()]):
            _hold(game, action)
            ale.restoreState(state)
            if all(_tick(ale) == tick for tick in expected):
                _hold(game, action)
                return int(action.value)
    finally:
        ale.restoreState(state)
    raise LookupError("the emulator does with no action what it does with the one that it holds")


def restore(game: Any, state: Any, held_action: int | None) -> None:
    """Restore an emulator's state, and its held action if known.

    The screen is that of the next tick.
    """
    if held_action is not None and is_sticky(game):
        _hold(game, held_action)
    game.ale.restoreState(state)


def _probability(game: Any) -> float:
    return float(game.ale.getFloat("repeat_action_probability"))


def _ticks_until_taken(game: Any) -> int:
    """How many ticks it takes until one of them has certainly taken the given action."""
    return math.ceil(math.log(MIN_PROBABILITY) / math.log(_probability(game)))


def _hold(game: Any, action: int) -> None:
    for _ in range(_ticks_until_taken(game)):
        game.ale.act(action)


def _tick(ale: Any) -> tuple[int, bytes, Any]:
    reward = ale.act(NOOP)
    return reward, ale.getScreen().tobytes(), ale.cloneState(include_rng=True).__getstate__()


_INTERFACE = (  # of PettingZoo's AECEnv and ParallelEnv, whoever wrote the game
    *("agents", "agent_selection", "rewards", "_cumulative_rewards"),
    *("terminations", "truncations", "infos", "_skip_agent_selection"),
)


def game_state(env: Any) -> list[dict[str, Any]]:
    return [{"wrapper": _name(one), "state": _state_in_game(one)} for one in chain_of_game(env)]


def load_game_state(env: Any, states: Any) -> None:
    """Restore what ``game_state`` returned, in a game with the same wrappers."""
    for one, own in _with_states(chain_of_game(env), fitting(states, [], "env"), "game"):
        if not own.keys() <= {"own", "attributes"} or ("own" in own) != offers_state(one):
            raise ValueError(f"{_name(one)}: expected its own state, got {sorted(map(str, own))}")
        for name, value in fitting(own["attributes"], {}, "attributes").items():
            if name not in _INTERFACE and not (name in vars(one) and is_plain(vars(one)[name])):
                raise ValueError(f"{_name(one)}: expected what it remembers, got {name}")
            setattr(one, name, deepcopy(value))
        if "own" in own:
            one.load_state_dict(detached_copy(own["own"]))


def _state_in_game(one: Any) -> dict[str, Any]:
    if offers_state(one):
        attributes = {
            name: vars(one)[name]
            for name in _INTERFACE
            if name in vars(one) and is_plain(vars(one)[name])
        }
        return {"own": detached_copy(one.state_dict()), "attributes": deepcopy(attributes)}
    if type(one).__module__.startswith("pettingzoo.utils."):
        return {
            "attributes": deepcopy(
                {name: value for name, value in vars(one).items() if is_plain(value)}
            )
        }
    raise CannotSaveError(f"the game's {_name(one)} offers no state_dict() and load_state_dict()")
