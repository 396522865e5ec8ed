"""Engines that a pipeline names: what they are given, which wrappers they have themselves.

An engine steps many sub-environments at once in code of its own (C++, NumPy, JAX). The environment
keeps its usual id, which is translated here, never into another version. Wrappers at the inner end
that the engine has itself are handed to it; what it cannot do is refused before anything starts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium.envs.registration import EnvSpec, load_env_creator, registry

from vecwrap.errors import PlanError, SpecError, did_you_mean, install_command, is_installed
from vecwrap.pipeline.elements import EngineSpec
from vecwrap.pipeline.engine_packages import plan_ale, plan_envpool, plan_gymnax
from vecwrap.pipeline.engine_request import EnginePlan, EngineRequest, absorb, least
from vecwrap.pipeline.environments import Environment, find_environment, lookup
from vecwrap.pipeline.signatures import Signature
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.pipeline.values import callable_name, normalise, short_repr
from vecwrap.pipeline.wrappers import PlannedWrapper, refuse_inside
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.factories import MakeByCalling, MakeEngine, MakeEnvironment
from vecwrap.sources.import_paths import import_target, is_import_path

NAMES = ("envpool", "ale", "gymnax", "vector_entry_point")
# How the stream of a wrapper inside an engine differs from ours; docs/engines.md has measurements.
DIFFERENCES = {
    ("envpool", "framestack"): "stacks are padded with copies of an episode's first observation",
    ("envpool", "atari"): (
        "no-ops are drawn by EnvPool's generator, FIRE is pressed once, the maximum of two frames "
        "is of their greys, and single frames differ in some pixels"
    ),
    ("ale", "atari"): (
        "0 to noop_max no-ops are drawn by ale-py's generator, FIRE is pressed once, the maximum "
        "of two frames is of their greys, and single frames differ in some pixels"
    ),
}


# -- environments ----------------------------------------------------------------------------------


def find_environment_of(spec: PipelineSpec) -> Environment:
    """Find what a pipeline's ``env`` stands for, which an engine may know alone."""
    if spec.engine is not None:
        _refuse_unknown(spec, spec.engine)
        return _find_engine_environment(spec, spec.engine)
    return _registered(spec, spec.envs_per_engine)


def _refuse_unknown(spec: PipelineSpec, engine: EngineSpec) -> None:
    target = engine.target
    if isinstance(target, str) and target not in NAMES and not is_import_path(target):
        near = did_you_mean(target, NAMES)
        raise SpecError(
            f"{spec.where('engine')}: expected {', '.join(NAMES)}, or the import path of a "
            f'callable (num_envs, ...) that makes a vector environment, got "{target}".{near}'
        )


def _find_engine_environment(spec: PipelineSpec, engine: EngineSpec) -> Environment:
    where = f'{spec.where("engine")} "{engine.name}"'
    if isinstance(spec.env, tuple) or isinstance(spec.env_kwargs, tuple):
        raise PlanError(f"{where}: expected one environment for all rows, got a list of them.")
    target = engine.target
    rows = spec.envs_per_engine or 0
    if not isinstance(spec.env, str):
        if target == "vector_entry_point" and isinstance(spec.env, EnvSpec):
            return _registered(spec, rows)
        raise PlanError(
            f"{spec.where('env')}: expected an id, which {engine.name} makes, got "
            f"{short_repr(spec.env)}. A callable that makes an engine itself stands under engine, "
            "or under env with envs_per_engine."
        )
    if target == "envpool":
        _refuse_missing(where, "envpool", "EnvPool", "envpool")
        import envpool

        if ":" not in spec.env and lookup(spec.env) is None:
            tasks = envpool.list_all_envs()
            if spec.env in tasks:
                return _known_to_engine(spec, rows)
            near = did_you_mean(spec.env, [*registry, *tasks])
            stem = spec.env.rpartition("-v")[0] or spec.env
            is_version = any(known.rpartition("-v")[0] == stem for known in registry)
            if near and not is_version and near.split('"')[1] not in registry:
                where = f'{spec.where("env")} "{spec.env}"'
                raise SpecError(f"{where}: neither Gymnasium nor EnvPool has it.{near}")
    elif target == "ale":
        _refuse_missing(where, "ale_py", "ale-py", "atari")
    elif target == "gymnax":
        _refuse_missing(where, "gymnax", "gymnax", "gymnax")
        return _known_to_engine(spec, rows)
    elif target not in NAMES:
        return _known_to_engine(spec, rows)
    return _registered(spec, rows)


def _registered(spec: PipelineSpec, rows: int | None) -> Environment:
    return find_environment(spec.env, spec.env_kwargs, spec.render_mode, spec.source, rows)


def _known_to_engine(spec: PipelineSpec, rows: int) -> Environment:
    """Return the environment of an id that is not looked up, because the engine knows it."""
    kwargs = spec.env_kwargs
    assert isinstance(kwargs, Mapping)
    return Environment(
        spec.env,
        (),
        engine_rows=rows,
        kwargs=kwargs,
        source=spec.source.at("env"),
        kwargs_source=spec.source.at("env_kwargs"),
    )


def _refuse_missing(where: str, module: str, title: str, extra: str) -> None:
    if not is_installed(module):
        raise SpecError(f"{where}: {title} is not installed: {install_command(extra)}")


# -- engines ---------------------------------------------------------------------------------------


