"""An engine that returns some of its rows at a time: those that are done first.

EnvPool and ale-py do so if they are made with a ``batch_size``. Both go on stepping the other rows
in threads of their own meanwhile.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from gymnasium.vector import AutoresetMode

from vecwrap.errors import ArgumentError, PlanError
from vecwrap.rows import batch as batches
from vecwrap.rows.infos import scatter_columns
from vecwrap.rows.step_result import Autoreset, Infos, IntArray
from vecwrap.sources.description import EnvDescription
from vecwrap.sources.engine import Engine, EngineOptions, in_gymnasium
from vecwrap.sources.engine_infos import merged
from vecwrap.sources.known_engines import is_of_ale, rows_at_once

__all__ = ["BatchedEngine", "engine_around"]


class BatchedEngine(Engine):
    """EnvPool or ale-py with a ``batch_size`` below ``num_envs``.

    Rows are requested by ``send`` and ``send_reset``, and ``receive`` returns as many of them as
    the engine does at a time.

    Attributes:
        in_flight: the rows that were requested and not returned, counted from its first.
    """

    gives_columns: ClassVar[bool] = False
    why_no_masked_resets: ClassVar[str] = (
        "an engine that returns some of its rows at a time is reset as a whole"
    )

    def __init__(
        self,
        vector_env: Any,
        *,
        autoreset: Autoreset | AutoresetMode | str | None = None,
        masked_resets: bool | None = None,
        lent: bool = False,
        options: EngineOptions | None = None,
    ) -> None:
        if masked_resets:
            raise PlanError(f"masked_resets: expected False, got True: {self.why_no_masked_resets}")
        super().__init__(
            vector_env, autoreset=autoreset, masked_resets=False, lent=lent, options=options
        )
        self.in_flight: set[int] = set()
        self._by_turns = is_of_ale(vector_env)
        # Of an engine that takes actions by turns: the rows that it returned last, in its order.
        self._turn: IntArray | None = None
        self._is_cancelled = False
        self._first_values: tuple[Any, ...] | None = None  # which a reset has returned already
        self._infos: Infos = {}

    def _rows_at_once(self) -> int:
        number = rows_at_once(self.vector_env)
        if self.vector_env is not self.unwrapped:
            raise PlanError(
                f"{self.name}: expected the engine itself, because it returns {number} of its "
                f"{self.num_rows} rows at a time, got it within {type(self.vector_env).__name__}"
            )
        if self.num_rows % number:
            raise PlanError(
                f"{self.name}: expected num_envs to be a multiple of batch_size, because it "
                f"returns that many rows at a time or none, got {self.num_rows} and {number}"
            )
        return number

    def describe(self) -> EnvDescription:
        description = super().describe()
        description.render_mode = None
        return description

    # -- what may be requested ---------------------------------------------------------------------

    def refuse_reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        if options and not self._by_turns:
            raise ArgumentError(f"reset: {self.name} takes no options, got {options}")

    def refuse_send(self, rows: Sequence[int]) -> None:
        """Raise ArgumentError for rows that the engine would not take, or never return."""
        number = self.rows_at_once
        if self._by_turns:
            expected: list[int] = []
            if self._turn is not None:
                expected = sorted(self._turn.tolist())
            if list(rows) != expected:
                raise ArgumentError(
                    f"env_ids: expected the rows {expected}, which {self.name} has returned last, "
                    f"got {list(rows)}: it takes actions for these only, so recv and send in turns"
                )
        elif len(rows) % number:
            raise ArgumentError(
                f"env_ids: expected a multiple of {number} rows, got {len(rows)}: {self.name} "
                f"returns {number} at a time, and would never return the last ones"
            )

    def refuse_receive(self) -> None:
        """Raise ArgumentError if the engine could then take no actions of the last rows."""
        if self._turn is not None:
            raise ArgumentError(
                f"recv: {self.name} returns {self.rows_at_once} of its {self.num_rows} rows at a "
                f"time, and takes actions for the last ones only: expected send() for the rows "
                f"{sorted(self._turn.tolist())} first. A pending reset goes on with recv(); after "
                "reset_async(), begin with recv()"
            )

    # -- rows --------------------------------------------------------------------------------------

    def send(self, rows: Sequence[int]) -> None:
        """Begin to step rows, counted from the first, with their actions in the slots."""
        at = [self._at.start + i for i in rows]
        actions = batches.take(self._slots.actions.batch(), at)
        if self._turn is None:
            self.vector_env.send(in_gymnasium(actions), np.array(rows, np.int32))
        else:
            order = np.searchsorted(rows, self._turn)
            self._turn = None
            self.vector_env.send(in_gymnasium(batches.take(actions, order)))
        self.in_flight.update(rows)

    def send_reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Begin to reset all rows."""
        everyone = range(self.num_rows)
        arguments = self.arguments_of_reset(everyone, seeds, options)
        self._over[:] = True  # so that what they return next opens an episode
        self._turn = None
        self._is_cancelled = False
        if self._by_turns:
            observations, infos = self._of_engine("reset", **arguments)
            none = self._no
            self._first_values = observations, none.astype(np.float64), none, none, infos
        else:
            if "seed" in arguments:
                warnings.warn(
                    "EnvPool is seeded when it is made, envpool.make(..., seed=...); the seeds of "
                    "reset are ignored",
                    stacklevel=2,
                )
            self.vector_env.async_reset()
        self.in_flight.update(everyone)

    def cancel(self) -> None:
        """Have what is in flight dropped as it arrives: no actions follow before a reset."""
        self._turn = None
        self._is_cancelled = True

    def receive(self) -> list[int]:
        """Wait for the rows that are done first, write them into the slots, and return them."""
        values = self._first_values
        self._first_values = None
        if values is None:
            values = self._of_engine("recv")
        ids = np.array(values[4]["env_id"], np.int64)
        result, dones = self._result(values, self._over[ids])
        self._over[ids] = False
        if self.mode is Autoreset.NEXT_STEP:
            self._over[ids] = dones
        self._put_infos(ids, result.infos)
        at: list[int] = (self._at.start + ids).tolist()
        self._slots.put_rows(at, result)
        self.in_flight.difference_update(ids.tolist())
        if self._by_turns and not self._is_cancelled:
            self._turn = ids
        return at

    def _put_infos(self, ids: IntArray, infos: Infos) -> None:
        """Store infos as columns of all rows, of which those of other rows stay as they were.

        Neither engine has infos of ended episodes.
        """
        arrived = np.zeros(self.num_rows, dtype=np.bool_)
        arrived[ids] = True
        infos = {key: column for key, column in infos.items() if key != "env_id"}  # recv adds it
        infos = scatter_columns(infos, ids, self.num_rows)
        if self._infos:
            infos = merged(self._infos, infos, arrived)
        self._infos = infos
        self._slots.put_columns(self.rows, infos, {})


def engine_around(
    vector_env: Any,
    *,
    autoreset: Autoreset | AutoresetMode | str | None = None,
    masked_resets: bool | None = None,
    lent: bool = False,
) -> Engine:
    """Return the engine around a vector environment, with the options of ``vecwrap.wrap``."""
    kind: type[Engine] = Engine
    number = getattr(vector_env, "num_envs", None)
    if number is not None and rows_at_once(vector_env) < number:
        kind = BatchedEngine
    return kind(vector_env, autoreset=autoreset, masked_resets=masked_resets, lent=lent)
