"""A checked way to build a pipeline. ``plan(spec)`` starts no process; ``print`` shows what would be built.

Checking has two stages. The static one, here: names, arguments, order, the backend's options. The one with spaces:
``Plan.with_spaces`` makes one sub-environment where the backend would, and reports what each wrapper makes of it.
Mistakes that can be built nevertheless are found by the rules, which ``vecwrap.pipeline.check`` applies.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from vecwrap.backends.dummy import Dummy, around
from vecwrap.backends.one_for_all import one_for_all
from vecwrap.backends.workers.cores import usable_cores
from vecwrap.backends.workers.process import Processes
from vecwrap.backends.workers.shares import share_out, sources_per_worker
from vecwrap.env.backend import Backend
from vecwrap.env.runner import Runner
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import Mistakes, PlanError, SpecError, SubEnvError, cause_of, did_you_mean, with_words
from vecwrap.pipeline import registry
from vecwrap.pipeline.backends import IN_THIS_PROCESS, plan_backend
from vecwrap.pipeline.environments import Environment, find_environment
from vecwrap.pipeline.evaluation import differences, evaluation
from vecwrap.pipeline.explain import Explanation, Row, outer_stages, seats
from vecwrap.pipeline.fields import other_word
from vecwrap.pipeline.fitting import with_wrappers
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.pipeline.values import is_path, shown
from vecwrap.pipeline.words import WrapperSpec
from vecwrap.pipeline.wrappers import (
    PlannedWrapper,
    plan_wrappers,
    refuse_around_engine,
    refuse_wrong_order,
)
from vecwrap.sources.declares import declared_by
from vecwrap.sources.engine import Engine
from vecwrap.sources.factories import WrapSubEnv
from vecwrap.sources.game_factories import LookAtGame
from vecwrap.sources.making import EngineFactory, GameFactory
from vecwrap.sources.seats import Seats
from vecwrap.sources.stages import Probe, Stage, stacks_already
from vecwrap.sources.sub_env import Factory, SeveralAgentsError, SubEnvFactory

MOST = 1_000_000  # sub-environments; more must be a typo


@dataclass(frozen=True)
class Plan:
    """How a pipeline is built; ``print`` shows it."""

    pipeline: PipelineSpec  # the spec with names, defaults and n filled in; ``pipeline.hash`` is its identity
    environment: Environment  # what is made, n times
    wrappers: tuple[PlannedWrapper, ...]  # the wrappers, inner first; a preset's in its place
    backend: type[Runner]  # where sub-environments run
    backend_options: Mapping[str, Any]  # its options
    reason: str  # why this backend, if vecwrap chose it
    written: PipelineSpec  # the spec as it was written
    # what comes out of the environment and of each wrapper; None before ``with_spaces``, and where unknown
    stages: tuple[Stage | None, ...] | None = None
    agents: tuple[str, ...] | None = None  # of a game, whose rows they are; None if it is none, or was not looked at
    padding: str = ""  # what was padded to make their spaces equal

    @property
    def n(self) -> int:
        assert self.pipeline.n is not None
        return self.pipeline.n

    @property
    def factories(self) -> Sequence[Factory]:
        """One for each engine or game, or for each sub-environment, with the wrappers that run there."""
        make = self.environment.factories[0]
        rows = self.environment.engine_rows
        if self.agents is not None:
            return [GameFactory(make, len(self.agents), self._seats)] * self.n
        if rows:
            return [EngineFactory(make, rows)] * (self.n // rows)
        made = [SubEnvFactory(make, self._inside) for make in self.environment.factories]
        return made if self.environment.parts else made * self.n

    @property
    def _inside(self) -> tuple[WrapSubEnv, ...]:
        """The wrappers that run where the sub-environments do."""
        return tuple(wrapper.around_sub_env for wrapper in self.wrappers if wrapper.runs_in == "worker")

    @property
    def _seats(self) -> Seats:
        """Which agents of a game are rows."""
        chosen = self.pipeline.agents
        if chosen is None or isinstance(chosen, tuple):
            return Seats(chosen, opponents=chosen is not None and "opponents" in self.pipeline.wrapper_names)
        return Seats(pad=chosen["pad"])

    def start(self) -> VecEnv:
        """Start the backend, with the wrappers of the sub-environments but without those of the vector."""
        if self.environment.is_game and self.agents is None:
            with self._look() as one:
                agents, padding = one.get_attr("agents")[0], one.get_attr("padding")[0]
            return dataclasses.replace(self, agents=agents, padding=padding).start()
        options = dict(self.backend_options)
        if self.agents is not None and options.get("envs_per_worker") is not None:
            options["envs_per_worker"] *= len(self.agents)  # a backend counts rows
        try:
            return _started(self.backend, self.factories, {**self._for_every_backend, **options}, self)
        except _GameFound:
            return self.as_game().start()

    def as_game(self) -> Plan:
        """Return the plan of the same environment, which turned out to be a game."""
        environment = with_wrappers(
            dataclasses.replace(self.environment, is_game=True), self.wrappers, self.n, self.written.source
        )
        reason = plan_backend(self.written, self.n, environment)[-1]
        return dataclasses.replace(self, environment=environment, reason=reason)

    def _look(self) -> VecEnv:
        """Make one environment, engine or game to look at, or one of each kind, where the backend would make it."""
        settings: dict[str, Any] = {"autoreset": self.pipeline.autoreset_mode}
        if not self.in_this_process:
            asked = {key: self.backend_options.get(key) for key in ("start_method", "start_timeout")}
            settings |= {"workers": 1, **asked}
        runner: Any = registry.backends.load("dummy" if self.in_this_process else "subprocess")
        makes, known = self.environment.factories, self.environment
        if known.is_game:
            looks: list[Any] = [LookAtGame(makes[0], known.name, known.render_mode, self._seats)]
        elif known.engine_rows:
            looks = [EngineFactory(makes[0], known.engine_rows)]
        else:
            looks = [Probe(make, self._inside) for make in makes]
        return _started(runner, looks, settings, self)

    def with_spaces(self) -> Plan:
        """Determine the spaces, with one sub-environment in one worker (in this process for dummy), closed again.

        If each has settings of its own, all are made.

        Nothing is written: wrappers are made without the arguments that are paths.
        """
        looked = self.with_refusals()
        for stage in looked.stages or ():
            if stage is not None and stage.refusal is not None:
                raise stage.refusal
        return looked

    def with_refusals(self) -> Plan:
        """Do the same as ``with_spaces``, but leave out a wrapper that refuses, and note that in its stage."""
        try:
            one = self._look()
        except _GameFound:
            return self.as_game().with_refusals()
        with one:
            agents: tuple[str, ...] | None = one.get_attr("agents")[0] if self.environment.is_game else None
            padding: str = one.get_attr("padding")[0] if self.environment.is_game else ""
            if agents is None and self.environment.engine_rows is None:
                stages = tuple(map(Stage.of_all, zip(*one.get_attr("stages"), strict=True)))
            else:
                stages = (_stage_of(one),)
            of_game = {"agents": agents, "own_spaces": one.get_attr("own_spaces")[0]} if agents else {}
            rows = one_for_all(one, self.n, self._for_every_backend, **of_game)
            outer = [wrapper for wrapper in self.wrappers if wrapper.runs_in == "parent"]
            stages += outer_stages(rows, outer, stages[-1])
        return dataclasses.replace(self, agents=agents, padding=padding, stages=stages)

    @property
    def in_this_process(self) -> bool:
        return self.pipeline.backend.target in IN_THIS_PROCESS

    @property
    def _for_every_backend(self) -> dict[str, Any]:
        keys = ("copy", "batch_size", "start_index", "seed", "debug")
        return {"autoreset": self.pipeline.autoreset_mode, **{key: getattr(self.pipeline, key) for key in keys}}

    @property
    def explanation(self) -> Explanation:
        """What is shown of it, as text and as data."""
        inside = "parent" if self.in_this_process else "worker"
        stages = self.stages or (None,) * (len(self.wrappers) + 1)
        each = self.pipeline.env_kwargs
        words = f"env_kwargs of each: {shown(each)}" if isinstance(each, tuple) else seats(self.agents, self.padding)
        rows = [Row(self.environment.name, inside, words, after=stages[0])]
        for wrapper, before, after in zip(self.wrappers, stages, stages[1:], strict=False):
            runs_in = inside if wrapper.runs_in == "worker" else "parent"
            rows.append(Row(wrapper.spec.name, runs_in, wrapper.words, wrapper, before, after))
        held, own = [], 0
        if issubclass(self.backend, Processes):
            asked = self.backend_options
            of_each = self.environment.engine_rows or 1
            in_worker = sources_per_worker(asked.get("envs_per_worker"), of_each)
            shares = share_out(self.n // of_each, asked.get("workers"), in_worker, asked.get("parent_share"))
            held = [len(share) * of_each for share in shares]
            own = held.pop() if self.backend_options.get("parent_share") and len(held) > 1 else 0
        return Explanation(self.pipeline, rows, (held, own), self.reason, self.agents or ())

    def of_made(self, made: Sequence[VecEnv]) -> Plan:
        """Return the plan with the spaces of what was made from it.

        Those of the sub-environments' own wrappers are not known here, except for the last one's.
        """
        known = list(map(_stage_of, made))
        unknown = [None] * (len(self.wrappers) + 1 - len(known))
        of_all = made[0].core.description
        return dataclasses.replace(
            self, stages=(*unknown, *known), agents=of_all.agents or None, padding=of_all.padding
        )

    def __str__(self) -> str:
        return str(self.explanation)

    def _repr_html_(self) -> str:
        """What ``print`` shows, for notebooks."""
        return f"<pre>{escape(str(self))}</pre>"


def _stage_of(env: VecEnv) -> Stage:
    return dataclasses.replace(Stage.of(env, own=False), num_rows=None)  # it is one game or engine of many


class _GameFound(Exception):
    """What makes the environments has made a game."""


def _started(runner: type[Runner], factories: Sequence[Any], settings: Mapping[str, Any], plan: Plan) -> VecEnv:
    """Start a backend; report a refusal to make an environment in the words of whoever refused."""
    try:
        return Backend.of(runner, factories, **settings)
    except SubEnvError as error:
        if error.during != "make":
            raise
        if error.kind == SeveralAgentsError.__name__:
            raise _GameFound from None
        said = str(error)
        unknown = re.search(r"unexpected keyword argument '(\w+)'", said)
        made = plan.environment.each[error.index if plan.environment.parts else 0]
        if unknown and unknown[1] in made.kwargs:
            takes = made.parameters()
            remedy = other_word(unknown[1]) or did_you_mean(unknown[1], takes)
            remedy = remedy or (f" It takes {', '.join(takes)}." if takes else "")
            where = made.kwargs_source.at(unknown[1])
            raise PlanError(f"{where}: {made.name} takes no such argument.{remedy}") from None
        refused = " raised PlanError in make: "
        if refused in said:
            raise PlanError(said.partition(refused)[2]) from cause_of(error)
        raise


@dataclass(frozen=True)
class PlanAround(Plan):
    """Wrappers around an existing engine; it cannot be started, only inspected."""

    engine: Any = None  # a ``gymnasium.vector.VectorEnv``

    def with_refusals(self) -> Plan:
        """Try the wrappers on the engine, which stays open and is not stepped."""
        declares = "autoreset_mode" in (getattr(self.engine, "metadata", None) or {})
        lent = Engine(self.engine, autoreset=None if declares else self.pipeline.autoreset_mode, lent=True)
        engine = self.engine
        if isinstance(engine, VecEnv):
            engine = next(iter(engine.core.runner.engines()), engine)
        inside = dataclasses.replace(Stage.of(self.engine, own=False), stacks=stacks_already(engine))
        outer = outer_stages(one_for_all(around(lent), self.n, {"autoreset": lent.mode}), self.wrappers, inside)
        return dataclasses.replace(self, stages=(inside, *outer))


def plan_around(engine: Any, spec: PipelineSpec) -> PlanAround:
    """Check wrappers to be put around an engine."""
    wrappers = plan_wrappers(spec.wrappers)
    refuse_around_engine(wrappers)
    resolved = dataclasses.replace(spec, wrappers=tuple(wrapper.spec for wrapper in wrappers))
    return PlanAround(resolved, Environment(spec.env, ()), wrappers, Dummy, {}, "", written=spec, engine=engine)


# -- the static stage -------------------------------------------------------------------------------------------------


def plan(spec: PipelineSpec) -> Plan:
    """Check a pipeline, and plan how it is built. No process is started.

    >>> print(plan(PipelineSpec.parse("CartPole-v1 n=2 | time_limit:100")))  # doctest: +ELLIPSIS
    CartPole-v1, n=2, same_step, pipeline ...
                                         runs in
    CartPole-v1                          parent
      time_limit  max_episode_steps=100  parent
          at an episode's end: truncates the episode after max_episode_steps steps, and starts to count again.
    backend dummy: ...
    """
    planned = _plan(spec)
    resolved = planned.pipeline
    if spec.eval:
        try:
            of_eval = _plan(evaluation(spec))
        except (SpecError, PlanError) as error:
            of_which = "(This is of the evaluation that the section eval describes.)"
            raise with_words(error, of_which) from cause_of(error)
        resolved = resolved.replaced(eval=differences(resolved, of_eval.pipeline))
    _ = resolved.hash  # computed now: what a callable holds may change when it runs
    return dataclasses.replace(planned, pipeline=resolved)


def _plan(spec: PipelineSpec) -> Plan:
    """Plan the pipeline itself; its section ``eval`` stays as written."""
    environment, n, words = None, spec.n or 1, _with_seats(spec)
    wrappers: tuple[PlannedWrapper, ...] = ()
    mistakes = Mistakes()
    with mistakes:
        environment = find_environment(spec.env, spec.env_kwargs, spec.render_mode, spec.source, spec.envs_per_engine)
        if spec.agents is not None and environment.env_spec is not None:
            got = f"got {environment.name}; leave it out"
            raise PlanError(f"{spec.where('agents')}: expected a game of several agents, {got}.")
        environment = dataclasses.replace(environment, is_game=environment.is_game or spec.agents is not None)
        n = _how_many(spec, environment)
    with mistakes:
        wrappers = plan_wrappers(words)
        refuse_wrong_order(wrappers)
    with mistakes:
        runner, options, backend, reason = plan_backend(spec, n, environment, wrappers)
    mistakes.raise_all()
    assert environment is not None
    environment = with_wrappers(environment, wrappers, n, spec.source)
    draw = [wrapper.where for wrapper in wrappers if declared_by(wrapper.target).takes_frames]
    for where in [*draw, *([spec.where("render_mode")] if spec.render_mode == "human" else [])]:
        environment.refuse_undrawable(where)
    stats = spec.stats
    if stats is not None:
        directory = spec.source.at("stats").place.directory
        stats = str(Path(directory or "", Path(stats).expanduser()).absolute())
    resolved = spec.replaced(
        env=environment.target,
        n=n,
        wrappers=tuple([wrapper.spec for wrapper in wrappers]),
        backend=backend,
        stats=stats,
    )
    return Plan(resolved, environment, wrappers, runner, options, reason, written=spec)


def _with_seats(spec: PipelineSpec) -> tuple[WrapperSpec, ...]:
    """The wrappers of a pipeline, of which ``opponents`` knows the learner's seats if ``agents`` names them."""
    agents = spec.agents
    if not isinstance(agents, tuple):
        return spec.wrappers
    return tuple(
        dataclasses.replace(wrapper, kwargs={**wrapper.kwargs, "seat": agents})
        if wrapper.name == "opponents" and wrapper.kwargs.get("seat", "random") == "random"
        else wrapper
        for wrapper in spec.wrappers
    )


