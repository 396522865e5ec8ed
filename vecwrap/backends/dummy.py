"""A loop in this process: the reference that other backends are tested against, and where ``breakpoint()`` works."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from vecwrap.backends.local import LocalRows
from vecwrap.env.backend import Backend, Factory
from vecwrap.rows.batch import Batch
from vecwrap.rows.step_result import Frames, IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Description, of_all
from vecwrap.sources.failure import Failure
from vecwrap.sources.sub_env import Takeover


class DummyBackend(Backend):
    """All sub-environments in this process, one after the other.

    Timeouts are checked between sub-environments. Each wait steps at least one, so repeated polling makes progress.

    >>> import gymnasium
    >>> with DummyBackend([lambda: gymnasium.make("CartPole-v1")] * 2) as env:
    ...     observations, infos = env.reset(seed=1)
    >>> observations.shape
    (2, 4)
    """

    name: ClassVar[str] = "dummy"
    has_line: ClassVar[bool] = True

    def _start(self, factories: Sequence[Factory]) -> Description:
        self.local = LocalRows(range(len(factories)), factories, self._interrupts)
        descriptions = self.local.make(self.autoreset, debug=self.debug)
        description = of_all(list(descriptions.items()))
        self.slots = Slots(self.num_envs, description.observation_space, description.action_space)
        self.local.attach(self.slots)
        return description

    def __init_subclass__(cls, **keywords: Any) -> None:
        """A backend that derives from this one, and may step differently, has the general path alone."""
        super().__init_subclass__(**keywords)
        cls.has_line = False

    def _is_ordinary(self) -> bool:
        special = self._pending or self._any_ended or self._frames_changed or self.watched or self.closed or self.debug
        return not special and self._recovery is None and self.batch_size is None

    def _step_rows_in_line(self, actions: Batch) -> bool:
        return self.local.step_all(actions)

    def _leave_line(self) -> None:
        if not self.local:
            self._mark_home(self.all_ids)
            self._pending = None

    def _send_rows(self, actions: Batch, env_ids: IntArray) -> None:
        self.slots.actions.fill(self.rows(env_ids), actions)
        self.local.step(env_ids.tolist())

    def _not_sent(self, env_ids: IntArray, error: BaseException) -> None:
        self._take_back(env_ids.tolist())
        super()._not_sent(env_ids, error)

    def _reset_rows(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        self.local.reset(env_ids.tolist(), seeds, options)

    def _make_anew(self, takeovers: dict[int, Takeover]) -> None:
        for failure in self.local.make_anew(takeovers):
            self._not_made(failure)

    def _take_back(self, env_ids: Iterable[int]) -> None:
        self.local.forget(env_ids)

    def _tell_frames(self, wanted: Sequence[Frames]) -> None:
        self.local.tell_frames(wanted)

    def _poll(self, deadline: float | None) -> None:
        lost = bool(self._due)
        due = self._make_due_anew()
        if self._progress and deadline is not None and time.monotonic() > deadline:
            raise self._too_early()
        if self.local:
            self.local.run(self._arrived, one=deadline is not None or self.batch_size is not None)
        elif due is not None:
            self._rest_until(due if deadline is None else min(due, deadline))
            self._progress = True  # so that the deadline is checked
        elif not lost:
            raise self._never_home()

    def _ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        self.local.ask(method, env_ids, arguments)

    def _answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        return self.local.answers()

    def _envs_here(self) -> list[Any]:
        return self.local.envs

    def _stop(self, timeout: float, terminate: bool) -> None:
        if hasattr(self, "local"):
            self.local.close()
