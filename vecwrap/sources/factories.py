"""What a plan sends to workers: factories of environments and engines, and wrappers."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from vecwrap.errors import PlanError, VecwrapError, cause_of, did_you_mean, text_of
from vecwrap.sources.import_paths import import_path

Env = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class RenderMode:
    mode: Any = None  # None: they render nothing
    where: str = ""  # its place, for errors
    for_window: bool = False  # whether the frames are for the one window that shows all

    def refuse_undeclared(self, maker: Any, name: str) -> None:
        """Refuse a render mode that the environment does not declare.

        Gymnasium only warns about such a mode. Lists of frames and windows are accepted, because
        Gymnasium makes them itself from declared modes.
        """
        metadata = getattr(maker, "metadata", None)
        modes = None
        if isinstance(metadata, Mapping):
            modes = metadata.get("render_modes")
        if self.mode is None or not modes or str(self.mode).removesuffix("_list") in modes:
            return
        if self.mode == "human" and {"rgb_array", "rgb_array_list"}.intersection(modes):
            return
        if self.for_window:
            raise PlanError(
                f"{self.where}: {no_frames(name, f'render_modes {list(modes)} in its metadata')}"
            )
        if isinstance(self.mode, str):
            got = f'"{self.mode}"'
        else:
            got = repr(self.mode)
        near = did_you_mean(str(self.mode), modes)
        raise PlanError(
            f"{self.where}: expected one that {name} has ({', '.join(modes)}), got {got}.{near}"
        )


@dataclass(frozen=True)
class MakeEnvironment:
    env_spec: EnvSpec  # its registration, by value
    kwargs: Mapping[str, Any]  # the arguments to make it with
    render_mode: RenderMode = RenderMode()  # the one among them

    def __call__(self) -> Env:
        _no_banner(self.env_spec.entry_point)
        self.render_mode.refuse_undeclared(creator_of(self.env_spec.entry_point), str(self))
        # The passive checker would look at each sub-environment's first steps; build(debug=True)
        # looks at all of them.
        return gymnasium.make(
            self.env_spec, **{"disable_env_checker": True, **own_arguments(dict(self.kwargs))}
        )

    def __str__(self) -> str:
        return self.env_spec.id


@dataclass(frozen=True)
class MakeByCalling:
    """A callable with arguments, which are copied for each call.

    A ``partial`` would merge with a ``partial`` of the user's.
    """

    func: Callable[..., Any]
    keywords: Mapping[str, Any]
    args: tuple[()] = ()

    def __call__(self) -> Any:
        return self.func(**own_arguments(dict(self.keywords)))


@dataclass(frozen=True)
class MakeEngine:
    """A factory for the vector class that is registered with an environment."""

    env_spec: EnvSpec  # the registration, by value
    kwargs: Mapping[str, Any]
    num_envs: int

    def __call__(self) -> Any:
        _no_banner(self.env_spec.vector_entry_point)
        return gymnasium.make_vec(
            self.env_spec,
            self.num_envs,
            vectorization_mode="vector_entry_point",
            **own_arguments(dict(self.kwargs)),
        )

    def __str__(self) -> str:
        return self.env_spec.id


@dataclass(frozen=True)
class WrapSubEnv:
    """A sub-environment wrapper with arguments: receive an environment, return the wrapped one."""

    target: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""

    def __call__(self, env: Env) -> Any:
        try:
            args, kwargs = own_arguments((self.args, dict(self.kwargs)))
            wrapped = self.target(env, *args, **kwargs)
        except (Exception, SystemExit) as error:
            if not self.where:
                raise
            raise refusal(self.where, error) from cause_of(error)
        if not isinstance(wrapped, gymnasium.Env):
            raise PlanError(
                f"{self.where or self}: expected a gymnasium.Env from it, got "
                f"{type(wrapped).__name__}. (A callable that wraps the whole vector says so: def "
                "wrap(env: vecwrap.VecEnv).)"
            )
        return wrapped

    def __repr__(self) -> str:
        return import_path(self.target) or str(
            getattr(self.target, "__qualname__", type(self.target).__qualname__)
        )


def refusal(where: str, error: BaseException) -> PlanError:
    """Return a wrapper's exception as a PlanError that says which entry raised it.

    The wrapper's name is not repeated.
    """
    if isinstance(error, VecwrapError):
        name = where.rpartition('"')[0].rpartition('"')[2]
        return PlanError(f"{where}: {str(error).removeprefix(f'{name}: ')}")
    return PlanError(f"{where}: raised {type(error).__name__}: {text_of(error)}".removesuffix(": "))


def creator_of(entry_point: Any) -> Any:
    if isinstance(entry_point, str):
        return load_env_creator(entry_point)
    return entry_point


def _no_banner(entry_point: Any) -> None:
    """Keep ale-py's out of the user's output."""
    if str(entry_point).startswith("ale_py"):
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def no_frames(name: str, got: str) -> str:
    """Return the message that one window cannot show these environments."""
    return (
        f"expected {name} to render rgb_array, for one window shows the frames of all; got {got}. "
        "A window of its own for each sub-environment, where it can open one: "
        'env_kwargs={"render_mode": "human"}'
    )


def has_no_render_mode(metadata: Mapping[str, Any], name: str = "the environment") -> str:
    """Return why an environment has no images in any render mode, or ``""`` if it may have some."""
    modes = metadata.get("render_modes")
    if modes is None or {"rgb_array", "rgb_array_list"}.intersection(modes):
        return ""
    return (
        f"{name} draws none: no mode in its metadata gives images (render_modes: "
        f"{', '.join(modes) or 'none'})"
    )


def own_arguments(value: Any, memo: dict[int, Any] | None = None) -> Any:
    """Copy arguments for one environment, and keep the type of each.

    A part that occurs twice remains one object.
    """
    if memo is None:
        memo = {}
    if id(value) in memo:
        return memo[id(value)]
    made = value
    if type(value) in (list, tuple):
        made = type(value)([own_arguments(part, memo) for part in value])
    elif type(value) in (dict, MappingProxyType):
        made = type(value)({key: own_arguments(part, memo) for key, part in value.items()})
    elif type(value) in (OrderedDict, defaultdict) or getattr(value, "__dict__", memo) is value:
        made = with_parts(value, {key: own_arguments(part, memo) for key, part in value.items()})
    else:
        before = dict(memo)
        try:
            return deepcopy(value, memo)
        except Exception:
            memo.clear()  # it may hold half of a copy
            memo.update(before)
            # For example a dict whose ``__getattr__`` raises KeyError for any name.
            if isinstance(value, dict):
                made = with_parts(
                    value, {key: own_arguments(part, memo) for key, part in value.items()}
                )
    memo[id(value)] = made
    return made


def with_parts(old: Mapping[Any, Any], parts: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return a mapping of the same type with some values replaced."""
    made: Any
    # Its attributes are its keys, which ``copy`` would not keep.
    if getattr(old, "__dict__", None) is old:
        made = dict.__new__(type(old))
        made.__dict__ = made
    else:
        made = copy(old)
    for key, value in {**old, **parts}.items():
        made[key] = value
    return made  # type: ignore[no-any-return]
