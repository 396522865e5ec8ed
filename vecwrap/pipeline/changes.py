"""The keys of a pipeline: how their values are read, changed and written; and how one file is written over another.

The section ``eval`` has the same keys, for what differs in an evaluation. It is kept as pending changes: a list of
wrappers replaces the pipeline's, a mapping changes the wrappers it names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeAlias

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.envs.registration import registry as registered
from gymnasium.vector import AutoresetMode

from vecwrap.env import hints
from vecwrap.errors import Mistakes, PlanError, SpecError, did_you_mean, printable, read_names
from vecwrap.pipeline import registry
from vecwrap.pipeline.environments import from_module
from vecwrap.pipeline.places import Place, Source, Steps, fail
from vecwrap.pipeline.signatures import Signature, written_as
from vecwrap.pipeline.values import (
    Settings,
    Whole,
    as_data,
    canonical,
    copied,
    is_mapping,
    is_scalar,
    merged,
    plain,
    shown,
)
from vecwrap.pipeline.words import BACKEND_OPTIONS, BackendSpec, WrapperSpec, read_arguments, read_wrappers
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.description import of_several_agents
from vecwrap.sources.import_paths import import_path
from vecwrap.wrappers.presets import Preset

EnvTarget: TypeAlias = str | EnvSpec | Callable[..., Any] | tuple[str | EnvSpec | Callable[..., Any], ...]


@dataclass(frozen=True)
class Key:
    """The operations on the value of one key."""

    # makes the value from what was written; accepts a value that has been read, too. None: the default
    read: Callable[[Any, Source], Any]
    # makes the value from the old one and a mapping that is written over it; None if that replaces it
    change: Callable[[Any, Mapping[Any, Any], Source], Any] | None = None
    write: Callable[[Any], Any] = lambda value: value  # makes plain data from the value


def refuse_unknown(key: Any, known: Sequence[str], source: Source) -> None:
    """Refuse an unknown key, with a similar one, or the place for an environment's arguments."""
    if key in known:
        return
    name = key if isinstance(key, str) else shown(key)
    hint = other_word(name).removesuffix(".") or did_you_mean(name.lower(), known)
    if not hint and name.isidentifier() and name not in KEYS:
        hint = " What the environment takes goes into env_kwargs"
    fail(f"{source.at(key).place}{source.at(name).label()}", f"unknown key.{hint}")


def other_word(name: str) -> str:
    """What a key of another library is called here: ``" The number of sub-environments is called n."``, or ``""``."""
    here = hints.hint(hints.KEYS, name)
    if name in BACKEND_OPTIONS:
        here = f"It is an option of the backend: backend.{name}=... in a line, backend: {{{name}: ...}} in a file"
    return f" {here}." if here else ""


# -- scalars ----------------------------------------------------------------------------------------------------------


def _read_env(env: Any, source: Source) -> EnvTarget:
    if isinstance(env, str) or not isinstance(env, Sequence):
        return _read_one_env(env, source)
    each = tuple(_read_one_env(one, source.at(index)) for index, one in enumerate(env))
    return each or fail(source, "expected at least one environment, got an empty list")


def _read_one_env(env: Any, source: Source) -> str | EnvSpec | Callable[..., Any]:
    if isinstance(env, str):
        return env.strip() or fail(source, "expected an environment id, got an empty text")
    if isinstance(env, EnvSpec):
        return env.id if canonical(registered.get(env.id)) == canonical(env) else env
    if isinstance(env, ModuleType) and (path := from_module(env)):
        return path
    if callable(env):
        return import_path(env) or env
    remedy = of_several_agents(env)
    if isinstance(env, gymnasium.vector.VectorEnv):
        remedy = "vecwrap.wrap puts wrappers around a vector environment"
    elif isinstance(env, gymnasium.Env):
        remedy = (
            "Each sub-environment is created separately, so pass a callable that makes one: lambda: gymnasium.make(...)"
        )
    got = f"expected an environment id or a callable that makes one environment, got {shown(env)}"
    return fail(source, f"{got}. {remedy}" if remedy else got)


