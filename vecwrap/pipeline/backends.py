"""Chooses the backend of a pipeline, and checks that it can run the sub-environments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gymnasium.envs.registration import EnvSpec

from vecwrap.backends.workers.cores import usable_cores
from vecwrap.backends.workers.options import ProcessOptions
from vecwrap.env.options import RestartOptions, option_names
from vecwrap.env.refusals import no_engine_restarts
from vecwrap.env.runner import Runner
from vecwrap.errors import PlanError, did_you_mean
from vecwrap.pipeline import registry
from vecwrap.pipeline.elements import BackendSpec
from vecwrap.pipeline.environments import Environment, of_module
from vecwrap.pipeline.fields import KEYS
from vecwrap.pipeline.signatures import Signature
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.pipeline.values import Settings, callable_name, short_repr
from vecwrap.pipeline.wrappers import PlannedWrapper
from vecwrap.sources.by_value import by_value
from vecwrap.sources.factories import MakeByCalling
from vecwrap.sources.import_paths import import_path

# Microseconds of a step on a core of about 3 GHz, by the module of the environment; the first that
# fits counts. Of others we know nothing: `vecwrap tune` measures.
STEP_MICROSECONDS = {
    "gymnasium.envs.classic_control.acrobot.": 35.0,
    "gymnasium.envs.classic_control.": 8.0,
    "gymnasium.envs.toy_text.": 8.0,
}
WRAPPER_MICROSECONDS = 5.0  # of a wrapper around a sub-environment
IN_THIS_PROCESS = ("dummy", "threads")
HAND_OVER_MICROSECONDS = (
    100.0  # what it costs to hand a vector step to other processes and to be woken by them
)


def step_cost(specs: Sequence[EnvSpec | None], num_wrappers: int) -> float | None:
    """Return the microseconds of the slowest environment's step; None if one is not known."""
    costs = [of_module(STEP_MICROSECONDS, spec.entry_point) for spec in specs if spec is not None]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(specs):
        return None
    return max(known) + num_wrappers * WRAPPER_MICROSECONDS


def choose(
    spec: PipelineSpec, n: int, cost: float | None, of: str = "sub-environment"
) -> tuple[str, str]:
    """Return a backend's name for ``n`` units with a given step cost, and the reason for it."""
    options = spec.backend.options
    asked = [name for name in option_names(ProcessOptions) if options.get(name) is not None]
    if asked:
        return "shmem", f"{' and '.join(asked)} ask{'s' * (len(asked) == 1)} for worker processes"
    if options.get("on_failure") == "restart":
        why = (
            "on_failure=restart asks for worker processes, so that a crash takes no more than "
            "its own with it"
        )
        return "shmem", why
    if n == 1:
        return "dummy", f"one {of} is quickest in this process"
    saved = None
    if cost is not None:
        saved = n * cost * (1 - 1 / min(n, usable_cores()))
    if saved is not None and saved <= HAND_OVER_MICROSECONDS and spec.batch_size is None:
        return (
            "dummy",
            (
                f"{n} steps of so cheap an environment are quicker in this process than handed to "
                "others"
            ),
        )
    return (
        "shmem",
        f"{n} {of}s share the cores; vecwrap tune measures whether another way is quicker",
    )


def plan_backend(
    spec: PipelineSpec,
    n: int,
    environment: Environment | None = None,
    wrappers: Sequence[PlannedWrapper] = (),
) -> tuple[type[Runner], Mapping[str, Any], BackendSpec, str]:
    """Choose and check a backend; return its runner, options, resolved spec, and the reason.

    The reason is ``""`` if the backend was requested.
    """
    inside = [wrapper for wrapper in wrappers if wrapper.runs_in == "worker"]
    engine_rows = spec.envs_per_engine
    if spec.engine is not None and environment is not None:
        engine_rows = environment.engine_rows
    of = "sub-environment"
    known = False
    cost = None
    if environment is not None and environment.is_game:
        of = "game"
    elif engine_rows is not None:
        of = "engine"
    elif (
        environment is not None
        and environment.is_shipped
        and all(wrapper.is_shipped for wrapper in inside)
    ):
        known = True
        cost = step_cost([part.env_spec for part in environment.each], len(inside))
    given = dict(spec.backend.options)
    number = n // max(1, engine_rows or 1)  # of what is distributed
    target = spec.backend.target
    reason = ""
    restart = given.get("on_failure") == "restart"
    if given.get("recreate_every") is not None and engine_rows is not None:
        raise PlanError(
            f"{where_option(spec, 'recreate_every')}: an engine is not recreated between "
            "episodes; leave it out."
        )
    if target == "auto" and spec.engine is not None and number == 1:
        target = "dummy"
        reason = "one engine steps all rows in this process, with threads of its own"
    elif target == "auto":
        target, reason = choose(spec, number, cost, of)
    name = target
    if not isinstance(target, str):
        name = short_repr(target)
    where = f'{spec.where("backend")} "{name}"'
    runner = find_runner(target, where)
    if restart and engine_rows is not None and not runner.recreates_engines:
        raise PlanError(f"{where_option(spec, 'on_failure')}: {no_engine_restarts(str(name))}.")
    signature = signature_of(runner)
    _refuse_unknown_options(spec, signature.names, where)
    options = dict(
        signature.bind((), given, where, lambda key, name: where_option(spec, name)).kwargs
    )
    try:
        own = runner.Options(
            **{name: options[name] for name in option_names(runner.Options) if name in options}
        )
        RestartOptions(
            **{name: options[name] for name in option_names(RestartOptions) if name in options}
        )
        alone = True
        if isinstance(own, ProcessOptions):
            asked = own.isolating(restart=restart, batch_size=spec.batch_size)
            alone = bool(asked or own.workers or own.envs_per_worker)
    except PlanError as error:  # a senseless value; the text begins with the option, without place
        place = where
        message = str(error)
        option, _, rest = message.partition(": ")
        if option in options:
            place = where_option(spec, option)
            message = rest
        raise PlanError(f"{place}: {message.removesuffix('.')}.") from None
    if (options.get("workers") or 0) > number:
        options["workers"] = number
    name = registry.backends.name_of(runner) or import_path(runner) or runner
    if name not in IN_THIS_PROCESS:
        if environment is not None:
            for part in environment.each:
                refuse_unsendable(part.factories[0], str(part.source))
        for wrapper in inside:
            refuse_unsendable(wrapper.around_sub_env, wrapper.where)
    written = BackendSpec(name, options)
    if (
        target == "shmem"
        and known
        and not alone
        and options.get("parent_share") is None
        and min(n, usable_cores()) > 1
    ):
        # like the number of workers: choices made for this machine are not written
        options["parent_share"] = True
    return runner, Settings(options), written, reason


