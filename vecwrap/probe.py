"""What each layer makes of the environment, determined with one sub-environment before n of them are started.

The sub-environment is made where the backend would make it, with the layers that run there. The layers of the vector
are then put around a backend that has n rows but only that one sub-environment.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from vecwrap.backends.base import Backend, Factory
from vecwrap.backends.description import Description
from vecwrap.backends.native import NativeBackend
from vecwrap.batch import Batch
from vecwrap.contract import Frames, IntArray
from vecwrap.environments import WrapSubEnv
from vecwrap.errors import PlanError
from vecwrap.failure import Failure
from vecwrap.layers import PlannedLayer
from vecwrap.sub_env import SubEnvFactory
from vecwrap.vec_env import VecEnv

__all__ = ["LentEngine", "OneForAll", "Probe", "Stage", "held_bytes", "outer_stages", "stacks_already"]


@dataclass(frozen=True)
class Stage:
    """What comes out of the environment, or of a layer.

    Attributes:
        observation_space, action_space: of one sub-environment.
        render_mode: what it was made to render.
        stacks: the name of what stacks observations in it, or ``""``.
        held: the bytes that the layer keeps between steps, for one sub-environment if it runs there, else for all; 0
            for the environment itself, whose memory is its own.
        words: the layer's description of itself once it is made (its ``describe``), or ``""``.
        refusal: why the layer cannot be put here; the other fields are then those of what it would have wrapped.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    render_mode: str | None = None
    stacks: str = ""
    held: int = 0
    words: str = ""
    refusal: PlanError | None = None

    @classmethod
    def of(cls, env: Any, refusal: PlanError | None = None, *, own: bool = True) -> Stage:
        """Inspect an environment or vector environment that has just been made or wrapped.

        Args:
            env: the environment.
            refusal: of the layer that would have wrapped it.
            own: whether ``env`` is a layer, whose memory counts.
        """
        single = "single_" if isinstance(env, gymnasium.vector.VectorEnv) else ""
        made = own and refusal is None
        describe = getattr(type(env), "describe", None) if made else None
        return cls(
            getattr(env, f"{single}observation_space", None),  # type: ignore[arg-type] # the backend refuses None
            getattr(env, f"{single}action_space", None),  # type: ignore[arg-type]
            getattr(env, "render_mode", None),
            stacks_already(env),
            held_bytes(env) if made else 0,
            "" if describe is None else str(describe(env)),
            refusal,
        )


