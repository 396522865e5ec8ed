"""The pipeline as data: one frozen spec behind a line, a dict, YAML and JSON files.

Reading is purely grammatical: nothing is imported or evaluated. The plan checks whether names exist
and arguments fit. (The signature of a wrapper is looked up only if a positional argument is changed
by name.)
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from vecwrap.env.runner import Runner
from vecwrap.errors import PlanError, SpecError, internal_frames_hidden
from vecwrap.pipeline.elements import (
    BACKEND_OPTIONS,
    BackendName,
    BackendSpec,
    EngineSpec,
    WrapperSpec,
)
from vecwrap.pipeline.error_collector import ErrorCollector
from vecwrap.pipeline.fields import KEYS, EnvTarget, read, refuse_unknown, write
from vecwrap.pipeline.files import lineage, names_file, read_file, read_yaml, write_yaml
from vecwrap.pipeline.line import put, read_line, whole, write_line
from vecwrap.pipeline.merge import Replace, WithSourceMap, merge
from vecwrap.pipeline.source_map import SourceLocation, SourceMap, SourceRef, fail
from vecwrap.pipeline.values import (
    ByContent,
    Settings,
    import_path_or_name,
    names_of,
    same_content,
    short_repr,
    to_json,
)
from vecwrap.rows.step_result import Autoreset, AutoresetName

_AUTO = BackendSpec()
_NOTHING = Settings()
# of how ``PipelineSpec.hash`` is computed; another one gives the same pipeline another hash
HASH_VERSION = 1


@dataclass(frozen=True, eq=False)
class PipelineSpec(ByContent):
    """A complete description of how to build an environment. Frozen; compared by content.

    What is not described here is ``build``'s argument of the same name. What reads a pipeline
    raises SpecError for an unknown key or a value of the wrong kind, with file and line; what
    writes one, for a value that exists only in this process.

    Attributes:
        env: an environment id, ``"module:Id-v0"``, an ``EnvSpec`` that differs from what is
            registered under its id, a callable that makes one environment, or a tuple of these, one
            for each sub-environment.
        backend: how the sub-environments run.
        engine: what steps them instead of one environment each; None: nothing else.
        autoreset: the mode's name; None: not given, and ``autoreset_mode`` has the mode.
        wrappers: the wrappers, inner first.
        training: whether running statistics are updated; False: they are frozen, as for an
            evaluation; None: updated unless they are given by ``stats``.
        stats: a file written by ``save``, whose running statistics are used.
        eval: changes for an evaluation: the same keys; a mapping under ``wrappers`` changes
            arguments of single wrappers.
        source: where it was written.

    >>> wrappers = ["framestack:3", {"monitor": {"dir": "runs"}}]
    >>> spec = PipelineSpec("CartPole-v1", n=4, wrappers=wrappers)
    >>> spec.env_name, spec.wrapper_names
    ('CartPole-v1', ('framestack', 'monitor'))
    >>> str(spec)
    'CartPole-v1 n=4 | framestack:3 | monitor:dir=runs'
    >>> PipelineSpec.from_yaml(spec.to_yaml()) == PipelineSpec.from_dict(spec.to_dict()) == spec
    True
    """

    env: EnvTarget
    n: int | None = None
    seed: int | None = None
    start_index: int = 0
    backend: BackendSpec = _AUTO
    autoreset: str | None = None
    copy: bool = True
    batch_size: int | None = None
    engine: EngineSpec | None = None
    envs_per_engine: int | None = None
    render_mode: str | None = None
    env_kwargs: Mapping[str, Any] | tuple[Mapping[str, Any], ...] = _NOTHING
    agents: tuple[str, ...] | Mapping[str, bool] | None = None
    debug: bool = False
    wrappers: tuple[WrapperSpec, ...] = ()
    training: bool | None = None
    stats: str | None = None
    eval: Mapping[str, Any] = _NOTHING
    source: SourceRef = field(default_factory=SourceRef, repr=False, compare=False)

    if TYPE_CHECKING:  # values are given in any form that ``build`` takes, and read

        def __init__(
            self,
            env: EnvTarget | Sequence[str | EnvSpec | Callable[..., Any]],
            n: int | None = None,
            seed: int | None = None,
            start_index: int = 0,
            backend: BackendName | BackendSpec | type[Runner] | Mapping[str, Any] = ...,
            autoreset: AutoresetName | Autoreset | AutoresetMode | None = None,
            copy: bool = True,
            batch_size: int | None = None,
            engine: str | EngineSpec | Callable[..., Any] | Mapping[str, Any] | None = None,
            envs_per_engine: int | None = None,
            render_mode: str | None = None,
            env_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] = ...,
            agents: Sequence[str] | Mapping[str, bool] | None = None,
            debug: bool = False,
            wrappers: Sequence[Any] | str = (),
            training: bool | None = None,
            stats: str | Path | None = None,
            eval: Mapping[str, Any] = ...,
            source: SourceRef = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        with internal_frames_hidden:
            for key in KEYS:
                value = getattr(self, key)
                if value is not _DEFAULTS[key]:
                    value = read(key, value, self.source.at(key))
                    if value is None:
                        value = _DEFAULTS[key]
                    self.__dict__[key] = value

    def replaced(self, **settings: Any) -> PipelineSpec:
        """Return the same with some values in place of its own.

        Args:
            settings: a pipeline's keys, whose values have been read.
        """
        return _from_values(
            {key: settings.get(key, getattr(self, key)) for key in KEYS}, self.source
        )

    # -- reading -----------------------------------------------------------------------------------

    @classmethod
    def parse(cls, line: str) -> PipelineSpec:
        """Read a one-line pipeline: the environment, settings, then the wrappers after bars.

        Args:
            line: ``"CartPole-v1 n=4 seed=1 | framestack:4 | monitor"``.

        Raises:
            SpecError: the line cannot be read, or is not text.

        >>> line = "PongNoFrameskip-v4 n=8 backend.workers=2 | atari | framestack:4"
        >>> spec = PipelineSpec.parse(line)
        >>> spec.n, [wrapper.name for wrapper in spec.wrappers], spec.backend.options
        (8, ['atari', 'framestack'], {'workers': 2})
        >>> PipelineSpec.parse(format(spec)) == spec
        True
        """
        if not isinstance(line, str):
            raise SpecError(
                f"pipeline: expected a text, a pipeline in one line, got {short_repr(line)}."
            )
        with internal_frames_hidden:
            return read_pipeline(read_line(line), SourceRef())

    @classmethod
    def from_dict(cls, data: Any, source: SourceRef | None = None) -> PipelineSpec:
        """Read a dict with the keys of a pipeline file; ``extends`` is followed.

        Args:
            data: a mapping; only the key ``env`` is required.
            source: where it was written, for errors and relative paths.

        >>> spec = PipelineSpec.from_dict({"env": "CartPole-v1", "n": 4})
        >>> spec == PipelineSpec("CartPole-v1", n=4)
        True
        """
        with internal_frames_hidden:
            return read_pipeline(data, source or SourceRef())

    @classmethod
    def from_yaml(
        cls, text: str, file: str = "pipeline", directory: Path | None = None
    ) -> PipelineSpec:
        """Read the text of a pipeline file.

        Args:
            text: YAML 1.2.
            file: its name, for errors.
            directory: the folder that its paths are relative to.
        """
        document = read_yaml(text, file, directory)
        return cls.from_dict(document.value, document.source)

    @classmethod
    def load(cls, path: str | Path) -> PipelineSpec:
        """Read a pipeline file, YAML or JSON, and the files that it extends.

        Paths in a file are relative to that file.

        Args:
            path: the file.

        Raises:
            SpecError: with file and line.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise SpecError(
                f"pipeline: expected the path of a pipeline file, got {short_repr(path)}. "
                "vecwrap.build takes other forms."
            )
        with internal_frames_hidden:
            return cls.from_dict(*read_file(Path(path)))

    def override(self, **changes: Any) -> PipelineSpec:
        """Return a spec with some settings replaced; the rest is kept.

        Args:
            changes: a pipeline's keys, and ``workers``, ``envs_per_worker``, ``start_method`` and
                ``daemon``, which are added to the backend's options. A new ``backend`` replaces the
                old one and its options. A dotted key reaches inside: ``**{"wrappers.framestack.k":
                2}``.

        >>> PipelineSpec("CartPole-v1", n=4).override(n=8, workers=2).to_dict()
        {'env': 'CartPole-v1', 'n': 8, 'backend': {'name': 'auto', 'workers': 2}}
        """
        with internal_frames_hidden:
            return overridden(self, changes)

    # -- writing -----------------------------------------------------------------------------------

    def format(self) -> str:
        """Write the pipeline in one line, which ``parse`` reads back.

        Raises:
            SpecError: a value is not a scalar, or exists only in this process.
        """
        return write_line(self.to_dict(), (wrapper.format() for wrapper in self.wrappers))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that ``from_dict`` reads back; defaults are left out."""
        return {key: write(key, value) for key, value in self.settings()}

    def settings(self) -> Iterator[tuple[str, Any]]:
        """Yield the keys whose values are not their defaults, and the values."""
        for key, default in _DEFAULTS.items():
            value = getattr(self, key)
            if key == "env" or not same_content(value, default):
                yield key, value

    def to_yaml(self) -> str:
        """Return the text of a pipeline file, which ``from_yaml`` reads back."""
        return write_yaml(self.to_dict(), blocks=("wrappers", "eval"))

    @property
    def env_name(self) -> str:
        """The environment's name."""
        return names_of(self.env)

    @property
    def wrapper_names(self) -> tuple[str, ...]:
        """The wrappers' names, inner first."""
        return tuple(wrapper.name for wrapper in self.wrappers)

    @property
    def each_env_kwargs(self) -> tuple[Mapping[str, Any], ...]:
        """The arguments for all sub-environments, or those for each."""
        if isinstance(self.env_kwargs, tuple):
            return self.env_kwargs
        return (self.env_kwargs,)

    @property
    def in_training(self) -> bool:
        """Whether running statistics are updated: as set by ``training``, else if none are given.

        >>> stats = "runs/pendulum/stats.npz"
        >>> learnt = PipelineSpec("Pendulum-v1", wrappers=["normalize"], stats=stats)
        >>> learnt.in_training, learnt.override(training=True).in_training
        (False, True)
        """
        if self.training is None:
            return self.stats is None
        return self.training

    @property
    def autoreset_mode(self) -> Autoreset:
        """The autoreset mode that was given, else same_step."""
        if self.autoreset is None:
            return Autoreset.SAME_STEP
        return Autoreset(self.autoreset)

    @functools.cached_property
    def hash(self) -> str:
        """Twelve hexadecimal digits over everything that changes the stream.

        This includes the environment, its kwargs, agents, wrappers, the autoreset mode and n.

        Raises:
            SpecError: the spec has not been resolved by a plan, so its wrappers' defaults are
                unknown.
        """
        if self.n is None or any(wrapper.not_hashed is None for wrapper in self.wrappers):
            fail(
                "hash",
                "not known before a plan has filled in the defaults; use plan(spec).pipeline.hash",
            )
        wrappers = [
            [wrapper.target, wrapper.args, _without(wrapper.kwargs, wrapper.not_hashed or ())]
            for wrapper in self.wrappers
        ]
        # ``render_mode`` is not hashed here, because the key of that name is not either
        env_kwargs: Any = [_without(kwargs, ("render_mode",)) for kwargs in self.each_env_kwargs]
        if not isinstance(self.env_kwargs, tuple):
            (env_kwargs,) = env_kwargs
        content = [self.env, env_kwargs, wrappers, self.autoreset_mode.value, self.n]
        if self.envs_per_engine is not None:
            content.append(self.envs_per_engine)
        if self.engine is not None:
            options = _without(self.engine.options, self.engine.not_hashed)
            content.append(["engine", self.engine.target, options])
        if self.agents is not None:
            content.append(["agents", self.agents])
        episodes = self.backend.options.get("recreate_every")
        if episodes is not None:  # a new environment gets another seed
            content.append(["recreate_every", episodes])
        return hashlib.sha256(to_json(content, import_path_or_name).encode()).hexdigest()[:12]

    def where(self, *steps: str | int) -> str:
        """Where a setting was written: ``"pong.yaml:2: n"``.

        Args:
            *steps: keys and list indices that lead to it: ``"wrappers", 1, "k"``.
        """
        return str(self.source.at(*steps))

    def __hash__(self) -> int:
        return hash((short_repr(self.env), self.n))

    def __str__(self) -> str:
        """The shortest line that builds the same: without the defaults that a plan filled in.

        Values that only a file can hold are shown, too, which ``parse`` then says; objects by name.
        """
        data = {}
        for key, value in self.settings():
            try:
                data[key] = write(key, value)
            except SpecError:  # it exists only in this process
                data[key] = value
        return write_line({**data, "env": self.env}, map(str, self.wrappers), lossy=True)

    def __repr__(self) -> str:
        return f"PipelineSpec({self})"


