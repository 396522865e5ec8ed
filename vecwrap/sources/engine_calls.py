"""Calls to an engine's sub-environments, and what an engine's exceptions say of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, ClassVar

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from vecwrap.errors import ArgumentError, VecwrapError
from vecwrap.interrupts import is_interrupt
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.failure import Failure, make_failure
from vecwrap.sources.known_engines import unwrapped
from vecwrap.sources.sub_env import SubEnv


class EngineCalls:
    """The part of an engine that is called by name, beside its steps and resets."""

    # Methods that ``call`` accepts.
    methods: ClassVar[tuple[str, ...]] = ("call", "get_attr", "set_attr", "has_attr")

    name: str
    index: int
    num_rows: int
    mode: Autoreset
    vector_env: Any
    _seed_of: list[int | None]  # the last one given, by row

    def call(
        self, method: str, rows: Sequence[int], arguments: Sequence[tuple[Any, ...]]
    ) -> tuple[dict[int, Any], list[Failure]]:
        """Call a method row by row if sub-environments can be reached, else through the engine."""
        if self.sub_envs is None:
            if method not in self.methods:
                raise ArgumentError(
                    f"{self.name} has no {method}; its sub-environments cannot be reached one by "
                    "one"
                )
            return dict(zip(rows, self.call_each(method, list(rows), arguments), strict=True)), []
        values: dict[int, Any] = {}
        failures: list[Failure] = []
        for row, given in zip(rows, arguments, strict=True):
            try:
                values[row] = self.sub_envs[row].answer(method, given)
            except BaseException as error:
                if is_interrupt(error):
                    raise
                failures += self.failures([row], error, method)
        return values, failures

    def failures(
        self, rows: Sequence[int], error: BaseException, during: str, action: Any = None
    ) -> list[Failure]:
        """Report that it raised: all the rows that were asked with it have failed."""
        of_row = during in ("step", "reset")
        note = ""
        whole = ""
        if of_row and len(rows) == self.num_rows:
            if self.num_rows > 1:
                whole = f" failed with the other rows of its {self.name}, which"
            else:
                whole = f", all of a {self.name},"
        if whole and not isinstance(error, VecwrapError):
            note = (
                f"\nReset all {self.num_rows} before the next step; if that raises too, as after "
                "the death of one of its workers, make it again. With vecwrap.build instead, "
                'errors name the sub-environment that failed, and on_failure="restart" recreates '
                "it."
            )
        elif not of_row and self.sub_envs is None and len(rows) > 1:
            note = (
                f"\n{self.name} does not report which of its {len(rows)} rows that were asked "
                "it was."
            )
        raised = replace(
            make_failure(self.index, error),
            during=during,
            action=action,
            note=note,
            refused=isinstance(error, ArgumentError) and not of_row,
            whole_source=whole,
        )
        return [replace(raised, index=self.index + row, seed=self._seed_of[row]) for row in rows]

    def call_each(
        self, method: str, ids: list[int], arguments: Sequence[tuple[Any, ...]]
    ) -> Sequence[Any]:
        """Call a method through the engine; return one value per id.

        The engine calls all its sub-environments.
        """
        engine = self.vector_env
        name = arguments[0][0]
        everyone = range(self.num_rows)
        if method == "call" and name == "render":
            frames = engine.render()
            return [frames[i] for i in ids]
        function = getattr(engine, "set_attr" if method == "set_attr" else "call", None)
        if function is None:
            raise ArgumentError(
                f"{self.name} has no {method}; its sub-environments cannot be reached one by one"
            )
        if method in ("call", "set_attr") and set(ids) != set(everyone):
            raise ArgumentError(
                f"{self.name}: {method} takes all sub-environments, got {ids}; vecwrap's own "
                "backends (dummy, subprocess, shmem) can address some"
            )
        if method == "set_attr":
            values = {i: value for i, (_, value) in zip(ids, arguments, strict=True)}
            function(name, [values[i] for i in everyone])
            return [None] * len(ids)
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if method == "has_attr":
            args = (name,)
            name = "has_wrapper_attr"
        else:
            if isinstance(engine, AsyncVectorEnv):
                _refuse_missing(engine, name)
            if method == "call":
                _, args, kwargs = arguments[0]
        answers = function(name, *args, **kwargs)
        return [answers[i] for i in ids]

    @cached_property
    def sub_envs(self) -> list[SubEnv] | None:
        """The sub-environments, or None if they cannot be reached one by one.

        Gymnasium's ``SyncVectorEnv`` has its sub-environments in this process.
        """
        if not isinstance(self.vector_env, SyncVectorEnv):
            return None
        return [
            SubEnv(i, partial(_itself, env), self.mode)
            for i, env in enumerate(self.vector_env.envs)
        ]

    def envs(self) -> list[Any] | None:
        envs = getattr(unwrapped(self.vector_env), "envs", None)
        if not isinstance(envs, (list, tuple)) or not all(
            isinstance(env, gymnasium.Env) for env in envs
        ):
            return None
        return list(envs)


def _itself(env: Any) -> Any:
    return env


def _refuse_missing(engine: AsyncVectorEnv, name: str) -> None:
    """Raise AttributeError here if a sub-environment lacks the attribute.

    Gymnasium would end the worker of a sub-environment that raises.
    """
    lacking = [i for i, has in enumerate(engine.call("has_wrapper_attr", name)) if not has]
    if lacking:
        raise AttributeError(f"sub-environments {lacking} have no attribute {name!r}")
