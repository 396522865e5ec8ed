"""What to build: ids and callables become factories that are sent to workers by value.

An id is looked up here, in the parent, and its ``EnvSpec`` is sent: so an id that only the calling
script has registered works in every worker, and no worker reads a registry.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import iter_modules
from types import FunctionType, ModuleType
from typing import Any, NoReturn, TypeVar

import gymnasium
from gymnasium.envs.registration import EnvSpec, find_highest_version, parse_env_id, registry

from vecwrap.errors import PlanError, SpecError, did_you_mean, install_command, is_installed
from vecwrap.pipeline.packages import install_hint, moved_games, package_hint
from vecwrap.pipeline.signatures import REQUIRED, Signature
from vecwrap.pipeline.source_map import SourceRef
from vecwrap.pipeline.values import callable_name, names_of, normalise, short_repr
from vecwrap.sources.description import game_path_of, makes_games
from vecwrap.sources.factories import (
    MakeByCalling,
    MakeEnvironment,
    RenderMode,
    creator_of,
)
from vecwrap.sources.game_factories import PETTINGZOO, MakeGame
from vecwrap.sources.import_paths import import_target, imported, is_import_path
from vecwrap.sources.registrations import without_main

Env = gymnasium.Env[Any, Any]
Value = TypeVar("Value")
_ABSENT = object()

# Modules that need a package that their distribution does not install by default, and the command
# that does.
_NEEDS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "gymnasium.envs.box2d.": ("Box2D", lambda: 'pip install swig "gymnasium[box2d]"'),
    "gymnasium.envs.mujoco.": ("mujoco", lambda: install_command("mujoco")),
    "ale_py.": ("ale_py", lambda: install_command("atari")),
}
_NEEDS_TO_DRAW = {
    "gymnasium.envs.classic_control.": ("pygame", 'pip install "gymnasium[classic-control]"'),
    "gymnasium.envs.toy_text.": ("pygame", 'pip install "gymnasium[toy-text]"'),
}
_ATARI = re.compile(r"ALE/.+|\w+(NoFrameskip|Deterministic|-ram)\S*-v\d+")


@dataclass(frozen=True)
class Environment:
    """What a pipeline's ``env`` stands for."""

    target: Any  # the same with an explicit version, as in the resolved spec
    # One callable for all sub-environments, or one for each.
    factories: tuple[Callable[[], Env], ...]
    env_spec: EnvSpec | None = None  # the registration, if it is an id
    # one for each sub-environment, if ``env`` or ``env_kwargs`` lists them
    parts: tuple[Environment, ...] = ()
    is_game: bool = False  # whether it is known to make games of several agents
    # how many rows an engine steps at once; None: it is not an engine
    engine_rows: int | None = None
    engine: str = ""  # what steps them, if the pipeline names an engine
    render_mode: RenderMode = field(default_factory=RenderMode)  # what it is made with
    kwargs: Mapping[str, Any] = field(default_factory=dict)  # the ``env_kwargs``, as written
    source: SourceRef = field(default_factory=SourceRef)  # where it was written
    kwargs_source: SourceRef = field(default_factory=SourceRef)  # where they were

    @property
    def each(self) -> tuple[Environment, ...]:
        """The one for all sub-environments, or one for each."""
        return self.parts or (self,)

    @property
    def entry_point(self) -> Any:
        """What makes it, of one environment: the import path of a registration, or the callable."""
        if self.env_spec is not None:
            return self.env_spec.entry_point
        (make,) = self.factories
        if isinstance(make, MakeGame):
            return make.spec.entry_point
        if isinstance(make, MakeByCalling):
            return make.func
        return make

    @property
    def is_shipped(self) -> bool:
        """Whether Gymnasium or ale-py ships it, so that much is known about its behaviour."""
        if self.parts:
            return all(part.is_shipped for part in self.parts)
        if self.env_spec is not None and self.env_spec.additional_wrappers:
            return False
        # a function, such as gymnasium.make, makes anything
        if not isinstance(self.entry_point, (str, type)):
            return False
        return module_of(self.entry_point).startswith(("gymnasium.envs.", "ale_py."))

    @property
    def name(self) -> str:
        return names_of(self.target)

    def effective_spec(self) -> EnvSpec | None:
        """Return the registration with the pipeline's ``env_kwargs`` merged into its own.

        Wrappers inspect this spec of the environment.
        """
        if self.env_spec is None:
            return None
        (make,) = self.factories
        kwargs = self.kwargs  # an engine is made with others
        if isinstance(make, MakeEnvironment):
            kwargs = make.kwargs
        return dataclasses.replace(self.env_spec, kwargs={**self.env_spec.kwargs, **kwargs})

    def creator(self) -> Any:
        """Return the imported maker; for PettingZoo's functions, the maker of the game itself."""
        return of_raw_game(creator_of(self.entry_point))

    def parameters(self) -> list[str]:
        """The names of the arguments that it takes, as far as they are known; imports it."""
        return Signature.of(self.creator(), skip=0).names

    def refuse_arguments(
        self, make: Callable[..., Any], called: str, kwargs: Mapping[str, Any]
    ) -> None:
        """Refuse arguments that a callable does not take, and a callable that needs others."""
        signature = Signature.of(make, skip=0)
        given = [*kwargs]
        if self.engine_rows is not None:
            given.append("num_envs")
        needed = [
            p.name for p in signature.parameters if p.default is REQUIRED and p.name not in given
        ]
        if needed:
            raise PlanError(
                f"{self.source}: {called} needs the argument {needed[0]}; expected a callable that "
                "makes an environment without arguments. Give it in env_kwargs, or bind it: "
                f"functools.partial({called}, {needed[0]}=...)."
            )
        for name in kwargs:
            if not signature.any_name and name not in signature.names:
                setting = "render_mode"
                if name != "render_mode":
                    setting = self.kwargs_source.at(name).label()
                raise PlanError(
                    f"{self.source}: {called} does not take {name}, so {setting} has nowhere to "
                    f"go.{_near(name, signature.names)}"
                )

    def refuse_undrawable(self, where: str, remedy: str = "") -> None:
        """Refuse to draw if the package that a registered environment draws with is missing."""
        missing = self.missing_to_draw()
        if missing:
            raise SpecError(f"{where}: {missing}{remedy}")

    def missing_to_draw(self) -> str:
        """Return which package is missing to draw, and how it is installed, or ``""``."""
        for part in self.each:
            if part.env_spec is None and not part.factories:  # an engine alone knows it
                continue
            needed = of_module(_NEEDS_TO_DRAW, part.entry_point)
            if needed and not is_installed(needed[0]):
                return f"{part.name} needs {needed[0]} to draw: {needed[1]}"
        return ""


