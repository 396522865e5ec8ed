"""The environment ids that a program has registered.

The ids are sent to the workers, because a factory may make environments by id.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import sys
import warnings
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from vecwrap.errors import PlanError, kind_of, text_of
from vecwrap.sources.by_value import by_value
from vecwrap.sources.import_paths import import_path

_GYMNASIUM = "gymnasium.envs.registration", "registry"
_PETTINGZOO = "pettingzoo.env_registry.registration"
_REGISTRIES = (_GYMNASIUM, (_PETTINGZOO, "aec_registry"), (_PETTINGZOO, "parallel_registry"))
_IN_MAIN = "__main__:"
_ENTRY_POINTS = "entry_point", "vector_entry_point"


@dataclass(frozen=True)
class Registrations:
    """What is registered in each registry, which is named by its module and its name there."""

    texts: bytes  # the specs of texts and numbers alone, pickled already, for they are many
    others: list[tuple[tuple[str, str], str]]  # the registries and ids of the others

    @classmethod
    def current(cls) -> tuple[Registrations, list[Any]]:
        """Return this process's registrations, and the specs of ``others``.

        Both are in a form that another process can use.
        """
        texts: dict[tuple[str, str], list[Any]] = {}
        others: list[tuple[tuple[str, str], str]] = []
        specs: list[Any] = []
        for key in _REGISTRIES:
            if key[0] not in sys.modules:
                continue
            for spec in list(_registry(*key).values()):
                if key[0] == _PETTINGZOO and _is_pettingzoos(spec):
                    continue  # a worker need not import PettingZoo for its own games
                if _is_text(spec):
                    texts.setdefault(key, []).append(spec)
                else:
                    others.append((key, spec.id))
                    specs.append(_to_send(spec))
        return cls(pickle.dumps(texts, protocol=pickle.HIGHEST_PROTOCOL), others), specs

    def register(self, specs: Iterable[Any]) -> None:
        """Register all of it here; ``specs`` are those of ``others``, or why one could not be read.

        A module that is imported later and registers one of them again causes no warning.
        """
        warnings.filterwarnings("ignore", message=".*Overriding environment ")
        for key, known in pickle.loads(self.texts).items():
            _register(key, {spec.id: spec for spec in known})
        for (key, name), spec in zip(self.others, specs, strict=True):
            if isinstance(spec, BaseException):
                unusable = _CannotBeSent(name, f"{kind_of(spec)}: {text_of(spec)}")
                spec = _spec_class(key)(name, entry_point=unusable)
            _register(key, {name: spec})


@dataclass(frozen=True)
class _CannotBeSent:
    """Stands for an entry point that could not be sent to another process."""

    id: str
    reason: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise PlanError(
            f'"{self.id}": the registration cannot be sent to a worker ({self.reason}); register '
            "it in a module, and import that module in what makes the environment, or use "
            'backend="dummy"'
        )


def _register(key: tuple[str, str], specs: dict[str, Any]) -> None:
    with contextlib.suppress(ImportError):  # a node without PettingZoo
        _registry(*key).update(specs)


def _spec_class(key: tuple[str, str]) -> Any:
    return import_module(key[0]).EnvSpec


def without_main(entry_point: Any) -> Any:
    """Return what an entry point in ``__main__`` stands for: another process has a different one.

    Others stay.
    """
    if not (isinstance(entry_point, str) and entry_point.startswith(_IN_MAIN)):
        return entry_point
    return getattr(sys.modules["__main__"], entry_point.partition(":")[2], entry_point)


def _registry(module: str, name: str) -> MutableMapping[str, Any]:
    registry: MutableMapping[str, Any] = getattr(import_module(module), name, {})
    return registry


def _entry_points(spec: Any) -> Iterator[tuple[str, Any]]:
    for name in _ENTRY_POINTS:
        if hasattr(spec, name):
            yield name, getattr(spec, name)


def _is_pettingzoos(spec: Any) -> bool:
    return str(spec.entry_point).startswith(f"pettingzoo.{spec.namespace}.") and not spec.kwargs


def _is_text(spec: Any) -> bool:
    values = [*spec.kwargs.values(), *(made for _, made in _entry_points(spec))]
    plain = all(value is None or type(value) in (str, int, float, bool) for value in values)
    in_main = any(str(made).startswith(_IN_MAIN) for _, made in _entry_points(spec))
    return plain and not in_main and not getattr(spec, "additional_wrappers", ())


def _to_send(spec: Any) -> Any:
    """Return a spec in a form that can be sent to a worker.

    A class with an import path is sent as that path, and imported there when it is needed.
    """
    changes = {}
    for name, made in _entry_points(spec):
        if isinstance(made, str):
            path = None
        else:
            path = import_path(made)
        if path and "." not in path.partition(":")[2]:
            changes[name] = path
        else:
            changes[name] = without_main(made)
    changed = dataclasses.replace(spec, **changes)
    try:
        by_value(changed)
    except Exception as error:
        stub = _CannotBeSent(spec.id, str(error))
        changed = dataclasses.replace(spec, kwargs={}, **dict.fromkeys(changes, stub))
    return changed
