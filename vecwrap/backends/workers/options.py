"""Options of runners whose sub-environments live in workers: processes, threads or actors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from vecwrap.env.options import Options
from vecwrap.errors import PlanError, did_you_mean

START_METHODS = ("fresh", "spawn", "forkserver", "fork")


@dataclass(frozen=True)
class ThreadOptions(Options):
    """The options of threads.

    Attributes:
        workers: how many threads; None: one per usable core.
    """

    workers: int | None = None

    def __post_init__(self) -> None:
        _refuse_below_one("workers", self.workers)


@dataclass(frozen=True)
class WorkerOptions(Options):
    """The options of everything that has workers.

    Attributes:
        workers: how many worker processes; None: one per usable core.
        envs_per_worker: how many sub-environments per worker, instead of ``workers``; n need not
            divide evenly.
        step_timeout: seconds a worker may take for its share of a step before it is killed; None:
            no limit.
        reset_timeout: the same for a reset.
        start_timeout: the same for creating its environments.
    """

    workers: int | None = None
    envs_per_worker: int | None = None
    step_timeout: float | None = None
    reset_timeout: float | None = None
    start_timeout: float | None = None
    LIMITS: ClassVar[tuple[str, ...]] = ("step_timeout", "reset_timeout", "start_timeout")

    def __post_init__(self) -> None:
        _refuse_below_one("workers", self.workers)
        _refuse_below_one("envs_per_worker", self.envs_per_worker)
        if self.workers is not None and self.envs_per_worker is not None:
            raise PlanError(
                "envs_per_worker: expected workers or envs_per_worker, got both; each follows "
                "from the other"
            )
        for name, seconds in self.limits.items():
            refuse_no_time(name, seconds)

    @property
    def limits(self) -> Mapping[str, float | None]:
        return {name: getattr(self, name) for name in self.LIMITS}


@dataclass(frozen=True)
class ProcessOptions(WorkerOptions):
    """The options of worker processes on this machine.

    Attributes:
        start_method: None: a worker is a fresh interpreter, which needs no ``__main__`` guard; or
            multiprocessing's ``"spawn"``, ``"forkserver"`` or ``"fork"``, with its rules.
        daemon: False: at interpreter exit, wait for workers that are still closing.
        parent_share: whether this process steps a share of the sub-environments during
            ``step_wait`` instead of only waiting. None: yes with shmem, if nothing requests
            isolation (``workers``, ``on_failure``, a time limit, ``batch_size``) and the
            environment and its inner wrappers are Gymnasium's, ale-py's or vecwrap's. An
            environment that crashes or hangs there takes this process down with it.
    """

    start_method: str | None = None
    daemon: bool = True
    parent_share: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_start_method(self.start_method)

    def isolating(self, *, restart: bool, batch_size: int | None) -> list[str]:
        """Return which options need all sub-environments outside of this process.

        Refuse ``parent_share`` beside such an option.
        """
        given = {**self.limits, "on_failure": restart or None, "batch_size": batch_size}
        requested = [name for name, value in given.items() if value is not None]
        if self.parent_share and requested:
            raise PlanError(
                f"parent_share: expected False beside {requested[0]}, got True: what this process "
                f"steps itself, nothing isolates. Leave out parent_share or {requested[0]}"
            )
        return requested


def check_start_method(method: str | None) -> str:
    """Return the start method's name, ``"fresh"`` for None; raise PlanError for an unknown one."""
    if method is None:
        return "fresh"
    if method not in START_METHODS:
        raise PlanError(
            f"start_method: expected one of {', '.join(START_METHODS)}, got {method!r}."
            f"{did_you_mean(str(method), START_METHODS)}"
        )
    return method


def refuse_no_time(name: str, seconds: float | None) -> None:
    if seconds is not None and not seconds > 0:
        raise PlanError(
            f"{name}: expected seconds above 0, got {seconds}; leave it out to wait without a limit"
        )


def _refuse_below_one(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise PlanError(f"{name}: expected at least 1, got {value}")