def find_environment(
    target: Any,
    env_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    render_mode: str | None = None,
    pipeline: SourceRef | None = None,
    engine_rows: int | None = None,
) -> Environment:
    """Find what to build: single environments, games, or engines that step so many rows at once."""
    pipeline = pipeline or SourceRef()
    source = pipeline.at("env")
    kwargs_source = pipeline.at("env_kwargs")
    lists = [entries for entries in (target, env_kwargs) if isinstance(entries, (tuple, list))]
    lengths = list(map(len, lists)) or [1]
    if lengths[0] != lengths[-1]:
        raise PlanError(
            f"{kwargs_source}: expected {lengths[0]} mappings, one for each entry of env, got "
            f"{lengths[-1]}."
        )
    targets = _each(target, source, lengths[0])
    each_kwargs = _each(env_kwargs or {}, kwargs_source, lengths[0])
    parts = [
        _find_one(*entry, *kwargs, render_mode, pipeline.at("render_mode"), engine_rows)
        for entry, kwargs in zip(targets, each_kwargs, strict=True)
    ]
    if isinstance(target, tuple):
        return of_parts(tuple(part.target for part in parts), parts, source)
    if isinstance(env_kwargs, (tuple, list)):
        return of_parts(parts[0].target, parts, source)
    return parts[0]


def _each(values: Any, source: SourceRef, n: int) -> list[tuple[Any, SourceRef]]:
    """The entries of a list and where each was written; anything else n times."""
    if isinstance(values, (tuple, list)):
        return [(value, source.at(i)) for i, value in enumerate(values)]
    return [(values, source)] * n


def of_parts(target: Any, parts: Sequence[Environment], source: SourceRef) -> Environment:
    """Return what makes sub-environments each in its own way."""
    return Environment(
        target,
        tuple(part.factories[0] for part in parts),
        parts=tuple(parts),
        is_game=any(part.is_game for part in parts),
        engine_rows=parts[0].engine_rows,
        source=source,
    )


