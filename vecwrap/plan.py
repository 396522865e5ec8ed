"""A checked way to build a pipeline. ``plan(spec)`` starts no process; ``print`` shows what would be built.

Checking has two stages. The static one, here: names, arguments, order, the backend's options. The one with spaces:
``Plan.with_spaces`` makes one sub-environment where the backend would, and says what each layer makes of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium

from vecwrap import registry
from vecwrap.backends.cores import usable_cores
from vecwrap.backends.process import ProcessBackend, share_out
from vecwrap.environments import Environment, WrapSubEnv, find_environment, refuse_unsendable
from vecwrap.errors import PlanError, VecwrapError, did_you_mean
from vecwrap.layer_spec import LayerSpec
from vecwrap.plan_text import Row, Stage, plan_text
from vecwrap.signatures import Bound, Signature, hints
from vecwrap.spec import BackendSpec, PipelineSpec
from vecwrap.sub_env import SubEnvFactory
from vecwrap.values import Settings, import_path, shown
from vecwrap.vec_env import VecEnv
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["Plan", "PlannedLayer", "plan"]

_PIPELINE_KEYS = ("autoreset", "copy", "batch_size", "start_index", "seed", "debug")
_PROCESS_OPTIONS = ("workers", "envs_per_worker", "start_method", "daemon")


@dataclass(frozen=True)
class PlannedLayer:
    """One layer, checked.

    Attributes:
        spec: the layer with all its arguments by name, as it stands in the resolved pipeline.
        target: what it is: a class or callable.
        bound: its arguments.
        runs_in: ``"worker"`` for a layer of each sub-environment, ``"parent"`` for one of the whole vector.
        words: what it does, where it says so (``in_words``).
    """

    spec: LayerSpec
    target: Callable[..., Any]
    bound: Bound
    runs_in: Literal["worker", "parent"]
    words: str = ""

    @property
    def where(self) -> str:
        """Where it was written."""
        return self.spec.where

    @property
    def arguments(self) -> str:
        """What it was given, as text."""
        given = [shown(value) for value in self.bound.args]
        return ", ".join([*given, *(f"{key}={shown(value)}" for key, value in self.bound.kwargs.items())])

    @property
    def around_sub_env(self) -> WrapSubEnv:
        """The layer as a callable for a worker."""
        return WrapSubEnv(self.target, self.bound.args, self.bound.kwargs, self.where)

    def around_vector(self, env: VecEnv, *, without_files: bool = False) -> VecEnv:
        """Wrap a vector environment.

        Args:
            env: what to wrap.
            without_files: leave out the arguments that are paths, so that nothing is written.

        Raises:
            VecwrapError: where the layer refuses, with its place.
        """
        left_out = path_parameters(self.target) if without_files else frozenset()
        kwargs = {key: value for key, value in self.bound.kwargs.items() if key not in left_out}
        with _placed(self.spec):
            wrapped = self.target(env, *self.bound.args, **kwargs)
        if not isinstance(wrapped, VecEnv):
            raise PlanError(
                f"{self.where}: expected a vecwrap.VecEnv from it, got {type(wrapped).__name__}. Derive it from "
                "vecwrap.VecEnvWrapper."
            )
        return wrapped


@dataclass(frozen=True)
class Plan:
    """How a pipeline is built; ``print`` shows it.

    Attributes:
        pipeline: the spec with names, defaults and n filled in; ``pipeline.hash`` is its identity.
        environment: what is made, n times.
        layers: the layers, inner first.
        backend: the backend's class.
        backend_options: its options.
        reason: why this backend, where it was left to vecwrap.
        stages: the spaces of the environment and after each layer; None before ``with_spaces``.
    """

    pipeline: PipelineSpec
    environment: Environment
    layers: tuple[PlannedLayer, ...]
    backend: Callable[..., VecEnv]
    backend_options: Mapping[str, Any]
    reason: str
    stages: tuple[Stage, ...] | None = None

    @property
    def n(self) -> int:
        """How many sub-environments."""
        assert self.pipeline.n is not None
        return self.pipeline.n

    @property
    def factories(self) -> list[SubEnvFactory]:
        """One for each sub-environment, with the layers that run there."""
        layers = tuple(layer.around_sub_env for layer in self.layers if layer.runs_in == "worker")
        made = [SubEnvFactory(make, layers) for make in self.environment.factories]
        return made if self.environment.one_each else made * self.n

    def make_backend(self, factories: list[Any] | None = None) -> VecEnv:
        """Start the backend, with the sub-environment layers but without the others.

        Args:
            factories: others instead of the plan's.

        Raises:
            VecwrapError: an environment that cannot be made, or a layer that refuses.
        """
        settings = {key: getattr(self.pipeline, key) for key in _PIPELINE_KEYS}
        return self.backend(self.factories if factories is None else factories, **settings, **self.backend_options)

    def with_spaces(self) -> Plan:
        """Find out the spaces, with one sub-environment in one worker (here, on dummy), which is closed again.

        Nothing is written: layers are made without the arguments that are paths.

        Raises:
            VecwrapError: as ``build`` would.
        """
        options = {} if self.backend_name == "dummy" else {"workers": 1, "start_method": self._start_method}
        table = registry.backends
        backend = table.load("dummy" if self.backend_name == "dummy" else "subprocess")
        inner = [layer.around_sub_env for layer in self.layers if layer.runs_in == "worker"]
        env: VecEnv = backend([Probe(self.environment.factories[0], tuple(inner))], **options)
        try:
            (stages,) = env.get_attr("stages")
            for layer in self.layers:
                if layer.runs_in == "parent":
                    env = layer.around_vector(env, without_files=True)
                    stages = (*stages, Stage.of(env, env.single_observation_space, env.single_action_space))
        finally:
            env.close()
        return dataclasses.replace(self, stages=tuple(stages))

    @property
    def backend_name(self) -> str:
        """The backend's name."""
        return self.pipeline.backend.name

    @property
    def _start_method(self) -> Any:
        return self.backend_options.get("start_method")

    @property
    def shares(self) -> list[int] | None:
        """How many sub-environments each worker holds; None where the backend has no workers of ours."""
        if not (isinstance(self.backend, type) and issubclass(self.backend, ProcessBackend)):
            return None
        options = self.backend_options
        return [len(share) for share in share_out(self.n, options.get("workers"), options.get("envs_per_worker"))]

    def __str__(self) -> str:
        rows = [Row(self.environment.name, "", "worker" if self.shares else "parent", "")]
        for layer in self.layers:
            where = "parent" if layer.runs_in == "parent" or not self.shares else "worker"
            rows.append(Row(layer.spec.name, layer.arguments, where, layer.words))
        return plan_text(self.pipeline, rows, self.stages, self.shares, self.reason)


