"""What sub-environments and games share: one environment, its attributes, how it is recreated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from vecwrap.interrupts import close_quietly
from vecwrap.rows.infos import detached_copy
from vecwrap.rows.step_result import Frames
from vecwrap.rows.table import Slots
from vecwrap.sources.recreate_counter import RecreateCounter
from vecwrap.sources.returned_values import returned_copy
from vecwrap.sources.source import RestartState


class EnvHolder(ABC):
    """The part of a source that holds its one environment.

    Methods that the parent calls by name begin with an underscore here, such as ``_get_attr``.
    """

    env: Any
    rows: range
    recreate_counter: RecreateCounter | None
    _slots: Slots
    _seed: int | None  # the last one given
    _seed_of_restart: int | None  # of the next reset, if that has none

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def close(self, timeout: float = 5.0, terminate: bool = False) -> None:
        self.env.close()

    # -- what a subclass defines -------------------------------------------------------------------

    @abstractmethod
    def want_frames(self, frames: Sequence[Frames]) -> None:
        """Set which frames of each of its rows are wanted."""

    @abstractmethod
    def _make_env(self) -> None:
        """Make the environment, anew if there is one."""

    @abstractmethod
    def _chain(self) -> list[Any]:
        """Return the wrappers, outermost first, down to the environment itself."""

    @abstractmethod
    def _attribute(self, name: str) -> Any:
        """Return an attribute of the outermost wrapper that has it."""

    @abstractmethod
    def _holder_of(self, name: str) -> Any:
        """Return where an attribute lives: a wrapper, or else the environment itself."""

    # -- methods that are called by name -----------------------------------------------------------

    def answer(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Do what is called, and return its value."""
        return getattr(self, f"_{method}")(*arguments)

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of the outermost wrapper that has it, or return its plain attribute."""
        result = self._attribute(name)
        if callable(result):
            result = result(*detached_copy(args), **detached_copy(kwargs))
        return returned_copy(result)

    def _get_attr(self, name: str) -> Any:
        """Return an attribute; plain data is copied, as from other processes."""
        return returned_copy(self._attribute(name))

    def _set_attr(self, name: str, value: Any) -> None:
        """Set an attribute where it lives, a new one on the environment itself."""
        if self.recreate_counter is not None:
            self.recreate_counter.note_attribute(name, value)
        setattr(self._holder_of(name), name, detached_copy(value))

    def _is_wrapped(self, module: str, qualname: str) -> bool:
        kinds = (kind for wrapper in self._chain() for kind in type(wrapper).__mro__)
        return any((kind.__module__, kind.__qualname__) == (module, qualname) for kind in kinds)

    # -- restarts, and `recreate_every` ------------------------------------------------------------

    def restore(self, restart_states: Sequence[RestartState]) -> None:
        for name, value in restart_states[0].attributes.items():
            self._set_attr(name, value)
        self._seed_of_restart = restart_states[0].seed
        self.want_frames([restart_state.frames for restart_state in restart_states])
        slots = self._slots
        for row, restart_state in zip(self.rows, restart_states, strict=True):
            # In shared slots the parent does this: it may not have read yet.
            if restart_state.resting is not None and not slots.shared:
                observation, slots.terminations[row], slots.truncations[row] = restart_state.resting
                slots.observations.put(row, observation)

    def _recreate_if_due(self, counter: RecreateCounter, seed: int | None) -> int | None:
        """Recreate the environment if it is time; return the seed of the reset that follows."""
        if counter.is_due():
            close_quietly(self.env)
            self._make_env()
            for name, value in list(counter.attributes.items()):
                self._set_attr(name, value)
            counter.begin()
            if seed is None:
                seed = counter.seed_now(self._seed)
        counter.count_episode()
        return seed

    def _counter_state(self) -> dict[str, Any]:
        """Return the entry of a saved state that ``recreate_every`` adds, if any."""
        if self.recreate_counter is None:
            return {}
        return {"renewal": self.recreate_counter.state()}