def find_runner(target: Any, where: str) -> type[Runner]:
    """Return what a backend's name, import path or class stands for."""
    if target in ("envpool", "ale", "gymnax"):
        raise PlanError(
            f'{where}: it is an engine, not a place to run in: expected engine="{target}", and the '
            'backend left out (or "shmem" with envs_per_engine).'
        )
    runner: Any = registry.backends.find(target, where)
    if not (isinstance(runner, type) and issubclass(runner, Runner)):
        raise PlanError(
            f"{where}: expected a class derived from vecwrap.env.runner.Runner, got "
            f"{short_repr(runner)}."
        )
    return runner


def signature_of(runner: type[Runner]) -> Signature:
    """The options of a backend in pipelines: its runner's, then those that every backend has."""
    own = Signature.of(runner.Options, skip=0)
    return Signature((*own.parameters, *Signature.of(RestartOptions, skip=0).parameters))


def _refuse_unknown_options(spec: PipelineSpec, names: Sequence[str], where: str) -> None:
    for name in spec.backend.options:
        if name in names:
            continue
        place = where_option(spec, name)
        if name in KEYS:
            raise PlanError(f"{place}: {name} is the pipeline's own; write it one level up.")
        remedy = did_you_mean(name, names) or f" It has {', '.join(names)}."
        if name in option_names(ProcessOptions) and "workers" not in names:
            remedy = ' It runs in this process; leave the option out, or take backend="shmem".'
        raise PlanError(f"{place}: {where.rpartition(': ')[2]} has no option {name}.{remedy}")


def where_option(spec: PipelineSpec, option: str) -> str:
    """Name a backend option for an error, by its place in a file if it has one.

    For example ``"pong.yaml:4: backend.workers"``; otherwise the option's name in ``build``:
    ``"workers"``.
    """
    source = spec.source.at("backend", option)
    if source.location.file:
        return str(source)
    return option


# -- what cannot be sent to a worker ---------------------------------------------------------------


def refuse_unsendable(factory: Any, where: str) -> None:
    """Refuse what cannot be sent to a worker, and name the part that cannot."""
    error = _pickling_error(factory)
    if error is None:
        return
    path = list(_culprit(factory, ()))
    what = " -> ".join(words for words, _ in path) or "it"
    last = factory
    if path:
        last = path[-1][1]
    raise PlanError(
        f"{where}: {callable_name(factory)} cannot be sent to a worker, because {what} is a "
        f"{type(last).__qualname__}, "
        f'which cannot be pickled ({error}). Make it inside the factory, or use backend="dummy".'
    )


def _pickling_error(value: Any) -> Exception | None:
    try:
        by_value(value)
    except Exception as error:
        return error
    return None


def _culprit(value: Any, outer: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """The path to the innermost part that cannot be pickled."""
    way = (*outer, value)
    if len(way) > 8:
        return
    for words, part in _parts(value):
        if not any(part is one for one in way) and _pickling_error(part) is not None:
            yield words, part
            yield from _culprit(part, way)
            return


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts that are pickled with a value, each with its description."""
    if isinstance(value, (functools.partial, MakeByCalling)):
        yield from ((f'the argument "{name}"', part) for name, part in value.keywords.items())
        yield from ((f"the argument number {i + 1}", part) for i, part in enumerate(value.args))
        yield f"the function {callable_name(value.func)}", value.func
    elif inspect.ismethod(value):
        yield f"the object of its method {value.__name__}", value.__self__
    elif inspect.isfunction(value):
        captured = inspect.getclosurevars(value)
        yield from (
            (f'the captured variable "{name}"', part) for name, part in captured.nonlocals.items()
        )
        yield from (
            (f'the global variable "{name}"', part) for name, part in captured.globals.items()
        )
        signature = inspect.signature(value)
        yield from (
            (f'the default of "{p.name}"', p.default)
            for p in signature.parameters.values()
            if p.default is not p.empty
        )
    elif isinstance(value, Mapping):
        yield from ((f"its entry {short_repr(key)}", part) for key, part in value.items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"its entry {i}", part) for i, part in enumerate(value))
    elif isinstance(value, type):
        yield from (
            (f'its "{name}"', getattr(part, "__func__", part)) for name, part in vars(value).items()
        )
    elif hasattr(value, "__dict__"):
        yield from ((f'its attribute "{name}"', part) for name, part in vars(value).items())
