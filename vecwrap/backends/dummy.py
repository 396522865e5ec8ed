"""A loop in this process: the oracle that the other backends are compared with, and where ``breakpoint()`` works."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from vecwrap.backends.base import Backend, Description, Factory, refuse_unequal
from vecwrap.batch import Batch, row
from vecwrap.contract import Frames, IntArray
from vecwrap.slots import Slots
from vecwrap.sub_env import Failure, SubEnv, Takeover, make_failure

__all__ = ["DummyBackend"]


class DummyBackend(Backend):
    """All sub-environments in this process, one after the other.

    A timeout is looked at between two sub-environments: each wait steps at least one of them, so that polling gets on.

    >>> import gymnasium
    >>> with DummyBackend([lambda: gymnasium.make("CartPole-v1")] * 2) as env:
    ...     observations, infos = env.reset(seed=1)
    >>> observations.shape
    (2, 4)
    """

    name: ClassVar[str] = "dummy"

    def _start(self, factories: Sequence[Factory]) -> Description:
        self._factories = list(factories)
        self._sub_envs: list[SubEnv] = []
        self._queue: list[tuple[int, str, tuple[Any, ...], Frames]] = []
        self._frames: Sequence[Frames] = [Frames.NONE] * len(factories)
        self._calls: list[tuple[str, int, tuple[Any, ...]]] = []
        for i, factory in enumerate(factories):
            try:
                env = factory()
            except Exception as error:
                raise make_failure(i, error).error() from error
            self._sub_envs.append(SubEnv(i, env, self.autoreset, debug=self.debug))
        descriptions = [(i, Description.of(sub_env.env)) for i, sub_env in enumerate(self._sub_envs)]
        refuse_unequal(descriptions)
        first = descriptions[0][1]
        self.slots = Slots(self.num_envs, first.observation_space, first.action_space)
        for i, sub_env in enumerate(self._sub_envs):
            sub_env.attach(self.slots, i)
        return first

    def _send_rows(self, actions: Batch, env_ids: IntArray) -> None:
        frames = self._frames
        self._queue.extend((i, "step", (row(actions, k),), frames[i]) for k, i in enumerate(env_ids.tolist()))

    def _reset_rows(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        frames = self._frames
        self._queue.extend(
            (i, "reset", (seed, options), frames[i]) for i, seed in zip(env_ids.tolist(), seeds, strict=True)
        )

    def _make_anew(self, takeovers: dict[int, Takeover]) -> None:
        for i, takeover in takeovers.items():
            try:
                self._sub_envs[i] = self._sub_envs[i].made_anew(self._factories[i], takeover)
            except (Exception, SystemExit) as error:
                self._not_made(make_failure(i, error))

    def _tell_frames(self, wanted: Sequence[Frames]) -> None:
        self._frames = wanted  # rows that are out already keep what held when they were sent, as with a worker

    def _poll(self, deadline: float | None) -> None:
        due = self._make_due_anew()
        if self._progress and deadline is not None and time.monotonic() > deadline:
            raise TimeoutError(f"{self._num_out} sub-environments have not been stepped yet; wait again")
        if not self._queue:
            if due is not None:
                time.sleep(max(0.0, min(due, math.inf if deadline is None else deadline) - time.monotonic()))
                self._progress = True  # so that a deadline is looked at
            return
        i, method, arguments, frames = self._queue.pop(0)
        self._sub_envs[i].frames = frames
        try:
            getattr(self._sub_envs[i], method)(*arguments)
        except (Exception, SystemExit) as error:
            action = arguments[0] if method == "step" else None
            self._arrived([], [self._sub_envs[i].failure(error, method, action)])
        else:
            self._arrived([i], [])

    def _ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        self._calls = [(method, i, args) for i, args in zip(env_ids, arguments, strict=True)]

    def _answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        values: dict[int, Any] = {}
        failures = []
        for method, i, arguments in self._calls:
            try:
                values[i] = getattr(self._sub_envs[i], method)(*arguments)
            except (Exception, SystemExit) as error:
                failures.append(self._sub_envs[i].failure(error, method))
        self._calls = []
        return values, failures

    def _stop(self, timeout: float, terminate: bool) -> None:
        self._queue = []
        for sub_env in self._sub_envs:
            sub_env.close()
