"""A checked way to build a pipeline.

``plan(spec)`` starts no process; ``print`` shows what would be built. Checking has two stages. The
static one is ``StaticPlan``: names, arguments, order, the backend's options. The one with spaces:
``Plan.with_spaces`` makes one sub-environment where the backend would, and reports what each
wrapper makes of it. Mistakes that can be built nevertheless are found by the rules, which
``vecwrap.pipeline.check`` applies.
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
from vecwrap.backends.probe_backend import make_probe_backend
from vecwrap.backends.workers.process import Processes
from vecwrap.backends.workers.shares import share_out, sources_per_worker
from vecwrap.env.backend import Backend
from vecwrap.env.runner import Runner
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import PlanError, SubEnvError, cause_of, did_you_mean
from vecwrap.pipeline import registry
from vecwrap.pipeline.around_vector import outer_spaces
from vecwrap.pipeline.backends import IN_THIS_PROCESS, plan_backend
from vecwrap.pipeline.environments import Environment
from vecwrap.pipeline.explain import Explanation, Row, seats
from vecwrap.pipeline.fields import other_name
from vecwrap.pipeline.fitting import with_wrappers
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.pipeline.static_plan import StaticPlan, plan_statically
from vecwrap.pipeline.values import is_path, short_repr
from vecwrap.pipeline.wrappers import plan_wrappers, refuse_around_engine
from vecwrap.sources.batched_engine import engine_around
from vecwrap.sources.declares import declared_by
from vecwrap.sources.engine_factories import MakeAle, MakeEnvPool
from vecwrap.sources.factories import WrapSubEnv
from vecwrap.sources.game_factories import MakeProbedGame
from vecwrap.sources.seats import Seats
from vecwrap.sources.source_factories import (
    EngineFactory,
    Factory,
    GameFactory,
    SeveralAgentsError,
    SubEnvFactory,
)
from vecwrap.sources.space_probe import SpaceProbe, SpacesAt, stacked_by


@dataclass(frozen=True, repr=False)
class Plan(StaticPlan):
    """How a pipeline is built; ``print`` shows it."""

    @property
    def factories(self) -> Sequence[Factory]:
        """The factories, one per engine, game or sub-environment, with the wrappers inside."""
        make = self.environment.factories[0]
        rows = self.environment.engine_rows
        if self.agents is not None:
            return [GameFactory(make, len(self.agents), self._seats)] * self.n
        if rows:
            return [
                EngineFactory(_of_rows(make, row), rows, getattr(make, "batch_size", None))
                for row in range(0, self.n, rows)
            ]
        made = [SubEnvFactory(make, self._inside) for make in self.environment.factories]
        if self.environment.parts:
            return made
        return made * self.n

    @property
    def _inside(self) -> tuple[WrapSubEnv, ...]:
        """The wrappers that run where the sub-environments do."""
        return tuple(
            wrapper.around_sub_env for wrapper in self.wrappers if wrapper.runs_in == "worker"
        )

    @property
    def _seats(self) -> Seats:
        """Which agents of a game are rows."""
        chosen = self.pipeline.agents
        if chosen is None or isinstance(chosen, tuple):
            return Seats(
                chosen, opponents=chosen is not None and "opponents" in self.pipeline.wrapper_names
            )
        return Seats(pad=chosen["pad"])

    def start(self) -> VecEnv:
        """Start the backend with the wrappers of the sub-environments, without the vector's."""
        if self.environment.is_game and self.agents is None:
            with self._probe() as one:
                agents = one.get_attr("agents")[0]
                padding = one.get_attr("padding")[0]
            return dataclasses.replace(self, agents=agents, padding=padding).start()
        options = dict(self.backend_options)
        if self.agents is not None and options.get("envs_per_worker") is not None:
            options["envs_per_worker"] *= len(self.agents)  # a backend counts rows
        try:
            return _started(
                self.backend, self.factories, {**self._for_every_backend, **options}, self
            )
        except _GameFound:
            return self.as_game().start()

    def as_game(self) -> Plan:
        """Return the plan of the same environment, which turned out to be a game."""
        environment = with_wrappers(
            dataclasses.replace(self.environment, is_game=True),
            self.wrappers,
            self.n,
            self.written.source,
        )
        reason = plan_backend(self.written, self.n, environment)[-1]
        return dataclasses.replace(self, environment=environment, reason=reason)

    def _probe(self) -> VecEnv:
        """Make one environment, engine or game of each kind, where the backend would make it."""
        settings: dict[str, Any] = {"autoreset": self.pipeline.autoreset_mode}
        if not self.in_this_process:
            asked = {
                key: self.backend_options.get(key) for key in ("start_method", "start_timeout")
            }
            settings |= {"workers": 1, **asked}
        runner: Any = registry.backends.load("dummy" if self.in_this_process else "subprocess")
        makes = self.environment.factories
        known = self.environment
        if known.is_game:
            looks: list[Any] = [
                MakeProbedGame(makes[0], known.name, known.render_mode, self._seats)
            ]
        elif known.engine_rows:
            make = makes[0]
            if isinstance(make, (MakeAle, MakeEnvPool)):
                make = dataclasses.replace(make, batch_size=None)
            looks = [EngineFactory(make, known.engine_rows)]
        else:
            looks = [SpaceProbe(make, self._inside) for make in makes]
        return _started(runner, looks, settings, self)

    def with_spaces(self) -> Plan:
        """Determine the spaces with one sub-environment in one worker, which is then closed.

        For the dummy backend, the sub-environment is made in this process.

        If each has settings of its own, all are made.

        Nothing is written: wrappers are made without the arguments that are paths.
        """
        looked = self.with_refusals()
        for spaces_at in looked.spaces_at or ():
            if spaces_at is not None and spaces_at.refusal is not None:
                raise spaces_at.refusal
        return looked

    def with_refusals(self) -> Plan:
        """Do as ``with_spaces``, but leave out a wrapper that refuses, and record the refusal."""
        try:
            one = self._probe()
        except _GameFound:
            return self.as_game().with_refusals()
        with one:
            agents: tuple[str, ...] | None = None
            padding = ""
            if self.environment.is_game:
                agents = one.get_attr("agents")[0]
                padding = one.get_attr("padding")[0]
            spaces: tuple[SpacesAt | None, ...]
            if agents is None and self.environment.engine_rows is None:
                spaces = tuple(map(SpacesAt.of_all, zip(*one.get_attr("spaces_at"), strict=True)))
            else:
                absorbed = [wrapper for wrapper in self.wrappers if wrapper.runs_in == "engine"]
                spaces = (*[None] * len(absorbed), _spaces_of(one))
            of_game = {}
            if agents:
                of_game = {"agents": agents, "own_spaces": one.get_attr("own_spaces")[0]}
            rows = make_probe_backend(one, self.n, self._for_every_backend, **of_game)
            outer = [wrapper for wrapper in self.wrappers if wrapper.runs_in == "parent"]
            spaces += outer_spaces(rows, outer, _spaces_of(one))
        return dataclasses.replace(self, agents=agents, padding=padding, spaces_at=spaces)

    @property
    def in_this_process(self) -> bool:
        return self.pipeline.backend.target in IN_THIS_PROCESS

    @property
    def _for_every_backend(self) -> dict[str, Any]:
        keys = ("copy", "batch_size", "start_index", "seed", "debug")
        return {
            "autoreset": self.pipeline.autoreset_mode,
            **{key: getattr(self.pipeline, key) for key in keys},
        }

    @property
    def explanation(self) -> Explanation:
        """What is shown of it, as text and as data."""
        inside = "worker"
        if self.in_this_process:
            inside = "parent"
        spaces = self.spaces_at or (None,) * (len(self.wrappers) + 1)
        each = self.pipeline.env_kwargs
        if isinstance(each, tuple):
            words = f"env_kwargs of each: {short_repr(each)}"
        else:
            words = self.environment.engine or seats(self.agents, self.padding)
        rows = [Row(self.environment.name, inside, words, output_spaces=spaces[0])]
        for wrapper, before, after in zip(self.wrappers, spaces, spaces[1:], strict=False):
            runs_in: str = wrapper.runs_in
            if runs_in == "worker":
                runs_in = inside
            rows.append(Row(wrapper.spec.name, runs_in, wrapper.summary, wrapper, before, after))
        held = []
        own = 0
        if issubclass(self.backend, Processes):
            asked = self.backend_options
            of_each = self.environment.engine_rows or 1
            in_worker = sources_per_worker(asked.get("envs_per_worker"), of_each)
            shares = share_out(
                self.n // of_each, asked.get("workers"), in_worker, asked.get("parent_share")
            )
            held = [len(share) * of_each for share in shares]
            own = 0
            if self.backend_options.get("parent_share") and len(held) > 1:
                own = held.pop()
        return Explanation(self.pipeline, rows, (held, own), self.reason, self.agents or ())

    def of_made(self, made: Sequence[VecEnv]) -> Plan:
        """Return the plan with the spaces of what was made from it.

        Those of the sub-environments' own wrappers are not known here, except for the last one's.
        """
        known = list(map(_spaces_of, made))
        unknown = [None] * (len(self.wrappers) + 1 - len(known))
        of_all = made[0].core.description
        return dataclasses.replace(
            self, spaces_at=(*unknown, *known), agents=of_all.agents or None, padding=of_all.padding
        )

    def __str__(self) -> str:
        return str(self.explanation)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.pipeline}>"

    def _repr_html_(self) -> str:
        """What ``print`` shows, for notebooks."""
        return f"<pre>{escape(str(self))}</pre>"