def _write_env(env: EnvTarget, where: str = "env") -> Any:
    if isinstance(env, tuple):
        return [_write_env(one, f"env[{index}]") for index, one in enumerate(env)]
    if isinstance(env, str):
        return env
    if isinstance(env, EnvSpec):
        fail(
            where,
            f"an EnvSpec that differs from what is registered as {env.id} lives in this process only; write the id "
            "with env_kwargs (max_episode_steps among them) and wrappers, or register the spec under an id of its own",
        )
    return fail(where, f"{shown(env)} lives in this process only; register an id or give an import path")


def _of(kind: type, words: str) -> Callable[[Any, Source], Any]:
    """What reads a value of one type, in NumPy's form too, or null."""

    def read(value: Any, source: Source) -> Any:
        data = as_data(copied(value))
        if data is None or (type(data) is kind and is_scalar(data) and data != ""):
            return data
        return fail(source, f"expected {words}, got {shown(value)}.{written_as(data, [kind])}")

    return read


def _read_autoreset(value: Any, source: Source) -> str:
    if not isinstance(value, (str, Autoreset, AutoresetMode)) or len(str(value)) > 60:
        fail(source, f"expected one of {', '.join(mode.value for mode in Autoreset)}, got {shown(value)}")
    try:
        return Autoreset.parse(value).value
    except PlanError as error:
        raise SpecError(f"{source.place}{printable(str(error))}") from None


def _or_none(read: Callable[[Any, Source], Any]) -> Callable[[Any, Source], Any]:
    return lambda value, source: None if value is None else read(value, source)


# -- what has parts ---------------------------------------------------------------------------------------------------


def _read_env_kwargs(value: Any, source: Source) -> Settings | tuple[Settings, ...] | None:
    if isinstance(value, Sequence) and not isinstance(value, str):
        each = tuple(_read_mapping(one, source.at(index)) for index, one in enumerate(value))
        return each or fail(source, "expected a mapping for each sub-environment, got an empty list")
    return None if value is None else _read_mapping(value, source)


def _read_mapping(value: Any, source: Source) -> Settings:
    if not hasattr(type(value), "keys"):  # what ``**`` takes: a ConfigDict is no Mapping
        fail(source, f"expected a mapping of names to values, got {shown(value)}")
    for key in value:
        if not isinstance(key, str):
            fail(source, f"expected the name of an argument, got {shown(key)}")
    return Settings(merged(None, dict(value)))


def _change_env_kwargs(old: Any, changes: Mapping[Any, Any], source: Source) -> Settings | tuple[Settings, ...]:
    """Change what is given for all sub-environments; of a list, each mapping, or those that are named by number."""
    if not isinstance(old, tuple):
        return _read_mapping(merged(old, dict(changes)), source)
    if not (changes and all(map(_is_number, changes))):
        return tuple(_read_mapping(merged(one, dict(changes)), source) for one in old)
    each = list(old)
    for number, change in changes.items():
        if int(number) >= len(each):
            fail(source.at(number), f"there are {len(each)} mappings, numbered from 0")
        each[int(number)] = _read_mapping(merged(each[int(number)], change), source.at(number))
    return tuple(each)


def _read_agents(value: Any, source: Source) -> tuple[str, ...] | Settings | None:
    """Read the names of agents that are rows, or whether unequal spaces are padded."""
    expected = "expected a list of agents' names, or {pad: true}, got"
    if value is None:
        return None
    if is_mapping(value):
        if set(value) - {"pad"} or not isinstance(value.get("pad", False), bool):
            fail(source, f"{expected} {shown(value)}")
        return Settings({"pad": True}) if value.get("pad") else None
    if isinstance(value, str):
        value = read_names(value)
    if not isinstance(value, Sequence) or not all(isinstance(name, str) and name for name in value):
        fail(source, f"{expected} {shown(value)}")
    if not value or len(set(value)) < len(value):
        fail(source, f"expected each agent once, and one at least, got {shown(value)}")
    return tuple(value)


def _change_backend(old: Any, changes: Mapping[Any, Any], source: Source) -> BackendSpec:
    """Options change those of the backend; a name comes with its own, and discards the old ones."""
    parsed = BackendSpec.parse(merged(None, dict(changes)), source)
    if "name" in changes or not isinstance(old, BackendSpec):
        return parsed
    return BackendSpec(old.target, merged(old.options, parsed.options))


# -- the section eval -------------------------------------------------------------------------------------------------


