"""Shell completion of vecwrap's own names; Typer itself completes commands and options.

If nothing matches, a shell offers files. A lookup that fails must not disturb the user while typing: then nothing
matches.
"""

import contextlib
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from vecwrap.errors import VecwrapError
from vecwrap.installed import is_installed

__all__ = ["backends", "findings", "names", "peers", "pipelines", "policies", "settings"]


def pipelines(incomplete: str) -> list[str]:
    """Ids of environments, and pipeline files; after a bar in a line, layers.

    >>> pipelines("CartPole-v1 | frames")
    ['CartPole-v1 | framestack']
    """
    line, bar, layer = incomplete.rpartition("|")
    if bar:
        typed = layer.lstrip()
        return [f"{line}{bar}{layer[: len(layer) - len(typed)]}{name}" for name in _beginning(typed, _layers())]
    ids = _beginning(incomplete, _ids()) if incomplete else []  # there are over a thousand
    return [*ids, *_files(incomplete)] if ids else []


def names(incomplete: str) -> list[str]:
    """Layers, backends and findings, as ``vecwrap list`` takes them."""
    from vecwrap import registry

    return _beginning(incomplete, [*_layers(), *registry.backends.names(), *_findings()])


def backends(incomplete: str) -> list[str]:
    """Backends.

    >>> backends("d")
    ['dummy']
    """
    from vecwrap import registry

    return _beginning(incomplete, ["auto", *registry.backends.names()])


def findings(incomplete: str) -> list[str]:
    """The findings of ``check``."""
    return _beginning(incomplete, _findings())


def policies(incomplete: str) -> list[str]:
    """Named policies."""
    return _beginning(incomplete, ["random", "zeros"])


def peers(incomplete: str) -> list[str]:
    """Peers, for the last one after a comma; none twice.

    >>> peers("sb3,e")
    ['sb3,envpool']
    """
    from vecwrap.bench.peers import PEERS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in _beginning(last, PEERS) if name not in before.split(",")]


def settings(incomplete: str) -> list[str]:
    """Keys of a pipeline; after ``wrappers.`` layers, after a layer's name its parameters, after ``backend.`` options.

    >>> settings("wrappers.framestack.p"), settings("back")
    (['wrappers.framestack.padding='], ['backend=', 'backend.'])
    """
    from vecwrap.backend_spec import BACKEND_OPTIONS
    from vecwrap.keys import KEYS

    parts = incomplete.split(".")
    if parts[0] == "wrappers" and len(parts) == 2:
        return _beginning(incomplete, (f"wrappers.{name}." for name in _layers()))
    if parts[0] == "wrappers" and len(parts) == 3:
        return _beginning(incomplete, (f"wrappers.{parts[1]}.{name}=" for name in _parameters(parts[1])))
    if parts[0] == "backend" and len(parts) == 2:
        return _beginning(incomplete, (f"backend.{name}=" for name in BACKEND_OPTIONS))
    keys = [f"{key}=" for key in KEYS if key not in ("env", "extends", "wrappers", "eval")]
    return _beginning(incomplete, [*keys, "backend.", "env_kwargs.", "eval.", "wrappers."])


def _beginning(incomplete: str, found: Iterable[str]) -> list[str]:
    with contextlib.suppress(VecwrapError):  # a name that two packages claim, say
        return [name for name in found if name.startswith(incomplete)]
    return []


def _layers() -> list[str]:
    from vecwrap import registry

    return registry.wrappers.names()


def _findings() -> list[str]:
    from vecwrap.rules.check import REFUSALS
    from vecwrap.rules.rules import RULES

    return [*REFUSALS, *RULES]


def _parameters(layer: str) -> Iterator[str]:
    from vecwrap import registry
    from vecwrap.preset import Preset
    from vecwrap.signatures import Signature

    target = registry.wrappers.load(layer)
    skip = 0 if isinstance(target, Preset) else 1
    yield from (parameter.name for parameter in Signature.of(target, skip).parameters)


def _ids() -> list[str]:
    import gymnasium

    if is_installed("ale_py"):
        with contextlib.suppress(ImportError):
            importlib.import_module("ale_py")
    return sorted(gymnasium.registry)


def _files(incomplete: str) -> list[str]:
    from vecwrap.pipeline_file import SUFFIXES

    return sorted(str(path) for path in Path().glob(f"{incomplete}*") if path.suffix in SUFFIXES)