# ``env`` has none, which is ``dataclasses.MISSING``
_DEFAULTS: dict[str, Any] = {
    f.name: f.default for f in dataclasses.fields(PipelineSpec) if f.name != "source"
}


def _from_values(values: Mapping[str, Any], source: SourceRef) -> PipelineSpec:
    """Return the spec of values that are already read; None stands for the default."""
    spec: PipelineSpec = object.__new__(PipelineSpec)
    given = {key: value for key, value in values.items() if value is not None}
    spec.__dict__.update({**_DEFAULTS, **given}, source=source)
    return spec


def _without(settings: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


# -- one written over another ----------------------------------------------------------------------


@dataclass
class Layers:
    """The settings of a pipeline, written over each other, and where each of them was written."""

    settings: dict[str, Any] = field(default_factory=dict)
    source_map: SourceMap = field(default_factory=SourceMap)
    errors: ErrorCollector = field(default_factory=ErrorCollector)

    @classmethod
    def of(cls, spec: PipelineSpec) -> Layers:
        """Return the settings of a pipeline, over which others are written."""
        return cls({key: getattr(spec, key) for key in KEYS}, spec.source.source_map)

    def add(self, data: Mapping[Any, Any], source: SourceRef) -> None:
        """Merge the keys of a file, section or setting over earlier ones; read each key once."""
        parts = dict(self.source_map.parts)
        for key, written in data.items():
            try:
                refuse_unknown(key, KEYS, source)
                old = WithSourceMap(self.settings.get(key), self.source_map.at(key))
                at = source.at(key)
                value, parts[key] = merge(old, WithSourceMap(written, at.source_map), at.steps)
                self.settings[key] = read(key, value, at)
            except (SpecError, PlanError) as error:
                self.errors.add(error)
        self.source_map = dataclasses.replace(self.source_map, parts=parts)

    def spec(self) -> PipelineSpec:
        self.errors.raise_all(self.settings.get("wrappers") or ())
        return _from_values(self.settings, SourceRef(self.source_map))


def read_pipeline(
    data: Any,
    source: SourceRef,
    check: Callable[[Mapping[str, Any], SourceRef], None] = lambda settings, source: None,
) -> PipelineSpec:
    """Read files, the outermost base first.

    ``check`` is called for each file before the file that extends it changes its wrappers.
    """
    layers = Layers(source_map=SourceMap(source.location, default_location=SourceLocation()))
    files = lineage(data, source)
    for file_data, file_source in files:
        layers.add(file_data, file_source)
        check(layers.settings, SourceRef(layers.source_map))
    with layers.errors:
        if not any("env" in file_data for file_data, _ in files):
            fail(source, "the key env is missing: which environment?")
    return layers.spec()


def overridden(
    spec: PipelineSpec,
    changes: Mapping[str, Any],
    places: Mapping[str, SourceLocation] | None = None,
) -> PipelineSpec:
    """Do as ``override``; errors say where a change was written: file and line, or ``--set``."""
    if not changes:
        return spec
    layers = Layers.of(spec)
    known = [*KEYS, *BACKEND_OPTIONS]
    for key in sorted(changes, key=_depth):  # the whole before its parts, in any given order
        location = (places or {}).get(key, SourceLocation())
        source = SourceRef(SourceMap(location))
        first = key.partition(".")[0]
        if first in spec.wrapper_names and first not in known:
            fail(f"{location}{key}", f'unknown key. Did you mean "wrappers.{key}"?')
        path = key
        if key in BACKEND_OPTIONS:
            path = f"backend.{key}"
        data: dict[str, Any] = {}
        with layers.errors:
            refuse_unknown(first, known, source)
            put(data, path, Replace(changes[key]))
            layers.add(data, source)
    return layers.spec()


def _depth(key: str) -> int:
    """The depth of a key in a pipeline; a backend's or engine's name counts as the whole.

    The name replaces the backend's options, or the engine's.
    """
    return whole(key).count(".") + (key in BACKEND_OPTIONS)


def as_spec(env: Any) -> PipelineSpec:
    """Read a pipeline in any form that ``build`` takes."""
    if isinstance(env, PipelineSpec):
        return env
    if isinstance(env, Mapping):
        return PipelineSpec.from_dict(env)
    if isinstance(env, Path) or (isinstance(env, str) and names_file(env)):
        return PipelineSpec.load(env)
    if isinstance(env, str) and ("|" in env or len(env.split()) > 1):
        return PipelineSpec.parse(env)
    if env is None:
        raise SpecError("env: expected an environment id, a callable, or a pipeline, got null.")
    return PipelineSpec(env)
