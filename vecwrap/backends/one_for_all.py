"""A backend of n rows for which one sub-environment answers: what wrappers are tried on before n are started."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium

from vecwrap.env.backend import Backend
from vecwrap.env.runner import Runner
from vecwrap.env.vec_env import VecEnv
from vecwrap.rows.table import Slots
from vecwrap.sources.description import Description
from vecwrap.sources.failure import Failure
from vecwrap.sources.making import GameFactory
from vecwrap.sources.sub_env import Factory


class OneForAll(Runner):
    """n rows, all answered for by one sub-environment, which its owner closes, to try vector wrappers on."""

    name: ClassVar[str] = "probe"

    def __init__(self, one: VecEnv, of_game: Mapping[str, Any]) -> None:
        backend: Any = one.unwrapped
        self._one = backend
        self._of_game = of_game
        self.engine = self._one.runner.engine  # one that cannot send frames refuses

    def start(self, factories: Sequence[Factory]) -> Description:
        made: Description = self._one.core.description
        self.books.slots = Slots(self.books.num_rows, made.observation_space, made.action_space)
        return dataclasses.replace(made, metadata=dict(self._one.metadata), **self._of_game)

    def ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        self._asked_for = list(env_ids)
        ids = list(range(self._one.num_envs))  # an engine may answer for all or for none
        self._one.runner.ask(method, ids, [arguments[0]] * len(ids))

    def answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        values, failures = self._one.runner.answers(deadline)
        return {i: values[0] for i in self._asked_for if values}, failures

    def stop(self, timeout: float, terminate: bool) -> None:
        pass

    def send(self, *arguments: Any, **keywords: Any) -> None:
        raise AssertionError("wrappers are tried on a probe, which is never stepped")

    reset = poll = frames = send


def one_for_all(one: VecEnv, num_envs: int, settings: Mapping[str, Any], **of_game: Any) -> Backend:
    """Return a backend of n sub-environments for which one, or an engine, answers; with ``agents``, of n games."""
    k = len(of_game.get("agents", ()))
    each: Factory = GameFactory(_made_already, k) if k else _made_already
    return Backend(OneForAll(one, of_game), [each] * num_envs, **settings)


def _made_already() -> gymnasium.Env[Any, Any]:
    raise AssertionError("a probe makes no sub-environments")