@dataclass(frozen=True)
class Probe:
    """A factory whose environment tells the spaces after each of its layers."""

    make: Callable[[], Any]
    layers: tuple[WrapSubEnv, ...]

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Make it, and look after each layer."""
        env = SubEnvFactory(self.make)()
        stages = [Stage.of(env, env.observation_space, env.action_space)]
        for layer in self.layers:
            env = SubEnvFactory(functools.partial(_given, env), (layer,))()
            stages.append(Stage.of(env, env.observation_space, env.action_space))
        probed = _Probed(env)
        probed.stages = tuple(stages)
        return probed


class _Probed(gymnasium.Wrapper[Any, Any, Any, Any]):
    stages: tuple[Stage, ...] = ()


def _given(env: Any) -> Any:
    return env


# -- the static stage -------------------------------------------------------------------------------------------------


def plan(spec: PipelineSpec) -> Plan:
    """Check a pipeline, and say how it is built. No process is started.

    Raises:
        SpecError: a name that is unknown, a package that is missing, an argument that does not fit.
        PlanError: a wrong order, or a number that does not fit.

    >>> print(plan(PipelineSpec.parse("CartPole-v1 n=2 | time_limit:100")))  # doctest: +ELLIPSIS
    CartPole-v1, n=2, same_step, pipeline ...
                                          runs in
    CartPole-v1                           worker
      time_limit  max_episode_steps=100   worker
    backend shmem: ...
    """
    environment = find_environment(spec.env, spec.env_kwargs, spec.render_mode, spec.source.at("env"))
    n = _how_many(spec, environment)
    layers = tuple(map(_plan_layer, spec.wrappers))
    _refuse_wrong_order(layers)
    environment = _adapted(environment, spec, layers)
    backend, options, backend_spec, reason = _plan_backend(spec, n)
    resolved = dataclasses.replace(
        spec, env=environment.target, n=n, wrappers=tuple(layer.spec for layer in layers), backend=backend_spec
    )
    if backend_spec.target != "dummy":
        _refuse_unsendable(environment, layers, spec)
    return Plan(resolved, environment, layers, backend, options, reason)


def _how_many(spec: PipelineSpec, environment: Environment) -> int:
    callables = len(environment.factories) if environment.one_each else None
    n = spec.n if spec.n is not None else callables or usable_cores()
    if n < 1:
        raise PlanError(f"{spec.where('n')}: expected at least 1 sub-environment, got {n}.")
    if callables is not None and n != callables:
        raise PlanError(f"{spec.where('n')}: expected {callables}, one for each callable, got {n}. Leave n out.")
    if spec.batch_size is not None and not 1 <= spec.batch_size <= n:
        raise PlanError(f"{spec.where('batch_size')}: expected 1 to n={n}, got {spec.batch_size}.")
    for name in ("seed", "start_index"):
        value = getattr(spec, name)
        if value is not None and value < 0:
            raise PlanError(f"{spec.where(name)}: expected 0 or more, got {value}.")
    return n


# -- layers -----------------------------------------------------------------------------------------------------------


def _plan_layer(layer: LayerSpec) -> PlannedLayer:
    if not isinstance(layer.target, str):
        target = layer.target
    elif ":" in layer.target:
        target = registry.import_target(layer.target, layer.where)
    else:
        target = registry.wrappers.load(layer.target, layer.where)
    runs_in = _runs_in(target, layer)
    bound = Signature.of(target).bind(layer.args, layer.kwargs, layer.where, layer.where_argument)
    paths = path_parameters(target)
    bound = dataclasses.replace(bound, kwargs=_with_paths(bound.kwargs, paths, layer.source.directory))
    complete = {key: str(Path(value).absolute()) if key in paths and value is not None else value
                for key, value in bound.complete.items()}  # fmt: skip
    spec = dataclasses.replace(
        layer,
        target=registry.wrappers.name_of(target) or import_path(target) or target,
        args=bound.args,
        kwargs=Settings(complete),
        not_hashed=frozenset(getattr(target, "not_hashed", ())) | paths,
    )
    with _placed(layer):
        words = target.in_words(*bound.args, **bound.kwargs) if hasattr(target, "in_words") else ""
    return PlannedLayer(spec, target, bound, runs_in, words)


@contextlib.contextmanager
def _placed(layer: LayerSpec) -> Iterator[None]:
    """What a layer refuses is told with the layer's place."""
    try:
        yield
    except VecwrapError as error:
        raise PlanError(f"{layer.where}: {error}") from error
    except (TypeError, ValueError) as error:
        raise PlanError(f"{layer.where}: {type(error).__name__}: {error}") from error


