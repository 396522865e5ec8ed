"""A backend of n rows for which one sub-environment answers.

Wrappers are tried on this backend before n sub-environments are started.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium

from vecwrap.env.arrivals import Arrival, CallValues, EnvsMade
from vecwrap.env.backend import Backend
from vecwrap.env.runner import Context, Runner
from vecwrap.env.vec_env import VecEnv
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.source_factories import Factory, GameFactory


class ProbeRunner(Runner):
    """A runner of n rows for which one sub-environment answers, to try vector wrappers on.

    The owner of the sub-environment closes it.
    """

    name: ClassVar[str] = "probe"

    def __init__(self, one: VecEnv, of_game: Mapping[str, Any]) -> None:
        backend: Any = one.unwrapped
        self._one = backend
        self._of_game = of_game
        self.engine = self._one.runner.engine  # one that cannot send frames refuses

    def begin(self, context: Context, factories: Sequence[Factory]) -> Sequence[Arrival]:
        self.context = context
        made: EnvDescription = self._one.core.description
        own = dataclasses.replace(made, metadata=dict(self._one.metadata), **self._of_game)
        return [EnvsMade(range(context.num_rows), [(0, own)])]

    def call(
        self, number: int, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> None:
        self._call = number, method, rows, arguments[0]

    def poll(self, until: float, *, return_early: bool) -> Sequence[Arrival]:
        number, method, rows, arguments = self._call
        values = self._one.core.calls.of_each(method, [arguments] * self._one.num_envs)
        return [CallValues(number, dict.fromkeys(rows, values[0]))]

    def stop(self, timeout: float, terminate: bool) -> None:
        pass

    def send(self, *arguments: Any, **keywords: Any) -> None:
        raise AssertionError("wrappers are tried on a probe, which is never stepped")

    reset = set_frames = send


def make_probe_backend(
    one: VecEnv, num_envs: int, settings: Mapping[str, Any], **of_game: Any
) -> Backend:
    """Return a backend of n sub-environments for which one, or an engine, answers.

    With ``agents``, these are n games.
    """
    k = len(of_game.get("agents", ()))
    if k:
        each: Factory = GameFactory(_never_made, k)
    else:
        each = _never_made
    return Backend(ProbeRunner(one, of_game), [each] * num_envs, **settings)


def _never_made() -> gymnasium.Env[Any, Any]:
    raise AssertionError("a probe makes no sub-environments")
