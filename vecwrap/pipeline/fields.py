"""The keys of a pipeline: how the value of each is read, and how it is written into a file.

The section ``eval`` has the same keys, for what differs in an evaluation. There a mapping waits for
the pipeline's own value, over which it is written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias

import gymnasium
import msgspec
from gymnasium.envs.registration import EnvSpec
from gymnasium.envs.registration import registry as registered
from gymnasium.vector import AutoresetMode

from vecwrap.env import hints
from vecwrap.errors import PlanError, SpecError, did_you_mean, printable, read_names
from vecwrap.pipeline.elements import BACKEND_OPTIONS, BackendSpec, EngineSpec, read_wrappers
from vecwrap.pipeline.error_collector import ErrorCollector
from vecwrap.pipeline.scalars import is_scalar
from vecwrap.pipeline.signatures import written_as
from vecwrap.pipeline.source_map import SourceRef, fail
from vecwrap.pipeline.values import (
    Settings,
    is_mapping,
    normalise,
    same_content,
    short_repr,
    to_data,
    to_file,
)
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.description import game_hint, game_path_of
from vecwrap.sources.import_paths import import_path

EnvTarget: TypeAlias = (
    str | EnvSpec | Callable[..., Any] | tuple[str | EnvSpec | Callable[..., Any], ...]
)


def refuse_unknown(key: Any, known: Collection[str], source: SourceRef) -> None:
    """Refuse an unknown key, with a similar one, or the place for an environment's arguments."""
    if key in known:
        return
    name = key
    if not isinstance(key, str):
        name = short_repr(key)
    hint = other_name(name).removesuffix(".") or did_you_mean(name.lower(), known)
    if not hint and name.isidentifier() and name not in KEYS:
        hint = " What the environment takes goes into env_kwargs"
    fail(f"{source.at(key).location}{source.at(name).label()}", f"unknown key.{hint}")


# -- reading; what has been read is read again as it is --------------------------------------------


def read(key: str, value: Any, source: SourceRef) -> Any:
    """Return the value of a key as a pipeline keeps it: what was given, copied."""
    if value is None and key != "env":
        return None
    return KEYS[key].read(value, source)


def _read_one(kind: Any, words: str, value: Any, source: SourceRef) -> Any:
    """Read a value of one type, in NumPy's form too."""
    data = to_data(normalise(value))
    try:
        if is_scalar(data) and data != "":  # of an int, the size
            return msgspec.convert(data, kind)
    except msgspec.ValidationError:
        pass
    return fail(source, f"expected {words}, got {short_repr(value)}.{written_as(data, [kind])}")


def _read_env(env: Any, source: SourceRef) -> EnvTarget:
    if isinstance(env, str) or not isinstance(env, Sequence):
        return _read_one_env(env, source)
    each = tuple(_read_one_env(one, source.at(index)) for index, one in enumerate(env))
    return each or fail(source, "expected at least one environment, got an empty list")


def _read_one_env(env: Any, source: SourceRef) -> str | EnvSpec | Callable[..., Any]:
    if isinstance(env, str):
        return env.strip() or fail(source, "expected an environment id, got an empty text")
    if isinstance(env, EnvSpec):
        if same_content(registered.get(env.id), env):
            return env.id
        return env
    if isinstance(env, ModuleType) and (path := game_path_of(env)):
        return path
    if callable(env):
        return import_path(env) or env
    remedy = game_hint(env)
    if isinstance(env, gymnasium.vector.VectorEnv):
        remedy = "vecwrap.wrap puts wrappers around a vector environment"
    elif isinstance(env, gymnasium.Env):
        remedy = (
            "Each sub-environment is created separately, so pass a callable that makes one: "
            "lambda: gymnasium.make(...)"
        )
    got = (
        "expected an environment id or a callable that makes one environment, got "
        f"{short_repr(env)}"
    )
    return fail(source, ". ".join(filter(None, (got, remedy))))


def _read_autoreset(value: Any, source: SourceRef) -> str:
    if not isinstance(value, (str, Autoreset, AutoresetMode)) or len(str(value)) > 60:
        fail(
            source,
            (
                f"expected one of {', '.join(mode.value for mode in Autoreset)}, got "
                f"{short_repr(value)}"
            ),
        )
    try:
        return Autoreset.parse(value).value
    except PlanError as error:
        raise SpecError(f"{source.location}{printable(str(error))}") from None


