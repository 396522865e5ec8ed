"""The call state of an environment: which calls are allowed now, and the one that is pending."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector.utils import batch_space

from vecwrap.env.action_masks import ActionMasks
from vecwrap.env.backend_rows import BackendRows
from vecwrap.env.call_results import CallResults, FiveTuple, with_env_ids
from vecwrap.env.fast_path import FastPath
from vecwrap.env.pending_call import PendingCall
from vecwrap.env.row_protocol import NumberedRows, Rows
from vecwrap.errors import ArgumentError, ResetNeededError, VecwrapError, WaitTimeoutError
from vecwrap.interrupts import is_interrupt, is_raised_by_handler
from vecwrap.rows import batch as batches
from vecwrap.rows.gymnasium_form import conform_actions, conform_array, refuse_outside
from vecwrap.rows.step_result import IntArray, StepResult

__all__ = ["CallState"]

# by the kind of a pending call: what begins it, and what returns its result
_SENDING_CALLS = {
    "step": "step_async",
    "reset": "reset_async",
    "send": "send",
    "call": "call_async",
}
_WAITING_CALLS = {"step": "step_wait", "reset": "reset_wait", "send": "recv", "call": "call_wait"}


class CallState:
    """One environment of a chain, as whoever calls it sees it."""

    def __init__(
        self, env: Any, rows: Rows, numbered_rows: NumberedRows, pending: PendingCall
    ) -> None:
        self._env = weakref.ref(env)
        self._core = env.core
        self.rows = rows
        self.numbered_rows = numbered_rows
        self.backend_rows: BackendRows = env.core.rows
        self.pending = pending
        self.results: CallResults = CallResults(env.core, numbered_rows, pending.num_envs)
        self.fast_path: FastPath | None = None

    def set_observation_space(self, env: Any, single: spaces.Space[Any]) -> None:
        env.single_observation_space = single
        env.observation_space = batch_space(single, env.num_envs)
        self.results.set_space(single)

    def set_action_space(self, env: Any, single: spaces.Space[Any]) -> None:
        env.single_action_space = single
        env.action_space = batch_space(single, env.num_envs)

    def _get_env(self) -> Any:
        return self._env()  # its caller holds it

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
        if self._core.forked:
            self._core.refuse_forked(name)
        if backend_rows.broken is not None:
            raise backend_rows.broken

    def refuse_pending(self, name: str, allow: str | None = None) -> None:
        self.refuse_closed(name)
        for pending in self.pending.all_numberings:
            if (call := pending.call) is None or (call == allow and pending is self.pending):
                continue
            raise AlreadyPendingCallError(
                f"Calling `{name}` while waiting for a pending call to `{call}` to complete; "
                f"{_WAITING_CALLS[call]}() returns its result.",
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
            if (
                self.numbered_rows.in_flight
            ):  # a request that was not sent has not consumed the seed
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
                return self.wait("step", None)
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
                    result = self.results.five_tuple(step)
                    pending.call = None
            if step is None:
                return self.wait("step", None)
        except BaseException as error:  # also of an interrupt that comes before the wait has begun
            self._end_call(error)
            raise
        if backend_rows.closed:  # by the program's handler of an interrupt
            backend_rows.refuse_closed_meanwhile()
        backend_rows.update_fast()
        return step, result

    def wait(
        self, kind: str, timeout: float | None, min_rows: int | None = None
    ) -> tuple[StepResult, FiveTuple]:
        """Wait for rows, and pass them through the wrappers; past the timeout, some will do.

        An interrupt ends the wait for rows, but is held back while rows are received and pass
        through the wrappers. It ends the call: there is no result, what is in flight is dropped,
        and all rows need a reset.
        """
        numbered_rows = self.numbered_rows
        backend_rows = self.backend_rows
        pending = self.pending
        self.refuse_closed(_WAITING_CALLS[kind])
        max_rows = pending.batch_size or pending.num_envs
        if min_rows is not None and min_rows not in range(1, max_rows + 1):
            raise ArgumentError(
                f"{_WAITING_CALLS[kind]}: min: expected 1 to {max_rows}, the rows that one recv "
                f"returns, got {min_rows!r}"
            )
        is_begun_by_reset = kind == "send" and pending.call == "reset" and pending.batch_size
        if pending.call != kind and not is_begun_by_reset:
            self._refuse_no_call(kind)
        for observer in backend_rows.observers:
            observer.on_call()
        count = len(numbered_rows.in_flight)
        if kind == "send" and pending.batch_size is not None:
            count = min(count, pending.batch_size)
        try:
            with backend_rows.interrupts:
                try:
                    step = self.rows.receive(count, timeout)
                except TimeoutError:
                    if min_rows is None or numbered_rows.num_arrived < min_rows:
                        raise
                    step = self.rows.receive(numbered_rows.num_arrived, timeout)  # returns at once
                result = self.results.five_tuple(step)
                pending.call = None
                if (kind == "send" or step.failures) and numbered_rows.in_flight:
                    pending.call = "send"  # recv returns the rows that are still in flight
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

    def _refuse_no_call(self, kind: str) -> NoReturn:
        if kind != "call" and self.numbered_rows.needs_reset.interrupted:
            self.refuse_ended(self.pending.all_ids)
        raise NoAsyncCallError(
            f"Calling `{_WAITING_CALLS[kind]}` without any prior call to `{_SENDING_CALLS[kind]}`.",
            kind,
        )

    def _end_call(self, error: BaseException) -> None:
        """End a pending call that raised, unless rows are still in flight and can be waited for.

        That is so after a timeout, or if some rows could not be sent. An interrupt drops all.
        """
        if self.end_if_interrupted(error):
            return
        if isinstance(error, Exception):
            self.backend_rows.refuse_closed_meanwhile(error)
        if not self.numbered_rows.in_flight:
            self.pending.call = None

    def end_if_interrupted(self, error: BaseException) -> bool:
        """Drop the rows in flight if the error comes from an interrupt or a signal handler."""
        if isinstance(error, VecwrapError) and not is_interrupt(error):
            return False
        if isinstance(error, Exception) and not is_raised_by_handler(error):
            return False
        self._core.interrupt()
        return True

    # -- calls to the sub-environments -------------------------------------------------------------

    def ids_of_call(self, indices: Any) -> list[int]:
        """Return the backend's rows that stand for those that a call is for."""
        env_ids = self.pending.indices(indices, "indices", once=True)
        return self.numbered_rows.sources(env_ids).tolist()  # type: ignore[no-any-return]

    def call(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], indices: Any
    ) -> None:
        self.refuse_pending("call_async")
        if name in ("reset", "step", "close"):
            raise ArgumentError(
                f"call({name!r}): use the vector environment's {name}(), so that it can track "
                "episodes"
            )
        ids = self.ids_of_call(indices)
        self._core.calls.request("call", ids, [(name, args, kwargs)] * len(ids))
        self.pending.called_rows = ids
        self.pending.call = "call"

    def wait_for_call(self, timeout: float | None) -> tuple[Any, ...]:
        pending = self.pending
        self.refuse_closed("call_wait")
        if pending.call != "call":
            self._refuse_no_call("call")
        try:
            values: tuple[Any, ...] = self._core.calls.receive(pending.called_rows, timeout)
        except WaitTimeoutError:
            raise
        except BaseException:
            pending.call = None
            raise
        pending.call = None
        return values
