"""The backend around another library's vector environment, which makes and steps its own sub-environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from gymnasium.vector import SyncVectorEnv

from vecwrap.backends.local import LocalRows
from vecwrap.env.backend import Backend
from vecwrap.env.runner import Runner
from vecwrap.errors import ArgumentError
from vecwrap.rows.step_result import Frames, IntArray
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Description
from vecwrap.sources.engine import Engine
from vecwrap.sources.failure import Failure
from vecwrap.sources.sub_env import Factory


class Native(Runner):
    """An engine in this process.

    All rows step together (``send`` takes all or none), and stepping happens in ``step_wait`` or ``recv``. These and
    ``call_wait`` ignore timeouts: Gymnasium's Async loses a step whose wait timed out, and the others have none.
    """

    name: ClassVar[str] = "native"

    def __init__(self, engine: Engine) -> None:
        self._source = engine
        self.engine = engine.name
        self.vector_env = engine.vector_env
        self._request: tuple[IntArray, dict[str, Any] | None] | None = None  # a reset has arguments
        self._local: LocalRows | None = None  # of Gymnasium's Sync, whose sub-environments are here

    def start(self, factories: Sequence[Factory]) -> Description:
        engine, books = self._source, self.books
        if isinstance(engine.vector_env, SyncVectorEnv):
            envs = [partial(_itself, env) for env in engine.vector_env.envs]
            self._local = LocalRows(range(len(envs)), envs, books.interrupts)
            self._local.make(books.autoreset, debug=False)
        made = engine.describe()
        books.slots = Slots(engine.num_rows, made.observation_space, made.action_space)
        engine.attach(books.slots, 0)
        return made

    def send(self, env_ids: IntArray) -> None:
        if len(env_ids) != self._source.num_rows:
            raise ArgumentError(
                f"{self.engine} steps all {self._source.num_rows} sub-environments together: expected actions for all, "
                f"got {len(env_ids)}; vecwrap's own backends (dummy, subprocess, shmem) can step some"
            )
        self._request = env_ids, None

    def reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        self._request = env_ids, self._source.arguments_of_reset(env_ids.tolist(), seeds, options)

    def poll(self, deadline: float | None) -> None:
        assert self._request is not None, "rows are pending"
        books = self.books
        books.interrupts.hold()  # an interrupted engine may have stepped only some rows
        (env_ids, arguments), self._request = self._request, None
        try:
            if arguments is None:
                self._source.step()
            else:
                self._source.reset(env_ids.tolist(), arguments)
        except BaseException:
            books.mark_home(env_ids)
            raise
        books.arrived(env_ids.tolist(), [])

    def frames(self, wanted: Sequence[Frames]) -> None:
        raise AssertionError("no layer around a native engine can ask for frames")

    def ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        self._question = (method, list(env_ids), list(arguments))
        if self._local is not None:
            self._local.ask(*self._question)

    def answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        if self._local is None:
            return self._source.answers(*self._question)
        values, failures = self._local.answers()
        return values, [replace(failure, seed=self._source.seed_of(failure.index)) for failure in failures]

    def answers_are_kept(self) -> bool:
        return self._local is not None  # how an engine reacts to an interrupt is unknown

    def envs(self) -> list[Any] | None:
        return self._source.envs()

    def stop(self, timeout: float, terminate: bool) -> None:
        self._source.close(timeout, terminate)


def around(engine: Engine, *, seed: int | None = None, runner: type[Native] = Native) -> Backend:
    """Return the backend with one engine; ``seed`` as of every backend."""
    factories: list[Factory] = [partial(_itself, engine.vector_env)] * engine.num_rows  # never called: they are made
    return Backend(runner(engine), factories, autoreset=engine.mode, seed=seed)


def _itself(env: Any) -> Any:
    return env
