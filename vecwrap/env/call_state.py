"""The call state of an environment: the pending call, its result and the last observations.

Rows are below (``vecwrap.env.row_protocol``); only here do StepResults become Gymnasium's
five-tuple.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector.utils import batch_space

from vecwrap.env.action_masks import ActionMasks
from vecwrap.env.backend_rows import BackendRows
from vecwrap.env.calls import Calls
from vecwrap.env.fast_path import FastPath
from vecwrap.env.pending_call import FiveTuple, PendingCall
from vecwrap.env.row_protocol import NumberedRows, Rows
from vecwrap.errors import ArgumentError, ResetNeededError, VecwrapError, WaitTimeoutError
from vecwrap.interrupts import is_interrupt, is_raised_by_handler
from vecwrap.rows import batch as batches
from vecwrap.rows import gymnasium_form
from vecwrap.rows.batch import Batch
from vecwrap.rows.gymnasium_form import conform_actions, conform_array, refuse_outside
from vecwrap.rows.infos import END_KEYS, columns, row_of, without_keys
from vecwrap.rows.step_result import IntArray, StepResult
from vecwrap.sources.masks import MEMBER

__all__ = ["CallState", "LastObservations", "with_env_ids"]

_SENDING_CALLS = {"step": "step_async", "reset": "reset_async", "send": "send"}


class LastObservations:
    """The observations that were last shown, so that a masked reset can repeat the other rows."""

    def __init__(self, backend_rows: BackendRows, num_envs: int) -> None:
        self._backend_rows = backend_rows
        self._num_envs = num_envs
        self._batch: Batch = None  # None if the backend can provide them again
        self._unchanged = (
            False  # whether the backend's own observations were shown while it was still None
        )

    def update(self, step: StepResult) -> None:
        """Keep what is shown; free if no wrapper changed it."""
        if not len(step.env_ids):
            return
        if self._batch is None:
            if step.observations is self._backend_rows.last_observations:
                self._unchanged = True
                return
            if self._unchanged:  # a wrapper changes observations only sometimes
                self._batch = self.all()
            else:
                self._batch = batches.empty_like(step.observations, self._num_envs)
        batches.scatter(self._batch, step.rows, step.observations)

    def all(self) -> Batch:
        batch = self._batch
        if batch is None:
            batch = self._backend_rows.slots.observations.batch()
        return batches.copy(batch)

    def load(self, batch: Batch) -> None:
        self._batch = batches.copy(batch)


class CallState:
    """One environment of a chain, as whoever calls it sees it."""

    object_leaves: bool  # whether observations have any, which are converted for Gymnasium
    scalar_boxes: bool
    single_observation_space: spaces.Space[Any]

    def __init__(
        self,
        env: Any,
        rows: Rows,
        numbered_rows: NumberedRows,
        backend_rows: BackendRows,
        pending: PendingCall,
    ) -> None:
        self._env = weakref.ref(env)
        self.rows = rows
        self.numbered_rows = numbered_rows
        self.backend_rows = backend_rows
        self.pending = pending
        self.fast_path: FastPath | None = None
        # the latest action masks that infos had, as columns of n rows
        self.reported_masks: dict[str, Any] = {}
        # whether observations have masks; None: not looked at yet
        self._has_mask_member: bool | None = None
        self.last_observations = LastObservations(backend_rows, pending.num_envs)

    def set_observation_space(self, env: Any, single: spaces.Space[Any]) -> None:
        env.single_observation_space = single
        env.observation_space = batch_space(single, env.num_envs)
        self.set_single_observation_space(single)

    def set_single_observation_space(self, single: spaces.Space[Any]) -> None:
        self.single_observation_space = single
        self.object_leaves = gymnasium_form.has_objects(single)
        self.scalar_boxes = gymnasium_form.has_scalar_boxes(single)

    def set_action_space(self, env: Any, single: spaces.Space[Any]) -> None:
        env.single_action_space = single
        env.action_space = batch_space(single, env.num_envs)

    def _get_env(self) -> Any:
        return self._env()  # whoever calls has it

    @property
    def sources(self) -> IntArray:
        """The backend's rows that stand for all of these."""
        return self.numbered_rows.sources(self.pending.all_ids)

    @cached_property
    def action_masks(self) -> ActionMasks:
        return ActionMasks(self._get_env())

    # -- what may be called when -------------------------------------------------------------------

    def refuse_closed(self, name: str) -> None:
        backend_rows = self.backend_rows
        if backend_rows.closed:
            raise ClosedEnvironmentError(
                f"Trying to operate on {self._get_env()!r}, after a call to `close()`: `{name}`."
            )
        if backend_rows.forked:
            backend_rows.refuse_forked(name)
        if backend_rows.broken is not None:
            raise backend_rows.broken

    def refuse_pending(self, name: str, allow: str | None = None) -> None:
        self.refuse_closed(name)
        for pending in self.pending.all_numberings:
            if (call := pending.call) is None or (call == allow and pending is self.pending):
                continue
            wait = f"{call}_wait"
            if call == "send":
                wait = "recv"
            raise AlreadyPendingCallError(
                f"Calling `{name}` while waiting for a pending call to `{call}` to complete; "
                f"{wait}() returns its result.",
                call,
            )

    def refuse_ended(self, env_ids: IntArray) -> None:
        needs_reset = self.numbered_rows.needs_reset
        ended = env_ids[needs_reset.ended[env_ids]]
        if not len(ended):
            return
        if needs_reset.interrupted:
            raise ResetNeededError(
                "the last call was ended by an interrupt (Ctrl-C), and what was in flight is "
                "dropped; call reset() before the next step"
            )
        if needs_reset.never_reset.any():
            raise ResetNeededError(
                f"{self._get_env()!r} has not been reset yet; call reset() before the first step"
            )
        raise ResetNeededError(
            f"sub-environments {ended.tolist()} have ended or failed, or were loaded without a "
            "state, and have not been reset; reset them with "
            'reset(options={"reset_mask": mask}), or skip them with send(actions, env_ids=live)'
        )

    def idle_ids(self, env_ids: Any) -> IntArray:
        """Read the rows that ``send`` is given: some that are not pending, or all such."""
        in_flight = self.numbered_rows.in_flight
        num_envs = self.pending.num_envs
        if env_ids is None:
            if len(in_flight) == num_envs:
                raise ArgumentError(
                    "env_ids: all sub-environments are pending already; recv them first"
                )
            return np.array(sorted(set(range(num_envs)) - in_flight), dtype=np.int64)
        ids = self.pending.indices(env_ids, once=True)
        if not len(ids):
            raise ArgumentError(
                "env_ids: expected at least one sub-environment, got none; skip the call instead"
            )
        if pending := [i for i in ids.tolist() if i in in_flight]:
            raise ArgumentError(
                f"env_ids: sub-environments {pending} are pending already; recv them first"
            )
        return ids

    def split_reset_mask(
        self, options: dict[str, Any] | None
    ) -> tuple[IntArray, dict[str, Any] | None]:
        """Return the rows of ``reset_mask``, and a copy of the options without it."""
        if options is None or "reset_mask" not in options:
            return self.pending.all_ids, options
        mask = options["reset_mask"]
        num_envs = self.pending.num_envs
        expected = (
            f'options["reset_mask"]: expected a NumPy array of shape ({num_envs},) and dtype bool'
        )
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            if isinstance(mask, np.ndarray):
                got = f"dtype {mask.dtype}"
            else:
                got = type(mask).__name__
            raise ArgumentError(
                f"{expected}, got {got}; convert it with np.array(mask, dtype=bool)"
            )
        if mask.shape != (num_envs,):
            raise ArgumentError(f"{expected}, got shape {mask.shape}")
        if not mask.any():
            raise ArgumentError(
                f"{expected} with at least one True, got none; skip the call instead"
            )
        never = self.numbered_rows.needs_reset.never_reset & ~mask
        if never.any():
            why = "have never been reset"
            if self.numbered_rows.needs_reset.interrupted:
                why = "have not been reset since an interrupt (Ctrl-C) ended a call"
            raise ResetNeededError(
                f"a masked reset shows all {num_envs} rows, but sub-environments "
                f"{np.flatnonzero(never).tolist()} {why}; call reset() without a mask first"
            )
        rest = {key: value for key, value in options.items() if key != "reset_mask"}
        return np.flatnonzero(mask), rest

    # -- steps and resets --------------------------------------------------------------------------

    def reset(self, seed: Any, requests: Sequence[tuple[IntArray, dict[str, Any] | None]]) -> None:
        """Request resets of groups of rows, each with its options, with seeds from ``seed``."""
        numbered_rows = self.numbered_rows
        pending = self.pending
        seeds = [pending.seeds(seed, env_ids) for env_ids, _ in requests]
        try:
            with self.backend_rows.interrupts as interrupts:
                interrupts.hold()
                pending.resetting = frozenset(
                    i for env_ids, _ in requests for i in env_ids.tolist()
                )
                pending.call = "reset"
                for (env_ids, options), seeds_of_rows in zip(requests, seeds, strict=True):
                    self.rows.reset(env_ids, seeds_of_rows, options)
        except BaseException as error:
            self._end_call(error)
            raise
        finally:
            if numbered_rows.in_flight:  # a request that was not sent has not consumed the seed
                pending.seed = None

    def send(
        self,
        kind: str,
        space: spaces.Space[Any],
        actions: Any,
        env_ids: IntArray,
        order: IntArray | None = None,
    ) -> None:
        """Send actions of a space to these rows, for a call of this kind.

        With ``order``, the actions are first put in that order, to match ``env_ids``.
        """
        backend_rows = self.backend_rows
        numbered_rows = self.numbered_rows
        pending = self.pending
        for observer in backend_rows.observers:
            observer.on_call()
        actions = conform_actions(space, actions, len(env_ids))
        if backend_rows.debug:  # checked in the caller's order
            ids = env_ids
            if order is not None:
                ids = env_ids[np.argsort(order)]
            refuse_outside(
                space, actions, ids, ~backend_rows.slots.not_to_move[numbered_rows.sources(ids)]
            )
            self.action_masks.refuse_illegal(actions, ids)
        if order is not None:
            actions = batches.take(actions, order)
        if numbered_rows.needs_reset.any_ended:
            self.refuse_ended(env_ids)
        try:
            with backend_rows.interrupts as interrupts:
                interrupts.hold()
                pending.call = kind
                self.rows.send(actions, env_ids)
        except BaseException as error:
            self._end_call(error)
            raise
        for observer in backend_rows.observers:
            observer.on_return()

    def send_some(
        self, space: spaces.Space[Any], actions: Any, env_ids: Sequence[int] | IntArray | None
    ) -> None:
        """Send actions to these rows, in any order, or to all that are not pending."""
        self.refuse_pending("send", allow="send")
        ids = self.idle_ids(env_ids)
        order = np.argsort(ids, kind="stable")
        self.send("send", space, actions, ids[order], order)

    def step(self, env: Any, actions: Any) -> tuple[StepResult, FiveTuple]:
        """Take a step of all rows; along ``vecwrap.env.fast_path`` if nothing is special."""
        backend_rows = self.backend_rows
        pending = self.pending
        space = env.single_action_space
        if backend_rows.fast and self.fast_path is None:
            self.fast_path = env.new_fast_path()
        path = self.fast_path
        if not backend_rows.fast or path is None or path.shape is None:
            self.refuse_pending("step_async")
            try:
                self.send("step", space, actions, pending.all_ids)
                return self.wait("step", "step_wait", None)
            except BaseException as error:  # an interrupt may come between the two halves
                self.end_if_interrupted(error)
                raise
        if not (
            type(actions) is np.ndarray
            and actions.dtype == path.dtype
            and actions.shape == path.shape
        ):
            actions = conform_array(space, actions, path.shape)
        try:
            with backend_rows.interrupts:
                step = path.step(env, backend_rows, pending, actions)
                if step is not None:
                    result = self.five_tuple(step)
                    pending.call = None
            if step is None:
                return self.wait("step", "step_wait", None)
        except BaseException as error:  # also of an interrupt that comes before the wait has begun
            self._end_call(error)
            raise
        if backend_rows.closed:  # by the program's handler of an interrupt
            backend_rows.refuse_closed_meanwhile()
        backend_rows.update_fast()
        return step, result

    def wait(
        self, kind: str, name: str, timeout: float | None, least: int | None = None
    ) -> tuple[StepResult, FiveTuple]:
        """Wait for rows, and pass them through the wrappers; past the timeout, ``least`` will do.

        An interrupt ends the wait for rows, but is held back while rows are received and pass
        through the wrappers. It ends the call: there is no result, what is in flight is dropped,
        and all rows need a reset.
        """
        rows = self.rows
        numbered_rows = self.numbered_rows
        backend_rows = self.backend_rows
        pending = self.pending
        self.refuse_closed(name)
        most = pending.batch_size or pending.num_envs
        if least is not None and least not in range(1, most + 1):
            raise ArgumentError(
                f"{name}: min: expected 1 to {most}, the rows that one recv returns, got {least!r}"
            )
        if pending.call != kind:
            self._refuse_no_call(kind, name)
        for observer in backend_rows.observers:
            observer.on_call()
        count = len(numbered_rows.in_flight)
        if kind == "send" and pending.batch_size is not None:
            count = min(count, pending.batch_size)
        try:
            with backend_rows.interrupts:
                try:
                    step = rows.receive(count, timeout)
                except TimeoutError:
                    if least is None or numbered_rows.num_arrived < least:
                        raise
                    step = rows.receive(numbered_rows.num_arrived, timeout)  # they are here
                result = self.five_tuple(step)
                is_left = bool(numbered_rows.in_flight) and (kind == "send" or bool(step.failures))
                pending.call = "send" if is_left else None
        except BaseException as error:
            self._end_call(error)
            raise
        for observer in backend_rows.observers:
            observer.on_return()
        if backend_rows.closed:  # by the program's handler of an interrupt
            backend_rows.refuse_closed_meanwhile()
        backend_rows.update_fast()
        if step.failures:
            failure = step.failures[0]
            failure.failures = step.failures
            failure.others = None
            if len(step.env_ids):
                failure.others = with_env_ids(result, step)
            raise failure
        return step, result

    def _refuse_no_call(self, kind: str, name: str) -> NoReturn:
        if self.numbered_rows.needs_reset.interrupted:
            self.refuse_ended(self.pending.all_ids)
        raise NoAsyncCallError(
            f"Calling `{name}` without any prior call to `{_SENDING_CALLS[kind]}`.", kind
        )

    def _end_call(self, error: BaseException) -> None:
        """What becomes of a pending call that raised.

        Rows that are still in flight can be waited for: after a timeout, or where some could not be
        sent. An interrupt drops them.
        """
        if self.end_if_interrupted(error):
            return
        if isinstance(error, Exception):
            self.backend_rows.refuse_closed_meanwhile(error)
        if not self.numbered_rows.in_flight:
            self.pending.call = None

    def end_if_interrupted(self, error: BaseException) -> bool:
        """Drop the rows in flight if the error comes from an interrupt or a signal handler."""
        is_ours = isinstance(error, VecwrapError) and not is_interrupt(error)
        if is_ours or (isinstance(error, Exception) and not is_raised_by_handler(error)):
            return False
        self._get_env().core.interrupt()
        return True

    # -- calls to the sub-environments -------------------------------------------------------------

    def ids_of_call(self, indices: Any) -> list[int]:
        """Return the backend's rows that stand for those that a call is for."""
        in_order: list[int] = self.numbered_rows.sources(
            self.pending.indices(indices, "indices", once=True)
        ).tolist()
        return in_order

    def call(
        self,
        calls: Calls,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        indices: Any,
    ) -> None:
        self.refuse_pending("call_async")
        if name in ("reset", "step", "close"):
            raise ArgumentError(
                f"call({name!r}): use the vector environment's {name}(), so that it can track "
                "episodes"
            )
        ids = self.ids_of_call(indices)
        calls.request("call", ids, [(name, args, kwargs)] * len(ids))
        self.pending.called_rows = ids
        self.pending.call = "call"

    def wait_for_call(self, calls: Calls, timeout: float | None) -> tuple[Any, ...]:
        pending = self.pending
        self.refuse_closed("call_wait")
        if pending.call != "call":
            raise NoAsyncCallError(
                "Calling `call_wait` without any prior call to `call_async`.", "call"
            )
        try:
            values = calls.receive(pending.called_rows, timeout)
        except WaitTimeoutError:
            raise
        except BaseException:
            pending.call = None
            raise
        pending.call = None
        return values

    # -- what the user is shown --------------------------------------------------------------------

    def five_tuple(self, step: StepResult) -> FiveTuple:
        """Gymnasium's five-tuple of m rows; built only here."""
        self.last_observations.update(step)
        infos = step.infos
        if self.backend_rows.agents:
            infos = self._add_game_infos(step, infos)
        if MEMBER in infos or (self._has_mask_member is not False and self._reports_masks()):
            infos = self._with_masks(step, infos)
        if infos and not END_KEYS.isdisjoint(infos):
            infos = without_keys(infos, "final_obs", "final_info")
        if step.final_obs is not None:
            ended = step.first & step.dones
            final_obs = np.empty(len(step.env_ids), dtype=object)  # of None
            last = step.final_obs
            plain = not (self.scalar_boxes or self.object_leaves)
            for i in ended.nonzero()[0].tolist():
                if plain and type(last) is np.ndarray and last.ndim > 1:
                    final_obs[i] = last[i].copy()
                    continue
                row = batches.row(last, i)
                if self.scalar_boxes:
                    row = gymnasium_form.element(self.single_observation_space, row)
                final_obs[i] = row
            infos = {
                **infos,
                "final_obs": final_obs,
                "_final_obs": ended,
                "final_info": step.final_infos or {},
                "_final_info": ended.copy(),
            }
        return (
            self.to_gymnasium(step.observations),
            step.rewards,
            step.terminations,
            step.truncations,
            infos,
        )

    def _add_game_infos(self, step: StepResult, infos: dict[str, Any]) -> dict[str, Any]:
        infos = without_keys(infos, "to_move", "alive")
        everyone = np.ones(len(step.env_ids), dtype=np.bool_)
        flags = {"to_move": step.to_move.copy(), "alive": step.alive.copy()}
        infos = {**infos, **flags, "_to_move": everyone, "_alive": everyone.copy()}
        if step.games_ended is not None:
            infos = without_keys(infos, "games_ended")
            infos = {
                **infos,
                "games_ended": step.games_ended.copy(),
                "_games_ended": everyone.copy(),
            }
        return infos

    def _reports_masks(self) -> bool:
        """Return whether the sub-environments' own observations contain masks.

        Wrappers may have removed the masks from the observations that the chain returns.
        """
        if self._has_mask_member is None:
            if self._get_env().core.is_engine:
                self._has_mask_member = False
            else:
                seen = self.backend_rows.slots.observations.batch()
                self._has_mask_member = isinstance(seen, dict) and MEMBER in seen
        return self._has_mask_member

    def _with_masks(self, step: StepResult, infos: dict[str, Any]) -> dict[str, Any]:
        """Return infos with the masks as an int8 column: all 0 for rows that do not act next."""
        idle = ~step.to_move
        if MEMBER in infos:
            self._update_masks(step, infos)
        else:
            idle |= step.dones & ~step.first
            seen = self.backend_rows.slots.observations.batch()[MEMBER]
            everyone = np.ones(len(step.env_ids), dtype=np.bool_)
            infos = {
                **infos,
                MEMBER: seen[self.numbered_rows.sources(step.env_ids)],
                f"_{MEMBER}": everyone,
            }
        masks = infos[MEMBER]
        if isinstance(masks, np.ndarray) and masks.dtype.kind in "biu":
            infos = {**infos, MEMBER: masks.astype(np.int8)}
            infos[MEMBER][idle] = 0
        return infos

    def _update_masks(self, step: StepResult, infos: dict[str, Any]) -> None:
        """Keep the action masks of these rows, which later results of other rows do not have."""
        own = {key: copy(infos[key]) for key in (MEMBER, f"_{MEMBER}") if key in infos}
        if len(step.env_ids) == self.pending.num_envs:
            self.reported_masks = own
            return
        reported = self.reported_masks
        if reported.keys() == own.keys() and all(
            _is_alike(reported[key], column) for key, column in own.items()
        ):
            for key, column in own.items():
                reported[key][step.env_ids] = column
            return
        rows = [row_of(reported, i) for i in range(self.pending.num_envs)]
        for k, i in enumerate(step.env_ids.tolist()):
            rows[i] = row_of(own, k)
        self.reported_masks = columns(rows)

    def to_gymnasium(self, observations: Batch) -> Any:
        if self.object_leaves:
            return gymnasium_form.to_gymnasium(observations)
        return observations


def _is_alike(one: Any, other: Any) -> bool:
    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
        return False
    return bool(one.dtype == other.dtype and one.shape[1:] == other.shape[1:])


def with_env_ids(result: FiveTuple, step: StepResult) -> FiveTuple:
    return (*result[:4], {**without_keys(result[4], "env_id"), "env_id": step.env_ids.copy()})
