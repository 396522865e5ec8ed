"""The name tables: which wrapper or backend a name stands for. A target is imported on first use.

Adding a wrapper to this package takes its name here. Other packages use the entry point groups
``vecwrap.wrappers`` and ``vecwrap.backends``, or ``register_wrapper``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vecwrap.errors import SpecError, did_you_mean
from vecwrap.pipeline.values import short_repr
from vecwrap.sources.import_paths import import_path, import_target

_NAME = re.compile(r"[A-Za-z_][\w-]*", re.ASCII)
_OURS = "vecwrap"


@dataclass(frozen=True)
class Entry:
    """What a name stands for."""

    name: str  # the name in pipelines
    target: str | Callable[..., Any]  # ``"module:attr"``, or the object itself
    # who registered it: ``"vecwrap"``, another package, or the module of a target of
    # ``register_wrapper``
    owner: str = _OURS
    extra: str | None = None  # the extra of vecwrap that installs its dependencies

    @property
    def label(self) -> str:
        target = self.target
        if isinstance(target, str):
            return target
        name = getattr(target, "__qualname__", short_repr(target))
        return f"{getattr(target, '__module__', '')}:{name}"


class NameTable:
    """Names of one kind."""

    def __init__(
        self,
        kind: str,
        group: str,
        targets: Mapping[str, str],
        extras: Mapping[str, str] | None = None,
    ) -> None:
        self._kind = kind
        self._group = group
        self._entries = {
            name: [Entry(name, target, _OURS, (extras or {}).get(name))]
            for name, target in targets.items()
        }

    def names(self) -> list[str]:
        """All names, sorted; imports nothing."""
        self._read_entry_points()
        return sorted(self._entries)

    def entry(self, name: str, where: str | None = None) -> Entry:
        self._read_entry_points()
        where = where or f'{self._kind} "{name}"'
        if name not in self._entries:
            remedy = did_you_mean(name, self._entries) or (
                f" Known names: {', '.join(sorted(self._entries))}; an import path is written "
                "module:attr, or module:attr: if the module has no dot."
            )
            raise SpecError(f"{where}: unknown {self._kind}.{remedy}")
        claims = self._entries[name]
        if len(claims) > 1:
            both = " and ".join(f"{claim.owner} ({claim.label})" for claim in claims)
            raise SpecError(
                f'{where}: the name "{name}" is claimed by {both}; give an import path, or remove '
                "one."
            )
        return claims[0]

    def load(self, name: str, where: str | None = None) -> Callable[..., Any]:
        entry = self.entry(name, where)
        if not isinstance(entry.target, str):
            return entry.target
        return import_target(entry.target, where or f'{self._kind} "{name}"', entry.extra)

    def find(self, target: str | Callable[..., Any], where: str) -> Callable[..., Any]:
        """Return the target of a pipeline's word: a name, an import path, or the object itself."""
        if not isinstance(target, str):
            return target
        if ":" in target:
            return import_target(target, where)
        return self.load(target, where)

    def name_of(self, target: Callable[..., Any]) -> str | None:
        """Return the name of this object, or None."""
        path = import_path(target)
        for name, claims in self._entries.items():
            if len(claims) == 1 and (
                claims[0].target is target or (path is not None and claims[0].target == path)
            ):
                return name
        return None

    def register(self, name: str, target: str | Callable[..., Any]) -> None:
        if not _NAME.fullmatch(str(name)):
            raise SpecError(
                f"register: expected a name of letters, digits, _ and -, got {short_repr(name)}."
            )
        if not isinstance(target, str) and not callable(target):
            raise SpecError(
                f'register "{name}": expected a callable or an import path, got '
                f"{short_repr(target)}."
            )
        self._read_entry_points()
        owner = str(getattr(target, "__module__", "the caller"))
        if isinstance(target, str):
            owner = target.partition(":")[0]
        entry = Entry(name, target, owner)
        claims = self._entries.get(name, [])
        if any((claim.label, claim.owner) != (entry.label, owner) for claim in claims):
            taken = claims[0]
            raise SpecError(
                f'register "{name}": the name is taken by {taken.owner} ({taken.label}); {owner} '
                f"({entry.label}) needs "
                "another one."
            )
        # May be the same one again, as when a notebook cell is run twice.
        self._entries[name] = [entry]

    def unregister(self, name: str) -> None:
        self._entries.pop(name, None)

    @functools.cache  # noqa: B019 -- a table lives as long as the process
    def _read_entry_points(self) -> None:
        from importlib.metadata import entry_points

        for point in entry_points(group=self._group):
            owner = point.dist.name if point.dist is not None else point.value
            self._entries.setdefault(point.name, []).append(Entry(point.name, point.value, owner))


# Wrappers whose name is that of their module and, with capitals, of their class:
# ``vecwrap.wrappers.clip_action``.
_NAMED_ALIKE = (
    "atari",
    "check_nan",
    "clip_action",
    "clip_reward",
    "dtype",
    "episodic_life",
    "extract_obs",
    "filter_obs",
    "fire_reset",
    "flatten",
    "frame_skip",
    "grayscale",
    "monitor",
    "noop_reset",
    "normalize",
    "normalize_obs",
    "normalize_reward",
    "record_trajectories",
    "rescale_action",
    "resize",
    "scale_obs",
    "scale_reward",
    "seed_each_episode",
    "sticky_actions",
    "terminal_obs",
    "tile",
    "time_aware",
    "transpose",
    "video",
)
wrappers = NameTable(
    "wrapper",
    "vecwrap.wrappers",
    {
        **{
            name: f"vecwrap.wrappers.{name}:{name.title().replace('_', '')}"
            for name in _NAMED_ALIKE
        },
        "framestack": "vecwrap.wrappers.framestack:FrameStack",
        "opponents": "vecwrap.selfplay.opponents:Opponents",
        "mujoco": "vecwrap.wrappers.presets:mujoco",
        "time_limit": "gymnasium.wrappers.common:TimeLimit",
    },
    extras={"atari": "atari"},
)
backends = NameTable(
    "backend",
    "vecwrap.backends",
    {
        "dummy": "vecwrap.backends.dummy:Dummy",
        "ray": "vecwrap.backends.ray:Ray",
        "shmem": "vecwrap.backends.shmem:Shmem",
        "subprocess": "vecwrap.backends.subprocess:Subprocess",
        "threads": "vecwrap.backends.threads:Threads",
    },
)


def register_wrapper(name: str, target: str | Callable[..., Any]) -> None:
    """Register a name for a wrapper in pipelines, in this process.

    Args:
        name: letters, digits, ``_`` and ``-``.
        target: a ``VecEnvWrapper`` or ``gymnasium.Wrapper`` class, any callable that wraps, or its
            import path.

    Raises:
        SpecError: the name is taken by something else.

    >>> register_wrapper("halve", "my_package.wrappers:Halve")
    >>> register_wrapper("halve", "other_package:Halve")
    Traceback (most recent call last):
    ...
    vecwrap.errors.SpecError: register "halve": the name is taken by my_package.wrappers
    (my_package.wrappers:Halve); other_package (other_package:Halve) needs another one.
    >>> wrappers.unregister("halve")
    """
    wrappers.register(name, target)