def _read_env_kwargs(value: Any, source: SourceRef) -> Settings | tuple[Settings, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        each = tuple(_read_mapping(one, source.at(index)) for index, one in enumerate(value))
        return each or fail(
            source, "expected a mapping for each sub-environment, got an empty list"
        )
    return _read_mapping(value, source)


def _read_mapping(value: Any, source: SourceRef) -> Settings:
    if not hasattr(type(value), "keys"):  # what ``**`` takes: a ConfigDict is not a Mapping
        fail(source, f"expected a mapping of names to values, got {short_repr(value)}")
    for key in value:
        if not isinstance(key, str):
            fail(source, f"expected the name of an argument, got {short_repr(key)}")
    return Settings(value)


def _read_agents(value: Any, source: SourceRef) -> tuple[str, ...] | Settings | None:
    """Read the names of agents that are rows, or whether unequal spaces are padded."""
    expected = "expected a list of agents' names, or {pad: true}, got"
    given = value
    if isinstance(value, str):
        given = read_names(value)
    try:
        agents = msgspec.convert(given, tuple[str, ...] | dict[Literal["pad"], bool])
    except msgspec.ValidationError:
        fail(source, f"{expected} {short_repr(value)}")
    if isinstance(agents, dict):
        if agents.get("pad"):
            return Settings(agents)
        return None
    if "" in agents:
        fail(source, f"{expected} {short_repr(value)}")
    if not agents or len(set(agents)) < len(agents):
        fail(source, f"expected each agent once, and one at least, got {short_repr(value)}")
    return agents


def _read_eval(section: Any, source: SourceRef) -> Settings:
    if not isinstance(section, Mapping):
        fail(
            source,
            f"expected a mapping of what differs in an evaluation, got {short_repr(section)}",
        )
    values = {}
    errors = ErrorCollector()
    for key, value in section.items():
        with errors:
            refuse_unknown(key, KEYS.keys() - {"eval"}, source)
            is_named = key in ("backend", "engine") and is_mapping(value) and "name" in value
            waits = key in _WAITING and isinstance(value, Mapping) and not is_named
            if waits:
                values[key] = dict(value)
            else:
                values[key] = read(key, value, source.at(key))
    errors.raise_all()
    return Settings(values)


# -- writing ---------------------------------------------------------------------------------------


def write(key: str, value: Any) -> Any:
    """Return the value of a key as a file holds it, which ``read`` reads back."""
    return KEYS[key].write(value)


def _write_env(env: EnvTarget, where: str = "env") -> Any:
    if isinstance(env, tuple):
        return [_write_env(one, f"env[{index}]") for index, one in enumerate(env)]
    if isinstance(env, str):
        return env
    if isinstance(env, EnvSpec):
        fail(
            where,
            f"an EnvSpec that differs from what is registered as {env.id} lives in this process "
            "only; write the id with env_kwargs (max_episode_steps among them) and wrappers, or "
            "register the spec under an id of its own",
        )
    return fail(
        where,
        f"{short_repr(env)} lives in this process only; register an id or give an import path",
    )


def _write_eval(section: Mapping[str, Any]) -> dict[str, Any]:
    written = {}
    for key, value in section.items():
        waits = value is None or isinstance(value, Mapping)
        if waits:
            written[key] = to_file(value, "eval")
        else:
            written[key] = write(key, value)
    return written


class Field(NamedTuple):
    """How the value of one key is read, and how it is written into a file."""

    read: Callable[[Any, SourceRef], Any]
    write: Callable[[Any], Any] = lambda value: value


KEYS: dict[str, Field] = {
    "env": Field(_read_env, _write_env),
    **dict.fromkeys(
        ("n", "seed", "start_index", "batch_size", "envs_per_engine"),
        Field(functools.partial(_read_one, int, "int")),
    ),
    **dict.fromkeys(
        ("copy", "debug", "training"), Field(functools.partial(_read_one, bool, "true or false"))
    ),
    "autoreset": Field(_read_autoreset),
    "render_mode": Field(functools.partial(_read_one, str, "text")),
    "stats": Field(functools.partial(_read_one, str, "a path")),
    "backend": Field(BackendSpec.parse, BackendSpec.to_data),
    "engine": Field(EngineSpec.parse, EngineSpec.to_data),
    "env_kwargs": Field(_read_env_kwargs, lambda value: to_file(value, "env_kwargs")),
    "agents": Field(_read_agents, lambda value: to_file(value, "agents")),
    "wrappers": Field(read_wrappers, lambda wrappers: [wrapper.to_data() for wrapper in wrappers]),
    "eval": Field(_read_eval, _write_eval),
}
_WAITING = ("backend", "engine", "env_kwargs", "wrappers")


# -- what a key is called elsewhere ----------------------------------------------------------------


def other_name(name: str) -> str:
    """Translate a key of another library into a hint, or return ``""``.

    For example ``" The number of sub-environments is called n."``.
    """
    here = hints.hint(hints.KEY_HINTS, name)
    if name in BACKEND_OPTIONS:
        here = (
            f"It is an option of the backend: backend.{name}=... in a line, backend: {{{name}: "
            "...} in a file"
        )
    if here:
        return f" {here}."
    return ""
