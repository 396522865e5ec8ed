"""The restart manager: what a lost sub-environment means for its row, and how it is recreated.

A sub-environment that raised is recreated alone; if a worker died or hung, all of its
sub-environments are. The result of a pending row is then:

- if a reset was requested, or was due (next-step mode): the new sub-environment's reset;
- if an episode was running, it ends: truncated, reward 0, ``acted`` False, its last observation the
  last one that was delivered. In same-step mode the new one's reset follows in the same row, in the
  other modes at its usual time;
- if the row rests (episodic mode): the same as before.

The rows of one source, of an engine or a game, are lost together and begin together: in next-step
mode a row whose reset was due waits for the others, which end, and shows its own end once more.

A row that was not pending reports its loss at its next request. The slots of a lost row are never
read: ``DeliveredRows`` has what was delivered of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vecwrap.env.delivered_rows import DeliveredRows
from vecwrap.env.options import RestartOptions
from vecwrap.env.pending_rows import PendingRows
from vecwrap.env.restart_budget import RestartBudget
from vecwrap.rows.infos import detached_copy, without_keys
from vecwrap.rows.saved import is_plain
from vecwrap.rows.step_result import Autoreset, BoolArray, Frames, IntArray, StepResult
from vecwrap.rows.table import Slots
from vecwrap.sources.failure import Failure
from vecwrap.sources.source import RestartState

__all__ = ["NoRestarts", "Reset", "RestartManager"]

MAX_SEEDS_OF_ENGINES = 2**30

_log = logging.getLogger("vecwrap")
_NOTHING_LOST: dict[str, Any] = {
    "lost": False,
    "lost_episodes": 0,
    "restarts": {"count": 0, "reason": "", "ages": [], "in_vain": 0},
}


@dataclass(frozen=True)
class Reset:
    """A requested reset; if it fails, the next seed is derived from ``given``, the first one."""

    seed: int | None = None
    options: dict[str, Any] | None = None
    given: int | None = None


class NoRestarts:
    """In place of a manager if nothing is restarted: each loss is refused."""

    is_on = False
    why_refused = ""

    def __init__(self, num_rows: int) -> None:
        self.restart_at: dict[int, float] = {}
        self.unrecoverable: frozenset[int] = frozenset()
        self.counts: IntArray = np.zeros(num_rows, dtype=np.int64)
        self.lost_episodes: IntArray = np.zeros(num_rows, dtype=np.int64)
        self.lost: BoolArray = np.zeros(num_rows, dtype=np.bool_)
        self.reasons: list[str] = [""] * num_rows

    def detach(self) -> None:
        """There are no slots."""

    def report_losses(self, rows: Sequence[int]) -> None:
        """Nothing was lost."""

    def drop(self, rows: Sequence[int]) -> None:
        """Nothing will be recreated."""

    def lose(self, rows: Sequence[int], reason: str, *, were_made: bool = True) -> bool:
        return False

    def lose_one(self, failure: Failure) -> Failure | None:
        return failure

    def retry(self, failure: Failure) -> bool:
        return False

    def with_refusal(self, failure: Failure) -> Failure:
        return failure

    def load(self, i: int, state: dict[str, Any]) -> None:
        """The state of restarts is not needed."""

    def attributes_of(self, i: int, state: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes to set on a new sub-environment after loading this state."""
        return dict(state.get("recovery", {}).get("attributes", {}))

    def set_attribute(self, i: int, name: str, value: Any) -> None:
        """No new sub-environment will need it."""

    def follow(self, schedule: bytes) -> None:
        """No new sub-environment will need it."""

    def resume_schedule(self, scheduled: Sequence[int]) -> None:
        """No new sub-environment will need it."""

    def set_seeds(self, seeds: Sequence[int | None]) -> None:
        """No new sub-environment will need them."""


