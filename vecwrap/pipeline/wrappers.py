"""One wrapper of a plan: its kind, its place, its arguments, and what it can wrap."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium

from vecwrap.errors import BackendError, PlanError, SubEnvError, cause_of
from vecwrap.pipeline import registry
from vecwrap.pipeline.elements import WrapperSpec, read_wrappers
from vecwrap.pipeline.error_collector import for_each
from vecwrap.pipeline.signatures import Bound, Signature, section
from vecwrap.pipeline.values import is_path, short_repr, to_data
from vecwrap.sources.declares import Declares, declared_by
from vecwrap.sources.factories import WrapSubEnv, refusal
from vecwrap.sources.import_paths import import_path, import_target, is_import_path
from vecwrap.wrappers.presets import Preset


@dataclass(frozen=True)
class PlannedWrapper:
    """One wrapper, checked."""

    spec: WrapperSpec  # the wrapper with all its arguments by name, as in the resolved pipeline
    target: Callable[..., Any]  # its class or callable
    bound: (
        Bound  # its arguments as it gets them: paths are absolute, import paths are what they name
    )
    arguments: str  # what it was given, as text; paths joined to the folder of the pipeline's file
    # ``"worker"`` for a wrapper of each sub-environment, ``"parent"`` for one of the whole vector,
    # ``"engine"`` for one that the engine has itself
    runs_in: Literal["worker", "parent", "engine"]
    where: str  # where it was written, and its name there
    summary: str = ""  # what it does, if it says so (``Declares.summary``)
    preset: str = ""  # the preset that it was written as, or ``""``
    difference: str = ""  # how the engine's own differs, if it runs there

    @property
    def has_path(self) -> bool:
        return any(
            is_path(self.spec.kwargs.get(name)) for name in declared_by(self.target).path_parameters
        )

    @property
    def is_shipped(self) -> bool:
        """Whether its code is ours or Gymnasium's."""
        return str(getattr(self.target, "__module__", "")).partition(".")[0] in (
            "vecwrap",
            "gymnasium",
        )

    @property
    def around_sub_env(self) -> WrapSubEnv:
        """The wrapper as a callable for a worker."""
        return WrapSubEnv(self.target, self.bound.args, dict(self.bound.kwargs), self.where)


def plan_wrappers(elements: Iterable[WrapperSpec]) -> tuple[PlannedWrapper, ...]:
    """Find wrappers, those of a preset in its place, and fit their arguments."""
    return tuple(wrapper for planned in for_each(elements, _plan_element) for wrapper in planned)


def _plan_element(element: WrapperSpec, within: tuple[Preset, ...] = ()) -> list[PlannedWrapper]:
    target = registry.wrappers.find(element.target, element.where)
    if not isinstance(target, Preset):
        return [_plan_wrapper(element, target)]
    if target in within:
        raise PlanError(f"{element.where}: expected wrappers, got a preset that holds itself.")
    bound = Signature.of(target, skip=0).bind(
        element.args, element.kwargs, element.where, element.where_argument
    )
    with placed(element.where):
        given: Any = target(*bound.args, **bound.kwargs)
        if given is None or isinstance(given, Mapping):
            raise PlanError(
                f"expected a list of wrappers from the preset's function, got {short_repr(given)}; "
                "let it return [wrapper, ...]"
            )
        parts = read_wrappers(given, element.source.at(element.name))
    preset = registry.wrappers.name_of(target) or element.name
    planned = [wrapper for part in parts for wrapper in _plan_element(part, (*within, target))]
    return [dataclasses.replace(wrapper, preset=preset) for wrapper in planned]


def _plan_wrapper(wrapper: WrapperSpec, target: Callable[..., Any]) -> PlannedWrapper:
    runs_in = _runs_in(target, wrapper)
    signature = Signature.of(target)
    declares = declared_by(target)
    paths = declares.path_parameters
    given = signature.bind(wrapper.args, wrapper.kwargs, wrapper.where, wrapper.where_argument)

    def beside_its_file(name: str, path: Any) -> Any:
        return _beside(wrapper.source.at(wrapper.name, name).location.directory, path)

    given = _changed(given, signature, paths, beside_its_file)
    # From here on a path is fixed, whatever the working directory: the wrapper writes where the
    # spec says.
    bound = _changed(given, signature, paths, lambda name, path: _beside(Path.cwd(), path))
    complete = bound.complete
    default_paths = {}
    for name in paths:
        if name in complete and name not in given.kwargs and is_path(complete[name]):
            default_paths[name] = _beside(Path.cwd(), complete[name])
    complete |= default_paths
    with placed(wrapper.where):
        words = declares.summary(*given.args, **given.kwargs)
        complete |= declares.with_defaults(**complete)
    defaults = {}
    for parameter in given.left_out:
        if parameter.name in complete and parameter.name not in default_paths:
            defaults[parameter.name] = complete[parameter.name]
    spec = dataclasses.replace(
        wrapper,
        target=registry.wrappers.name_of(target) or import_path(target) or target,
        args=bound.args,
        kwargs=complete | {name: to_data(complete[name]) for name in paths & complete.keys()},
        not_hashed=declares.not_hashed | paths,
        defaults=defaults,
    )

    def named(name: str, value: Any) -> Any:
        is_path_of_import = isinstance(value, str) and is_import_path(value)
        if is_path_of_import:
            return import_target(value, wrapper.where_argument(name))
        return value

    bound = dataclasses.replace(bound, kwargs={**bound.kwargs, **default_paths})
    if str in map(type, (*bound.args, *bound.kwargs.values())):
        callables = {
            parameter.name for parameter in signature.parameters if parameter.takes_callable
        }
        bound = _changed(bound, signature, callables, named)
    said = [
        *map(short_repr, given.args),
        *(f"{name}={short_repr(value)}" for name, value in given.kwargs.items()),
    ]
    return PlannedWrapper(spec, target, bound, ", ".join(said), runs_in, wrapper.where, words)


