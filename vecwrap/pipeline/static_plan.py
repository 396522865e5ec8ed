"""Checks names, arguments, order and backend options of a plan, without making anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vecwrap.backends.workers.cores import usable_cores
from vecwrap.env.runner import Runner
from vecwrap.errors import PlanError, SpecError, cause_of
from vecwrap.pipeline.backends import plan_backend
from vecwrap.pipeline.elements import WrapperSpec
from vecwrap.pipeline.engines import find_environment_of, plan_engine
from vecwrap.pipeline.environments import Environment
from vecwrap.pipeline.error_collector import ErrorCollector, with_text
from vecwrap.pipeline.evaluation import differences, evaluation
from vecwrap.pipeline.fitting import with_wrappers
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.pipeline.values import short_repr
from vecwrap.pipeline.wrappers import PlannedWrapper, plan_wrappers, refuse_wrong_order
from vecwrap.sources.declares import declared_by
from vecwrap.sources.space_probe import SpacesAt

MAX_ENVS = 1_000_000  # sub-environments; more must be a typo


@dataclass(frozen=True)
class StaticPlan:
    """How a pipeline is built, as far as that is known without making an environment."""

    # the spec with names, defaults and n filled in; ``pipeline.hash`` is its identity
    pipeline: PipelineSpec
    environment: Environment  # what is made, n times
    wrappers: tuple[PlannedWrapper, ...]  # the wrappers, inner first; a preset's in its place
    backend: type[Runner]  # where sub-environments run
    backend_options: Mapping[str, Any]  # its options
    reason: str  # why this backend, if vecwrap chose it
    written: PipelineSpec  # the spec as it was written
    # what comes out of the environment and of each wrapper; None before ``with_spaces``, and where
    # unknown
    spaces_at: tuple[SpacesAt | None, ...] | None = None
    # of a game, whose rows they are; None if it is none, or was not looked at
    agents: tuple[str, ...] | None = None
    padding: str = ""  # what was padded to make their spaces equal

    @property
    def n(self) -> int:
        assert self.pipeline.n is not None
        return self.pipeline.n


def plan_statically(spec: PipelineSpec) -> StaticPlan:
    """Check a pipeline and its evaluation, and fill in names, defaults and n."""
    planned = _plan(spec)
    resolved = planned.pipeline
    if spec.eval:
        try:
            of_eval = _plan(evaluation(spec))
        except (SpecError, PlanError) as error:
            of_which = "(This is of the evaluation that the section eval describes.)"
            raise with_text(error, of_which) from cause_of(error)
        resolved = resolved.replaced(eval=differences(resolved, of_eval.pipeline))
    _ = resolved.hash  # computed now: what a callable holds may change when it runs
    return dataclasses.replace(planned, pipeline=resolved)


def _plan(spec: PipelineSpec) -> StaticPlan:
    """Plan the pipeline itself; its section ``eval`` stays as written."""
    environment = None
    n = spec.n or 1
    words = _with_seats(spec)
    wrappers: tuple[PlannedWrapper, ...] = ()
    errors = ErrorCollector()
    with errors:
        environment = find_environment_of(spec)
        if spec.agents is not None and environment.env_spec is not None:
            got = f"got {environment.name}; leave it out"
            raise PlanError(f"{spec.where('agents')}: expected a game of several agents, {got}.")
        environment = dataclasses.replace(
            environment, is_game=environment.is_game or spec.agents is not None
        )
        n = _how_many(spec, environment)
    with errors:
        wrappers = plan_wrappers(words)
        refuse_wrong_order(wrappers)
    mode = None
    has_engine = spec.engine is not None or spec.envs_per_engine is not None
    if has_engine and not errors.errors and environment is not None and not environment.is_game:
        environment, wrappers, mode = plan_engine(spec, environment, wrappers, n)
    with errors:
        runner, options, backend, reason = plan_backend(spec, n, environment, wrappers)
    errors.raise_all()
    assert environment is not None
    environment = with_wrappers(environment, wrappers, n, spec.source)
    draw = [wrapper.where for wrapper in wrappers if declared_by(wrapper.target).takes_frames]
    if spec.render_mode in ("human", "rgb_array", "rgb_array_list"):
        draw.append(spec.where("render_mode"))
    for where in draw:
        environment.refuse_undrawable(where)
    stats = spec.stats
    if stats is not None:
        directory = spec.source.at("stats").location.directory
        stats = str(Path(directory or "", Path(stats).expanduser()).absolute())
    resolved = spec.replaced(
        env=environment.target,
        n=n,
        wrappers=tuple([wrapper.spec for wrapper in wrappers]),
        backend=backend,
        autoreset=spec.autoreset or (mode and mode.value),
        stats=stats,
    )
    return StaticPlan(resolved, environment, wrappers, runner, options, reason, written=spec)


def _with_seats(spec: PipelineSpec) -> tuple[WrapperSpec, ...]:
    """The pipeline's wrappers; ``opponents`` gets the learner's seats if ``agents`` names them."""
    agents = spec.agents
    if not isinstance(agents, tuple):
        return spec.wrappers
    wrappers = list(spec.wrappers)
    for i, wrapper in enumerate(wrappers):
        if wrapper.name == "opponents" and wrapper.kwargs.get("seat", "random") == "random":
            wrappers[i] = dataclasses.replace(wrapper, kwargs={**wrapper.kwargs, "seat": agents})
    return tuple(wrappers)


def _how_many(spec: PipelineSpec, environment: Environment) -> int:
    entries = len(environment.parts)
    n = spec.n
    if n is None:
        n = entries or usable_cores()
    if n < 1:
        raise PlanError(f"{spec.where('n')}: expected at least 1 sub-environment, got {n}.")
    if n > MAX_ENVS:
        raise PlanError(
            f"{spec.where('n')}: expected at most {MAX_ENVS:,} sub-environments, got "
            f"{short_repr(n)}."
        )
    if entries and n != entries:
        which = "mapping in env_kwargs"
        remedy = "Leave n out, or give one mapping for all."
        if isinstance(spec.env, tuple):
            of_ids = any(part.env_spec is not None for part in environment.parts)
            which = "entry of env" if of_ids else "callable"
            remedy = "Leave n out."
        raise PlanError(
            f"{spec.where('n')}: expected {entries}, one for each {which}, got {n}. {remedy}"
        )
    if spec.batch_size is not None and not 1 <= spec.batch_size <= (
        MAX_ENVS if environment.is_game else n
    ):
        raise PlanError(f"{spec.where('batch_size')}: expected 1 to n={n}, got {spec.batch_size}.")
    of_engine = spec.envs_per_engine or 1
    if spec.batch_size is not None and spec.batch_size % of_engine:
        raise PlanError(
            f"{spec.where('batch_size')}: expected a multiple of {of_engine}, the rows of an "
            f"engine, which arrive together, got {spec.batch_size}."
        )
    for name in ("seed", "start_index"):
        value = getattr(spec, name)
        if value is not None and value < 0:
            raise PlanError(f"{spec.where(name)}: expected 0 or more, got {value}.")
    return n
