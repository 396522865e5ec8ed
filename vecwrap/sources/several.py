"""A source of several rows, which are stepped and asked together: an engine's, or a game's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from vecwrap.errors import PlanError
from vecwrap.interrupts import is_interrupt
from vecwrap.rows.step_result import Autoreset, Frames
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Description
from vecwrap.sources.failure import Failure
from vecwrap.sources.sub_env import Takeover


class AgainError(Exception):
    """A source's interrupt, reported for another of its rows."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class Several(ABC):
    """Several rows of the slots, and what steps them; what is asked of them together is done once, with the first."""

    kind: ClassVar[str]
    num_rows: int
    mode: Autoreset
    name: str
    methods: ClassVar[tuple[str, ...]] = ()  # of SubEnv, that it can do

    def __init__(self) -> None:
        self.debug = False
        self._announced: tuple[str, Sequence[int], Sequence[tuple[Any, ...]]] = "", (), ()

    @property
    @abstractmethod
    def unwrapped(self) -> Any:
        """What it steps, without wrappers."""

    @abstractmethod
    def describe(self) -> Description:
        """What a backend must know of it."""

    @abstractmethod
    def attach(self, slots: Slots, first_row: int) -> None:
        """Set where the results go."""

    @abstractmethod
    def step(self) -> None:
        """Take a step of all its rows, with the actions in the slots, and write them."""

    @abstractmethod
    def reset_rows(self, rows: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Reset some of its rows, counted from its first, with a seed each, and write them."""

    @abstractmethod
    def ask(self, method: str, rows: list[int], arguments: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Do one of its ``methods``, with the arguments of each row; return one value per row."""

    @abstractmethod
    def refuse_method(self, method: str) -> None:
        """Raise ArgumentError: it does not have this method of ``SubEnv``."""

    def ask_row(self, row: int, method: str, *arguments: Any) -> Any:
        return self.take_part(row)

    @abstractmethod
    def failure(self, row: int, index: int, error: BaseException, during: str, action: Any) -> Failure:
        """Report that it raised; ``index`` is the row's among all."""

    def envs(self) -> list[Any] | None:
        """The environment of each of its rows, if there is one here."""
        return None

    @abstractmethod
    def want_frames(self, row: int, frames: Frames) -> None:
        """Set which frames of a row are wanted."""

    def make_anew(self, row: int) -> None:
        """Make it anew, with the first of its rows, after it was lost."""
        raise PlanError(f"{self.name}: an {self.kind} is not recreated")

    def take_over(self, row: int, takeover: Takeover) -> None:
        raise PlanError(f"{self.name}: an {self.kind} is not recreated")

    @abstractmethod
    def close(self, timeout: float, terminate: bool) -> None:
        """Close it."""

    def announce(self, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Expect to be asked this of these rows, each with its arguments; it is done when the first takes part."""
        self._announced = method, rows, arguments
        self._told: dict[int, Any] | None = None  # what it gave, by row
        self._raised: BaseException | None = None

    @property
    def asked_of(self) -> int:
        """How many of its rows were last asked for something."""
        return len(self._announced[1])

    def step_whole(self) -> None:
        """Step all rows, as they always are."""
        self.announce("step", range(self.num_rows), ())
        self.step()

    def take_part(self, row: int) -> Any:
        """Do what was announced, unless it is done; an interrupt is raised once, then as an AgainError."""
        if self._told is None and self._raised is None:
            try:
                self._told = self._done(*self._announced)
            except BaseException as error:
                self._raised = error
                raise
        if self._raised is not None:
            raise AgainError(self._raised) if is_interrupt(self._raised) else self._raised
        assert self._told is not None
        return self._told.get(row)

    def _done(self, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> dict[int, Any]:
        if method == "reset":
            self.reset_rows(rows, [seed for seed, _ in arguments], arguments[0][1])
            return {}
        if method not in self.methods:
            self.refuse_method(method)
        return dict(zip(rows, self.ask(method, list(rows), arguments), strict=True))
