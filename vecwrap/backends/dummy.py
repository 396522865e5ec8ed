"""A loop over sub-environments in this process: the reference for all other backends.

``breakpoint()`` works in these sub-environments.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from vecwrap.backends.local import LocalRows
from vecwrap.env.arrivals import Arrival
from vecwrap.env.backend import Backend
from vecwrap.env.runner import Context, Runner
from vecwrap.rows.batch import Batch
from vecwrap.rows.step_result import Frames, IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.engine import Engine
from vecwrap.sources.failure import Failure
from vecwrap.sources.source import RestartState
from vecwrap.sources.source_factories import EngineFactory, Factory


class Dummy(Runner):
    """All sub-environments in this process, one after the other.

    Timeouts are checked between sub-environments. Each wait steps at least one, so repeated polling
    makes progress.

    >>> import gymnasium
    >>> from vecwrap.env.backend import Backend
    >>> with Backend(Dummy(), [lambda: gymnasium.make("CartPole-v1")] * 2) as env:
    ...     observations, infos = env.reset(seed=1)
    >>> observations.shape
    (2, 4)
    """

    name: ClassVar[str] = "dummy"
    has_fast_path = True

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Disable the fast path for subclasses, which may step differently."""
        super().__init_subclass__(**keywords)
        cls.has_fast_path = False

    def begin(self, context: Context, factories: Sequence[Factory]) -> Sequence[Arrival]:
        self.context = context
        self.local = LocalRows(range(context.num_rows), factories, context.interrupts)
        return [self.local.make(context)]

    def allocate(self, description: EnvDescription) -> Slots:
        slots = super().allocate(description)
        self.local.attach(slots)
        return slots

    def send(self, rows: IntArray) -> None:
        self.local.step(rows.tolist())

    def refuse_reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        for source in self.local.sources:
            source.refuse_reset(seeds, options)

    def reset(
        self, rows: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        self.local.reset(rows.tolist(), seeds, options)

    def poll(self, until: float, *, return_early: bool) -> Sequence[Arrival]:
        return self.local.run(one=return_early)

    def cancel(self, rows: Collection[int]) -> Collection[int]:
        return self.local.cancel(rows)

    def set_frames(self, wanted: Sequence[Frames]) -> None:
        self.local.set_frames(wanted)

    def step_all(self, actions: Batch) -> bool:
        return self.local.step_all(actions)

    def is_busy(self) -> bool:
        return bool(self.local)

    def recreate(self, restart_states: dict[int, RestartState]) -> Sequence[Failure]:
        return self.local.recreate(restart_states)

    def call(
        self, number: int, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> None:
        self.local.call(number, method, rows, arguments)

    def envs(self) -> list[Any] | None:
        return self.local.group.envs()

    def engines(self) -> Sequence[Any]:
        if not hasattr(self, "local"):  # nothing has been made yet
            return ()
        return [source.vector_env for source in self.local.sources if isinstance(source, Engine)]

    def stop(self, timeout: float, terminate: bool) -> None:
        if hasattr(self, "local"):
            self.local.close(timeout, terminate)


def around(engine: Engine, *, seed: int | None = None) -> Backend:
    """Return a backend with one engine, which is made already; ``seed`` as of every backend."""
    batch_size = None
    if engine.rows_at_once < engine.num_rows:
        batch_size = engine.rows_at_once
    return Backend(
        Dummy(),
        [EngineFactory(lambda: engine, engine.num_rows, batch_size)],
        autoreset=engine.mode,
        batch_size=batch_size,
        seed=seed,
    )
