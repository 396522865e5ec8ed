"""The backend of a pipeline as it was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vecwrap.layer_spec import checked_name, read_layer_text
from vecwrap.source import Source, fail, fail_where
from vecwrap.values import Settings, canonical, import_path, plain, shown

__all__ = ["BACKEND_OPTIONS", "BackendSpec"]

# The options that a pipeline in Python may give besides the backend's name.
BACKEND_OPTIONS = (
    "workers",
    "envs_per_worker",
    "start_method",
    "daemon",
    "parent_share",
    "on_failure",
    "max_restarts",
    "restart_window",
    "restart_backoff",
    "step_timeout",
    "reset_timeout",
    "start_timeout",
)


@dataclass(frozen=True, eq=False)
class BackendSpec:
    """Which backend runs the sub-environments, and with which options.

    Attributes:
        target: a registered name, ``"auto"``, an import path, or in Python a backend class.
        options: those of ``BACKEND_OPTIONS``, and the backend's own.
    """

    target: str | Callable[..., Any] = "auto"
    options: Mapping[str, Any] = field(default_factory=Settings)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", Settings(self.options))

    @classmethod
    def parse(cls, backend: Any, source: Source) -> BackendSpec:
        """Read ``shmem``, ``"shmem:workers=2"``, ``{name: shmem, workers: 2}``, a class, a BackendSpec; None: auto."""
        if isinstance(backend, BackendSpec):
            return backend
        if backend is None:
            return cls()
        if isinstance(backend, Mapping):
            options = {key: value for key, value in backend.items() if key != "name"}
            for key in options:
                if not isinstance(key, str):
                    fail(source, f"expected a name for each option, got {shown(key)}")
            name = backend.get("name", "auto")
            if callable(name):
                return cls(import_path(name) or name, options)
            return cls(checked_name(name, "backend", source.at("name")), options)
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

    def to_data(self) -> Any:
        """Return plain data that ``parse`` reads back, in the shortest form.

        Raises:
            SpecError: something exists only in this process.
        """
        options = plain(self.options, "backend")
        if not isinstance(self.target, str):
            fail_where("backend", f"{self.name} lives in this process only; give its import path")
        is_path_without_dot = ":" in self.target and "." not in self.target.partition(":")[0]
        return {"name": self.target, **options} if options or is_path_without_dot else self.target

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BackendSpec) and (self.target, canonical(self.options)) == (
            other.target,
            canonical(other.options),
        )

    def __hash__(self) -> int:
        return hash(self.name)