def _find_one(
    target: Any,
    source: SourceRef,
    env_kwargs: Mapping[str, Any],
    kwargs_source: SourceRef,
    render_mode: str | None,
    mode_source: SourceRef,
    engine_rows: int | None,
) -> Environment:
    kwargs = {key: normalise(value) for key, value in env_kwargs.items()}
    if render_mode is None:
        mode_source = kwargs_source.at("render_mode")
    elif render_mode == "human":
        kwargs["render_mode"] = "rgb_array"
    else:
        kwargs["render_mode"] = render_mode
    rendering = RenderMode(kwargs.get("render_mode"), str(mode_source), render_mode == "human")
    settings: dict[str, Any] = {
        "render_mode": rendering,
        "kwargs": env_kwargs,
        "source": source,
        "kwargs_source": kwargs_source,
        "engine_rows": engine_rows,
    }
    if isinstance(target, str) and (remedy := moved_games(target)):
        raise SpecError(f'{source} "{target}": {remedy}')
    if isinstance(target, str) and target.startswith(f"{PETTINGZOO}:"):
        game = find_game(target.partition(":")[2], kwargs, f'{source} "{target}"')
        return Environment(str(game), (game,), is_game=True, **settings)
    make = target
    if isinstance(target, str):
        make = _find(target, source)
    if isinstance(make, EnvSpec):
        name, spec = _registered(target, make, source)
        return Environment(name, (MakeEnvironment(spec, kwargs, rendering),), spec, **settings)
    name = callable_name(make)
    rendering.refuse_undeclared(make, name)
    factory = make
    if kwargs:
        factory = MakeByCalling(make, kwargs)
    environment = Environment(target, (factory,), is_game=makes_games(make), **settings)
    environment.refuse_arguments(make, name, kwargs)
    return environment


def engine_of(entry_point: Any) -> str | None:
    """Return the package that an environment's own distribution needs, but does not install."""
    needed = of_module(_NEEDS, entry_point)
    if needed is None:
        return None
    return needed[0]


def of_module(table: Mapping[str, Value], entry_point: Any) -> Value | None:
    """Return the first value of a table whose key, a prefix with a dot, fits a module's name."""
    path = f"{module_of(entry_point)}."
    return next((value for prefix, value in table.items() if path.startswith(prefix)), None)


def module_of(entry_point: Any) -> str:
    """The name of the module that an import path or an object is in, or ``""``."""
    if isinstance(entry_point, str):
        return entry_point.partition(":")[0]
    return str(getattr(entry_point, "__module__", ""))


# -- ids -------------------------------------------------------------------------------------------


def _find(target: str, source: SourceRef) -> EnvSpec | Callable[..., Any]:
    """Look up an environment by its id, or after ``module:`` a callable, a game's module or an id.

    A callable counts before an id of the same name, which can only be an id without a version.
    """
    module_name, colon, name = target.rpartition(":")
    if not colon:
        if (found := lookup(name)) is not None:
            return found
        _refuse_near_miss(target, name, source)
        remedy = (
            package_hint(name)
            or _as_path(name)
            or _near(target, registry)
            or ' An id of a package that is not imported yet is written "module:Id-v0"; so is a '
            'callable, "module:attr".'
        )
        raise SpecError(f'{source} "{target}": unknown environment.{remedy}')
    if remedy := install_hint(module_name):
        raise SpecError(f'{source} "{target}": there is no module {module_name}. {remedy.strip()}')
    module: Any = imported(module_name, str(source))
    member: Any = functools.reduce(
        lambda holder, part: getattr(holder, part, _ABSENT), name.split("."), module
    )
    if callable(member):
        return member  # type: ignore[no-any-return]
    if (found := _registered_as(name)) is not None:
        return found
    modules = (found.name for found in iter_modules(getattr(module, "__path__", ())))
    if member is _ABSENT and name in modules:
        member = imported(f"{module_name}.{name}", str(source))
    if isinstance(member, ModuleType) and (path := game_path_of(member)):
        return import_target(path, str(source))
    return _not_in_module(target, member, module, source)


def lookup(name: str) -> EnvSpec | None:
    """Find a registration; ale-py's ids are found even if nobody has imported it."""
    found = _registered_as(name)
    if found is None and "ale_py" not in sys.modules and is_installed("ale_py"):
        importlib.import_module("ale_py")
        found = _registered_as(name)
    return found


def _registered_as(name: str) -> EnvSpec | None:
    """Find the registration of an id, or the newest one of an id without a version."""
    if name in registry:
        found: EnvSpec = registry[name]
        return found
    try:
        namespace, short, version = parse_env_id(name)
    except (gymnasium.error.Error, ValueError):  # ValueError: a version of too many digits
        return None
    if version is not None:
        return None
    return registry.get(f"{name}-v{find_highest_version(namespace, short)}")


def _refuse_near_miss(target: str, name: str, source: SourceRef) -> None:
    """Refuse an id that needs another package, or that is registered in another version."""
    if _ATARI.fullmatch(name) and not is_installed("ale_py"):
        raise SpecError(f"{source.location}{target} needs ale-py: {install_command('atari')}")
    stem = name.rpartition("-v")[0]
    others = [
        env_id
        for env_id in registry
        if stem and (env_id.rpartition("-v")[0] == stem or env_id.endswith(f"/{name}"))
    ]
    if others:
        raise SpecError(
            f'{source} "{target}": there is no such version; there is '
            f"{', '.join(filter(_is_made, others))}."
        )


