"""What a backend adds: where sub-environments run, how rows are requested there, and how their results return.

Everything else is the same for all: ``vecwrap.env.books`` keeps the books, ``vecwrap.sources`` steps, resets and
renders a sub-environment. docs/adding-a-backend.md writes a runner from nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar

from vecwrap.env.books import Books
from vecwrap.env.options import Options
from vecwrap.env.restarts import WorkerHealth
from vecwrap.rows.batch import Batch
from vecwrap.rows.step_result import Frames, IntArray
from vecwrap.sources.description import Description
from vecwrap.sources.failure import Failure
from vecwrap.sources.source import Takeover
from vecwrap.sources.sub_env import Factory

__all__ = ["Runner"]


class Runner(ABC):
    """Where sub-environments run; ``vecwrap.env.backend.Backend`` has one, and its books.

    ``Options`` has the options of its own, which pipelines give beside those of ``RestartOptions``, which every backend
    has. Nothing is started before ``start``.

    Attributes:
        name: the backend's name.
        options: what was given of ``Options``, with the defaults of the rest.
        workers: how many worker processes or threads there are; 0 if everything runs in the caller's own thread.
        books: which rows are pending, and where they are written (``books.slots``).
    """

    name: ClassVar[str] = "runner"
    Options: ClassVar[type[Options]] = Options
    has_line: bool = False  # whether it has `step_whole`
    engine: str = ""  # the name of an engine whose sub-environments cannot be reached one by one
    of_its_process: ClassVar[str] = ""  # why only the process that built it may use it, if a fork may not
    at_exit: tuple[float | None, bool] = None, True  # how it is closed then: timeout, terminate
    workers: int = 0
    books: Books

    def __init__(self, **options: Any) -> None:
        self.options = self.Options(**options)

    @abstractmethod
    def start(self, factories: Sequence[Factory]) -> Description:
        """Make a source with each factory, refuse unequal spaces, set ``books.slots``; describe them all."""

    @abstractmethod
    def send(self, env_ids: IntArray) -> None:
        """Request a step of these sub-environments, with the actions in the slots."""

    @abstractmethod
    def reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Request resets of these sub-environments."""

    @abstractmethod
    def poll(self, deadline: float | None) -> None:
        """Receive at least one row, into the slots and ``books.arrived``; ``books.too_early()`` past the deadline."""

    @abstractmethod
    def frames(self, wanted: Sequence[Frames]) -> None:
        """Say which frames of each sub-environment to include with the rows requested from now on."""

    def refuse_reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Raise ArgumentError for seeds or options that cannot get there, before any row counts as pending."""

    def not_sent(self, env_ids: IntArray, error: BaseException) -> None:
        """Give up what was requested of these rows: an error came while they were being sent."""
        self.take_back(env_ids.tolist())

    def take_back(self, env_ids: Iterable[int]) -> None:
        """Discard the pending requests to these sub-environments."""

    def step_whole(self, actions: Batch) -> bool:
        """Step all rows at once; False if some are for the general path to go on with."""
        raise NotImplementedError

    def has_work(self) -> bool:
        """Whether rows are still to be stepped, or to be reported."""
        return False

    @abstractmethod
    def ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Call a method of ``SubEnv`` on sub-environments, each with its arguments."""

    @abstractmethod
    def answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        """Wait for the results of ``ask``: values by index, and failures."""

    def answered(self) -> Collection[int]:
        """Who has answered the last call, if ``answers`` raised."""
        return ()

    def envs(self) -> list[Any] | None:
        """The sub-environments; None if they are not all in this process."""
        return None

    def engines(self) -> Sequence[Any]:
        """The vector environments in this process that step several rows each."""
        return ()

    @abstractmethod
    def stop(self, timeout: float, terminate: bool) -> None:
        """Close everything that was opened, whatever its state; also after a ``start`` that failed half way."""

    def recreate(self, takeovers: dict[int, Takeover]) -> None:
        """Recreate lost sub-environments; failures go to ``books.not_made``. Without it nothing can be restarted."""
        raise NotImplementedError(f"{type(self).__name__} cannot recreate sub-environments")

    def notice_losses(self, env_ids: IntArray) -> None:
        """Detect deaths since the last contact, at least among these, and handle them as losses."""

    def lose_torn(self) -> None:
        """Lose what an interrupt has left half done, before anything is received or sent."""

    def health(self) -> tuple[WorkerHealth, ...]:
        """The state of each worker process."""
        return ()
