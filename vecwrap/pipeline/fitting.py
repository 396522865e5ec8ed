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
from vecwrap.sources.factories import MakeByCalling, MakeEngine, MakeEnvironment


def with_wrappers(
    environment: Environment, wrappers: Sequence[PlannedWrapper], n: int, pipeline: SourceRef
) -> Environment:
    """Return an environment, engines or games as the wrappers need; refuse unfit wrappers.

    Wrappers of single environments cannot wrap an engine or a game, which has several rows.
    """
    if environment.is_game:
        return _game(environment, wrappers)
    if environment.engine_rows is not None:
        return _engines(
            environment, wrappers, environment.engine_rows, n, pipeline.at("envs_per_engine")
        )
    if environment.parts:
        parts = [with_wrappers(part, wrappers, n, pipeline) for part in environment.parts]
        return of_parts(environment.target, parts, environment.source)
    for wrapper in wrappers:
        (make,) = environment.factories
        if isinstance(make, MakeEnvironment):
            kwargs = {**make.kwargs, **_needed_by(wrapper, environment)}
            environment = dataclasses.replace(
                environment, factories=(dataclasses.replace(make, kwargs=kwargs),)
            )
    return environment


def _game(environment: Environment, wrappers: Sequence[PlannedWrapper]) -> Environment:
    if environment.engine_rows is not None:
        raise PlanError(
            f"{environment.source}: a game is not an engine; leave envs_per_engine out: its agents "
            "are rows."
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


def _engines(
    environment: Environment,
    wrappers: Sequence[PlannedWrapper],
    rows: int,
    n: int,
    where: SourceRef,
) -> Environment:
    if rows < 1 or n % rows:
        raise PlanError(f"{where}: expected at least 1, of which n={n} is a multiple, got {rows}.")
    refuse_inside(
        wrappers,
        f"it wraps single environments, and an engine steps {rows} at once. Expected a wrapper of "
        "the whole vector; or leave envs_per_engine out: then each sub-environment is wrapped "
        "alone.",
    )
    if environment.parts:
        raise PlanError(f"{where}: expected one environment for all, got a list of them.")
    (make,) = environment.factories
    if isinstance(make, MakeEnvironment):
        if make.env_spec.vector_entry_point is None:
            raise PlanError(
                f"{where}: {environment.name} is registered without a vector class of its own "
                "(vector_entry_point); leave it out, or give a callable that makes a "
                "gymnasium.vector.VectorEnv."
            )
        return dataclasses.replace(
            environment, factories=(MakeEngine(make.env_spec, make.kwargs, rows),)
        )
    called = make
    keywords: Mapping[str, Any] = {}
    if isinstance(make, MakeByCalling):
        called = make.func
        keywords = make.keywords
    if "num_envs" in Signature.of(called, skip=0).names:
        return dataclasses.replace(
            environment, factories=(MakeByCalling(called, {"num_envs": rows, **keywords}),)
        )
    return environment


def _needed_by(wrapper: PlannedWrapper, environment: Environment) -> Mapping[str, Any]:
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