def _is_made(env_id: str) -> bool:
    """Whether Gymnasium can still make an environment, unlike versions 2 and 3 of MuJoCo's."""
    return getattr(registry[env_id].entry_point, "__name__", "") != "_raise_mujoco_py_error"


def _not_in_module(target: str, member: Any, module: Any, source: SourceRef) -> NoReturn:
    """Refuse ``module:name``, with what was looked for in the module and what was found."""
    module_name, _, name = target.rpartition(":")
    _refuse_near_miss(target, name, source)
    if member is not _ABSENT:
        raise SpecError(
            f'{source} "{target}": expected a callable that makes an environment, or an id, got '
            f"{short_repr(member)}, which {module_name} holds under this name."
        )
    known = [*registry, *(key for key, value in vars(module).items() if callable(value))]
    raise SpecError(
        f'{source} "{target}": unknown environment: {module_name} holds no {name}, and no id is '
        f"registered as {name}.{_near(name, known, module_name)}"
    )


def _as_path(name: str) -> str:
    """Suggest the import path of a name with dots, or ``""`` if it cannot be one."""
    path = ":".join(name.rsplit(".", 1))
    if is_import_path(path):
        return f' An import path has a colon before its last part: "{path}".'
    return ""


def _near(name: str, known: Iterable[str], module: str = "") -> str:
    """A similar name, which is compared without the module that all share."""
    hint = did_you_mean(name, known)
    if not module:
        return hint
    return hint.replace('"', f'"{module}:', 1)


def _registered(
    target: str | EnvSpec, spec: EnvSpec, source: SourceRef
) -> tuple[str | EnvSpec, EnvSpec]:
    """Return the versioned target and its registration, both usable in other processes.

    A registration that other processes cannot use is refused.
    """
    name = spec.id
    if isinstance(target, str):
        module_name, colon, _ = target.rpartition(":")
        name = f"{module_name}{colon}{name}"
        target = name
    if spec.entry_point is None:
        raise SpecError(
            f'{source} "{name}": is registered without an entry point for one environment.'
        )
    if not _is_made(spec.id):
        raise SpecError(
            f'{source} "{name}": Gymnasium no longer has this version; gymnasium-robotics does. '
            f'"{spec.id.rpartition("-v")[0]}" is the newest one.'
        )
    if isinstance(spec.entry_point, str):
        needed = of_module(_NEEDS, spec.entry_point)
        if needed and not is_installed(needed[0]):
            raise SpecError(
                f"{source.location}{name} needs {needed[0].replace('_', '-')}: {needed[1]()}"
            )
    keys = ("entry_point", "vector_entry_point")
    entry_points = {key: without_main(getattr(spec, key)) for key in keys}
    return target, dataclasses.replace(spec, **entry_points)


# -- games of several agents -----------------------------------------------------------------------


def find_game(name: str, kwargs: Mapping[str, Any], where: str) -> MakeGame:
    """Find an id in PettingZoo's registry; prefer the parallel form if a game has both forms."""
    if not is_installed(PETTINGZOO):
        raise SpecError(
            f"{where} needs PettingZoo: {install_command('games')} (with a game's own packages, as "
            'in "pettingzoo[classic]").'
        )
    import pettingzoo

    registries = (
        getattr(pettingzoo, "parallel_registry", None),
        getattr(pettingzoo, "aec_registry", None),
    )
    if None in registries:
        raise SpecError(
            f"{where}: the installed PettingZoo has no registry, which came with 1.27; give what "
            "makes the game, pettingzoo.classic.connect_four_v3.env for instance."
        )
    from pettingzoo.env_registry.helpers import find_spec

    for kind, games in zip(("parallel", "aec"), registries, strict=True):
        try:
            spec = find_spec(games, name)
        except Exception:  # of several kinds, all of which say that it is not in this registry
            continue
        spec = dataclasses.replace(spec, entry_point=without_main(spec.entry_point))
        return MakeGame(kind, spec, kwargs)
    known = sorted({*pettingzoo.parallel_registry, *pettingzoo.aec_registry})
    raise SpecError(f"{where}: PettingZoo has no such game.{_near(name, known, PETTINGZOO)}")


def of_raw_game(make: Any) -> Any:
    """Return the ``raw_env`` behind a PettingZoo function of any arguments, else ``make``.

    Such a function accepts any arguments, so its signature does not describe the game's.
    """
    only_kwargs: tuple[Any, ...] = ([], None, "kwargs")
    for _ in range(2):  # parallel_env calls env, which calls raw_env
        if isinstance(make, FunctionType) and inspect.getfullargspec(make)[:3] == only_kwargs:
            variables = {**make.__globals__, **inspect.getclosurevars(make).nonlocals}
            make = variables.get("raw_env") or variables.get("env_fn") or make
    return make
