"""Sources, which factories make and all runners step: one or several consecutive rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from vecwrap.errors import PlanError
from vecwrap.rows.step_result import Autoreset, Frames
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.failure import Failure
from vecwrap.sources.recreate_counter import RecreateCounter


@dataclass(frozen=True)
class RestartState:
    """What a recreated sub-environment takes over from the one that was lost."""

    seed: int | None = None  # of its first reset, if neither that nor a schedule provides one
    # What `set_attr` has set, in that order.
    attributes: dict[str, Any] = field(default_factory=dict)
    schedule: bytes | None = None  # a pickled ``Schedule``
    scheduled: int = 0  # how many episodes the schedule has supplied: where it goes on
    frames: Frames = Frames.NONE
    # Observation, terminated, truncated of a row at rest (episodic mode).
    resting: tuple[Any, bool, bool] | None = None


class Source(ABC):
    """The owner of consecutive rows of the slots, which steps them.

    A sub-environment has one row, an engine several, and a game one for each agent.

    Methods count rows from the source's first.

    Attributes:
        kind: what it is, for errors.
        takes_action: whether ``step`` gets the action of its one row; else it reads its rows'
            actions in the slots.
        gives_columns: whether it writes with ``Slots.put_result``, and ``step`` takes the batch of
            its rows' actions.
        index: the number of its first row among all sub-environments.
        num_rows: how many rows it has.
        mode: its autoreset mode.
        rows: its rows of the slots, once it is attached.
        recreate_counter: when it recreates what it steps between two episodes; None: never.
    """

    kind: ClassVar[str]
    takes_action: ClassVar[bool] = False
    gives_columns: ClassVar[bool] = False
    index: int = 0
    num_rows: int = 1
    mode: Autoreset
    rows: range
    debug: bool = False
    recreate_counter: RecreateCounter | None = None

    @property
    @abstractmethod
    def unwrapped(self) -> Any:
        """What it steps, without wrappers."""

    @abstractmethod
    def describe(self) -> EnvDescription:
        """What a backend must know of it."""

    @abstractmethod
    def attach(self, slots: Slots, first_row: int) -> None:
        """Set where its results go."""

    def refuse_reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Raise ArgumentError for seeds or options that the source cannot accept.

        This is called before any of the source's rows counts as pending.
        """

    @abstractmethod
    def reset(
        self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        """Reset these of its rows, with a seed each, and write them."""

    @abstractmethod
    def step(self, action: Any = None) -> None:
        """Step and write all rows; ``action`` is that of the one row if ``takes_action``."""

    @abstractmethod
    def want_frames(self, frames: Sequence[Frames]) -> None:
        """Set which frames of each of its rows are wanted."""

    @abstractmethod
    def call(
        self, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> tuple[dict[int, Any], list[Failure]]:
        """Call a method (``call``, ``get_attr``, ...) for these rows, each with its arguments.

        Returns:
            The values by row, and failures of the other rows. What it raises is a failure of all
                these rows.
        """

    @abstractmethod
    def failures(
        self, rows: Sequence[int], error: BaseException, during: str, action: Any = None
    ) -> list[Failure]:
        """Report that it raised while it was asked for these rows: one failure for each."""

    def refused(self, row: int, error: Exception, during: str, *, of_the_end: bool) -> Failure:
        """Report that the result of a row's latest step or reset cannot be passed on.

        Args:
            row: which of its rows.
            error: why.
            during: ``"step"`` or ``"reset"``.
            of_the_end: whether the part that cannot be passed on is of the episode that ended in
                it.
        """
        return self.failures([row], error, during)[0]

    def envs(self) -> list[Any] | None:
        """The environment of each of its rows; None if it has none in this process."""
        return None

    def recreate(self) -> None:
        """Make what it steps once more, after it was lost and closed."""
        raise PlanError(f"an {self.kind} is not recreated")

    def restore(self, restart_states: Sequence[RestartState]) -> None:
        """Take over what the lost ones had, a record for each row."""
        raise PlanError(f"an {self.kind} is not recreated")

    @abstractmethod
    def close(self, timeout: float = 5.0, terminate: bool = False) -> None:
        """Close what it steps; an engine has so many seconds, or is ended at once."""
