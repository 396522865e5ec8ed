"""What a backend adds: where sub-environments run, how rows are requested, how results return.

A runner knows nothing of who calls it. It receives a ``Context``, makes sources, is asked for rows,
and returns what arrives. ``vecwrap.env.backend_rows`` keeps account of the rows and decides what a
loss means; ``vecwrap.sources`` steps, resets and renders a sub-environment.
docs/adding-a-backend.md writes a runner from nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vecwrap.env.arrivals import Arrival
from vecwrap.env.health import WorkerHealth
from vecwrap.env.observers import Timer
from vecwrap.env.options import Options
from vecwrap.interrupts import Interrupts
from vecwrap.rows.batch import Batch
from vecwrap.rows.step_result import Autoreset, Frames, IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.failure import Failure
from vecwrap.sources.source import RestartState
from vecwrap.sources.source_factories import Factory

__all__ = ["POLL_SECONDS", "Context", "Runner", "Timing"]

POLL_SECONDS = 0.2
"""How long ``poll`` waits at most: then its caller looks whether the environment was closed."""


class Timing:
    """What ``vecwrap time`` sets while it measures; else a function is just called."""

    timer: Timer | None = None

    def run(self, part: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the function's result for these arguments, timed as this part of the backend."""
        if self.timer is None:
            return function(*arguments)
        return self.timer.run(part, function, *arguments)


@dataclass(frozen=True)
class Context:
    """What a runner knows of the environment that it serves.

    Attributes:
        num_rows: rows of all sources.
        autoreset: the mode.
        debug: check each action and observation against its space.
        batch_size: how many rows a receiver waits for; None: for all.
        restarts: whether lost sub-environments are recreated.
        recreate_every: after how many episodes a source recreates its environment; None: never.
        interrupts: holds Ctrl-C back; ``poll`` waits without, and calls ``interrupts.hold()``
            before it takes anything.
        timing: of the parts of ``poll``.
    """

    num_rows: int
    autoreset: Autoreset
    debug: bool = False
    batch_size: int | None = None
    restarts: bool = False
    recreate_every: int | None = None
    interrupts: Interrupts = field(default_factory=Interrupts)
    timing: Timing = field(default_factory=Timing)


class Runner(ABC):
    """Where sub-environments run.

    ``Options`` has the options of its own, which pipelines give beside those of ``RestartOptions``,
    which every backend has. Nothing is started before ``begin``. A ``BackendError`` from any of
    these methods ends the environment.

    Attributes:
        name: the backend's name.
        options: what was given of ``Options``, with the defaults of the rest.
        workers: how many worker processes or threads there are; 0 if everything runs in the
            caller's own.
        context: what it serves.
        slots: where the actions are, and where its sub-environments write their rows; set by
            ``allocate``.
    """

    name: ClassVar[str] = "runner"
    Options: ClassVar[type[Options]] = Options
    has_fast_path: bool = False  # whether it has `step_whole`
    engine: str = ""  # the name of an engine whose sub-environments cannot be reached one by one
    of_its_process: ClassVar[str] = (
        ""  # why only the process that built it may use it, if a fork may not
    )
    # Whether an engine that was lost is recreated: it has a process of its own, which may die.
    recreates_engines: ClassVar[bool] = False
    # Whether it has worker processes on this machine, whose ids ``health`` reports.
    workers_are_local: ClassVar[bool] = False
    at_exit: tuple[float | None, bool] = None, True  # how it is closed then: timeout, terminate
    workers: int = 0
    context: Context
    slots: Slots

    def __init__(self, **options: Any) -> None:
        self.options: Options = self.Options(**options)

    # -- the start ---------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, context: Context, factories: Sequence[Factory]) -> Sequence[Arrival]:
        """Begin to make a source with each factory; ``EnvsMade`` or ``MakeFailed`` arrive later.

        Raises:
            SubEnvError: one raised in this process.
        """

    def allocate(self, description: EnvDescription) -> Slots:
        """Allocate the slots, once all sources are made, and attach the sources to them."""
        self.slots = Slots(
            self.context.num_rows, description.observation_space, description.action_space
        )
        return self.slots

    def is_starting(self) -> bool:
        """Whether sources are still being attached to the slots."""
        return False

    # -- rows --------------------------------------------------------------------------------------

    @abstractmethod
    def send(self, rows: IntArray) -> None:
        """Request a step of these rows, with the actions in the slots."""

    @abstractmethod
    def reset(
        self, rows: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        """Request resets of these rows."""

    @abstractmethod
    def poll(self, until: float, *, return_early: bool) -> Sequence[Arrival]:
        """Return what has arrived; if nothing has, wait.

        Args:
            until: when to return at the latest, by ``time.monotonic()``. Before that, an empty
                result means that nothing of what was requested will arrive.
            return_early: return as soon as any row has arrived, because some rows will do or time
                is limited; else all rows are waited for, and may come together.
        """

    def cancel(self, rows: Collection[int]) -> Collection[int]:
        """Cancel requests for these rows that have not begun; return the rows that still arrive."""
        return ()

    @abstractmethod
    def set_frames(self, wanted: Sequence[Frames]) -> None:
        """Set which frames of each row are wanted with the results requested from now on."""

    def refuse_reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Raise ArgumentError for seeds or options that cannot be sent, before rows are pending."""

    def step_all(self, actions: Batch) -> bool:
        """Step all rows at once; False if results are still to arrive through ``poll``."""
        raise NotImplementedError

    def is_busy(self) -> bool:
        """Whether rows were requested that have not arrived, after a ``step_whole`` that raised."""
        return False

    # -- other calls -------------------------------------------------------------------------------

    @abstractmethod
    def call(
        self, number: int, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> None:
        """Request a call of a source's method for rows, with the arguments of each row.

        The results arrive as ``CallValues(number, ...)``.
        """

    def envs(self) -> list[Any] | None:
        """The sub-environments; None if they are not all in this process."""
        return None

    def engines(self) -> Sequence[Any]:
        """The vector environments in this process that step several rows each."""
        return ()

    def health(self) -> tuple[WorkerHealth, ...]:
        """The state of each worker process."""
        return ()

    # -- losses and the end ------------------------------------------------------------------------

    def recreate(self, restart_states: dict[int, RestartState]) -> Sequence[Failure]:
        """Recreate lost sub-environments; return those that failed at once.

        Without it nothing can be restarted.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot recreate sub-environments")

    def notice_losses(self, rows: IntArray) -> Sequence[Arrival]:
        """Return arrivals and deaths since the last contact, at least of these rows' workers."""
        return ()

    @abstractmethod
    def stop(self, timeout: float, terminate: bool) -> None:
        """Close everything that was opened, in any state, even after a ``begin`` that failed."""
