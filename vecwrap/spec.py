"""The pipeline as data: one frozen spec behind strings, dicts and YAML files.

Reading is a matter of grammar alone: no name is looked up, nothing is imported, nothing is evaluated. Whether the names
exist and the arguments fit is for the plan to say.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from vecwrap.contract import Autoreset
from vecwrap.errors import PlanError, SpecError, did_you_mean
from vecwrap.layer_spec import LayerSpec, read_layer_text, read_layers
from vecwrap.scalars import quoted, write_scalar
from vecwrap.values import (
    Settings,
    Source,
    callable_name,
    canonical,
    fail,
    fail_where,
    identity,
    import_path,
    is_scalar,
    plain,
    scalar,
    shown,
    split,
)
from vecwrap.yaml_file import read_text, read_yaml, write_yaml

__all__ = ["BackendSpec", "EnvTarget", "LayerSpec", "PipelineSpec"]

EnvTarget: TypeAlias = str | Callable[..., Any] | tuple[Callable[..., Any], ...]


@dataclass(frozen=True, eq=False)
class BackendSpec:
    """Which backend runs the sub-environments, and with which options.

    Attributes:
        target: a registered name, ``"auto"``, an import path, or in Python a backend class.
        options: ``workers``, ``envs_per_worker``, ``start_method``, ``daemon``, and what else the backend has.
    """

    target: str | Callable[..., Any] = "auto"
    options: Mapping[str, Any] = field(default_factory=Settings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", Settings(self.options))

    @classmethod
    def parse(cls, backend: Any, source: Source) -> BackendSpec:
        """Read ``shmem``, ``"shmem:workers=2"``, ``{name: shmem, workers: 2}``, a class, or a BackendSpec."""
        if isinstance(backend, BackendSpec):
            return backend
        if isinstance(backend, Mapping):
            options = {key: value for key, value in backend.items() if key != "name"}
            for key in options:
                if not isinstance(key, str):
                    fail(source, f"expected a name for each option, got {shown(key)}")
            name = backend.get("name", "auto")
            if not isinstance(name, str) and not callable(name):
                fail(source.at("name"), f"expected the name of a backend, got {shown(name)}")
            return cls(import_path(name) or name if callable(name) else name, options)
        if isinstance(backend, str):
            target, args, kwargs = read_layer_text(backend, source)
            if args:
                fail(source, f'expected options by name, got {shown(args[0])}. Write "{target}:workers=2"')
            return cls(target, kwargs)
        if callable(backend):
            return cls(import_path(backend) or backend)
        return fail(source, f"expected the name of a backend, got {shown(backend)}")

    @property
    def name(self) -> str:
        """The registered name or import path, or what the object calls itself."""
        return self.target if isinstance(self.target, str) else shown(self.target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BackendSpec) and (self.target, canonical(self.options)) == (
            other.target,
            canonical(other.options),
        )

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, eq=False)
class PipelineSpec:
    """Everything that says how to build an environment. Frozen; two specs are equal when they say the same.

    Attributes:
        env: an environment id, ``"module:Id-v0"``, a callable that makes one environment, or a tuple of such callables.
        n: how many sub-environments; None: as many as there are usable cores, or as there are callables.
        seed: used by the first reset without a seed.
        start_index: the index of the first sub-environment, for seeds.
        backend: how the sub-environments run.
        autoreset: ``same_step``, ``next_step``, ``disabled`` or ``episodic``.
        copy: whether every array handed out is the caller's own.
        batch_size: how many rows ``recv`` gives; None: all.
        render_mode: as ``gymnasium.make``.
        env_kwargs: further arguments for ``gymnasium.make``, or for the callables.
        debug: check every action and observation against its space.
        wrappers: the layers, inner first.
        source: where it was written.
    """

    env: EnvTarget
    n: int | None = None
    seed: int | None = None
    start_index: int = 0
    backend: BackendSpec = field(default_factory=BackendSpec)
    autoreset: str = Autoreset.SAME_STEP.value
    copy: bool = True
    batch_size: int | None = None
    render_mode: str | None = None
    env_kwargs: Mapping[str, Any] = field(default_factory=Settings)
    debug: bool = False
    wrappers: tuple[LayerSpec, ...] = ()
    source: Source = field(default_factory=Source, repr=False)

    def __post_init__(self) -> None:
        for name, read in _READERS.items():
            object.__setattr__(self, name, read(getattr(self, name), self.source.at(name)))

    # -- reading -------------------------------------------------------------------------------------------------------

    @classmethod
    def parse(cls, line: str) -> PipelineSpec:
        """Read a pipeline that is written in one line: the environment, settings, then the layers after bars.

        Raises:
            SpecError: where the line cannot be read.

        >>> spec = PipelineSpec.parse("PongNoFrameskip-v4 n=8 backend.workers=2 | atari | framestack:4")
        >>> spec.n, [layer.name for layer in spec.wrappers], spec.backend.options
        (8, ['atari', 'framestack'], {'workers': 2})
        >>> PipelineSpec.parse(format(spec)) == spec
        True
        """
        source = Source()
        head, *layers = split(line, "|", source)
        words = [word for word in split(head, " \t\r\n", source) if word]
        if not words:
            fail(source, "expected an environment id at the start of the line")
        data: dict[str, Any] = {"env": str(scalar(words[0], source)) if words[0][0] in "\"'" else words[0]}
        for word in words[1:]:
            key, equals, text = word.partition("=")
            if not equals:
                fail(source, f'expected key=value or a bar before a layer, got "{word}"')
            _set(data, key, scalar(text, source), source)
        return cls.from_dict({**data, "wrappers": [layer.strip() for layer in layers]})

    @classmethod
    def from_dict(cls, data: Any, source: Source | None = None) -> PipelineSpec:
        """Read a dict with the keys of a pipeline file.

        Raises:
            SpecError: for an unknown key or a value of the wrong kind.

        >>> PipelineSpec.from_dict({"env": "CartPole-v1", "n": 4}) == PipelineSpec("CartPole-v1", n=4)
        True
        """
        source = source or Source()
        if not isinstance(data, Mapping):
            fail(source, f"expected a mapping with the key env, got {shown(data)}")
        known = [f.name for f in dataclasses.fields(cls) if f.name != "source"]
        for key in data:
            if key not in known:
                hint = _OTHER_WORDS.get(key) if isinstance(key, str) else None
                fail(
                    source.at(str(key)),
                    f"unknown key. {hint}" if hint else f"unknown key.{did_you_mean(str(key), known)}",
                )
        if data.get("env") is None:
            fail(source, "the key env is missing: which environment?")
        return cls(**data, source=source)

    @classmethod
    def from_yaml(cls, text: str, file: str = "pipeline", directory: Path | None = None) -> PipelineSpec:
        """Read the text of a pipeline file.

        Args:
            text: YAML 1.2.
            file: its name, for errors.
            directory: that its paths are relative to.

        Raises:
            SpecError: with file and line.
        """
        document = read_yaml(text, file)
        return cls.from_dict(document.value, Source(file, directory, document.lines))

    @classmethod
    def load(cls, path: str | Path) -> PipelineSpec:
        """Read a pipeline file; its paths are relative to it.

        Raises:
            SpecError: with file and line.
        """
        path = Path(path)
        return cls.from_yaml(read_text(path), str(path), path.parent)

    def override(self, **changes: Any) -> PipelineSpec:
        """Give a spec with some settings replaced; what is not named stays.

        Args:
            changes: a pipeline's keys, and ``workers``, ``envs_per_worker``, ``start_method`` and ``daemon``, which
                join the backend's options. A new ``backend`` brings its own options and leaves the old ones behind.

        Raises:
            SpecError: for an unknown key or a value of the wrong kind.

        >>> PipelineSpec("CartPole-v1", n=4).override(n=8, workers=2).to_dict()
        {'env': 'CartPole-v1', 'n': 8, 'backend': {'name': 'auto', 'workers': 2}}
        """
        known = [f.name for f in dataclasses.fields(self) if f.name != "source"] + list(_BACKEND_OPTIONS)
        for key in changes:
            if key not in known:
                fail_where(key, f"unknown setting.{did_you_mean(key, known)}")
        options = {key: changes.pop(key) for key in _BACKEND_OPTIONS if key in changes}
        if options:
            backend = BackendSpec.parse(changes.get("backend", self.backend), Source(steps=("backend",)))
            changes["backend"] = BackendSpec(backend.target, {**backend.options, **options})
        changes = {key: _READERS[key](value, Source(steps=(key,))) for key, value in changes.items()}
        # What was overridden no longer stands in the file.
        lines = {steps: line for steps, line in self.source.lines.items() if not steps or steps[0] not in changes}
        return dataclasses.replace(self, **changes, source=dataclasses.replace(self.source, lines=lines))

    # -- writing -------------------------------------------------------------------------------------------------------

    def format(self) -> str:
        """Write the pipeline in one line, which ``parse`` reads back.

        Raises:
            SpecError: where something in it is no scalar or only lives in this process.
        """
        words = []
        for key, value in self.to_dict().items():
            if key == "env":
                words.append(value if not re.search(r"[\s\"'=|]", value) else quoted(value))
            elif isinstance(value, Mapping):
                words += [self._word(f"{key}.{name}", inner) for name, inner in value.items()]
            elif key != "wrappers":
                words.append(self._word(key, value))
        words = [word.replace("backend.name=", "backend=", 1) for word in words]
        return " | ".join([" ".join(words), *(layer.format() for layer in self.wrappers)])

    def _word(self, key: str, value: Any) -> str:
        if not is_scalar(value) or re.search(r"[\s=|\"']", key):
            fail_where(key, f"{shown(value)} cannot be written in a line; write the pipeline as YAML")
        return f"{key}={write_scalar(value)}"

    def to_dict(self) -> dict[str, Any]:
        """Give plain data that ``from_dict`` reads back; what has its default is left out.

        Raises:
            SpecError: where something only lives in this process.
        """
        data: dict[str, Any] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.name == "env":
                data["env"] = self._written_env()
            elif f.name == "wrappers" and value:
                data["wrappers"] = [layer.to_data() for layer in value]
            elif f.name == "backend" and value != BackendSpec():
                options = plain(value.options, "backend")
                if not isinstance(value.target, str):
                    fail_where("backend", f"{value.name} lives in this process only; give its import path")
                data["backend"] = {"name": value.target, **options} if options else value.target
            elif f.name == "env_kwargs" and value:
                data["env_kwargs"] = plain(value, "env_kwargs")
            elif f.name in _SCALARS and value != f.default:
                data[f.name] = value
        return data

    def to_yaml(self) -> str:
        """Write a pipeline file, which ``from_yaml`` reads back.

        Raises:
            SpecError: where something only lives in this process.
        """
        return write_yaml(self.to_dict(), blocks=("wrappers",))

    def _written_env(self) -> str:
        if isinstance(self.env, str):
            return self.env
        return fail_where("env", f"{shown(self.env)} lives in this process only; register an id or give an import path")

    @property
    def env_name(self) -> str:
        """What the environment is called."""
        if isinstance(self.env, tuple):
            return ", ".join(dict.fromkeys(map(callable_name, self.env)))
        return self.env if isinstance(self.env, str) else callable_name(self.env)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """What the layers are called, inner first."""
        return tuple(layer.name for layer in self.wrappers)

    @property
    def hash(self) -> str:
        """Twelve hexadecimal digits over what changes the stream: environment, kwargs, layers, mode and n.

        Raises:
            SpecError: on a spec that no plan has resolved: its layers' defaults are not known yet.
        """
        if self.n is None or any(layer.not_hashed is None for layer in self.wrappers):
            fail_where("hash", "not known before a plan has filled in the defaults; use plan(spec).pipeline.hash")
        layers = [
            [layer.target, layer.args, {k: v for k, v in layer.kwargs.items() if k not in (layer.not_hashed or ())}]
            for word in self.wrappers
            for layer in word.expanded
        ]
        what = identity([self.env, self.env_kwargs, layers, self.autoreset, self.n])
        content = json.dumps(what, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def where(self, *steps: str | int) -> str:
        """Where a setting was written: ``"pong.yaml:2: n"``."""
        return str(self.source.at(*steps))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PipelineSpec) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((shown(self.env), self.n))

    def _identity(self) -> tuple[Any, ...]:
        return tuple(canonical(getattr(self, f.name)) for f in dataclasses.fields(self) if f.name != "source")

    def __str__(self) -> str:
        """The line that ``format`` writes; objects of this process are shown by name."""
        try:
            return self.format()
        except SpecError:
            return " | ".join([shown(self.env), *map(str, self.wrappers)])


# -- a pipeline's settings --------------------------------------------------------------------------------------------


def _read_env(env: Any, source: Source) -> EnvTarget:
    if isinstance(env, str):
        return env.strip() or fail(source, "expected an environment id, got an empty text")
    if isinstance(env, Sequence):
        for index, factory in enumerate(env):
            if not callable(factory):
                fail(source.at(index), f"expected a callable that makes one environment, got {shown(factory)}")
        return tuple(env) or fail(source, "expected at least one callable, got an empty list")
    if not callable(env):
        fail(source, f"expected an environment id or a callable that makes one environment, got {shown(env)}")
    path = import_path(env)
    return env if path is None else path


def _read_integer(value: Any, source: Source) -> int:
    if isinstance(value, (bool, np.bool_)) or not hasattr(value, "__index__"):
        fail(source, f"expected int, got {shown(value)}")
    return operator.index(value)


def _read_bool(value: Any, source: Source) -> bool:
    return (
        bool(value)
        if isinstance(value, (bool, np.bool_))
        else fail(source, f"expected true or false, got {shown(value)}")
    )


def _read_text(value: Any, source: Source) -> str:
    return value if isinstance(value, str) else fail(source, f"expected text, got {shown(value)}")


def _read_autoreset(value: Any, source: Source) -> str:
    try:
        return Autoreset.parse(value).value
    except PlanError as error:
        raise SpecError(f"{source.prefix()}{error}") from None


def _read_env_kwargs(value: Any, source: Source) -> Settings:
    if value is None:
        return Settings()
    if not isinstance(value, Mapping):
        fail(source, f"expected a mapping of names to values, got {shown(value)}")
    for key in value:
        if not isinstance(key, str):
            fail(source, f"expected the name of an argument, got {shown(key)}")
    return Settings(value)


def _or_none(read: Callable[[Any, Source], Any]) -> Callable[[Any, Source], Any]:
    return lambda value, source: None if value is None else read(value, source)


_READERS: dict[str, Callable[[Any, Source], Any]] = {
    "env": _read_env,
    "n": _or_none(_read_integer),
    "wrappers": read_layers,
    "backend": BackendSpec.parse,
    "seed": _or_none(_read_integer),
    "start_index": _read_integer,
    "autoreset": _read_autoreset,
    "copy": _read_bool,
    "batch_size": _or_none(_read_integer),
    "render_mode": _or_none(_read_text),
    "env_kwargs": _read_env_kwargs,
    "debug": _read_bool,
}
_SCALARS = ("n", "seed", "start_index", "autoreset", "copy", "batch_size", "render_mode", "debug")
_BACKEND_OPTIONS = ("workers", "envs_per_worker", "start_method", "daemon")
_OTHER_WORDS = {
    **dict.fromkeys(("num_envs", "n_envs", "env_num", "nenvs"), "The number of sub-environments is called n"),
    **dict.fromkeys(("id", "env_id", "environment", "env_name"), "The environment is called env"),
    **dict.fromkeys(("layers", "pipeline", "chain"), "The layers are called wrappers"),
    **dict.fromkeys(_BACKEND_OPTIONS, "It is the backend's: backend: {name: shmem, workers: 2}"),
    "mode": "Did you mean autoreset or render_mode?",
    "kwargs": "Did you mean env_kwargs?",
}


def _set(data: dict[str, Any], key: str, value: Any, source: Source) -> None:
    """Put ``backend.workers=2`` and the like into nested dicts."""
    first, dot, rest = key.partition(".")
    if dot and first not in ("backend", "env_kwargs"):
        fail_where(key, "only backend and env_kwargs have settings of their own")
    if first == "backend":
        backend = data.setdefault("backend", {})
        name = rest or "name"
        if name in backend:
            fail_where(key, "is given twice")
        backend[name] = value
    elif dot:
        inner = data.setdefault(first, {})
        if rest in inner:
            fail_where(key, "is given twice")
        inner[rest] = value
    elif key in data:
        fail_where(key, "is given twice")
    else:
        data[key] = value