# -- in the sub-environment -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Probe:
    """A factory whose environment has its stages: of what ``make`` returns, and after each layer.

    A layer that refuses is skipped, and the next is tried without it.
    """

    make: Callable[[], Any]
    layers: tuple[WrapSubEnv, ...]

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Make it, and inspect it after each layer."""
        stages: list[Stage] = []

        def look(env: Any) -> Any:
            stages.append(Stage.of(env, own=False))
            return env

        def tried(layer: WrapSubEnv) -> Callable[[Any], Any]:
            def wrap(env: Any) -> Any:
                try:
                    wrapped = layer(env)
                except PlanError as refusal:
                    stages.append(Stage.of(env, refusal))
                    return env
                stages.append(Stage.of(wrapped))
                return wrapped

            return wrap

        probed = _Probed(SubEnvFactory(self.make, (look, *map(tried, self.layers)))())
        probed.stages = tuple(stages)
        return probed


class _Probed(gymnasium.Wrapper[Any, Any, Any, Any]):
    stages: tuple[Stage, ...] = ()


# -- around the vector ------------------------------------------------------------------------------------------------


class OneForAll(Backend):
    """n rows, all answered for by one sub-environment, to try vector layers on. It cannot be stepped.

    Args:
        one: a backend of that sub-environment, or of an engine; its owner closes it.
        num_envs: n.
        settings: ``autoreset`` and the others that every backend takes from the pipeline.
    """

    name: ClassVar[str] = "probe"

    def __init__(self, one: VecEnv, num_envs: int, settings: Mapping[str, Any]) -> None:
        self._one: Any = one.unwrapped
        super().__init__([_made_already] * num_envs, **settings)

    def _start(self, factories: Sequence[Factory]) -> Description:
        one = self._one
        spaces_ = one.single_observation_space, one.single_action_space
        return Description(*spaces_, dict(one.metadata), one.render_mode, one.spec, one.env_name)

    def _ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        self._asked_for = list(env_ids)
        ids = self._one.all_ids.tolist()  # an engine may answer for all or for none
        self._one._ask(method, ids, [arguments[0]] * len(ids))

    def _answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        values, failures = self._one._answers(deadline)
        return {i: values[0] for i in self._asked_for if values}, failures

    def _request_frames(self, layer: VecEnv, env_ids: Any, opening: Any) -> None:
        self._one._request_frames(layer, env_ids[:0], opening[:0])  # an engine that cannot refuses

    def _stop(self, timeout: float, terminate: bool) -> None:
        pass

    def _send_rows(self, actions: Batch, env_ids: IntArray) -> None:
        raise AssertionError(_NO_STEPS)

    def _reset_rows(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        raise AssertionError(_NO_STEPS)

    def _poll(self, deadline: float | None) -> None:
        raise AssertionError(_NO_STEPS)

    def _tell_frames(self, wanted: Sequence[Frames]) -> None:
        raise AssertionError(_NO_STEPS)


class LentEngine(NativeBackend):
    """An engine that is only inspected, and stays open."""

    def _stop(self, timeout: float, terminate: bool) -> None:
        pass


def outer_stages(env: VecEnv, layers: Sequence[PlannedLayer], inside: Stage) -> tuple[Stage, ...]:
    """Try vector layers around each other, and close all; one that refuses is skipped.

    Nothing is written: layers are made without the arguments that are paths.

    Args:
        env: what to wrap.
        layers: inner first.
        inside: the stage of what ``env`` stands for.
    """
    stages = []
    try:
        for layer in layers:
            refusal = None
            try:
                env = layer.around_vector(env, without_files=True)
            except PlanError as error:
                refusal = error
            stages.append(dataclasses.replace(Stage.of(env, refusal), stacks=inside.stacks))
    finally:
        env.close()
    return tuple(stages)


_NO_STEPS = "layers are tried on a probe, which is never stepped"


def _made_already() -> gymnasium.Env[Any, Any]:
    raise AssertionError("a probe makes no sub-environments")


# -- what is seen -----------------------------------------------------------------------------------------------------

_STACK_SETTINGS = ("stack_num", "num_stack", "frame_stack", "stack_size")


def stacks_already(env: Any) -> str:
    """Return the name of what stacks observations in an environment or engine, if that can be seen; else ``""``.

    >>> from gymnasium.wrappers import FrameStackObservation
    >>> stacks_already(FrameStackObservation(gymnasium.make("CartPole-v1"), 4))
    'FrameStackObservation'
    >>> stacks_already(gymnasium.make("CartPole-v1"))
    ''
    """
    while isinstance(env, (gymnasium.Wrapper, gymnasium.vector.VectorWrapper)):
        if "FrameStack" in type(env).__name__:
            return type(env).__name__
        env = env.env
    if isinstance(env, VecEnv):
        env = getattr(env.unwrapped, "vector_env", env)
    name = type(env).__name__
    config = getattr(env, "config", None)  # EnvPool's
    settings = {key: getattr(env, key, None) for key in _STACK_SETTINGS}
    settings |= {f"config {key}": config.get(key) for key in _STACK_SETTINGS} if isinstance(config, Mapping) else {}
    spaces_of = (getattr(env, f"{single}observation_space", None) for single in ("single_", ""))
    shape = next((space.shape for space in spaces_of if space is not None), None) or ()
    for value in settings.values():  # a stack of frames shows in the shape; a player's stack of chips does not
        if isinstance(value, int) and value > 1 and any(size and size % value == 0 for size in shape):
            return f"{name} ({value})"
    if name == "AtariVectorEnv" and shape and shape[0] > 1:  # it does not expose its stack_num
        return f"{name} ({shape[0]})"
    return ""


def held_bytes(layer: Any) -> int:
    """Return the bytes of the arrays that a layer keeps, except what it wraps, spaces and constants.

    A layer that fills up only later reports its size by a method ``bytes_held``.

    >>> from vecwrap.backends.dummy import DummyBackend
    >>> from vecwrap.wrappers.framestack import FrameStack
    >>> held_bytes(FrameStack(DummyBackend([lambda: gymnasium.make("CartPole-v1")] * 2), 4))
    128
    """
    if hasattr(type(layer), "bytes_held"):
        return int(layer.bytes_held())
    total = 0
    seen = {id(layer)}
    todo: list[Any] = list(vars(layer).values())
    while todo:
        value = todo.pop()
        if isinstance(value, np.ndarray):
            if not value.flags.writeable:  # a constant, which all may share
                continue
            value = value.base if isinstance(value.base, np.ndarray) else value
        if id(value) in seen or isinstance(value, _NOT_ITS_OWN):
            continue
        seen.add(id(value))
        if isinstance(value, np.ndarray):
            total += value.nbytes
        elif isinstance(value, Mapping):
            todo += value.values()
        elif isinstance(value, (list, tuple, set, deque)):
            todo += value
        elif hasattr(value, "__dict__"):
            todo += vars(value).values()
    return total


_NOT_ITS_OWN = (gymnasium.Env, gymnasium.vector.VectorEnv, spaces.Space, ModuleType, type, np.random.Generator)