def _change_eval(old: Any, changes: Any, source: Source) -> Settings:
    if not isinstance(changes, Mapping):
        fail(source, f"expected a mapping of what differs in an evaluation, got {shown(changes)}")
    section, mistakes = dict(old or {}), Mistakes()
    for key, value in changes.items():
        with mistakes:
            refuse_unknown(key, [name for name in KEYS if name != "eval"], source)
            section[key] = _for_evaluation(key, section.get(key), value, source.at(key))
    mistakes.raise_all()
    return Settings(section)


def _for_evaluation(key: str, old: Any, written: Any, source: Source) -> Any:
    """The value of a key in the section, where a mapping waits to be written over the pipeline's own value."""
    if isinstance(written, Whole):
        old, written = None, written.value
    known = KEYS[key]
    is_value = not isinstance(written, Mapping) or key == "agents" or (key == "backend" and "name" in written)
    if is_value or known.change is None:
        return known.read(merged(None, dict(written)) if isinstance(written, Mapping) else written, source)
    waits = old is None or isinstance(old, Mapping)
    return Settings(merged(old, dict(written))) if waits else known.change(old, written, source)


def _write_eval(section: Mapping[str, Any]) -> dict[str, Any]:
    written = {}
    for key, value in section.items():
        waits = value is None or isinstance(value, Mapping)
        written[key] = plain(value, "eval") if waits else KEYS[key].write(value)
    return written


KEYS: dict[str, Key] = {
    "env": Key(_read_env, write=_write_env),
    **dict.fromkeys(("n", "seed", "start_index", "batch_size", "envs_per_engine"), Key(_of(int, "int"))),
    **dict.fromkeys(("copy", "debug", "training"), Key(_of(bool, "true or false"))),
    "autoreset": Key(_or_none(_read_autoreset)),
    "render_mode": Key(_of(str, "text")),
    "stats": Key(_of(str, "a path")),
    "backend": Key(BackendSpec.parse, _change_backend, BackendSpec.to_data),
    "env_kwargs": Key(_read_env_kwargs, _change_env_kwargs, lambda value: plain(value, "env_kwargs")),
    "agents": Key(
        _read_agents,
        lambda old, changes, source: _read_agents(merged(None, dict(changes)), source),
        lambda value: list(value) if isinstance(value, tuple) else plain(value, "agents"),
    ),
    "wrappers": Key(
        _or_none(read_wrappers),  # an empty list means no wrappers at all, null means not given
        lambda old, changes, source: change_wrappers(old or (), changes, source),
        lambda wrappers: [wrapper.to_data() for wrapper in wrappers],
    ),
    "eval": Key(_or_none(lambda value, source: _change_eval(None, value, source)), _change_eval, _write_eval),
}


# -- changes to single wrappers of a list ------------------------------------------------------------------------------


def change_wrappers(
    wrappers: Sequence[WrapperSpec], changes: Mapping[Any, Any], source: Source
) -> tuple[WrapperSpec, ...]:
    """Return the wrappers with other arguments; what is not named stays."""
    changed = list(wrappers)
    for step, change in changes.items():
        index = find_wrapper(wrappers, step, source)
        changed[index] = _changed(changed[index], step, change, source.at(step))
    return tuple(changed)


def find_wrapper(wrappers: Sequence[WrapperSpec], step: Any, source: Source) -> int:
    """Return the number of the wrapper that a name or number refers to."""
    names = [wrapper.name for wrapper in wrappers]
    if _is_number(step):
        if int(step) >= len(wrappers):
            fail(source.at(step), f"there are {len(wrappers)} wrappers, numbered from 0.{_all(names)}")
        return int(step)
    if not isinstance(step, str):
        fail(source, f"expected the name or number of a wrapper, got {shown(step)}")
    found = [index for index, name in enumerate(names) if step in (name, name.rpartition(":")[2])]
    if not found:
        fail(source.at(step), f"there is no such wrapper.{did_you_mean(step, names) or _all(names)}")
    if len(found) > 1:
        numbers = " or ".join(f"{source.at(str(index)).label()}" for index in found)
        fail(source.at(step), f"there are {len(found)} wrappers of this name. Say which by its number: {numbers}")
    return found[0]


def _is_number(step: Any) -> bool:
    if isinstance(step, str):
        return step.isascii() and step.isdigit() and len(step) < 10
    return type(step) is int and step >= 0