class RestartManager:
    """State for recreating a vector's sub-environments, and for the rows of lost ones.

    Attributes:
        restart_at: lost sub-environments, and the time (of the budget's clock) when each is to be
            recreated.
        unrecoverable: those that could not be recreated, until they are reset.
        lost: (n,) bool. Lost, and not reported yet.
        lost_episodes: (n,) int64.
        schedule: a pickled ``Schedule`` of all.
        scheduled: (n,) int64. Episodes that it supplied to each.
    """

    is_on = True

    def __init__(
        self,
        num_rows: int,
        mode: Autoreset,
        options: RestartOptions,
        pending: PendingRows,
        rows_per_source: int = 1,
        *,
        is_game: bool = False,
    ) -> None:
        self.budget: RestartBudget = RestartBudget(
            num_rows, options.max_restarts, options.restart_window, options.restart_backoff
        )
        self.counts: IntArray = self.budget.counts
        self.reasons: list[str] = self.budget.reasons
        self._pending = pending
        self._slots: Slots
        self._rows_per_source = rows_per_source  # which are lost together
        self._is_game = is_game
        self.restart_at: dict[int, float] = {}
        self.unrecoverable: set[int] = set()
        self.lost: BoolArray = np.zeros(num_rows, dtype=np.bool_)
        self.lost_episodes: IntArray = np.zeros(num_rows, dtype=np.int64)
        self.schedule: bytes | None = None
        self.scheduled: IntArray = np.zeros(num_rows, dtype=np.int64)
        # restart counts that rows report; 0 for none
        self._reported: IntArray = np.zeros(num_rows, dtype=np.int64)
        self._mode = mode
        self._resets: dict[int, Reset] = {}  # pending resets; other pending rows are steps
        self._seeds: list[int | None] = [None] * num_rows
        self._delivered = DeliveredRows(num_rows, rows_per_source)
        # the numbers and flags of steps after which the autoreset failed
        self._completed_steps: dict[int, list[Any]] = {}
        self._attributes: list[dict[str, Any]] = [{} for _ in range(num_rows)]

    def attach(self, slots: Slots) -> None:
        self._slots = slots

    def detach(self) -> None:
        """Let the memory of the slots go."""
        vars(self).pop("_slots", None)

    # -- requests and results ----------------------------------------------------------------------

    def request_steps(self, rows: IntArray) -> BoolArray | None:
        """Return which of the rows to be stepped have no sub-environment or an unreported loss.

        None means that there are no such rows.
        """
        self._resets.clear()
        if self.lost.any():  # some rows of an engine may have been reset alone since its loss
            number = self._rows_per_source
            self.lost[:] = self.lost.reshape(-1, number).any(axis=1).repeat(number)
        return self._without_env(rows, self.lost[rows])

    def request_resets(
        self, rows: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> BoolArray | None:
        """Return which of these rows, about to be reset, have no sub-environment; None: none.

        A reset reports a loss, whenever it happened. Other resets may be pending already.
        """
        # the caller may change its options before a recreated sub-environment needs them
        options = detached_copy(options)
        for i, seed in zip(rows.tolist(), seeds, strict=True):
            self._resets[i] = Reset(seed, options, seed)
            if seed is not None:
                self._seeds[i] = seed
            if i in self.unrecoverable:
                self.restart_at[i] = 0.0  # a requested reset is another attempt
        return self._without_env(rows, np.zeros(len(rows), dtype=np.bool_))

    def _without_env(self, rows: IntArray, lost: BoolArray) -> BoolArray | None:
        self._slots.lost[rows] = False
        self._reported[rows] = 0
        if self.restart_at:
            lost = lost | np.isin(rows, list(self.restart_at))
        return lost if lost.any() else None

    def follow(self, schedule: bytes) -> None:
        self.schedule = schedule
        self.scheduled[:] = 0

    def resume_schedule(self, scheduled: Sequence[int]) -> None:
        self.scheduled[:] = scheduled

    def set_seeds(self, seeds: Sequence[int | None]) -> None:
        self._seeds = list(seeds)

    def deliver(self, step: StepResult) -> None:
        """Remember delivered rows, which later losses do not change, and report restarts."""
        reported = self._reported[step.env_ids]
        if reported.any():
            step.add_info("restarted", reported, reported > 0)
        elif step.infos:
            step.infos = without_keys(step.infos, "restarted")
        self._delivered.deliver(step)
        self.scheduled[step.rows] = self._slots.scheduled[step.rows]
        self.budget.stepped(step.env_ids, step.acted)

    def report_losses(self, rows: Sequence[int]) -> None:
        """Turn the new sub-environments' first rows into reports of the loss of the old ones."""
        if not self.lost.any():
            return
        for i in rows:
            if self.lost[i] and self._slots.first[i]:
                self._report_with_first_row(i)

    def drop(self, rows: Sequence[int]) -> None:
        """Note how far results that are dropped have advanced schedules."""
        self.scheduled[list(rows)] = self._slots.scheduled[list(rows)]

    def state(self, i: int) -> dict[str, Any]:
        """Return the state of a sub-environment, for ``load``; without attributes no file keeps."""
        return {
            **self._delivered.state(i),
            "seed": self._seeds[i],
            "lost": bool(self.lost[i]),
            "lost_episodes": int(self.lost_episodes[i]),
            "restarts": self.budget.state(i),
            "attributes": {
                name: detached_copy(value)
                for name, value in self._attributes[i].items()
                if is_plain(value)
            },
        }

    def load(self, i: int, state: dict[str, Any]) -> None:
        """Apply a loaded ``SubEnv.state``; ``recovery`` in it, if any, is from ``state``."""
        known = {**state, **_NOTHING_LOST, **state.get("recovery", {})}
        self._delivered.load(i, known, self._slots)
        self._seeds[i] = known["seed"]
        self.lost[i] = known["lost"]
        self.lost_episodes[i] = known["lost_episodes"]
        self._attributes[i] = self.attributes_of(i, state)
        self.budget.load(i, known["restarts"])

    def attributes_of(self, i: int, state: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes to set on a new sub-environment after loading this state."""
        attributes = self._attributes[i]
        saved = state.get("recovery", {}).get("attributes")
        if saved is None:
            return attributes
        # no saved state contains these attributes
        kept = {name: value for name, value in attributes.items() if not is_plain(value)}
        return {**kept, **detached_copy(saved)}

    def set_attribute(self, i: int, name: str, value: Any) -> None:
        if self._is_game:
            i -= i % self._rows_per_source
        self._attributes[i].pop(name, None)
        self._attributes[i][name] = detached_copy(value)

    def beginning_rows(self, env_ids: IntArray) -> IntArray:
        """Return which of these rows begin an episode when they are stepped."""
        if self._mode is Autoreset.NEXT_STEP:
            return env_ids[self._delivered.are_over(env_ids)]
        return env_ids[:0]

    # -- losses ------------------------------------------------------------------------------------

    def lose_one(self, failure: Failure) -> Failure | None:
        """Have the source of a failed sub-environment recreated; return the failure if refused."""
        i = failure.index
        if failure.stepped:
            self._completed_steps[i] = [column[i] for column in _step_columns(self._slots)]
        number = self._rows_per_source
        # the row's source is lost already, with another of its rows
        if number > 1 and i in self.restart_at:
            return None
        first = i - i % number
        reason = str(failure.error()).partition("\n")[0]
        if self.lose(range(first, first + number), reason, were_made=failure.during != "make"):
            return None
        self._completed_steps.pop(i, None)
        return self.with_refusal(failure)

    def with_refusal(self, failure: Failure) -> Failure:
        """Add the reason why a sub-environment was not recreated."""
        return replace(
            failure, note=f"\nIt is not recreated, because {self.why_refused} are used up."
        )

    def next_restart(self) -> float:
        """Return how many seconds are left until the next restart."""
        return min(self.restart_at.values()) - self.budget.clock()

    @property
    def why_refused(self) -> str:
        return self.budget.refusal

    def lose(self, rows: Sequence[int], reason: str, *, were_made: bool = True) -> bool:
        """Have lost sub-environments recreated, and complete rows if possible; False if refused.

        Args:
            rows: all of a source or of a worker.
            reason: one line.
            were_made: whether they existed, so that a pending reset was tried already.
        """
        pending = self._pending
        for i in rows:
            pending.lose(i)
            if pending.has_arrived(i):
                self._delivered.keep_arrived(i, self._slots)
                self.scheduled[i] = self._slots.scheduled[i]
            elif were_made and i in pending.in_flight:
                self._advance_schedule(i)
        pause = self.budget.request(list(rows), reason)
        if pause is None:
            return False
        if pause:
            _log.warning("%s; restarting in %g s", reason, pause)
        else:
            _log.warning("%s; restarting", reason)
        self.lost[list(rows)] = True
        self.restart_at.update(dict.fromkeys(rows, self.budget.clock() + pause))
        in_flight = [i for i in rows if i in pending.in_flight]
        for i in in_flight:
            reset = self._resets.get(i)
            if were_made and reset is not None:
                self._resets[i] = replace(reset, seed=self._derived_seed(i, reset.given))
        self.complete_or_reset(in_flight)
        return True

    def retry(self, failure: Failure) -> bool:
        """Retry a sub-environment that could not be recreated; return False if that is refused."""
        refused = self.lose_one(failure)
        if refused is None:
            return True
        i = failure.index
        self.unrecoverable.add(i)
        if i in self._pending.in_flight and not self._pending.has_arrived(i):
            self._pending.fail(refused)
        return False

    def complete_or_reset(self, rows: Sequence[int]) -> list[tuple[int, Reset]]:
        """Complete lost rows in flight; return the rows that need a reset of a recreated one."""
        resets: list[tuple[int, Reset]] = []
        for i in rows:
            if self._pending.has_arrived(i):
                continue
            reset = self._reset_of(i)
            if reset is None:
                self._complete(i)
                self._pending.complete([i])
            elif i not in self.restart_at:
                resets.append((i, reset))
        return resets

    def due_rows(self) -> list[int]:
        """Return the sub-environments to be recreated now, and remove their restart times."""
        now = self.budget.clock()
        due = sorted(i for i, when in self.restart_at.items() if when <= now)
        for i in due:
            del self.restart_at[i]
            self.unrecoverable.discard(i)
        return due

    def _advance_schedule(self, i: int) -> None:
        """Advance the schedule if a lost row was being reset, so that retries come to an end.

        A scheduled episode that cannot start would otherwise be retried forever.
        """
        by_step = self._mode is not Autoreset.EPISODIC and (
            self._delivered.over[i] or self.lost[i] or i in self._completed_steps
        )
        if i in self._resets or by_step:
            self.scheduled[i] += 1

    def restart_state(self, i: int, frames: Frames) -> RestartState:
        resting = None
        if self._mode is Autoreset.EPISODIC:
            resting = self._delivered.resting(i)
        return RestartState(
            seed=self._derived_seed(i, self._seeds[i]),
            attributes=self._attributes[i],
            schedule=self.schedule,
            scheduled=int(self.scheduled[i]),
            frames=frames,
            resting=resting,
        )

    def _reset_of(self, i: int) -> Reset | None:
        """Return the reset that a lost row in flight needs; None if it can be completed without."""
        if i in self._resets:
            return self._resets[i]
        if self._mode is Autoreset.SAME_STEP:
            return Reset()
        if self._mode is Autoreset.NEXT_STEP and self._delivered.are_over(np.array([i]))[0]:
            return Reset()
        return None

    def _complete(self, i: int) -> None:
        """Write the row of a lost sub-environment into the slots: at rest, or truncated."""
        slots = self._slots
        slots.rest(slice(i, i + 1), keep_dones=True)
        if self._is_game:
            slots.not_to_move[i] = True
            slots.left[i] = True
        slots.observations.put(i, self._delivered.observation(i))
        slots.forget_info(i)
        if not self._delivered.over[i]:
            slots.terminations[i] = False
            slots.truncations[i] = True
            self._report(i)
            return
        slots.terminations[i], slots.truncations[i] = self._delivered.dones[:, i]
        if self._delivered.are_over(np.array([i]))[0]:
            return
        if not self._is_game:  # the row's reset was due, but others of its engine were running
            self._report(i, lost=False, episode=False)
            return
        # the row's agent had left, but its game was running
        if self._mode is not Autoreset.EPISODIC:
            slots.terminations[i] = False
            slots.truncations[i] = False
        self._report(i, episode=False)

    def _report_with_first_row(self, i: int) -> None:
        stepped = self._completed_steps.pop(i, None)
        if stepped is not None:  # the old one's last step was complete; only the reset failed
            for column, value in zip(_step_columns(self._slots), stepped, strict=True):
                column[i] = value
            self._report(i, lost=not self._slots.raw_dones[i], episode=False)
            return
        running = not self._delivered.over[i]
        if running and i not in self._resets:
            self._slots.truncations[i] = True
            self._slots.final_observations.put(i, self._delivered.observation(i))
            self._slots.forget_final_info(i)
        self._report(i, episode=running)

    def _report(self, i: int, *, lost: bool = True, episode: bool = True) -> None:
        self._slots.lost[i] = lost
        self._reported[i] = self.budget.counts[i]
        self.lost_episodes[i] += episode
        self.lost[i] = False

    def _derived_seed(self, i: int, seed: int | None) -> int | None:
        """Return a different seed for each restart, so that a seed's crash does not repeat.

        An engine's rows have consecutive ones, because not every engine takes a list of seeds, and
        small ones, because ale-py's are 32-bit integers.
        """
        if seed is None:
            return None
        number = int(self.budget.counts[i])
        if self._is_game or self._rows_per_source == 1:
            return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
        place = i % self._rows_per_source
        first = np.random.SeedSequence([max(seed - place, 0), number])
        return int(first.generate_state(1)[0] % MAX_SEEDS_OF_ENGINES) + place


def _step_columns(slots: Slots) -> Sequence[Any]:
    return (
        *(slots.rewards, slots.raw_rewards, slots.acted, slots.completed),
        *(slots.terminations, slots.truncations, slots.raw_dones),
    )
