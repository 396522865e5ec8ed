"""The chain of an environment: how its parts are shown and found, and which names it shows."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from vecwrap.errors import ArgumentError, did_you_mean
from vecwrap.rows.normalizers import ObservationNormalizer, RewardNormalizer

__all__ = ["Chain"]

_Normalizer = TypeVar("_Normalizer", ObservationNormalizer, RewardNormalizer)

# what adapters, tools and wrappers use, and what Gymnasium's own subclasses override
_NOT_SHOWN = frozenset(
    {
        "array_converter",
        "call_state",
        "close_extras",
        "core",
        "env",
        "plan",
        "rows",
        "saved_to",
        "wrapped_by",
        "written",
    }
)


class Chain(tuple[Any, ...]):
    """The vector wrappers, outermost first, and the backend; each is shown by its own name."""

    __slots__ = ()

    def __repr__(self) -> str:
        names = ", ".join(map(part_name, self))
        if len(self) == 1:
            names += ","
        return f"({names})"


def part_name(part: Any) -> str:
    """``FrameStack(4)``, ``Backend(dummy)``; ``Monitor(...)`` if it was not made by a pipeline."""
    kind = type(part).__name__
    if len(part.chain) == 1:
        return f"{kind}({part.core.name})"
    if part.written is None:
        return f"{kind}(...)"
    return f"{kind}({part.written[1]})"


def short_repr(env: Any) -> str:
    """``<VecEnv CartPole-v1, n=2, dummy, same_step, wrappers monitor>``.

    Of what another environment wraps: ``<FrameStack(4) of VecEnv CartPole-v1, ...>``.
    """
    core = env.core
    name = core.env_id
    if env.pipeline is not None:
        name = env.pipeline.env_name
    workers = ""
    if core.runner.workers:
        workers = f", {core.runner.workers} worker{'s' * (core.runner.workers != 1)}"
    text = f"VecEnv {name}, n={env.num_envs}, {core.name}{workers}, {core.autoreset.value}"
    if env.wrapped_by is not None and env.wrapped_by() is not None:
        return f"<{part_name(env)} of {text}>"
    if env.pipeline is not None:
        wrappers = env.pipeline.wrapper_names
    else:
        wrappers = tuple(type(wrapper).__name__ for wrapper in reversed(env.chain[:-1]))
    if wrappers:
        text += f", wrappers {' > '.join(wrappers)}"
    return f"<{text}>"


def find_wrapper(env: Any, kind: Any) -> Any:
    if isinstance(kind, str):
        return _find_by_name(env, kind)
    if not isinstance(kind, type):
        raise ArgumentError(
            f"find: kind: expected the name or the class of a wrapper, got {kind!r}; those here "
            f"are {_names(env)}"
        )
    for wrapper in env.chain:
        if isinstance(wrapper, kind):
            return wrapper
    raise LookupError(f"{env!r} has no wrapper {kind.__name__}")


def _find_by_name(env: Any, name: str) -> Any:
    for part in env.chain:
        if name == type(part).__name__ or _plain(name) in map(_plain, _names_of(part)):
            return part
    text = f'{env!r} has no wrapper "{name}" around the vector'
    if env.pipeline is not None and name in env.pipeline.wrapper_names:
        raise LookupError(
            f"{text}: it wraps each sub-environment; env.get_attr and env.call reach it"
        )
    near = did_you_mean(name, [known for part in env.chain for known in _names_of(part)])
    raise LookupError(f"{text}; those here are {_names(env)}.{near}")


def _names_of(part: Any) -> tuple[str, ...]:
    """The name that a pipeline gave to a part, if one did, and that of its class."""
    if part.written is None:
        return (type(part).__name__,)
    return (part.written[0].name, type(part).__name__)


def _names(env: Any) -> str:
    return ", ".join(_names_of(part)[0] for part in env.chain)


def _plain(name: str) -> str:
    return name.replace("_", "").casefold()


def innermost_normalizer(chain: Sequence[Any], kind: type[_Normalizer]) -> _Normalizer:
    for wrapper in reversed(chain[:-1]):
        for normalizer in wrapper.normalizers():
            if isinstance(normalizer, kind):
                return normalizer
    wanted = "observations: normalize or normalize_obs"
    if kind is RewardNormalizer:
        wanted = "rewards: normalize or normalize_reward"
    raise LookupError(f"{chain[0]!r} has no wrapper that normalises {wanted}")


def envs_of(env: Any) -> list[Any]:
    if (envs := env.core.runner.envs()) is None:
        raise AttributeError(
            f"{env!r} has no envs: its sub-environments live in other processes, or in an engine; "
            'use call("method", ...), get_attr("name") and set_attr("name", value), or '
            'backend="dummy"'
        )
    return [envs[i] for i in env.call_state.sources.tolist()]


def shown_names(env: Any, interface: type[Any]) -> list[str]:
    """Return what ``dir`` shows: what an interface documents, and what a wrapper adds to it.

    The arguments of the wrapper are no attributes of the environment.
    """
    of_interface = set(dir(interface))
    for kind in interface.__mro__:
        of_interface.update(vars(kind).get("__annotations__", ()))
    added = set(vars(env))
    for kind in type(env).__mro__:
        if kind.__module__.startswith("vecwrap.env."):  # its hooks are for authors
            break
        added.update(vars(kind))
    hooks = {name for kind in type(env).__mro__ for name in _hooks(kind)}
    names = of_interface | added - hooks - set(arguments_of(type(env)))
    special = {name for name in object.__dir__(env) if name.startswith("__")}
    return sorted(special | {name for name in names - _NOT_SHOWN if not name.startswith("_")})


def _hooks(kind: type[Any]) -> Iterable[str]:
    """What a class for authors of wrappers has, which wrappers override."""
    if kind.__module__ in ("vecwrap.env.wrapper", "vecwrap.sources.declares"):
        return tuple(vars(kind))
    return ()


def arguments_of(kind: type[Any]) -> tuple[str, ...]:
    """The names of a wrapper's arguments, without the environment."""
    try:
        return tuple(inspect.signature(kind).parameters)[1:]
    except (TypeError, ValueError):  # its signature cannot be read
        return ()