def _all(names: Sequence[str]) -> str:
    return f" They are {', '.join(names)}, inner first." if names else " There are none."


def _changed(wrapper: WrapperSpec, step: Any, change: Any, source: Source) -> WrapperSpec:
    if isinstance(change, Mapping):
        for name, value in change.items():
            wrapper = with_argument(wrapper, name, value, source)
        return wrapper
    whole = change.value if isinstance(change, Whole) else change
    if _is_number(step):
        return WrapperSpec.parse(whole, source)
    args, kwargs = read_arguments(whole, f'{source} "{wrapper.name}"')
    replaced = Source(steps=wrapper.source.steps, otherwise=source.place)  # its old places no longer apply
    return dataclasses.replace(wrapper, args=args, kwargs=kwargs, source=replaced)


def with_argument(wrapper: WrapperSpec, name: Any, change: Any, source: Source) -> WrapperSpec:
    """Return a wrapper with another argument; one that was given without its name has it then."""
    if not isinstance(name, str) or not name.isidentifier():
        fail(source, f"expected the name of an argument, got {shown(name)}")
    args, kwargs = wrapper.args, dict(wrapper.kwargs)
    if args and name not in kwargs:
        target = registry.wrappers.find(wrapper.target, wrapper.where)
        parameters = Signature.of(target, skip=0 if isinstance(target, Preset) else 1).parameters
        names = [parameter.name for parameter in parameters if parameter.by_position]
        if name in names[: len(args)]:
            args, kwargs = args[len(names) :], {**dict(zip(names, args, strict=False)), **kwargs}
    kwargs[name] = merged(kwargs.get(name), change)
    within = (*wrapper.source.steps, wrapper.name, name)
    written = wrapper.source.with_place(within, source.at(name).place)
    return dataclasses.replace(wrapper, args=args, kwargs=kwargs, source=written)


# -- a pipeline under construction ------------------------------------------------------------------------------------


@dataclass
class Draft:
    """The settings of a pipeline so far, and where each was written."""

    settings: dict[str, Any] = field(default_factory=dict)
    places: dict[Steps, Place] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: Any) -> Draft:
        """The settings of a ``PipelineSpec``, to be changed."""
        return cls({name: getattr(spec, name) for name in KEYS}, dict(spec.source.places))

    def write_over(self, data: Mapping[Any, Any], source: Source) -> None:
        """Apply the contents of a file over the settings so far.

        Mappings are merged key by key; a list replaces the previous one. Wrappers given as a mapping change the
        existing ones; a backend given as a mapping without a name changes the options of the existing one.
        """
        mistakes = Mistakes()
        for key, value in data.items():
            with mistakes:
                refuse_unknown(key, list(KEYS), source)
                self._take(key, value, source.at(key))
        mistakes.raise_all()
        if () in source.places:
            self.places[()] = source.places[()]

    def set(self, key: str, value: Any, place: Place) -> None:
        """Replace the value of a key; one with dots (``wrappers.framestack.k``) reaches inside."""
        first, *steps = key.split(".")
        source = Source({(first, *steps): place}, (), place)
        if steps and first in KEYS and KEYS[first].change is None:
            inside = ", ".join(name for name, known in KEYS.items() if known.change is not None)
            fail(source.at(first, *steps), f"{first} has no settings of its own; {inside} have")
        written: Any = Whole(value)
        for step in reversed(steps):
            written = {step: written}
        self.write_over({first: written}, source)

    def _take(self, key: str, written: Any, source: Source) -> None:
        known = KEYS[key]
        change = known.change if isinstance(written, Mapping) and key in self.settings else None
        if change is not None:
            self.settings[key] = change(self.settings[key], written, source)
        else:
            self.settings[key] = known.read(written.value if isinstance(written, Whole) else written, source)
            self.places = {steps: place for steps, place in self.places.items() if steps[:1] != (key,)}
            self.places[(key,)] = source.place
        length = len(source.steps)
        below = {steps: place for steps, place in source.places.items() if steps[:length] == source.steps}
        if change is not None and "name" not in written:  # the value itself is still where it was
            below.pop(source.steps, None)
        self.places.update({(key, *steps[length:]): place for steps, place in below.items()})