def _of_rows(make: Any, first: int) -> Any:
    """Return the factory of the engine whose first row this is."""
    if isinstance(make, MakeEnvPool):
        return make.of_rows_from(first)
    return make


def _spaces_of(env: VecEnv) -> SpacesAt:
    # it is one game or engine of many
    return dataclasses.replace(SpacesAt.of(env, own=False), num_rows=None)


class _GameFound(Exception):
    """What makes the environments has made a game."""


def _started(
    runner: type[Runner], factories: Sequence[Any], settings: Mapping[str, Any], plan: Plan
) -> VecEnv:
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
            remedy = other_name(unknown[1]) or did_you_mean(unknown[1], takes)
            if takes and not remedy:
                remedy = f" It takes {', '.join(takes)}."
            where = made.kwargs_source.at(unknown[1])
            raise PlanError(f"{where}: {made.name} takes no such argument.{remedy}") from None
        refused = " raised PlanError in make: "
        if refused in said:
            raise PlanError(said.partition(refused)[2]) from cause_of(error)
        raise


@dataclass(frozen=True, repr=False)
class PlanAround(Plan):
    """Wrappers around an existing engine; it cannot be started, only inspected."""

    engine: Any = None  # a ``gymnasium.vector.VectorEnv``

    def with_refusals(self) -> Plan:
        """Try the wrappers on the engine, which stays open and is not stepped."""
        declares = "autoreset_mode" in (getattr(self.engine, "metadata", None) or {})
        lent = engine_around(
            self.engine, autoreset=None if declares else self.pipeline.autoreset_mode, lent=True
        )
        engine = self.engine
        if isinstance(engine, VecEnv):
            engine = next(iter(engine.core.runner.engines()), engine)
        inside = dataclasses.replace(
            SpacesAt.of(self.engine, own=False), stacked_by=stacked_by(engine)
        )
        outer = outer_spaces(
            make_probe_backend(around(lent), self.n, {"autoreset": lent.mode}),
            self.wrappers,
            inside,
        )
        return dataclasses.replace(self, spaces_at=(inside, *outer))