def path_parameters(target: Any) -> frozenset[str]:
    """The parameters of a layer that are paths, as its class says."""
    return frozenset(getattr(target, "path_parameters", ()))


def _with_paths(kwargs: Mapping[str, Any], paths: frozenset[str], directory: Path | None) -> Settings:
    """Paths of a file are relative to it."""
    if directory is None:
        return Settings(kwargs)
    return Settings(
        {key: str(directory / value) if key in paths and value is not None else value for key, value in kwargs.items()}
    )


def _runs_in(target: Any, layer: LayerSpec) -> Literal["worker", "parent"]:
    kind = target
    while isinstance(kind, functools.partial):
        kind = kind.func
    if isinstance(kind, type):
        if issubclass(kind, VecEnvWrapper):
            return "parent"
        if issubclass(kind, gymnasium.Wrapper):
            return "worker"
        if issubclass(kind, gymnasium.vector.VectorWrapper):
            raise PlanError(f"{layer.where}: {_gymnasium_remedy(kind)}")
        raise PlanError(
            f"{layer.where}: expected a gymnasium.Wrapper (for each sub-environment), a vecwrap.VecEnvWrapper (for the "
            f"whole vector) or a callable that wraps, got the class {shown(kind)}."
        )
    return "parent" if _takes_vector(kind) else "worker"


def _gymnasium_remedy(kind: type) -> str:
    single = f'"gymnasium.wrappers:{kind.__name__}"' if hasattr(gymnasium.wrappers, kind.__name__) else None
    inside = f"take {single}, which wraps each sub-environment, or " if single else ""
    return (
        f"{kind.__name__} wraps one of Gymnasium's vector environments from outside and cannot be a layer. Instead, "
        f"{inside}put it around the finished environment: {kind.__name__}(vecwrap.build(...))."
    )


