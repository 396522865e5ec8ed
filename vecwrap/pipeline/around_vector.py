"""Wrappers of the vector, put around it; and what spaces come out of each.

The spaces are determined with one sub-environment before n of them are started. It is made where
the backend would make it, with the wrappers that run there; those of the vector are then put around
a backend that has n rows but only that one sub-environment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import PlanError
from vecwrap.pipeline.wrappers import PlannedWrapper, placed
from vecwrap.sources.declares import declared_by
from vecwrap.sources.space_probe import SpacesAt


def put_around(wrapper: PlannedWrapper, env: VecEnv, *, without_files: bool = False) -> VecEnv:
    """Put a wrapper around a vector environment.

    ``without_files`` leaves out the arguments that are paths.
    """
    left_out = frozenset[str]()
    if without_files:
        left_out = declared_by(wrapper.target).path_parameters
    kwargs = {key: value for key, value in wrapper.bound.kwargs.items() if key not in left_out}
    with placed(wrapper.where):
        wrapped = wrapper.target(env, *wrapper.bound.args, **kwargs)
    if not isinstance(wrapped, VecEnv):
        raise PlanError(
            f"{wrapper.where}: expected a vecwrap.VecEnv from it, got {type(wrapped).__name__}. "
            "Derive it from vecwrap.VecEnvWrapper."
        )
    if not hasattr(wrapped, "single_observation_space"):
        raise PlanError(
            f"{wrapper.where}: expected its __init__ to call super().__init__(env), which it does "
            "not."
        )
    if wrapped is not env:
        wrapped.written = (wrapper.spec, wrapper.arguments)
    return wrapped


def outer_spaces(
    env: VecEnv, wrappers: Sequence[PlannedWrapper], inside: SpacesAt
) -> tuple[SpacesAt, ...]:
    """Try vector wrappers around each other, inner first; skip wrappers that refuse, and close all.

    Nothing is written: wrappers are made without the arguments that are paths.
    """
    spaces = []
    try:
        for wrapper in wrappers:
            refusal = None
            try:
                env = put_around(wrapper, env, without_files=True)
            except PlanError as error:
                refusal = error
            spaces.append(
                dataclasses.replace(SpacesAt.of(env, refusal), stacked_by=inside.stacked_by)
            )
    finally:
        env.close()
    return tuple(spaces)
