"""Adapts an environment's factories to the wrappers, and refuses wrappers of engines and games."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from vecwrap.errors import PlanError
from vecwrap.pipeline.environments import Environment, of_parts
from vecwrap.pipeline.signatures import Signature
from vecwrap.pipeline.source_map import SourceRef
from vecwrap.pipeline.values import short_repr
from vecwrap.pipeline.wrappers import PlannedWrapper, placed, refuse_inside
from vecwrap.sources.declares import declared_by
from vecwrap.sources.factories import MakeEnvironment


def with_wrappers(
    environment: Environment, wrappers: Sequence[PlannedWrapper], n: int, pipeline: SourceRef
) -> Environment:
    """Return an environment, engines or games as the wrappers need; refuse unfit wrappers.

    Wrappers of single environments cannot wrap an engine or a game, which has several rows.
    """
    if environment.is_game:
        return _game(environment, wrappers)
    if environment.engine_rows is not None:
        return environment  # an engine is fitted already
    if environment.parts:
        parts = [with_wrappers(part, wrappers, n, pipeline) for part in environment.parts]
        return of_parts(environment.target, parts, environment.source)
    for wrapper in wrappers:
        (make,) = environment.factories
        if isinstance(make, MakeEnvironment):
            kwargs = {**make.kwargs, **needed_by(wrapper, environment)}
            environment = dataclasses.replace(
                environment, factories=(dataclasses.replace(make, kwargs=kwargs),)
            )
    return environment


def _game(environment: Environment, wrappers: Sequence[PlannedWrapper]) -> Environment:
    if environment.engine_rows is not None:
        raise PlanError(
            f"{environment.source}: a game is not an engine; leave engine and envs_per_engine "
            "out: its agents are rows."
        )
    if environment.parts:
        raise PlanError(
            f"{environment.source}: expected one kind of game for all, got a list; build a vector "
            "of each."
        )
    refuse_inside(
        wrappers,
        '"{name}" wraps a gymnasium.Env of one agent, and a game has several: expected a '
        "wrapper of the whole "
        "vector (framestack, normalize, monitor, ...), which treats each agent's row by itself; "
        "or put one of PettingZoo's or SuperSuit's around the game, in what makes it.",
    )
    return environment


def needed_by(wrapper: PlannedWrapper, environment: Environment) -> Mapping[str, Any]:
    """What a wrapper needs an id to be made with, as ``atari`` needs every frame."""
    registered = environment.effective_spec()
    assert registered is not None
    with placed(wrapper.where):
        needed = declared_by(wrapper.target).environment_kwargs(
            registered, *wrapper.bound.args, **wrapper.bound.kwargs
        )
    for key, value in needed.items():
        if environment.kwargs.get(key, value) != value:
            given = short_repr(environment.kwargs[key])
            name = wrapper.spec.name
            remedy = "Leave it out."
            if key in Signature.of(wrapper.target).names:
                remedy = f"Give it to {name} instead: {name}:{key}={given}."
            raise PlanError(
                f"{environment.kwargs_source.at(key)}: expected {short_repr(value)}, as {name} "
                f"needs it, got {given}. {remedy}"
            )
    return needed
