"""The state of one sub-environment, layer by layer, so that a run can continue where it stopped.

A layer, or the environment itself, that has ``state_dict`` and ``load_state_dict`` is asked. The Arcade Learning
Environment provides its emulator's state; the action that a sticky one holds is found. For Gymnasium's and vecwrap's
own wrappers, the state is their plain attributes (counters, flags, arrays, queues of them) and Gymnasium's running
statistics; any other attribute of a Gymnasium wrapper is refused, unless it is known to be no state. The environment's
``np_random`` is always included.
"""

from __future__ import annotations

import inspect
import time
from copy import deepcopy
from types import FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers.utils import RunningMeanStd

from vecwrap.env_chain import Env, chain_of
from vecwrap.infos import own_copy
from vecwrap.plain import is_plain
from vecwrap.sticky_ale import find_held_action, is_sticky, restore

__all__ = ["CannotSaveError", "env_state", "load_env_state"]

_GYMNASIUM = "gymnasium."
_OURS = "vecwrap."
_CLOCK = "episode_start_time"  # of RecordEpisodeStatistics: a time on this process's clock
_NO_STATE = frozenset(
    {
        *("_saved_kwargs", "_action_space", "_observation_space", "_metadata", "_cached_spec"),
        *("checked_reset", "checked_step", "checked_render", "checked_data_reuse", "close_called", "_previous_data"),
        *("_env_device", "_target_device"),  # what arrays are converted to
        *("window", "clock"),  # for display
    }
)
_NO_STATE_TYPES = (gymnasium.Env, gymnasium.Space, EnvSpec, FunctionType, MethodType, ModuleType, type)


class CannotSaveError(Exception):
    """A layer whose state cannot be determined."""


def env_state(env: Env) -> list[dict[str, Any]]:
    """Return the state of an environment and all its wrappers, outermost first."""
    return [{"layer": _name(layer), "state": _state_of(layer)} for layer in chain_of(env)]


def load_env_state(env: Env, states: list[dict[str, Any]]) -> None:
    """Restore what ``env_state`` returned for an environment wrapped in the same layers."""
    layers = list(chain_of(env))
    names, saved = [_name(layer) for layer in layers], [state["layer"] for state in states]
    if names != saved:
        raise ValueError(f"expected a sub-environment of {' > '.join(saved)}, got {' > '.join(names)}")
    for layer, state in zip(layers, states, strict=True):
        _load(layer, state["state"])


def _name(layer: Env) -> str:
    return type(layer).__qualname__


def _state_of(layer: Env) -> dict[str, Any]:
    state: dict[str, Any] = {}
    if _offers_state(layer):
        state["own"] = own_copy(layer.state_dict())  # type: ignore[attr-defined]
    elif _is_ale(layer):
        state.update(_ale_state(layer.unwrapped))
    elif isinstance(layer, gymnasium.Wrapper) and type(layer).__module__.startswith((_GYMNASIUM, _OURS)):
        state["attributes"] = _attributes(layer)
    else:
        kind = "wrapper" if isinstance(layer, gymnasium.Wrapper) else "environment"
        raise CannotSaveError(f"the {kind} {_name(layer)} offers no state_dict() and load_state_dict()")
    if not isinstance(layer, gymnasium.Wrapper) and layer._np_random is not None:
        state["np_random"] = layer._np_random.bit_generator.state
        state["np_random_seed"] = layer._np_random_seed
    return state


def _load(layer: Env, state: dict[str, Any]) -> None:
    if "own" in state:
        layer.load_state_dict(own_copy(state["own"]))  # type: ignore[attr-defined]
    if "ale" in state:
        _load_ale(layer.unwrapped, state)
    _load_attributes(layer, state.get("attributes", {}))
    if "np_random" in state:
        layer.np_random.bit_generator.state = state["np_random"]
        layer._np_random_seed = state.get("np_random_seed", layer._np_random_seed)


def _ale_state(game: Any) -> dict[str, Any]:
    serialized = game.ale.cloneState(include_rng=True).__getstate__()
    data = serialized if isinstance(serialized, bytes) else serialized[0]
    state: dict[str, Any] = {"ale": np.frombuffer(data, dtype=np.uint8).copy()}
    if is_sticky(game):
        for name in ("continuous", "sound_obs"):
            if getattr(game, name, False):
                raise CannotSaveError(
                    f"the environment {_name(game)} has {name}=True and sticky actions, and the emulator's state "
                    "leaves out what these depend on: make it with repeat_action_probability=0, and take the layer "
                    "sticky_actions"
                )
        state["ale_held_action"] = find_held_action(game)
    return state


def _load_ale(game: Any, state: dict[str, Any]) -> None:
    import ale_py

    saved = ale_py.ALEState.__new__(ale_py.ALEState)
    data = state["ale"].tobytes()
    template = game.ale.cloneState(include_rng=True).__getstate__()
    saved.__setstate__(data if isinstance(template, bytes) else (data,))
    restore(game, saved, state.get("ale_held_action"))  # older files lack it


def _offers_state(layer: Env) -> bool:
    return hasattr(type(layer), "state_dict") and hasattr(type(layer), "load_state_dict")


def _is_ale(layer: Env) -> bool:
    return type(layer).__module__.startswith("ale_py.") and hasattr(layer, "ale")


def _attributes(layer: Env) -> dict[str, Any]:
    given = inspect.signature(type(layer).__init__).parameters
    state = {}
    for name, value in vars(layer).items():
        if name in _NO_STATE or name.lstrip("_") in given or _is_no_state(value):
            continue
        if isinstance(value, RunningMeanStd):
            value = vars(value)
        if name == _CLOCK:
            state[name] = time.perf_counter() - value
        elif is_plain(value):
            state[name] = deepcopy(value)
        elif type(layer).__module__.startswith(_GYMNASIUM):
            raise CannotSaveError(
                f"the wrapper {_name(layer)} may keep state that cannot be saved: its attribute {name} is of type "
                f"{type(value).__name__}"
            )
    return state


def _load_attributes(layer: Env, state: dict[str, Any]) -> None:
    given = inspect.signature(type(layer).__init__).parameters
    for name, value in state.items():
        on_class = getattr(type(layer), name, None)
        if name in _NO_STATE or name.lstrip("_") in given or callable(on_class) or inspect.isdatadescriptor(on_class):
            raise ValueError(
                f"expected what {_name(layer)} remembers, got its attribute {name}, which it is made with; no state of "
                "vecwrap's holds that"
            )
        if name == _CLOCK:
            setattr(layer, name, time.perf_counter() - value)
        elif isinstance(statistics := getattr(layer, name, None), RunningMeanStd):
            vars(statistics).update(deepcopy(value))
        else:
            setattr(layer, name, deepcopy(value))


def _is_no_state(value: Any) -> bool:
    """Whether a layer works with this value rather than remembering it; callable objects may hold memory."""
    return isinstance(value, _NO_STATE_TYPES) or (callable(value) and not getattr(value, "__dict__", None))