def plan_engine(
    spec: PipelineSpec, environment: Environment, wrappers: tuple[PlannedWrapper, ...], n: int
) -> tuple[Environment, tuple[PlannedWrapper, ...], Autoreset | None]:
    """Fit an engine to a pipeline: its environment, its wrappers and its autoreset mode.

    ``envs_per_engine`` without an engine takes the one that is registered, or what the callable
    under ``env`` makes.
    """
    rows = n
    if spec.envs_per_engine is not None:
        rows = spec.envs_per_engine
        if rows < 1 or n % rows:
            raise PlanError(
                f"{spec.where('envs_per_engine')}: expected at least 1, of which n={n} is a "
                f"multiple, got {rows}."
            )
    engine = spec.engine or EngineSpec("vector_entry_point")
    request = EngineRequest(spec, engine, environment, wrappers, rows)
    if environment.parts:
        raise PlanError(f"{request.where}: expected one environment for all, got a list of them.")
    _ = request.batch_size  # refused where it cannot be
    if spec.engine is None and environment.env_spec is None:
        plan = _plan_own_maker(request)
    else:
        plan = _PLANS.get(str(engine.target), _plan_callable)(request)
    absorbed = [_in_engine(wrapper, engine.name) for wrapper in wrappers[: plan.absorbed]]
    others = wrappers[plan.absorbed :]
    refuse_inside(
        others,
        f"it wraps single environments, and an engine steps {rows} at once; this one has nothing "
        "like {name} at this place. Expected a wrapper of the whole vector; or leave engine and "
        "envs_per_engine out: then each sub-environment is wrapped alone.",
    )
    environment = dataclasses.replace(
        environment, factories=(plan.factory,), engine_rows=rows, engine=plan.summary
    )
    return environment, (*absorbed, *others), plan.own_mode


def _in_engine(wrapper: PlannedWrapper, engine: str) -> PlannedWrapper:
    difference = DIFFERENCES.get((engine, wrapper.spec.name), "")
    if wrapper.spec.kwargs.get("padding") == "first":
        difference = ""
    return dataclasses.replace(wrapper, runs_in="engine", difference=difference)


# -- what is registered, and callables -------------------------------------------------------------


def _plan_vector_entry_point(request: EngineRequest) -> EnginePlan:
    environment = request.environment
    spec = environment.env_spec
    if spec is None or spec.vector_entry_point is None:
        raise PlanError(
            f"{request.where}: {environment.name} is registered without a vector class of its own "
            "(vector_entry_point); leave it out, or give a callable that makes a "
            "gymnasium.vector.VectorEnv."
        )
    (make,) = environment.factories
    assert isinstance(make, MakeEnvironment)
    kind: Any = spec.vector_entry_point
    if isinstance(kind, str):
        kind = load_env_creator(kind)
    takes = Signature.of(kind, skip=0).names
    absorbed = absorb(request, is_atari=False, time_limit="max_episode_steps" in takes)
    kwargs = {**make.kwargs, **request.options(takes, make.kwargs)}
    limit = least(
        kwargs.get("max_episode_steps", spec.max_episode_steps), absorbed.max_episode_steps
    )
    if absorbed.max_episode_steps is not None:
        kwargs["max_episode_steps"] = limit
    name = getattr(kind, "__name__", str(kind))
    return EnginePlan(
        MakeEngine(spec, kwargs, request.rows),
        f"stepped by {name}, its registered vector class",
        absorbed.count,
        _declared_mode(request, kind),
    )


def _plan_own_maker(request: EngineRequest) -> EnginePlan:
    """Plan engines that the callable under ``env`` makes, given ``num_envs`` if it takes it."""
    (make,) = request.environment.factories
    called = make
    keywords: Mapping[str, Any] = {}
    if isinstance(make, MakeByCalling):
        called = make.func
        keywords = make.keywords
    if "num_envs" in Signature.of(called, skip=0).names:
        make = MakeByCalling(called, {"num_envs": request.rows, **keywords})
    name = callable_name(called)
    return EnginePlan(
        make,
        f"stepped by what {name} makes",
        own_mode=_declared_mode(request, called),
    )


def _plan_callable(request: EngineRequest) -> EnginePlan:
    target = request.engine.target
    make: Any = target
    if isinstance(target, str):
        make = import_target(target, request.where)
    signature = Signature.of(make, skip=0)
    arguments: dict[str, Any] = {
        key: normalise(value) for key, value in request.environment.kwargs.items()
    }
    if "id" in signature.names:
        arguments["id"] = request.spec.env
    if request.spec.render_mode is not None:
        arguments["render_mode"] = request.spec.render_mode
    takes = signature.names
    if signature.any_name:
        takes = [*takes, *request.engine.options]
    elif "num_envs" not in takes:
        raise PlanError(
            f"{request.where}: expected a callable with an argument num_envs, got one of "
            f"({', '.join(takes)})."
        )
    for name in arguments:
        if not signature.any_name and name not in takes:
            place = request.environment.kwargs_source.at(name)
            raise PlanError(f"{place}: {request.engine.name} takes no {name}.")
    options = request.options(takes, arguments)
    make_engine = MakeByCalling(make, {"num_envs": request.rows, **arguments, **options})
    return EnginePlan(
        make_engine,
        f"stepped by what {request.engine.name} makes",
        own_mode=_declared_mode(request, make),
    )


def _declared_mode(request: EngineRequest, kind: Any) -> Autoreset | None:
    """Return the mode asked for, or the one that a class declares; None if it declares none."""
    metadata = getattr(kind, "metadata", None)
    if request.spec.autoreset is not None or not isinstance(metadata, Mapping):
        return None
    declared = metadata.get("autoreset_mode")
    if declared is None:
        return None
    return Autoreset.parse(declared)


_PLANS: Mapping[str, Callable[[EngineRequest], EnginePlan]] = {
    "envpool": plan_envpool,
    "ale": plan_ale,
    "gymnax": plan_gymnax,
    "vector_entry_point": _plan_vector_entry_point,
}