@contextlib.contextmanager
def placed(where: str) -> Iterator[None]:
    """Add a wrapper's place to its errors, except to those of sub-environments and workers.

    Errors of sub-environments and workers have a place of their own.
    """
    try:
        yield
    except (SubEnvError, BackendError):
        raise
    except (Exception, SystemExit) as error:
        raise refusal(where, error) from cause_of(error)


def end_note(target: Any) -> str:
    """What a wrapper does at an episode's end, by its own or a base's docstring, or ``""``."""
    if not isinstance(target, type):
        return ""
    for kind in target.__mro__:
        if said := section(kind, "At an episode's end") or _AT_END_ELSEWHERE.get(kind, ""):
            return " ".join(said.replace("``", "`").split())
        if {"on_observations", "on_step"} & vars(kind).keys() == {"on_observations"}:
            return _AT_END_ELSEWHERE[gymnasium.ObservationWrapper]
    return ""


# Gymnasium's classes do not document it in that form.
_AT_END_ELSEWHERE: dict[Any, str] = {
    gymnasium.wrappers.TimeLimit: (
        "Truncates the episode after `max_episode_steps` steps, and starts to count again."
    ),
    gymnasium.ObservationWrapper: "The terminal observation is changed like every other.",
}


def _changed(
    bound: Bound, signature: Signature, which: Collection[str], change: Callable[[str, Any], Any]
) -> Bound:
    """Change some arguments, by name or by position; null stays."""
    if not which:
        return bound
    kwargs = dict(bound.kwargs)
    for name in which:
        if kwargs.get(name) is not None:
            kwargs[name] = change(name, kwargs[name])
    args = list(bound.args)
    by_position = [parameter.name for parameter in signature.parameters if parameter.by_position]
    for number, name in enumerate(by_position[: len(args)]):
        if name in which and args[number] is not None:
            args[number] = change(name, args[number])
    return dataclasses.replace(bound, args=tuple(args), kwargs=kwargs)


def _beside(directory: Path | None, path: Any) -> Any:
    """Join a path to a folder, keeping text as text.

    Without a folder, a path stays as it is; so does anything that is not a path.
    """
    if directory is None or not is_path(path):
        return path
    found = directory / Path(path).expanduser()
    if isinstance(path, str):
        return str(found)
    return found


def _runs_in(target: Any, wrapper: WrapperSpec) -> Literal["worker", "parent"]:
    kind = target
    while isinstance(kind, functools.partial):
        kind = kind.func
    if isinstance(kind, type):
        # a VecEnvWrapper
        if issubclass(kind, gymnasium.vector.VectorEnv) and issubclass(kind, Declares):
            return "parent"
        if issubclass(kind, gymnasium.Wrapper):
            return "worker"
        if issubclass(kind, gymnasium.vector.VectorWrapper):
            single = (
                f'take "gymnasium.wrappers:{kind.__name__}", which wraps each sub-environment, or '
            )
            raise PlanError(
                f"{wrapper.where}: {kind.__name__} wraps one of Gymnasium's vector environments "
                "from outside and cannot be a wrapper. Instead, "
                f"{single if hasattr(gymnasium.wrappers, kind.__name__) else ''}put it around the "
                f"finished environment: {kind.__name__}(vecwrap.build(...))."
            )
        raise PlanError(
            f"{wrapper.where}: expected a gymnasium.Wrapper (for each sub-environment), a "
            "vecwrap.VecEnvWrapper (for the whole vector) or a callable that wraps, got the class "
            f"{short_repr(kind)}."
        )
    first = [parameter.annotation for parameter in Signature.of(kind, skip=0).parameters[:1]]
    takes_vector = any(
        isinstance(one, type) and issubclass(one, gymnasium.vector.VectorEnv) for one in first
    )
    if takes_vector:
        return "parent"
    return "worker"


def refuse_inside(wrappers: Iterable[PlannedWrapper], why: str) -> None:
    """Refuse wrappers of single environments.

    ``why`` gives the reason and the remedy, and may hold the wrapper's ``{name}``.
    """
    for wrapper in wrappers:
        if wrapper.runs_in == "worker":
            raise PlanError(f"{wrapper.where}: {why.format(name=wrapper.spec.name)}")


def refuse_around_engine(wrappers: Iterable[PlannedWrapper]) -> None:
    """Refuse wrappers that belong inside sub-environments that exist already."""
    refuse_inside(
        wrappers,
        "it wraps each sub-environment, and those are made already: expected a wrapper of the "
        "whole vector. Build from "
        'the environment\'s id instead: vecwrap.build(id, wrappers=["{name}", ...]).',
    )


def refuse_wrong_order(wrappers: tuple[PlannedWrapper, ...]) -> None:
    """Refuse a sub-environment's wrapper outside a vector wrapper; say what to move where."""
    outside: PlannedWrapper | None = None
    for wrapper in wrappers:
        if wrapper.runs_in == "parent":
            outside = outside or wrapper
        elif outside is not None:
            right = sorted(wrappers, key=lambda other: other.runs_in == "parent")
            raise PlanError(
                f"{wrapper.where}: it wraps each sub-environment, in the workers, so it cannot "
                "stand outside of "
                f'"{outside.spec.name}" ({outside.spec.source.label()}), which wraps the whole '
                f'vector. Move "{wrapper.spec.name}" before "{outside.spec.name}": '
                f"{', '.join(other.spec.name for other in right)}."
            )
