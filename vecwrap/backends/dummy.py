"""A loop in this process: the reference that other backends are tested against, and where ``breakpoint()`` works."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from vecwrap.backends.local import LocalRows
from vecwrap.env.backend import Backend
from vecwrap.env.runner import Runner
from vecwrap.rows.batch import Batch
from vecwrap.rows.step_result import Frames, IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Description, of_all
from vecwrap.sources.engine import Engine
from vecwrap.sources.failure import Failure
from vecwrap.sources.making import EngineFactory
from vecwrap.sources.source import Takeover
from vecwrap.sources.sub_env import Factory


class Dummy(Runner):
    """All sub-environments in this process, one after the other.

    Timeouts are checked between sub-environments. Each wait steps at least one, so repeated polling makes progress.

    >>> import gymnasium
    >>> from vecwrap.env.backend import Backend
    >>> with Backend(Dummy(), [lambda: gymnasium.make("CartPole-v1")] * 2) as env:
    ...     observations, infos = env.reset(seed=1)
    >>> observations.shape
    (2, 4)
    """

    name: ClassVar[str] = "dummy"
    has_line = True

    def __init_subclass__(cls, **keywords: Any) -> None:
        """A runner that derives from this one, and may step differently, has the general path alone."""
        super().__init_subclass__(**keywords)
        cls.has_line = False

    def start(self, factories: Sequence[Factory]) -> Description:
        books = self.books
        self.local = LocalRows(range(books.num_rows), factories, books.interrupts)
        descriptions = self.local.make(books.autoreset, debug=books.debug, restart=books.recovery is not None)
        description = of_all(list(descriptions.items()))
        books.slots = Slots(books.num_rows, description.observation_space, description.action_space)
        self.local.attach(books.slots)
        return description

    def send(self, env_ids: IntArray) -> None:
        self.local.step(env_ids.tolist())

    def refuse_reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        for source in self.local.sources:
            source.refuse_reset(seeds, options)

    def reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        self.local.reset(env_ids.tolist(), seeds, options)

    def poll(self, deadline: float | None) -> None:
        books = self.books
        lost = bool(books.due)
        due = books.make_due_anew()
        if books.progress and deadline is not None and time.monotonic() > deadline:
            raise books.too_early()
        if self.local:
            self.local.run(books.arrived, one=deadline is not None or books.batch_size is not None)
        elif due is not None:
            books.rest_until(due if deadline is None else min(due, deadline))
            books.progress = True  # so that the deadline is checked
        elif not lost:
            raise books.never_home()

    def frames(self, wanted: Sequence[Frames]) -> None:
        self.local.tell_frames(wanted)

    def step_whole(self, actions: Batch) -> bool:
        return self.local.step_all(actions)

    def has_work(self) -> bool:
        return bool(self.local)

    def take_back(self, env_ids: Iterable[int]) -> None:
        self.local.forget(env_ids)

    def recreate(self, takeovers: dict[int, Takeover]) -> None:
        for failure in self.local.recreate(takeovers):
            self.books.not_made(failure)

    def ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        self.local.ask(method, env_ids, arguments)

    def answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        return self.local.answers()

    def envs(self) -> list[Any] | None:
        return self.local.group.envs()

    def engines(self) -> Sequence[Any]:
        return [source.vector_env for source in self.local.sources if isinstance(source, Engine)]

    def stop(self, timeout: float, terminate: bool) -> None:
        if hasattr(self, "local"):
            self.local.close(timeout, terminate)


def around(engine: Engine, *, seed: int | None = None) -> Backend:
    """Return a backend with one engine, which is made already; ``seed`` as of every backend."""
    return Backend(Dummy(), [EngineFactory(lambda: engine, engine.num_rows)], autoreset=engine.mode, seed=seed)