def plan_around(engine: Any, spec: PipelineSpec) -> PlanAround:
    """Check wrappers to be put around an engine."""
    wrappers = plan_wrappers(spec.wrappers)
    refuse_around_engine(wrappers)
    resolved = dataclasses.replace(spec, wrappers=tuple(wrapper.spec for wrapper in wrappers))
    return PlanAround(
        resolved, Environment(spec.env, ()), wrappers, Dummy, {}, "", written=spec, engine=engine
    )


def plan(spec: PipelineSpec) -> Plan:
    """Check a pipeline, and plan how it is built. No process is started.

    >>> planned = plan(PipelineSpec.parse("CartPole-v1 n=2 | time_limit:100"))
    >>> print(planned)  # doctest: +ELLIPSIS
    CartPole-v1, n=2, same_step, pipeline ...
                                         runs in
    CartPole-v1                          parent
      time_limit  max_episode_steps=100  parent
          at an episode's end: truncates the episode after max_episode_steps steps...
    backend dummy: ...
    """
    return Plan(**vars(plan_statically(spec)))


def plan_into_folder(spec: PipelineSpec, folder: Path) -> PipelineSpec:
    """Return the same pipeline with its files in another folder, leaving the user's alone."""
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
    # eval may name a preset whose wrappers these are
    return spec.override(wrappers=wrappers, eval=None)