def _takes_vector(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is annotated with a vector environment."""
    try:
        first = next(iter(inspect.signature(function).parameters), None)
    except (TypeError, ValueError):
        return False
    annotation = hints(function).get(first or "")
    return isinstance(annotation, type) and issubclass(annotation, gymnasium.vector.VectorEnv)


def _refuse_wrong_order(layers: tuple[PlannedLayer, ...]) -> None:
    outside = next((layer for layer in layers if layer.runs_in == "parent"), None)
    if outside is None:
        return
    for layer in layers[layers.index(outside) :]:
        if layer.runs_in == "worker":
            right = sorted(layers, key=lambda other: other.runs_in == "parent")
            raise PlanError(
                f"{layer.where}: it wraps each sub-environment, in the workers, so it cannot stand outside of "
                f'"{outside.spec.name}" ({outside.spec.source.label()}), which wraps the whole vector. '
                f'Move "{layer.spec.name}" before "{outside.spec.name}": '
                f"{', '.join(other.spec.name for other in right)}."
            )


def _adapted(environment: Environment, spec: PipelineSpec, layers: tuple[PlannedLayer, ...]) -> Environment:
    """Make an id with what its layers need, as ``atari`` needs every frame."""
    for layer in layers:
        registered = environment.effective_spec()
        if registered is None or not hasattr(layer.target, "environment_kwargs"):
            continue
        with _placed(layer.spec):
            needed = layer.target.environment_kwargs(registered, *layer.bound.args, **layer.bound.kwargs)
        for key, value in needed.items():
            if spec.env_kwargs.get(key, value) != value:
                raise PlanError(
                    f"{spec.where('env_kwargs', key)}: expected {shown(value)}, as {layer.spec.name} needs it, "
                    f"got {shown(spec.env_kwargs[key])}. Leave it out."
                )
        environment = environment.with_kwargs(needed)
    return environment


def _refuse_unsendable(environment: Environment, layers: tuple[PlannedLayer, ...], spec: PipelineSpec) -> None:
    for index, factory in enumerate(environment.factories):
        refuse_unsendable(factory, spec.where("env", index) if environment.one_each else spec.where("env"))
    for layer in layers:
        if layer.runs_in == "worker":
            refuse_unsendable(layer.around_sub_env, layer.where)


# -- the backend ------------------------------------------------------------------------------------------------------


def _plan_backend(spec: PipelineSpec, n: int) -> tuple[Callable[..., VecEnv], Mapping[str, Any], BackendSpec, str]:
    options = dict(spec.backend.options)
    target, reason = spec.backend.target, ""
    if target == "auto":
        target, reason = _choose(options, n)
    where = f'{spec.where("backend")} "{target if isinstance(target, str) else shown(target)}"'
    if not isinstance(target, str):
        backend = target
    elif ":" in target:
        backend = registry.import_target(target, where)
    else:
        backend = registry.backends.load(target, where)
    if not (isinstance(backend, type) and issubclass(backend, VecEnv)) or issubclass(backend, VecEnvWrapper):
        raise PlanError(f"{where}: expected a class derived from vecwrap.backends.base.Backend, got {shown(backend)}.")
    name = registry.backends.name_of(backend) or import_path(backend) or backend
    options = _fitting_options(spec, backend, options, where)
    _check_workers(spec, options, n)
    return backend, Settings(options), BackendSpec(name, options), reason


def _choose(options: Mapping[str, Any], n: int) -> tuple[str, str]:
    asked = [name for name in _PROCESS_OPTIONS if options.get(name) is not None]
    if asked:
        return "shmem", f"{' and '.join(asked)} ask{'s' * (len(asked) == 1)} for worker processes"
    if n == 1:
        return "dummy", "one sub-environment is quickest in this process"
    return "shmem", f"{n} sub-environments share the cores, and shared memory is the fastest way to them"


def _fitting_options(spec: PipelineSpec, backend: Any, options: dict[str, Any], where: str) -> dict[str, Any]:
    signature = Signature.of(backend)
    names = [parameter.name for parameter in signature.parameters if parameter.name not in _PIPELINE_KEYS]
    for name in options:
        place = spec.where("backend", name)
        if name in _PIPELINE_KEYS:
            raise PlanError(f"{place}: {name} is the pipeline's own; write it one level up.")
        if name not in names and not signature.any_name:
            if name in _PROCESS_OPTIONS:
                remedy = ' It runs in this process; leave the option out, or take backend="shmem".'
            else:
                remedy = did_you_mean(name, names) or (f" It has {', '.join(names)}." if names else " It has none.")
            raise PlanError(f"{place}: {where.rpartition(': ')[2]} has no option {name}.{remedy}")
    checked = dataclasses.replace(
        signature, parameters=tuple(p for p in signature.parameters if p.name not in _PIPELINE_KEYS)
    )
    return dict(checked.bind((), options, where, lambda key, name: spec.where("backend", str(key))).kwargs)


def _check_workers(spec: PipelineSpec, options: dict[str, Any], n: int) -> None:
    """Refuse numbers below 1 and both at once; more workers than sub-environments are as many as these."""
    for name in ("workers", "envs_per_worker"):
        value = options.get(name)
        if value is not None and value < 1:
            raise PlanError(f"{spec.where('backend', name)}: expected at least 1, got {value}.")
    if options.get("workers") is not None and options.get("envs_per_worker") is not None:
        raise PlanError(
            f"{spec.where('backend', 'envs_per_worker')}: expected workers or envs_per_worker, got both; each follows "
            "from the other."
        )
    if (options.get("workers") or 0) > n:
        options["workers"] = n
