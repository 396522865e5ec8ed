"""The bookkeeping of every backend: which rows are pending, which have arrived, which need a reset, which were lost.

``vecwrap.env.restarts`` decides the result of a row whose sub-environment was lost; this module calls it.
"""

from __future__ import annotations

import time
import weakref
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import compress, groupby
from typing import Any, ClassVar

import numpy as np
from gymnasium.error import ClosedEnvironmentError

from vecwrap.env.restarts import Recovery, Reset
from vecwrap.env.vec_env import FiveTuple, VecEnv
from vecwrap.errors import BackendError, ResetNeededError, SubEnvError, WaitTimeoutError
from vecwrap.interrupts import Interrupts
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch
from vecwrap.rows.step_result import Autoreset, BoolArray, Frames, Infos, IntArray, StepResult
from vecwrap.rows.table import Slots
from vecwrap.sources.failure import Failure
from vecwrap.sources.sub_env import Takeover

LOOK = 0.2  # seconds between checks while waiting: the workers' stderr, and whether this backend was closed
_NONE: frozenset[int] = frozenset()


class RowBooks(VecEnv):
    """The row protocol of a backend, except for how rows are stepped and reset."""

    has_line: ClassVar[bool] = False  # whether a whole step may take the straight line of `vecwrap.env.line`
    slots: Slots

    def __init__(self, num_envs: int, autoreset: Autoreset, *, copy: bool, recovery: Recovery | None) -> None:
        self.num_envs = num_envs
        self.autoreset = autoreset
        self._resets_are_asked_for = autoreset is Autoreset.DISABLED
        self.copy = copy
        self.all_ids: IntArray = np.arange(num_envs)
        self.all_ids.flags.writeable = False
        self._pending: str | None = None
        self._asked_by: str | None = None  # the call that is pending once its rows are sent
        self._through: tuple[StepResult, FiveTuple] | None = None  # the result after all layers, until returned
        self._interrupts = Interrupts()
        self.in_line = False  # whether the next one may: set by the end of a general call
        self.watched = False  # whether a stopwatch is on
        self._resetting = _NONE  # all rows of the last call that requested resets
        self._all = frozenset(range(num_envs))
        self._out = _NONE  # the pending rows
        self._ready: list[int] = []
        self._failed: list[Failure] = []
        self._ended = np.ones(num_envs, dtype=np.bool_)  # rows that must not be stepped before a reset
        self._any_ended = True
        self._never_reset = np.ones(num_envs, dtype=np.bool_)
        self._progress = False  # whether a row has arrived during the current wait
        self._latest: Batch = None
        self._latest_infos: tuple[Infos, Infos | None] = {}, None  # before layers changed them
        self._frame_requests: weakref.WeakKeyDictionary[VecEnv, tuple[frozenset[int], frozenset[int]]]
        self._frame_requests = weakref.WeakKeyDictionary()
        self._frames_changed = False
        self._frames_told = [Frames.NONE] * num_envs
        self._recovery = recovery
        self._due: dict[int, float] = {}  # lost sub-environments, and when to recreate them
        self._gone: set[int] = set()  # those that could not be recreated

    def rows(self, env_ids: IntArray) -> slice | IntArray:
        """Return the fastest index into the state of these sub-environments."""
        return slice(None) if env_ids is self.all_ids else env_ids

    # -- what a backend adds -------------------------------------------------------------------------------------------

    @abstractmethod
    def _send_rows(self, actions: Batch, env_ids: IntArray) -> None:
        """Request a step of these sub-environments."""

    @abstractmethod
    def _reset_rows(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Request resets of these sub-environments."""

    @abstractmethod
    def _poll(self, deadline: float | None) -> None:
        """Receive at least one row, into ``slots`` and ``_arrived``; TimeoutError past the deadline."""

    def _make_anew(self, takeovers: dict[int, Takeover]) -> None:
        """Recreate lost sub-environments; failures go to ``_not_made``."""
        raise NotImplementedError(f"{type(self).__name__} cannot recreate sub-environments")

    @abstractmethod
    def _tell_frames(self, wanted: Sequence[Frames]) -> None:
        """Tell workers which frames of each sub-environment to include with the rows sent from now on."""

    def _notice_losses(self, env_ids: IntArray) -> None:
        """Detect deaths since the last contact, at least among these, and handle them as losses."""

    def _take_back(self, env_ids: Iterable[int]) -> None:
        """Discard the pending requests to these sub-environments."""

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _send(self, actions: Batch, env_ids: IntArray) -> None:
        if self._recovery is not None and len(beginning := self._recovery.beginning_with_step(env_ids)):
            self._notice_losses(beginning)  # this step did not cause them, and its resets come next in schedules
        try:
            if self._frames_changed:
                self._tell_changed_frames()  # before they count as pending: a worker found dead here died earlier
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
        if self._recovery is not None:
            self._notice_losses(env_ids)  # before this reset: it did not cause them, so its seeds are used unchanged
        try:
            self._tell_changed_frames()
            self._mark_out(env_ids)
            if self._recovery is None:
                self._reset_rows(env_ids, seeds, options)
                return
            self._recovery.asked_to_reset(env_ids, seeds, options)
            for i in self._gone.intersection(env_ids.tolist()):
                self._due[i] = 0.0  # a requested reset is another attempt
            none = np.zeros(len(env_ids), dtype=np.bool_)  # a reset reports the loss, whenever it happens
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
        self._latest_infos = step.infos, step.final_infos
        if self._recovery is not None:
            self._recovery.delivered(step, self.slots)
        self._note_ends(step)
        if self._failed:
            self._ended[[failure.index for failure in self._failed]] = self._any_ended = True
            step.failures = errors_of(self._failed)
        self._latest = step.observations
        self._interrupts.hold()
        # Last, and all three at once: if interrupted before, the next wait returns the same rows.
        self._out, self._ready, self._failed = out, left, []
        return step

    def _arrived(self, rows: list[int], failures: list[Failure]) -> None:
        """Record rows that arrived or failed, each as it leaves its list: what an interrupt leaves is unrecorded."""
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

    @property
    def _num_arrived(self) -> int:
        return len(self._ready) + len(self._failed)

    def _mark_out(self, env_ids: IntArray) -> None:
        self.in_line = False
        self._pending = self._asked_by  # together with the rows: after an interrupt, the call can be waited for
        self._out = self._all if env_ids is self.all_ids else self._out.union(env_ids.tolist())

    def _not_sent(self, env_ids: IntArray, error: BaseException) -> None:
        self._mark_home(env_ids)

    def _mark_home(self, env_ids: IntArray) -> None:
        self._out = _NONE if env_ids is self.all_ids else self._out.difference(env_ids.tolist())

    def _request_frames(self, layer: VecEnv, env_ids: IntArray, opening: IntArray) -> None:
        self._frame_requests[layer] = (frozenset(env_ids.tolist()), frozenset(opening.tolist()))
        self._frames_changed, self.in_line = True, False

    def _tell_changed_frames(self) -> None:
        """Merge the layers' frame requests and send them if changed; with the next rows, not separately."""
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
        self._frames_changed = False  # last: if interrupted before, they are sent the next time

    def _never_home(self) -> BackendError:
        """Report pending rows that no worker is stepping: an error is better than waiting forever."""
        out = sorted(self._out.difference(self._ready))
        return BackendError(
            f"sub-environments {out} were sent, but no worker is stepping them (an interrupt arrived while they were "
            "being sent); close() still works; build the environment again to continue",
            env_ids=tuple(out),
        )

    # -- the straight line ---------------------------------------------------------------------------------------------

    def watch(self, on: bool) -> None:
        """Say whether a stopwatch is on, which times the general path."""
        self.watched, self.in_line = on, False

    def _is_ordinary(self) -> bool:
        """Whether nothing is pending, wanted or to be looked after, so that the next step may take the line."""
        raise NotImplementedError

    def _begin_line(self) -> None:
        self.in_line, self._out, self._pending, self._asked_by = False, self._all, "step", "step"

    def _step_rows_in_line(self, actions: Batch) -> bool:
        """Step all rows; False if some are for the general path to go on with."""
        raise NotImplementedError

    def _leave_line(self) -> None:
        """After an exception: leave a pending call if rows are still to be stepped, otherwise none."""
        raise NotImplementedError

    def _collect_line(self) -> StepResult:
        self._out = _NONE
        step = self.slots.collect(self.all_ids, copy=self.copy)
        self._latest_infos = step.infos, step.final_infos
        if self._resets_are_asked_for:
            self._note_ends(step)
        self._latest = step.observations
        return step

    def _too_early(self) -> WaitTimeoutError:
        """The error of a wait whose time has passed."""
        called = self._pending == "call"
        who = "not all sub-environments have" if called else f"{self._num_out} sub-environments have not"
        return WaitTimeoutError(f"{who} answered yet; wait again")

    # -- rows that are lost --------------------------------------------------------------------------------------------

    def _lose_one(self, failure: Failure) -> Failure | None:
        """Schedule a sub-environment that raised for recreation; return the failure if no restart is allowed."""
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
        """Add the reason why a sub-environment was not recreated."""
        if self._recovery is None:
            return failure
        limit = self._recovery.restarts.limit_in_words()
        return replace(failure, note=f"\nIt is not recreated, because {limit} are used up.")

    def _lose(self, env_ids: Sequence[int], reason: str, *, made: bool = True) -> bool:
        """Whether lost sub-environments are recreated; if so, also decide the results of their rows.

        ``made``: they had been made already, so that a pending reset has been tried.
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
        """Return which of these rows, about to be sent, have no sub-environment: lost, or due to be recreated."""
        assert self._recovery is not None
        self.slots.lost[env_ids], self._recovery.told[env_ids] = False, 0
        return lost | np.isin(env_ids, list(self._due)) if self._due else lost

    def _settle(self, env_ids: Sequence[int]) -> None:
        """Complete pending rows, or request them from new sub-environments that exist already, all at once."""
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
        """Recreate the sub-environments that are due; return when the next one is."""
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
        except BaseException:  # how far it got is unknown, so it is repeated
            self._take_back(due)
            self._due = {**due, **self._due}
            raise
        return min(self._due.values(), default=None)

    def _not_made(self, failure: Failure) -> None:
        """Record a sub-environment that could not be recreated: try again, if the policy allows."""
        i = failure.index
        refused = self._lose_one(failure)
        if refused is None:
            return
        self._gone.add(i)
        self._ended[i] = self._any_ended = True
        if i in self._out and i not in self._ready:
            self._failed.append(refused)

    def _rest_until(self, due: float) -> None:
        """Sleep until something is to be restarted, or it is time for a look whether somebody has closed us."""
        assert self._recovery is not None
        time.sleep(max(0.0, min(due - self._recovery.restarts.clock(), LOOK)))
        self._refuse_closed_meanwhile()

    def _refuse_closed_meanwhile(self, error: Exception | None = None) -> None:
        """Raise ClosedEnvironmentError, instead of what followed from the closing, if there has been one."""
        if self.closed:  # by another thread, or a signal's handler
            raise ClosedEnvironmentError("the environment was closed meanwhile") from error

    def _wait_until_made(self, env_ids: Sequence[int]) -> None:
        """Sleep until these sub-environments exist again; raise ResetNeededError if one will not be recreated."""
        while pending := [self._due[i] for i in env_ids if i in self._due]:
            assert self._recovery is not None
            self._rest_until(min(pending))
            self._make_due_anew()
        if gone := sorted(self._gone.intersection(env_ids)):
            raise ResetNeededError(
                f"sub-environments {gone} were lost and could not be recreated; a reset tries again, or exclude them "
                "with indices"
            )


def errors_of(failures: Sequence[Failure]) -> tuple[SubEnvError, ...]:
    """In ascending order of sub-environments, independent of which answered first."""
    return tuple(failure.error() for failure in sorted(failures, key=lambda failure: failure.index))