def into(spec: PipelineSpec, folder: Path) -> PipelineSpec:
    """Return the same pipeline, whose files go into another folder: to play it and leave the user's alone."""
    planned = plan(spec)
    wrappers = []
    for i, wrapper in enumerate(planned.wrappers):
        declared = declared_by(wrapper.target)
        paths = {
            key: str(folder / str(i))
            for key in declared.path_parameters - declared.read_parameters
            if is_path(wrapper.spec.kwargs.get(key))
        }
        wrappers.append(dataclasses.replace(wrapper.spec, kwargs={**wrapper.spec.kwargs, **paths}))
    return spec.override(wrappers=wrappers, eval=None)  # eval may name a preset whose wrappers these are


def _how_many(spec: PipelineSpec, environment: Environment) -> int:
    entries = len(environment.parts)
    n = spec.n if spec.n is not None else entries or usable_cores()
    if n < 1:
        raise PlanError(f"{spec.where('n')}: expected at least 1 sub-environment, got {n}.")
    if n > MOST:
        raise PlanError(f"{spec.where('n')}: expected at most {MOST:,} sub-environments, got {shown(n)}.")
    if entries and n != entries:
        which, remedy = "mapping in env_kwargs", "Leave n out, or give one mapping for all."
        if isinstance(spec.env, tuple):
            of_ids = any(part.env_spec is not None for part in environment.parts)
            which, remedy = "entry of env" if of_ids else "callable", "Leave n out."
        raise PlanError(f"{spec.where('n')}: expected {entries}, one for each {which}, got {n}. {remedy}")
    if spec.batch_size is not None and not 1 <= spec.batch_size <= (MOST if environment.is_game else n):
        raise PlanError(f"{spec.where('batch_size')}: expected 1 to n={n}, got {spec.batch_size}.")
    if spec.batch_size is not None and (spec.envs_per_engine or 1) > 1:
        raise PlanError(f"{spec.where('batch_size')}: the rows of an engine arrive together; leave it out.")
    for name in ("seed", "start_index"):
        value = getattr(spec, name)
        if value is not None and value < 0:
            raise PlanError(f"{spec.where(name)}: expected 0 or more, got {value}.")
    return n
