"""The spaces of an environment and of each wrapper around it.

A plan requests these from a worker before n sub-environments are started.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium import spaces

from vecwrap.errors import PlanError
from vecwrap.sources.declares import Declares
from vecwrap.sources.description import joint_space
from vecwrap.sources.factories import WrapSubEnv
from vecwrap.sources.source_factories import SubEnvFactory


@dataclass(frozen=True)
class SpacesAt:
    """The spaces of an environment or of a wrapper, and what else a plan shows of it.

    If the wrapper refuses, the spaces are those of what it would have wrapped.
    """

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    stacked_by: str = ""  # the name of what stacks observations in it
    summary: str = ""  # the wrapper's ``describe``
    refusal: PlanError | None = None
    num_rows: int | None = None  # of a whole vector

    @classmethod
    def of(cls, env: Any, refusal: PlanError | None = None, *, own: bool = True) -> SpacesAt:
        """Inspect a new environment or wrapper; ``own``: a wrapper that may describe itself."""
        single = "single_" if isinstance(env, gymnasium.vector.VectorEnv) else ""
        words = ""
        if own and refusal is None and isinstance(env, Declares):
            words = env.describe()
        return cls(  # the backend refuses None as a space
            getattr(env, f"{single}observation_space", None),  # type: ignore[arg-type]
            getattr(env, f"{single}action_space", None),  # type: ignore[arg-type]
            stacked_by(env),
            words,
            refusal,
            getattr(env, "num_envs", None),
        )

    @classmethod
    def of_all(cls, parts: Sequence[SpacesAt]) -> SpacesAt:
        """Merge the spaces of several environments into their joint observation space.

        If one of the environments was refused, the refusal is returned.
        """
        first = next((stage for stage in parts if stage.refusal is not None), parts[0])
        spaces_ = [spaces_at.observation_space for spaces_at in parts]
        if first.refusal is not None or all(space == spaces_[0] for space in spaces_[1:]):
            return first
        joint = joint_space(spaces_)
        if joint is None:
            return dataclasses.replace(first, summary=first.summary or _DIFFERENT)
        return dataclasses.replace(first, observation_space=joint, summary=first.summary or _JOINT)


_DIFFERENT = "observations differ between the sub-environments; those of the first"
_JOINT = "bounds differ between the sub-environments: these contain them all"


def stacked_by(env: Any) -> str:
    """Return the name of what stacks observations in an environment or engine.

    The name is ``""`` if nothing is known to stack them.
    """
    while isinstance(env, (gymnasium.Wrapper, gymnasium.vector.VectorWrapper)):
        if "FrameStack" in type(env).__name__:
            return type(env).__name__
        env = env.env
    # EnvPool's
    name = type(env).__name__
    config = getattr(env, "config", None)
    if isinstance(config, Mapping):
        stacked = config.get("stack_num")
    else:
        stacked = getattr(env, "stack_num", None)
    if name == "AtariVectorEnv":  # it does not expose its stack_num
        stacked = env.single_observation_space.shape[0]
    if isinstance(stacked, int) and stacked > 1:
        return f"{name} ({stacked})"
    return ""


@dataclass(frozen=True)
class SpaceProbe:
    """A factory whose environment has its ``stages``; a wrapper that refuses is skipped."""

    make: Callable[[], Any]
    wrappers: tuple[WrapSubEnv, ...]

    def __call__(self) -> gymnasium.Env[Any, Any]:
        spaces: list[SpacesAt] = []

        def look(env: Any) -> Any:
            spaces.append(SpacesAt.of(env, own=False))
            return env

        def tried(wrapper: WrapSubEnv) -> Callable[[Any], Any]:
            def wrap(env: Any) -> Any:
                try:
                    wrapped = wrapper(env)
                except PlanError as refusal:
                    spaces.append(SpacesAt.of(env, refusal))
                    return env
                spaces.append(SpacesAt.of(wrapped))
                return wrapped

            return wrap

        probed = _Probed(SubEnvFactory(self.make, (look, *map(tried, self.wrappers)))())
        probed.spaces_at = tuple(spaces)
        return probed


class _Probed(gymnasium.Wrapper[Any, Any, Any, Any]):
    spaces_at: tuple[SpacesAt, ...] = ()
