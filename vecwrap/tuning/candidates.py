"""Which ways to run a pipeline are worth trying, the most promising first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vecwrap import registry
from vecwrap.errors import SpecError
from vecwrap.plan import PIPELINE_KEYS
from vecwrap.signatures import Signature
from vecwrap.tuning.measurements import Candidate, EnvCost, Trial

__all__ = ["BackendKind", "Situation", "backend_kinds", "candidates"]

# Decided by tune; every other option of the pipeline's backend is the user's, and is kept.
TRIED = ("workers", "envs_per_worker", "parent_share")
# Options by which a user asks for worker processes, so that what happens there affects nothing else.
ISOLATION = ("step_timeout", "reset_timeout", "start_timeout", "start_method")
CLUSTER = "ray"  # several machines; trying it would start a daemon that outlives the measuring process
UNEVEN = 0.25  # of the mean; if steps spread more, not waiting for the slowest may pay
MOST_WORKERS = 64


@dataclass(frozen=True)
class BackendKind:
    """A backend, as described by its signature.

    Attributes:
        name: in pipelines.
        options: the names of its options; None if it takes any.
    """

    name: str
    options: frozenset[str] | None

    def takes(self, option: str) -> bool:
        """Whether it has an option."""
        return self.options is None or option in self.options


@dataclass(frozen=True)
class Situation:
    """The pipeline and the machine to choose for.

    Attributes:
        n: how many sub-environments.
        cores: how many cores workers can share.
        backend: the pipeline's current backend.
        options: its options.
        batch_size: the pipeline's.
        favourite: the backend that ``auto`` chooses; its workers and batches are varied.
        shares: whether it gives this process a share by default.
    """

    n: int
    cores: int
    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int | None = None
    favourite: str = "shmem"
    shares: bool = False

    @property
    def kept(self) -> dict[str, Any]:
        """The options that tune does not decide."""
        return {key: value for key, value in self.options.items() if key not in TRIED and value is not None}

    @property
    def isolated(self) -> bool:
        """Whether the user asks for separate processes."""
        return any(key in self.kept for key in ISOLATION) or self.kept.get("on_failure") == "restart"


def backend_kinds() -> list[BackendKind]:
    """Return all named backends, including those of other packages, except any that cannot be imported."""
    kinds = []
    for name in registry.backends.names():
        try:
            signature = Signature.of(registry.backends.load(name))
        except SpecError:
            continue
        options = frozenset(p.name for p in signature.parameters if p.name not in PIPELINE_KEYS)
        kinds.append(BackendKind(name, None if signature.any_name else options))
    return kinds


def candidates(kinds: Iterable[BackendKind], now: Situation, cost: EnvCost) -> tuple[list[Candidate], list[Trial]]:
    """Choose what to try, in this order, and what not to.

    Args:
        kinds: the available backends.
        now: the pipeline and the machine.
        cost: of one sub-environment.

    Returns:
        The candidates, the current settings first; and trials of backends that cannot be tried, with the reason.
    """
    usable, refused = [], []
    for kind in kinds:
        lacks = [option for option in now.kept if not kind.takes(option)]
        if kind.name == CLUSTER != now.backend:
            reason = "not tried: it is for clusters, and the pipeline names none"
            refused.append(Trial(Candidate(kind.name), failed=reason))
        elif lacks:
            reason = f"it has no {' and no '.join(lacks)}, which the pipeline sets"
            refused.append(Trial(Candidate(kind.name), failed=reason))
        else:
            usable.append(kind)
    in_process = [kind for kind in usable if not kind.takes("workers")]
    favourite = [kind for kind in usable if kind.takes("workers") and kind.name == now.favourite]
    others = [kind for kind in usable if kind.takes("workers") and kind.name != now.favourite]
    found = [_present(now, in_process)]
    found += [_candidate(kind, now) for kind in in_process]
    for kind in favourite:
        found += _with_workers(kind, now, cost)
    found += [_candidate(kind, now) for kind in others]
    return [one for number, one in enumerate(found) if not any(map(one.does_as, found[:number]))], refused


def _with_workers(kind: BackendKind, now: Situation, cost: EnvCost) -> list[Candidate]:
    """The backend with the most to gain: parent shares, numbers of workers, batch sizes."""
    found = [_candidate(kind, now)]
    if kind.takes("parent_share") and not now.isolated and now.batch_size is None:
        found.append(_candidate(kind, now, parent_share=not now.shares))
    found += [_candidate(kind, now, workers=workers) for workers in _workers(now, cost)]
    uneven = cost.waits or cost.step_spread > UNEVEN * cost.step_seconds
    for size in _batch_sizes(now):
        if uneven and now.n > now.cores:
            found.append(_candidate(kind, now, batch_size=size, workers=min(now.n, MOST_WORKERS)))
        found.append(_candidate(kind, now, batch_size=size))
    return found


def _workers(now: Situation, cost: EnvCost) -> list[int]:
    """Numbers of workers besides the default of one per core."""
    wanted = {now.cores * 2, now.cores // 2} | ({min(now.n, MOST_WORKERS)} if cost.waits else set())
    return sorted((count for count in wanted if 1 <= count <= now.n and count != min(now.cores, now.n)), reverse=True)


def _batch_sizes(now: Situation) -> Sequence[int]:
    if now.batch_size is None:
        return [now.n // 2] if now.n > 1 else []
    return [size for size in (now.batch_size // 2, now.batch_size * 2) if 1 <= size <= now.n]


def _candidate(kind: BackendKind, now: Situation, batch_size: int | None = None, **tried: Any) -> Candidate:
    workers = tried.get("workers", now.cores) if kind.takes("workers") else 0
    size = now.batch_size if batch_size is None else batch_size
    return Candidate(kind.name, {**tried, **now.kept}, size, min(workers, now.n), tuple(tried))


def _present(now: Situation, in_process: Iterable[BackendKind]) -> Candidate:
    """The pipeline's current settings."""
    options = {key: value for key, value in now.options.items() if value is not None}
    each = options.get("envs_per_worker")
    workers = options.get("workers") or (-(-now.n // each) if each else min(now.cores, now.n))
    tried = tuple(key for key in options if key in TRIED)
    return Candidate(
        now.backend, options, now.batch_size, 0 if now.backend in {kind.name for kind in in_process} else workers, tried
    )
