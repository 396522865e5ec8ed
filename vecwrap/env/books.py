"""The books of a backend: which rows are pending, which have arrived, which need a reset, which were lost.

``vecwrap.env.restarts`` decides the result of a row whose sub-environment was lost; this module calls it.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import compress, groupby
from typing import Any, NoReturn

import numpy as np
from gymnasium.error import ClosedEnvironmentError

from vecwrap.env.observers import StepObserver, Timer
from vecwrap.env.restarts import Recovery, Reset
from vecwrap.env.row_protocol import Endings
from vecwrap.errors import ArgumentError, BackendError, ResetNeededError, SubEnvError, VecwrapError, WaitTimeoutError
from vecwrap.interrupts import Interrupts
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch
from vecwrap.rows.compare import is_same
from vecwrap.rows.step_result import Autoreset, BoolArray, Frames, Infos, IntArray, StepResult
from vecwrap.rows.table import Slots
from vecwrap.sources.failure import Failure

LOOK = 0.2  # seconds between checks while waiting: the workers' stderr, and whether the environment was closed
_NONE: frozenset[int] = frozenset()
_books: weakref.WeakSet[Books] = weakref.WeakSet()


class Books:
    """The rows of a backend, which a runner steps and resets."""

    slots: Slots  # where the runner's sub-environments write their rows; the runner makes it when it starts

    def __init__(
        self,
        num_rows: int,
        autoreset: Autoreset,
        runner: Any,  # a vecwrap.env.runner.Runner, which has books itself
        *,
        copy: bool,
        batch_size: int | None,
        debug: bool,
        recovery: Recovery | None,
        agents: int = 0,
    ) -> None:
        self.num_rows = num_rows
        self.agents = agents  # how many consecutive rows are those of one game; 0 if these are no games
        self.runner = runner
        self.autoreset = autoreset
        self.copy = copy
        self.batch_size = batch_size
        self.debug = debug
        self.recovery = recovery  # what is needed to recreate sub-environments; None if they are not
        self.all_ids: IntArray = np.arange(num_rows)
        self.all_ids.flags.writeable = False
        self.interrupts = Interrupts()
        self.endings = Endings(num_rows, resets_are_asked_for=autoreset is Autoreset.DISABLED, agents=agents)
        # These three are only ever set, maybe from another thread, a signal's handler, a fork.
        self.closed = False
        self.broken: VecwrapError | None = None  # raised by every further call
        self.forked = False
        self.owner = os.getpid()
        self.in_line = False  # whether the next whole step may: set by the end of a general call
        self.observers: tuple[StepObserver, ...] = ()
        self.timer: Timer | None = None
        self._together: tuple[int, str, str, tuple[str, ...]] = 1, "", "", ()
        self._may_be_in_line = runner.has_line and recovery is None and batch_size is None and not debug
        self._all = frozenset(range(num_rows))
        self.out = _NONE  # the pending rows
        self.ready: list[int] = []  # rows that have arrived, and were not received yet
        self.failed: list[Failure] = []
        self.progress = False  # whether a row has arrived during the current wait
        self.latest: Batch = None
        self.latest_infos: tuple[Infos, Infos | None] = {}, None  # before wrappers changed them
        self.frame_requests: weakref.WeakKeyDictionary[Any, tuple[frozenset[int], frozenset[int]]]
        self.frame_requests = weakref.WeakKeyDictionary()
        self.frames_changed = False
        self.frames_told = [Frames.NONE] * num_rows
        self.due: dict[int, float] = {}  # lost sub-environments, and when to recreate them
        self.gone: set[int] = set()  # those that could not be recreated
        _books.add(self)

    def keep_together(self, rows: int, name: str, why_no_masked_resets: str, agents: tuple[str, ...]) -> None:
        """Have so many consecutive rows always step together, and be reset together if there is a reason for it."""
        self._together = rows, name, why_no_masked_resets, agents

    def rule_out_line(self) -> None:
        self._may_be_in_line = False

    def _refuse_parts(self, env_ids: IntArray, *, of_reset: bool) -> None:
        rows, name, why_no_masked_resets, _ = self._together
        apart = of_reset and not (why_no_masked_resets or self.agents)
        if rows == 1 or len(env_ids) == self.num_rows or apart:
            return
        counts = np.bincount(env_ids // rows, minlength=self.num_rows // rows)
        if not np.isin(counts, (0, rows)).all():
            if self.agents:
                self._refuse_part_of_game(env_ids, counts, of_reset=of_reset)
            why = why_no_masked_resets if of_reset else "they step together; vecwrap's own sub-environments need not"
            raise ArgumentError(f"{name}: expected all {rows} rows of an engine or none, got {env_ids.tolist()}; {why}")

    def _refuse_part_of_game(self, env_ids: IntArray, counts: IntArray, *, of_reset: bool) -> NoReturn:
        k, game = self.agents, int(np.flatnonzero((counts > 0) & (counts < self.agents))[0])
        rows = range(game * k, game * k + k)
        missing = [i for i in rows if i not in env_ids]
        names = self._together[3]
        which = ", ".join(f"{i} ({names[i - rows.start]})" for i in missing)
        what = "reset_mask" if of_reset else "env_ids"
        raise ArgumentError(
            f"{what}: expected all rows of a game or none, got game {game} ({self._together[1]}) without its rows "
            f"{which}; agents of one game step and begin again together"
            + ("" if of_reset else ", and the actions of those that are not to move are ignored")
        )

    def refuse_different(self, name: str, env_ids: Sequence[int], values: Sequence[Any]) -> None:
        _, game, _, names = self._together
        first: dict[int, tuple[int, Any]] = {}
        for i, value in zip(env_ids, values, strict=True) if self.agents else ():
            j, other = first.setdefault(i // self.agents, (i, value))
            if value is not other and not is_same(value, other):
                raise ArgumentError(
                    f"set_attr({name!r}): expected one value for all agents of game {i // self.agents} ({game}), which "
                    f"has it once, got {other!r} for {names[j % self.agents]} and {value!r} for "
                    f"{names[i % self.agents]}"
                )

    def rows(self, env_ids: IntArray) -> slice | IntArray:
        """Return the fastest index into the state of these sub-environments."""
        return slice(None) if env_ids is self.all_ids else env_ids

    def sources(self, env_ids: IntArray) -> IntArray:
        return env_ids

    pictured = sources

    # -- rows ----------------------------------------------------------------------------------------------------------

    def send(self, actions: Batch, env_ids: IntArray) -> None:
        self._refuse_parts(env_ids, of_reset=False)
        for observer in self.observers:
            observer.on_send(actions, env_ids)
        if self.recovery is not None and len(beginning := self.recovery.beginning_with_step(env_ids)):
            self.runner.notice_losses(beginning)  # this step did not cause them, and its resets come next in schedules
        try:
            if self.frames_changed:
                self._tell_changed_frames()  # before they count as pending: a worker found dead here died earlier
            self._mark_out(env_ids)
            if self.recovery is None:
                self._ask_for_steps(actions, env_ids)
                return
            self.recovery.asked_to_step()
            lost = self._lost_among(env_ids, self.recovery.lost[env_ids])
            if not lost.any():
                self._ask_for_steps(actions, env_ids)
                return
            if not lost.all():
                self._ask_for_steps(batches.take(actions, ~lost), env_ids[~lost])
            self._settle(env_ids[lost].tolist())
        except BaseException as error:
            self._not_sent(env_ids, error)
            raise

    def reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        self._refuse_parts(env_ids, of_reset=True)
        self.runner.refuse_reset(seeds, options)
        for observer in self.observers:
            observer.on_send(None, env_ids)
        if self.recovery is not None:
            self.runner.notice_losses(env_ids)  # before this reset: they are not of its making, its seeds stay as given
        try:
            self._tell_changed_frames()
            self._mark_out(env_ids)
            if self.recovery is None:
                self.runner.reset(env_ids, seeds, options)
                return
            self.recovery.asked_to_reset(env_ids, seeds, options)
            for i in self.gone.intersection(env_ids.tolist()):
                self.due[i] = 0.0  # a requested reset is another attempt
            none = np.zeros(len(env_ids), dtype=np.bool_)  # a reset reports the loss, whenever it happens
            lost = self._lost_among(env_ids, none)
            if not lost.all():
                self.runner.reset(env_ids[~lost], list(compress(seeds, ~lost)), options)
        except BaseException as error:
            self._not_sent(env_ids, error)
            raise

    def receive(self, count: int, timeout: float | None) -> StepResult:
        """Return ``count`` rows as soon as they are ready; WaitTimeoutError past the timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self.progress = False
        while self.num_arrived < count:
            self.interrupts.let_through()
            if self.timer is None:
                self.runner.poll(deadline)
            else:
                self.timer.run("wait", self.runner.poll, deadline)
        env_ids, out = self.all_ids, _NONE
        left: list[int] = []
        if not len(self.ready) == self.num_rows == count:
            taken = self.ready[: max(count - len(self.failed), 0)]
            env_ids, left = np.array(sorted(taken), dtype=np.int64), self.ready[len(taken) :]
            out = self.out.difference(taken, (failure.index for failure in self.failed))
            if len(out) + len(taken) + len(self.failed) != len(self.out) or not out.issuperset(left):
                self._refuse_rows()
        elif self._all.difference(self.ready):
            self._refuse_rows()
        if self.timer is None:
            step = self.slots.collect(env_ids, copy=self.copy)
        else:
            step = self.timer.run("copy", partial(self.slots.collect, env_ids, copy=self.copy))
        self.latest_infos = step.infos, step.final_infos
        if self.recovery is not None:
            self.recovery.delivered(step, self.slots)
        self.endings.note(step)
        if self.failed:
            self.endings.mark([failure.index for failure in self.failed])
            step.failures = errors_of(self.failed)
        self.latest = step.observations
        self.interrupts.hold()
        for observer in self.observers:
            observer.on_receive(step)
        # Last, and all three at once: if interrupted before, the next wait returns the same rows.
        self.out, self.ready, self.failed = out, left, []
        return step

    def arrived(self, rows: list[int], failures: list[Failure]) -> None:
        """Record rows that arrived or failed, each as it leaves its list: what an interrupt leaves is unrecorded."""
        self.progress = True
        if self.recovery is not None:
            self.recovery.tell(rows, self.slots)
        self.ready, rows[:] = self.ready + rows, ()
        while failures:
            refused = self.lose_one(failures[0])
            if refused is None:
                del failures[0]
            else:
                self.failed, failures[:] = [*self.failed, refused], failures[1:]

    def _refuse_rows(self) -> NoReturn:
        """A runner has brought other rows than it was asked for."""
        rows = [*self.ready, *(failure.index for failure in self.failed)]
        twice = sorted({i for i in rows if rows.count(i) > 1})
        kinds = {"not asked for": sorted(set(rows) - self.out), "brought twice": twice}
        said = ", ".join(f"rows {ids} {what}" for what, ids in kinds.items() if ids)
        name = type(self.runner).__name__
        self.broken = BackendError(f"{name}: expected each of the rows {sorted(self.out)} once, got {said}")
        raise self.broken

    @property
    def num_arrived(self) -> int:
        return len(self.ready) + len(self.failed)

    def _mark_out(self, env_ids: IntArray) -> None:
        self.in_line = False
        self.out = self._all if env_ids is self.all_ids else self.out.union(env_ids.tolist())

    def _not_sent(self, env_ids: IntArray, error: BaseException) -> None:
        self.runner.not_sent(env_ids, error)
        self.mark_home(env_ids)

    def _ask_for_steps(self, actions: Batch, env_ids: IntArray) -> None:
        self.slots.actions.fill(self.rows(env_ids), actions)
        self.runner.send(env_ids)

    def mark_home(self, env_ids: IntArray) -> None:
        self.out = _NONE if env_ids is self.all_ids else self.out.difference(env_ids.tolist())

    def request_frames(self, wrapper: Any, env_ids: IntArray, opening: IntArray) -> None:
        self.frame_requests[wrapper] = (frozenset(env_ids.tolist()), frozenset(opening.tolist()))
        self.frames_changed, self.in_line = True, False

    def _tell_changed_frames(self) -> None:
        """Merge the wrappers' frame requests and send them if changed; with the next rows, not separately."""
        if not self.frames_changed:
            return
        requests = list(self.frame_requests.values())
        wanted = [Frames.NONE] * self.num_rows
        for i in frozenset[int]().union(*(opening for _, opening in requests)):
            wanted[i] = Frames.OPENING
        for i in frozenset[int]().union(*(always for always, _ in requests)):
            wanted[i] = Frames.ALL
        if wanted != self.frames_told:
            self.runner.frames(wanted)
            self.frames_told = wanted
        self.frames_changed = False  # last: if interrupted before, they are sent the next time

    def never_home(self) -> BackendError:
        """Report pending rows that no worker is stepping: an error is better than waiting forever."""
        out = sorted(self.out.difference(self.ready))
        return BackendError(
            f"sub-environments {out} were sent, but no worker is stepping them (an interrupt arrived while they were "
            "being sent); close() still works; build the environment again to continue",
            env_ids=tuple(out),
        )

    # -- the straight line ---------------------------------------------------------------------------------------------

    def look_for_line(self) -> None:
        """At the end of a general call: may the next step take the line, because there is nothing else to do?"""
        special = self.out or self.endings.any_ended or self.frames_changed or self.observers or self.closed
        self.in_line = self._may_be_in_line and not special

    def begin_line(self) -> None:
        self.in_line, self.out = False, self._all

    def leave_line(self) -> None:
        """After an exception: leave the rows pending if some are still to be stepped, otherwise none."""
        if not self.runner.has_work():
            self.mark_home(self.all_ids)

    def collect_line(self) -> StepResult:
        self.out = _NONE
        step = self.slots.collect(self.all_ids, copy=self.copy)
        self.latest_infos = step.infos, step.final_infos
        if self.endings.resets_are_asked_for:
            self.endings.note(step)
        self.latest = step.observations
        return step

    def too_early(self) -> WaitTimeoutError:
        who = f"{len(self.out)} sub-environments have not" if self.out else "not all sub-environments have"
        return WaitTimeoutError(f"{who} answered yet; wait again")

    # -- rows that are lost --------------------------------------------------------------------------------------------

    def lose_one(self, failure: Failure) -> Failure | None:
        """Schedule a sub-environment that raised for recreation; return the failure if no restart is allowed."""
        recovery = self.recovery
        if recovery is None:
            return failure
        if failure.stepped:
            recovery.keep_step(failure.index, self.slots)
        if self.agents and failure.index in self.due:  # its game is lost already, with another of its rows
            return None
        k = self.agents or 1
        first = failure.index - failure.index % k  # of the rows of its source
        rows, reason = list(range(first, first + k)), str(failure.error()).partition("\n")[0]
        if self.lose(rows, reason, made=failure.during != "make"):
            return None
        recovery.give_up(failure.index)
        return self.refused(failure)

    def refused(self, failure: Failure) -> Failure:
        """Add the reason why a sub-environment was not recreated."""
        if self.recovery is None:
            return failure
        limit = self.recovery.restarts.limit_in_words()
        return replace(failure, note=f"\nIt is not recreated, because {limit} are used up.")

    def lose(self, env_ids: Sequence[int], reason: str, *, made: bool = True) -> bool:
        """Whether lost rows are recreated, and settle them; ``made``: a pending reset was tried already."""
        recovery = self.recovery
        if recovery is None:
            return False
        for i in env_ids:
            if i in self.ready:
                recovery.keep_row(i, self.slots)
            elif made and i in self.out:
                recovery.reset_failed(i)
        pause = recovery.lose(env_ids, reason)
        if pause is None:
            return False
        due = recovery.restarts.clock() + pause
        self.due.update(dict.fromkeys(env_ids, due))
        out = [i for i in env_ids if i in self.out]
        for i in out:
            if made:
                recovery.lost_while_out(i)
        self._settle(out)
        return True

    def _lost_among(self, env_ids: IntArray, lost: BoolArray) -> BoolArray:
        """Return which of these rows, about to be sent, have no sub-environment: lost, or due to be recreated."""
        assert self.recovery is not None
        self.slots.lost[env_ids], self.recovery.told[env_ids] = False, 0
        return lost | np.isin(env_ids, list(self.due)) if self.due else lost

    def _settle(self, env_ids: Sequence[int]) -> None:
        """Complete pending rows, or request them from new sub-environments that exist already, all at once."""
        assert self.recovery is not None
        resets: list[tuple[int, Reset]] = []
        for i in env_ids:
            if i in self.ready:
                continue
            reset = self.recovery.settle(i, self.slots)
            if reset is None:
                self.progress = True
                self.ready.append(i)
            elif i not in self.due:
                resets.append((i, reset))
        for _, group in groupby(resets, key=lambda one: id(one[1].options)):
            rows = list(group)
            ids, seeds = np.array([i for i, _ in rows]), [reset.seed for _, reset in rows]
            self.runner.reset(ids, seeds, rows[0][1].options)

    def make_due_anew(self) -> float | None:
        """Recreate the sub-environments that are due; return when the next one is."""
        self.runner.lose_torn()
        if not self.due:
            return None
        assert self.recovery is not None
        now = self.recovery.restarts.clock()
        due = {i: when for i, when in sorted(self.due.items()) if when <= now}
        try:
            for i in due:
                del self.due[i]
                self.gone.discard(i)
            if due:
                self.runner.recreate({i: self.recovery.takeover(i, self.frames_told[i]) for i in due})
            self._settle([i for i in due if i in self.out and i not in self.due and i not in self.gone])
        except BaseException:  # how far it got is unknown, so it is repeated
            self.runner.take_back(due)
            self.due = {**due, **self.due}
            raise
        return min(self.due.values(), default=None)

    def not_made(self, failure: Failure) -> None:
        """Record a sub-environment that could not be recreated: try again, if the policy allows."""
        i = failure.index
        refused = self.lose_one(failure)
        if refused is None:
            return
        self.gone.add(i)
        self.endings.mark([i])
        if i in self.out and i not in self.ready:
            self.failed.append(refused)

    def rest_until(self, due: float) -> None:
        """Sleep until something is to be restarted, or it is time for a look whether somebody has closed us."""
        assert self.recovery is not None
        time.sleep(max(0.0, min(due - self.recovery.restarts.clock(), LOOK)))
        self.refuse_closed_meanwhile()

    def refuse_closed_meanwhile(self, error: Exception | None = None) -> None:
        """Raise ClosedEnvironmentError, instead of what followed from the closing, if there has been one."""
        if self.closed:  # by another thread, or a signal's handler
            raise ClosedEnvironmentError("the environment was closed meanwhile") from error

    def note_fork(self) -> None:
        if self.runner.of_its_process:
            self.forked, self.in_line = True, False

    def refuse_forked(self, name: str) -> NoReturn:
        raise BackendError(
            f"{name}: this environment was built in process {self.owner}, {self.runner.of_its_process}; build one in "
            f"this process ({os.getpid()})"
        )

    def wait_until_made(self, env_ids: Sequence[int]) -> None:
        """Sleep until these sub-environments exist again; raise ResetNeededError if one will not be recreated."""
        while pending := [self.due[i] for i in env_ids if i in self.due]:
            assert self.recovery is not None
            self.rest_until(min(pending))
            self.make_due_anew()
        if gone := sorted(self.gone.intersection(env_ids)):
            raise ResetNeededError(
                f"sub-environments {gone} were lost and could not be recreated; a reset tries again, or exclude them "
                "with indices"
            )


def errors_of(failures: Sequence[Failure]) -> tuple[SubEnvError, ...]:
    """In ascending order of sub-environments, independent of which answered first."""
    return tuple(failure.error() for failure in sorted(failures, key=lambda failure: failure.index))


def _note_the_fork() -> None:
    for books in _books:
        books.note_fork()


os.register_at_fork(after_in_child=_note_the_fork)
