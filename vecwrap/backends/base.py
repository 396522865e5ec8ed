"""What every backend shares: the books of which rows are out, which need a reset, which call is pending.

A backend adds how sub-environments are made, asked and closed: ``_start``, ``_send_rows``, ``_reset_rows``, ``_poll``,
``_ask``, ``_answers`` and ``_stop``. Stepping itself is in ``vecwrap.sub_env`` and nowhere else.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import compress, groupby
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode

from vecwrap import batch as batches
from vecwrap.at_exit import at_exit
from vecwrap.backends.description import Description
from vecwrap.backends.recovery import Recovery, Reset
from vecwrap.backends.restarts import Health, Restarts, WorkerHealth, check_policy
from vecwrap.batch import Batch
from vecwrap.contract import Autoreset, BoolArray, Frames, IntArray, StepResult
from vecwrap.errors import ArgumentError, BackendError, PlanError, ResetNeededError, SubEnvError
from vecwrap.failure import Failure
from vecwrap.interrupts import Interrupts, is_interrupt
from vecwrap.slots import Slots
from vecwrap.sub_env import Factory, Takeover
from vecwrap.vec_env import FiveTuple, VecEnv

__all__ = ["Backend", "Factory"]

_NONE: frozenset[int] = frozenset()


class Backend(VecEnv):
    """The innermost vector environment: it holds the sub-environments, or the workers that hold them.

    Args:
        factories: one callable for each sub-environment, which gives a ``gymnasium.Env``.
        autoreset: ``"same_step"``, ``"next_step"``, ``"disabled"`` or ``"episodic"``.
        copy: give fresh arrays with each result; False gives views that the next step overwrites.
        batch_size: how many rows ``recv`` waits for; None waits for all that are out.
        start_index: added to the index of each sub-environment in seeds (for parts of a larger vector).
        seed: used by the first reset that is given none.
        debug: check each action and observation against its space.
        on_failure: ``"raise"``, or ``"restart"``: a sub-environment that raises is made anew, and so are all those of a
            worker that dies or hangs; the episodes that are lost with them end truncated.
        max_restarts: how often a sub-environment may be made anew within ``restart_window``; None for no limit. The
            failure after that is raised.
        restart_window: seconds; None counts over the whole run.
        restart_backoff: seconds to wait before one that was lost again before it had taken a step is made anew; doubled
            each further time.

    Raises:
        PlanError: no sub-environments, an impossible ``batch_size``, or a policy of restarts that does not fit.
        SubEnvError: a sub-environment raised while it was made.
        BackendError: a worker could not be started, or the spaces of the sub-environments differ.

    A backend that writes down who is stepped, made of another one; docs/adding-a-backend.md has one from the ground up:

    >>> import vecwrap
    >>> from vecwrap.backends.dummy import DummyBackend
    >>> class NotingBackend(DummyBackend):
    ...     name = "noting"
    ...
    ...     def _send_rows(self, actions, env_ids):
    ...         print("steps", env_ids)
    ...         super()._send_rows(actions, env_ids)
    >>> with vecwrap.build("CartPole-v1", n=3, backend=NotingBackend) as env:
    ...     _ = env.reset(seed=1)
    ...     env.send([0, 1], env_ids=[0, 2])
    ...     _ = env.recv()
    steps [0 2]
    """

    name: ClassVar[str] = "backend"
    is_engine: ClassVar[bool] = False  # whose sub-environments layers do not ask
    workers: int = 0
    _open: bool = False  # whether something is to be stopped; also while that was interrupted

    def __init__(
        self,
        factories: Sequence[Factory],
        *,
        autoreset: Autoreset | AutoresetMode | str = Autoreset.SAME_STEP,
        copy: bool = True,
        batch_size: int | None = None,
        start_index: int = 0,
        seed: int | None = None,
        debug: bool = False,
        on_failure: Literal["raise", "restart"] = "raise",
        max_restarts: int | None = 10,
        restart_window: float | None = 60.0,
        restart_backoff: float = 0.1,
    ) -> None:
        check_policy(on_failure, max_restarts, restart_window, restart_backoff)
        self.num_envs = len(factories)
        if not factories:
            raise PlanError("n: expected at least one sub-environment, got 0 factories")
        if batch_size is not None and not 1 <= batch_size <= self.num_envs:
            raise PlanError(f"batch_size: expected 1 to n={self.num_envs}, got {batch_size}")
        self.autoreset = Autoreset.parse(autoreset)
        self._resets_are_asked_for = self.autoreset is Autoreset.DISABLED
        self.copy = copy
        self.batch_size = batch_size
        self.start_index = start_index
        self.debug = debug
        self.all_ids: IntArray = np.arange(self.num_envs)
        self.all_ids.flags.writeable = False
        self._build_seed = seed
        self._on_schedule = False
        self._pending: str | None = None
        self._asked_by: str | None = None  # the call that is pending as soon as its rows are out
        self._through: tuple[StepResult, FiveTuple] | None = None  # what came through the layers, until handed out
        self._interrupts = Interrupts()
        self._resetting = _NONE  # the rows of the last call that asked for resets, in however many requests
        self._all = frozenset(range(self.num_envs))
        self._out = _NONE  # the rows that are out
        self._ready: list[int] = []
        self._failed: list[Failure] = []
        self._ended = np.ones(self.num_envs, dtype=np.bool_)  # rows that must not be stepped before a reset
        self._any_ended = True
        self._never_reset = np.ones(self.num_envs, dtype=np.bool_)
        self._progress = False  # whether the present wait has brought a row home
        self._asked: list[int] = []
        self._values: dict[int, Any] = {}  # what has been answered of the last call
        self._frame_requests: weakref.WeakKeyDictionary[VecEnv, tuple[frozenset[int], frozenset[int]]]
        self._frame_requests = weakref.WeakKeyDictionary()
        self._frames_changed = False
        self._frames_told = [Frames.NONE] * self.num_envs
        self._latest: Batch = None
        self._recovery: Recovery | None = None
        if on_failure == "restart":
            if type(self)._make_anew is Backend._make_anew:
                raise PlanError(f'on_failure: {self.name} makes no sub-environment anew; expected "raise"')
            restarts = Restarts(self.num_envs, max_restarts, restart_window, restart_backoff)
            self._recovery = Recovery(self.num_envs, self.autoreset, restarts)
        self._due: dict[int, float] = {}  # sub-environments that are lost, and when they are to be made anew
        self._gone: set[int] = set()  # those that could not be made anew
        self.slots: Slots
        self.closed, self._open = False, True
        try:
            self._adopt(self._start(factories))
            if hasattr(self, "slots"):
                self.slots.recycle()
        except BaseException:
            with contextlib.suppress(Exception, SystemExit):  # the reason is what is raised, not how closing went
                self.close(terminate=True)
            raise
        at_exit(self)

    def rows(self, env_ids: IntArray) -> slice | IntArray:
        """Give what indexes the state of these sub-environments fastest."""
        return slice(None) if env_ids is self.all_ids else env_ids

    # -- what a backend adds -------------------------------------------------------------------------------------------

    @abstractmethod
    def _start(self, factories: Sequence[Factory]) -> Description:
        """Make all sub-environments, refuse unequal spaces, set ``slots``; give the first one's description."""

    @abstractmethod
    def _send_rows(self, actions: Batch, env_ids: IntArray) -> None:
        """Let these sub-environments step."""

    @abstractmethod
    def _reset_rows(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Let these sub-environments reset."""

    @abstractmethod
    def _poll(self, deadline: float | None) -> None:
        """Bring at least one row home, into ``slots`` and ``_arrived``; TimeoutError past the deadline."""

    @abstractmethod
    def _ask(self, method: str, env_ids: Sequence[int], arguments: Sequence[tuple[Any, ...]]) -> None:
        """Let sub-environments run a method of ``SubEnv``, each with its arguments."""

    @abstractmethod
    def _answers(self, deadline: float | None) -> tuple[dict[int, Any], list[Failure]]:
        """Wait for what ``_ask`` asked for: values by index, and failures."""

    def _answers_are_kept(self) -> bool:
        """Whether a wait for answers that was interrupted can be taken up again."""
        return True

    @abstractmethod
    def _stop(self, timeout: float, terminate: bool) -> None:
        """Close all that was opened, whatever state it is in."""

    def _make_anew(self, takeovers: dict[int, Takeover]) -> None:
        """Make sub-environments anew that were lost; failures go to ``_not_made``."""
        raise NotImplementedError(f"{type(self).__name__} makes no sub-environment anew")

    @abstractmethod
    def _tell_frames(self, wanted: Sequence[Frames]) -> None:
        """Say which frames of each sub-environment are wanted with the rows that are sent from now on."""

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _send(self, actions: Batch, env_ids: IntArray) -> None:
        try:
            if self._frames_changed:
                self._tell_changed_frames()  # before they count as out: a worker found dead here died before the step
            if self._recovery is not None and self._recovery.begins_with_step(env_ids):
                self._notice_losses()  # likewise: this step has not led to them, and its resets are the schedule's next
            self._mark_out(env_ids)
            if self._recovery is None:
                self._send_rows(actions, env_ids)
                return
            self._recovery.asked_to_step()
            lost = self._lost_among(env_ids, self._recovery.lost[env_ids])
            if not lost.any():
                self._send_rows(actions, env_ids)
                return
            if not lost.all():
                self._send_rows(batches.take(actions, ~lost), env_ids[~lost])
            self._settle(env_ids[lost].tolist())
        except BaseException as error:
            self._not_sent(env_ids, error)
            raise

    def _send_reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        try:
            self._tell_changed_frames()
            if self._recovery is not None:
                self._notice_losses()  # likewise: this reset has not led to them, and its seeds are used as they are
            self._mark_out(env_ids)
            if self._recovery is None:
                self._reset_rows(env_ids, seeds, options)
                return
            self._recovery.asked_to_reset(env_ids, seeds, options)
            for i in self._gone.intersection(env_ids.tolist()):
                self._due[i] = 0.0  # whoever asks for a reset asks for another try
            none = np.zeros(len(env_ids), dtype=np.bool_)  # a reset tells of the loss, wherever it happens
            lost = self._lost_among(env_ids, none)
            if not lost.all():
                self._reset_rows(env_ids[~lost], list(compress(seeds, ~lost)), options)
        except BaseException as error:
            self._not_sent(env_ids, error)
            raise

    def _receive(self, count: int, timeout: float | None) -> StepResult:
        deadline = None if timeout is None else time.monotonic() + timeout
        self._progress = False
        while len(self._ready) + len(self._failed) < count:
            self._interrupts.let_through()
            self._poll(deadline)
        env_ids, out = self.all_ids, _NONE
        left: list[int] = []
        if not len(self._ready) == self.num_envs == count:
            taken = self._ready[: max(count - len(self._failed), 0)]
            env_ids, left = np.array(sorted(taken), dtype=np.int64), self._ready[len(taken) :]
            out = self._out.difference(taken, (failure.index for failure in self._failed))
        step = self.slots.collect(env_ids, copy=self.copy)
        if self._recovery is not None:
            self._recovery.delivered(step, self.slots)
        self._note_ends(step)
        if self._failed:
            step.failures = self._note_failures()
        self._latest = step.observations
        self._interrupts.hold()
        # Last, and all three at once: who is interrupted before waits again, for the same rows.
        self._out, self._ready, self._failed = out, left, []
        return step

    def _note_failures(self) -> tuple[SubEnvError, ...]:
        for failure in self._failed:
            self._ended[failure.index] = self._any_ended = True
        return _errors(self._failed)

    def _arrived(self, rows: list[int], failures: list[Failure]) -> None:
        """Book rows that came home and rows that failed.

        Each is taken out of its list by the statement that books it: what an interrupt leaves there is not booked yet.
        """
        self._progress = True
        if self._recovery is not None:
            self._recovery.tell(rows, self.slots)
        self._ready, rows[:] = self._ready + rows, ()
        while failures:
            refused = self._lose_one(failures[0])
            if refused is None:
                del failures[0]
            else:
                self._failed, failures[:] = [*self._failed, refused], failures[1:]

    def _never_home(self) -> BackendError:
        """Say that rows are out which nobody steps: an error is better than to wait for ever."""
        out = sorted(self._out.difference(self._ready))
        return BackendError(
            f"sub-environments {out} are out, and nobody steps them: an interrupt has come at a bad place; close() "
            "still works, build the environment again to go on",
            env_ids=tuple(out),
        )

    # -- rows that are lost --------------------------------------------------------------------------------------------

    def health(self) -> Health:
        """Say what was lost and made anew."""
        if self._recovery is None:
            none = np.zeros(self.num_envs, dtype=np.int64)
            return Health(none, none.copy(), ("",) * self.num_envs, self._worker_health())
        restarts = self._recovery.restarts
        counts, lost = restarts.counts.copy(), self._recovery.lost_episodes.copy()
        return Health(counts, lost, tuple(restarts.reasons), self._worker_health())

    def _worker_health(self) -> tuple[WorkerHealth, ...]:
        return ()

    def _lose_one(self, failure: Failure) -> Failure | None:
        """Let a sub-environment that raised be made anew; gives the failure where that may not be."""
        recovery = self._recovery
        if recovery is None:
            return failure
        if failure.stepped:
            recovery.keep_step(failure.index, self.slots)
        if self._lose([failure.index], str(failure.error()).partition("\n")[0], made=failure.during != "make"):
            return None
        recovery.give_up(failure.index)
        return self._refused(failure)

    def _refused(self, failure: Failure) -> Failure:
        """Say why a sub-environment was not made anew."""
        if self._recovery is None:
            return failure
        limit = self._recovery.restarts.limit_in_words()
        return replace(failure, note=f"\nIt is not made anew, for {limit} are used up.")

    def _lose(self, env_ids: Sequence[int], reason: str, *, made: bool = True) -> bool:
        """Whether sub-environments that were lost are made anew; then what becomes of their rows is settled here.

        Args:
            env_ids: which.
            reason: what happened.
            made: whether they were there already, so that a reset that was out has been tried.
        """
        recovery = self._recovery
        if recovery is None:
            return False
        for i in env_ids:
            if i in self._ready:
                recovery.keep_row(i, self.slots)
            elif made and i in self._out:
                recovery.reset_failed(i)
        pause = recovery.lose(env_ids, reason)
        if pause is None:
            return False
        due = recovery.restarts.clock() + pause
        self._due.update(dict.fromkeys(env_ids, due))
        out = [i for i in env_ids if i in self._out]
        for i in out:
            if made:
                recovery.lost_while_out(i)
        self._settle(out)
        return True

    def _lost_among(self, env_ids: IntArray, lost: BoolArray) -> BoolArray:
        """Say which of these rows, which go out now, nobody could be asked for: those, and what is to be made anew."""
        self.slots.lost[env_ids] = False
        return lost | np.isin(env_ids, list(self._due)) if self._due else lost

    def _settle(self, env_ids: Sequence[int]) -> None:
        """Bring rows that are out home, or let the new sub-environments do it, those that are there, in one go."""
        assert self._recovery is not None
        resets: list[tuple[int, Reset]] = []
        for i in env_ids:
            if i in self._ready:
                continue
            reset = self._recovery.settle(i, self.slots)
            if reset is None:
                self._progress = True
                self._ready.append(i)
            elif i not in self._due:
                resets.append((i, reset))
        for _, group in groupby(resets, key=lambda one: id(one[1].options)):
            rows = list(group)
            ids, seeds = np.array([i for i, _ in rows]), [reset.seed for _, reset in rows]
            self._reset_rows(ids, seeds, rows[0][1].options)

    def _make_due_anew(self) -> float | None:
        """Make anew what is due; gives when the next one is."""
        if not self._due:
            return None
        assert self._recovery is not None
        now = self._recovery.restarts.clock()
        due = {i: when for i, when in sorted(self._due.items()) if when <= now}
        try:
            for i in due:
                del self._due[i]
                self._gone.discard(i)
            if due:
                self._make_anew({i: self._recovery.takeover(i, self._frames_told[i]) for i in due})
            self._settle([i for i in due if i in self._out and i not in self._due and i not in self._gone])
        except BaseException:  # nobody knows how far it got; it is done again
            self._take_back(due)
            self._due = {**due, **self._due}
            raise
        return min(self._due.values(), default=None)

    def _notice_losses(self) -> None:
        """Lose what has died since it was last heard of, where that can be seen without asking it."""

    def _take_back(self, env_ids: Iterable[int]) -> None:
        """See to it that nothing comes of what these sub-environments were asked."""

    def _not_made(self, failure: Failure) -> None:
        """Book a sub-environment that could not be made anew: it is tried again, as far as the policy goes."""
        i = failure.index
        refused = self._lose_one(failure)
        if refused is None:
            return
        self._gone.add(i)
        self._ended[i] = self._any_ended = True
        if i in self._out and i not in self._ready:
            self._failed.append(refused)

    def _wait_until_made(self, env_ids: Sequence[int]) -> None:
        """Sleep until these sub-environments are there again.

        Raises:
            ResetNeededError: one is not made anew any more.
        """
        while pending := [self._due[i] for i in env_ids if i in self._due]:
            assert self._recovery is not None
            time.sleep(max(0.0, min(pending) - self._recovery.restarts.clock()))
            self._make_due_anew()
        if gone := sorted(self._gone.intersection(env_ids)):
            raise ResetNeededError(
                f"sub-environments {gone} were lost and could not be made anew; a reset tries it again, or leave them "
                "out with indices"
            )

    def _note_ends(self, step: StepResult) -> None:
        if self._any_ended:
            opened = step.env_ids[step.first]
            self._ended[opened] = self._never_reset[opened] = False
            self._any_ended = bool(self._ended.any())
        if self._resets_are_asked_for:
            ended = step.env_ids[step.dones]
            if len(ended):
                self._ended[ended] = self._any_ended = True

    @property
    def _num_out(self) -> int:
        return len(self._out)

    def _mark_out(self, env_ids: IntArray) -> None:
        self._pending = self._asked_by  # with the rows: an interrupt leaves a call that can be waited for
        self._out = self._all if env_ids is self.all_ids else self._out.union(env_ids.tolist())

    def _not_sent(self, env_ids: IntArray, error: BaseException) -> None:
        """Book rows that did not go out, because of an error."""
        self._mark_home(env_ids)

    def _mark_home(self, env_ids: IntArray) -> None:
        self._out = _NONE if env_ids is self.all_ids else self._out.difference(env_ids.tolist())

    # -- what may be called when ---------------------------------------------------------------------------------------

    def _refuse_closed(self, name: str) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"Trying to operate on {self!r}, after a call to `close()`: `{name}`.")

    def _refuse_pending(self, name: str, allow: str | None = None) -> None:
        self._refuse_closed(name)
        if self._pending is not None and self._pending != allow:
            wait = "recv" if self._pending == "send" else f"{self._pending}_wait"
            raise AlreadyPendingCallError(
                f"Calling `{name}` while waiting for a pending call to `{self._pending}` to complete; {wait}() brings "
                "what it gives, also after an interrupt.",
                self._pending,
            )

    def _refuse_ended(self, env_ids: IntArray) -> None:
        ended = env_ids[self._ended[env_ids]]
        if not len(ended):
            return
        if self._never_reset.any():
            raise ResetNeededError(f"{self!r} has not been reset yet; call reset() before the first step")
        raise ResetNeededError(
            f"sub-environments {ended.tolist()} have ended or failed, or a load brought no state of them, and were not "
            "reset; reset them with "
            'reset(options={"reset_mask": mask}), or leave them out with send(actions, env_ids=live)'
        )

    def _idle_ids(self, env_ids: Any) -> IntArray:
        if env_ids is None:
            if len(self._out) == self.num_envs:
                raise ArgumentError("env_ids: all sub-environments are out already; recv them first")
            return np.array(sorted(self._all - self._out), dtype=np.int64)
        ids = self._indices(env_ids)
        if not len(ids):
            raise ArgumentError("env_ids: expected at least one sub-environment, got none; leave the call out instead")
        _refuse_twice("env_ids", ids)
        if out := [i for i in ids.tolist() if i in self._out]:
            raise ArgumentError(f"env_ids: sub-environments {out} are out already; recv them first")
        return ids

    def _indices(self, indices: Any, what: str = "env_ids") -> IntArray:
        """Read indices of sub-environments: None means all; negative ones are refused."""
        if indices is None:
            return self.all_ids
        ids = np.atleast_1d(np.asarray(indices))
        if ids.dtype.kind not in "iu" and ids.size:
            raise ArgumentError(f"{what}: expected integers, got {indices!r}")
        if ids.ndim != 1 or (ids < 0).any() or (ids >= self.num_envs).any():
            raise ArgumentError(f"{what}: expected indices from 0 to {self.num_envs - 1}, got {indices!r}")
        return ids.astype(np.int64)

    def _indices_of_call(self, indices: Any) -> list[int]:
        """Read the indices of a call, in their order; none is called twice."""
        ids = self._indices(indices, "indices")
        _refuse_twice("indices", ids)
        in_order: list[int] = ids.tolist()
        return in_order

    # -- seeds ---------------------------------------------------------------------------------------------------------

    def _seeds(self, seed: Any, env_ids: IntArray) -> list[int | None]:
        """Give the seed of each of these rows: ``seed + start_index + i``, or the list's, or None."""
        if seed is None:
            seed = self._build_seed
        if seed is None:
            return [None] * len(env_ids)
        if isinstance(seed, (int, np.integer)) and not isinstance(seed, (bool, np.bool_)):
            return [_seed(int(seed) + self.start_index + i) for i in env_ids.tolist()]
        try:
            seeds = [] if isinstance(seed, (str, bytes)) else list(seed)
        except TypeError:
            seeds = []
        if not seeds:
            raise ArgumentError(f"seed: expected an int, a sequence of {self.num_envs} or None, got {seed!r}")
        if len(seeds) != self.num_envs:
            raise ArgumentError(f"seed: expected {self.num_envs} seeds, one for each sub-environment, got {len(seeds)}")
        return [None if seeds[i] is None else _seed(seeds[i]) for i in env_ids.tolist()]

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call_async(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], indices: Any) -> None:
        self._refuse_pending("call_async")
        if name in ("reset", "step", "close"):
            raise ArgumentError(f"call({name!r}): use {name}() of the vector environment, which keeps its books")
        ids = self._indices_of_call(indices)
        self._wait_until_made(ids)
        with self._interrupts:
            self._interrupts.hold()
            self._ask("call", ids, [(name, args, kwargs)] * len(ids))
            self._asked, self._pending = ids, "call"

    def _call_wait(self, timeout: float | None) -> tuple[Any, ...]:
        self._refuse_closed("call_wait")
        if self._pending != "call":
            raise NoAsyncCallError("Calling `call_wait` without any prior call to `call_async`.", "call")
        try:
            with self._interrupts:
                values, failures = self._answers(None if timeout is None else time.monotonic() + timeout)
        except BaseException as error:
            goes_on = isinstance(error, TimeoutError) or (
                (is_interrupt(error) or not isinstance(error, Exception)) and self._answers_are_kept()
            )
            if not goes_on:
                self._pending = None
            raise
        self._pending = None
        _raise_first(failures)
        return tuple(values[i] for i in self._asked)

    def _get_attr(self, name: str, indices: Any) -> tuple[Any, ...]:
        self._refuse_pending("get_attr")
        ids = self._indices_of_call(indices)
        return self._call_now("get_attr", [(name,)] * len(ids), ids)

    def _set_attr(self, name: str, values: Any, indices: Any) -> None:
        self._refuse_pending("set_attr")
        recovery = self._recovery
        ids = self._indices_of_call(indices)
        each = values if isinstance(values, (list, tuple)) else [values] * len(ids)
        if len(each) != len(ids):
            raise ArgumentError(f"set_attr({name!r}): expected one value or {len(ids)} values, got {len(each)}")
        interrupted = False
        try:
            self._call_now("set_attr", [(name, value) for value in each], ids)
        except BaseException as error:
            interrupted = is_interrupt(error) or not isinstance(error, Exception)
            raise
        finally:  # it is set where it succeeded, though another one refuses it or is lost; who is interrupted meant all
            if recovery is not None:
                for i, value in zip(ids, each, strict=True):
                    if i in self._values or interrupted:
                        recovery.set_attribute(i, name, value)

    def _request_frames(self, layer: VecEnv, env_ids: IntArray, opening: IntArray) -> None:
        self._frame_requests[layer] = (frozenset(env_ids.tolist()), frozenset(opening.tolist()))
        self._frames_changed = True

    def _tell_changed_frames(self) -> None:
        """Merge what the layers ask for and tell it, where it changed; with the rows that follow, not on its own."""
        if not self._frames_changed:
            return
        requests = list(self._frame_requests.values())
        wanted = [Frames.NONE] * self.num_envs
        for i in frozenset[int]().union(*(opening for _, opening in requests)):
            wanted[i] = Frames.OPENING
        for i in frozenset[int]().union(*(always for always, _ in requests)):
            wanted[i] = Frames.ALL
        if wanted != self._frames_told:
            self._tell_frames(wanted)
            self._frames_told = wanted
        self._frames_changed = False  # last: who is interrupted tells it the next time

    def _follow(self, schedules: Sequence[bytes]) -> None:
        """Give each sub-environment a schedule for its resets."""
        self._refuse_pending("follow")
        self._call_now("follow", [(schedule,) for schedule in schedules], self.all_ids.tolist())
        self.slots.scheduled[:] = 0
        self._on_schedule = True
        if self._recovery is not None:
            self._recovery.follow(schedules)

    def _scheduled(self) -> tuple[dict[str, Any], ...]:
        """How far each sub-environment's schedule is, and what it remembers."""
        return self._call_now("scheduled", [()] * self.num_envs, self.all_ids.tolist())

    def _go_on_in_schedule(self, states: Sequence[dict[str, Any]]) -> None:
        self._call_now("go_on_in_schedule", [(state,) for state in states], self.all_ids.tolist())
        episodes = [state["episodes"] for state in states]
        self.slots.scheduled[:] = episodes
        if self._recovery is not None:
            self._recovery.go_on_in_schedule(episodes)

    def _leave_seed_to_schedules(self) -> None:
        """Let build's seed begin no schedule anew: it is there for first resets to which a schedule gives none."""
        if self._build_seed is None or not self._on_schedule:
            return
        seeds = self._seeds(None, self.all_ids)
        self._call_now("leave_seed", [(seed,) for seed in seeds], self.all_ids.tolist())
        self._build_seed = None
        if self._recovery is not None:
            self._recovery.seeded(seeds)

    def _sub_env_states(self) -> tuple[list[dict[str, Any]] | None, str | None]:
        """Give the state of each sub-environment, or None and why not."""
        if self._any_ended and self._never_reset.any():
            return None, "it has not been reset yet"
        try:
            states = list(self._call_now("state", [()] * self.num_envs, self.all_ids.tolist()))
        except (SubEnvError, ResetNeededError) as error:
            return None, str(error)
        except BackendError as error:  # a worker has died meanwhile, and its rows are made anew
            if self._recovery is None:
                raise
            return None, str(error)
        for i, state in enumerate(states):
            state["ended"] = bool(self._ended[i])
            if self._recovery is not None:
                state["recovery"] = self._recovery.state(i, self.slots)
        return states, None

    def _load_sub_env_states(self, states: Sequence[dict[str, Any]] | None) -> None:
        """Put each sub-environment where it was; without states, each needs a reset."""
        if states is None:
            self._ended[:] = self._any_ended = True
            return
        attributes = [self._attributes_of(i, state) for i, state in enumerate(states)]
        self._call_now("load_state", list(zip(states, attributes, strict=True)), self.all_ids.tolist())
        self._never_reset[:] = False
        for i, state in enumerate(states):
            self.slots.observations.put(i, state["observation"])
            self._ended[i] = state.get("ended", state["over"] and self.autoreset is Autoreset.DISABLED)
            if self._recovery is not None:
                self._recovery.loaded(i, state, self.slots)
        self._any_ended = bool(self._ended.any())

    def _attributes_of(self, i: int, state: dict[str, Any]) -> dict[str, Any]:
        """Give what a sub-environment has set where it was made anew and never reset before it was saved."""
        if state["env"] is not None:
            return {}
        if self._recovery is not None:
            return self._recovery.attributes_of(i, state)
        return dict(state.get("recovery", {}).get("attributes", {}))

    def _call_now(self, method: str, arguments: Sequence[tuple[Any, ...]], ids: Sequence[int]) -> tuple[Any, ...]:
        self._values = {}
        self._wait_until_made(ids)
        with self._interrupts:
            self._interrupts.hold()
            self._ask(method, ids, arguments)
            self._interrupts.let_through()
            self._values, failures = self._answers(None)
        _raise_first(failures)
        return tuple(self._values[i] for i in ids)

    # -- the face's spaces, and the end --------------------------------------------------------------------------------

    def _adopt(self, description: Description) -> None:
        self.metadata = {**description.metadata, "autoreset_mode": self.autoreset.gymnasium}
        self.render_mode = description.render_mode
        self.spec = description.spec
        self.env_name = description.name
        # By value: gymnasium.make_vec gives `spec` the id of a whole pipeline afterwards.
        self.env_id = description.spec.id if description.spec is not None else description.name
        self._set_observation_space(deepcopy(description.observation_space))
        self._set_action_space(deepcopy(description.action_space))

    def close(self, timeout: float | None = None, terminate: bool = False) -> None:  # type: ignore[override]
        """Close every sub-environment and worker; may be called again, in any state.

        Args:
            timeout: seconds to wait for the workers before they are killed; None means 5.
            terminate: do not ask, kill.
        """
        if not self._open:
            return
        self.closed, self._open = True, False
        self._pending = self._through = None
        try:
            self._stop(5.0 if timeout is None else timeout, terminate)
        except BaseException as error:
            self._open = not isinstance(error, Exception)  # after an interrupt the next call goes on
            raise
        finally:
            self._interrupts.close()

    @property
    def _root(self) -> Backend:  # type: ignore[override]
        """This backend; a property, for a reference to itself would keep a forgotten one alive."""
        return self

    def _close_at_exit(self) -> None:
        self.close(terminate=True)

    def __del__(self) -> None:
        if self._open:
            with self._interrupts:
                self._interrupts.hold()  # nobody could close it again
                self.close(terminate=True)

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        """A tuple of the sub-environments' generators (copies, where they live in other processes)."""
        return self._get_attr("np_random", None)

    @property
    def np_random_seed(self) -> Any:
        """A tuple of the sub-environments' seeds."""
        return self._get_attr("np_random_seed", None)


def _seed(seed: Any) -> int:
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, (bool, np.bool_)):
        raise ArgumentError(f"seed: expected an int, got {seed!r}")
    if seed < 0:
        raise ArgumentError(f"seed: expected an int of at least 0, got {seed}")
    return int(seed)


def _refuse_twice(what: str, ids: IntArray) -> None:
    if len(np.unique(ids)) != len(ids):
        raise ArgumentError(f"{what}: expected each index once, got {ids.tolist()}")


def _errors(failures: Sequence[Failure]) -> tuple[SubEnvError, ...]:
    """In ascending order of sub-environments: who answered first is no part of the result."""
    return tuple(failure.error() for failure in sorted(failures, key=lambda failure: failure.index))


def _raise_first(failures: Sequence[Failure]) -> None:
    if failures:
        errors = _errors(failures)
        errors[0].failures = errors
        raise errors[0]
