"""Restarts: whether and when a lost sub-environment is recreated, with what, and what becomes of its rows.

A sub-environment that raised is recreated alone; if a worker died or hung, all of its sub-environments are. The result
of a pending row is then:

- if a reset was requested, or was due (next-step mode): the new sub-environment's reset;
- if an episode was running, it ends: truncated, reward 0, ``acted`` False, its last observation the last one that was
  delivered. In same-step mode the new one's reset follows in the same row, in the other modes at its usual time;
- if the row rests (episodic mode): the same as before.

A row that was not pending reports its loss at its next request. The slots of a lost row are never read, because a
worker may die while writing them: delivered values are kept here.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vecwrap.rows.batch import Batch, empty_like, row, scatter, take
from vecwrap.rows.infos import make_room, own_copy
from vecwrap.rows.step_result import Autoreset, BoolArray, Frames, IntArray, StepResult
from vecwrap.rows.table import Slots
from vecwrap.sources.saving import is_plain
from vecwrap.sources.source import Takeover


@dataclass(frozen=True)
class WorkerHealth:
    """The current state of one worker process.

    Attributes:
        number: its number.
        pid: its process id; None while it is being restarted.
        env_ids: the sub-environments that it runs.
        restarts: how often it was restarted.
    """

    number: int
    pid: int | None
    env_ids: tuple[int, ...]
    restarts: int


@dataclass(frozen=True)
class Health:
    """Losses and restarts so far, and where each row is now; ``print`` shows the former.

    Attributes:
        restarts: (n,) int64. How often each sub-environment was recreated.
        lost_episodes: (n,) int64. How many of its episodes were lost.
        failures: n texts: the description of its last failure, "" if there was none.
        workers: the worker processes; empty if everything runs in this process.
        lost: (n,) bool. Whether the sub-environment is to be recreated, or could not be, or its loss is to be reported.
        resting: (n,) bool. Whether the row needs a reset or, in games, is not to move.
        in_flight: (n,) bool. Whether a result of the row is still to be received.
    """

    restarts: IntArray
    lost_episodes: IntArray
    failures: tuple[str, ...]
    workers: tuple[WorkerHealth, ...]
    lost: BoolArray
    resting: BoolArray
    in_flight: BoolArray

    def __str__(self) -> str:
        lines = [_lost(self.restarts.sum(), self.lost_episodes.sum())]
        for worker in self.workers:
            first, last = worker.env_ids[0], worker.env_ids[-1]
            held = f"sub-environments {first}-{last}" if last > first else f"sub-environment {first}"
            lines.append(f"worker {worker.number} (pid {worker.pid}, {held}): {_number_of(worker.restarts, 'restart')}")
        for i in np.flatnonzero(self.restarts).tolist():
            lost = _lost(self.restarts[i], self.lost_episodes[i])
            lines.append(f"sub-environment {i}: {lost}; {self.failures[i]}")
        return "\n".join(lines)


def _lost(restarts: int, episodes: int) -> str:
    return f"{_number_of(restarts, 'restart')}, {_number_of(episodes, 'lost episode')}"


def _number_of(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


MAX_RESTARTS_WITHOUT_A_STEP = 100
"""What dies in every reset ends, also where ``max_restarts`` sets no limit."""


class Restarts:
    """How often each sub-environment was recreated, and whether it may be once more: see ``RestartOptions``."""

    def __init__(
        self,
        num_envs: int,
        max_restarts: int | None,
        window: float | None,
        pause: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clock = clock
        self.counts: IntArray = np.zeros(num_envs, dtype=np.int64)
        self.reasons = [""] * num_envs  # the last one of each
        self._max_restarts = max_restarts
        self._window = window
        self._pause = pause
        self._times: list[deque[float]] = [deque(maxlen=max_restarts or 0) for _ in range(num_envs)]
        self._most_in_a_row = min(max_restarts or MAX_RESTARTS_WITHOUT_A_STEP, MAX_RESTARTS_WITHOUT_A_STEP)
        self._in_vain = np.zeros(num_envs, dtype=np.int64)  # restarts since the last step
        self._any_in_vain = False
        self._refusal = ""

    def request(self, env_ids: Sequence[int], reason: str) -> float | None:
        """Grant another restart of all of these, and return the pause before it in seconds; None if refused."""
        now = self.clock()
        if self._max_restarts is not None and any(self._used_up(self._times[i], now) for i in env_ids):
            window = "the whole run" if self._window is None else f"restart_window={self._window:g} s"
            self._refusal = f"max_restarts={self._max_restarts} within {window}"
            return None
        if (self._in_vain[env_ids] >= self._most_in_a_row).any():
            is_given = self._most_in_a_row == self._max_restarts
            limit = f"max_restarts={self._max_restarts}" if is_given else f"{self._most_in_a_row} restarts"
            self._refusal = f"{limit} in a row without a step"
            return None
        pause = self._pause if self._in_vain[env_ids].any() else 0.0
        for i in env_ids:
            self.counts[i] += 1
            self._in_vain[i] += 1
            self._times[i].append(now)
            self.reasons[i] = reason
        self._any_in_vain = True
        return pause

    def stepped(self, env_ids: IntArray, acted: BoolArray) -> None:
        if self._any_in_vain:
            self._in_vain[env_ids[acted]] = 0
            self._any_in_vain = bool(self._in_vain.any())

    def state(self, i: int) -> dict[str, Any]:
        """Return the counts of one; times are relative to now, because another process has a different clock."""
        now = self.clock()
        return {
            "count": int(self.counts[i]),
            "reason": self.reasons[i],
            "ages": [now - then for then in self._times[i]],
            "in_vain": int(self._in_vain[i]),
        }

    def load(self, i: int, state: dict[str, Any]) -> None:
        now = self.clock()
        self.counts[i], self.reasons[i], self._in_vain[i] = state["count"], state["reason"], state["in_vain"]
        self._times[i] = deque((now - age for age in state["ages"]), maxlen=self._times[i].maxlen)
        self._any_in_vain = bool(self._in_vain.any())

    def limit_in_words(self) -> str:
        """``max_restarts=3 within restart_window=60 s``: the limit that the last refused request has met."""
        return self._refusal

    def _used_up(self, times: deque[float], now: float) -> bool:
        return len(times) == times.maxlen and (self._window is None or now - times[0] <= self._window)


_log = logging.getLogger("vecwrap")
_NOTHING_LOST: dict[str, Any] = {
    "lost": False,
    "lost_episodes": 0,
    "restarts": {"count": 0, "reason": "", "ages": [], "in_vain": 0},
}


@dataclass(frozen=True)
class Reset:
    """A requested reset; ``given`` is the seed first given, from which another is derived if the reset failed."""

    seed: int | None = None
    options: dict[str, Any] | None = None
    given: int | None = None


class Recovery:
    """The state needed to recreate a vector's sub-environments, and what their loss does to their rows."""

    def __init__(self, num_envs: int, mode: Autoreset, restarts: Restarts, agents: int = 0) -> None:
        self.restarts = restarts
        self._agents = agents  # of a game, whose rows are lost together; 0 if these are no games
        self.lost: BoolArray = np.zeros(num_envs, dtype=np.bool_)  # and not yet reported
        self.lost_episodes: IntArray = np.zeros(num_envs, dtype=np.int64)
        self.told: IntArray = np.zeros(num_envs, dtype=np.int64)  # the restart counts that rows report; 0 for none
        self._mode = mode
        self._resets: dict[int, Reset] = {}  # pending resets; other pending rows are steps
        self._seeds: list[int | None] = [None] * num_envs
        self._over: BoolArray = np.ones(num_envs, dtype=np.bool_)  # no running episode, according to delivered rows
        self._shown: Batch = None  # the last observations that were delivered, n rows
        self._flags = np.zeros((2, num_envs), dtype=np.bool_)  # and their terminations and truncations
        self._stepped: dict[int, list[Any]] = {}  # the numbers and flags of steps after which the autoreset failed
        self._attributes: list[dict[str, Any]] = [{} for _ in range(num_envs)]
        self.schedule: bytes | None = None  # of all
        self.scheduled: IntArray = np.zeros(num_envs, dtype=np.int64)  # episodes that it supplied to each

    # -- what it is told in good times ---------------------------------------------------------------------------------

    def asked_to_step(self) -> None:
        self._resets.clear()

    def asked_to_reset(self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Note that rows were sent a reset; other resets may be pending already, with different options."""
        options = own_copy(options)  # the caller's own may change before they are needed again
        for i, seed in zip(env_ids.tolist(), seeds, strict=True):
            self._resets[i] = Reset(seed, options, seed)
            if seed is not None:
                self._seeds[i] = seed

    def seeded(self, seeds: Sequence[int | None]) -> None:
        self._seeds = list(seeds)

    def delivered(self, step: StepResult, slots: Slots) -> None:
        """Remember delivered rows: they remain valid whatever happens to their sub-environments; report restarts."""
        told = self.told[step.env_ids]
        if told.any():
            step.add_info("restarted", told, told > 0)
        elif step.infos:
            step.infos = make_room(step.infos, "restarted")
        scatter(self._memory(slots), step.rows, step.observations)
        self._flags[0, step.rows], self._flags[1, step.rows] = step.terminations, step.truncations
        over = ~step.first & (step.dones | self._over[step.rows])
        self._over[step.rows] = over | ~step.alive  # an agent that never joined its game has nothing to lose
        self.scheduled[step.rows] = slots.scheduled[step.rows]
        self.restarts.stepped(step.env_ids, step.acted)

    def state(self, i: int, slots: Slots) -> dict[str, Any]:
        """Return the state of a sub-environment, for ``loaded``; of attributes from ``set_attr``, only plain ones."""
        return {
            "observation": row(self._memory(slots), i),
            "terminated": bool(self._flags[0, i]),
            "truncated": bool(self._flags[1, i]),
            "over": bool(self._over[i]),
            "seed": self._seeds[i],
            "lost": bool(self.lost[i]),
            "lost_episodes": int(self.lost_episodes[i]),
            "restarts": self.restarts.state(i),
            "attributes": {name: own_copy(value) for name, value in self._attributes[i].items() if is_plain(value)},
        }

    def loaded(self, i: int, state: dict[str, Any], slots: Slots) -> None:
        """Note that a saved ``SubEnv.state`` was loaded; that of ``state`` here, if any, is under ``recovery``."""
        known = {**state, **_NOTHING_LOST, **state.get("recovery", {})}
        slots.observations.put(i, known["observation"])
        scatter(self._memory(slots), [i], take(slots.observations.batch(), [i]))
        self._flags[:, i] = known["terminated"], known["truncated"]
        self._over[i], self._seeds[i] = known["over"] or known.get("gone", False), known["seed"]
        self.lost[i], self.lost_episodes[i] = known["lost"], known["lost_episodes"]
        self._attributes[i] = self.attributes_of(i, state)
        self.restarts.load(i, known["restarts"])

    def attributes_of(self, i: int, state: dict[str, Any]) -> dict[str, Any]:
        """Return the attributes to set on a new sub-environment after loading this state."""
        own, saved = self._attributes[i], state.get("recovery", {}).get("attributes")
        if saved is None:
            return own
        kept = {name: value for name, value in own.items() if not is_plain(value)}  # no state contains them
        return {**kept, **own_copy(saved)}

    def set_attribute(self, i: int, name: str, value: Any) -> None:
        i -= i % (self._agents or 1)
        self._attributes[i].pop(name, None)
        self._attributes[i][name] = own_copy(value)

    def beginning_with_step(self, env_ids: IntArray) -> IntArray:
        return env_ids[self._begins(env_ids)] if self._mode is Autoreset.NEXT_STEP else env_ids[:0]

    def _begins(self, env_ids: IntArray) -> BoolArray:
        """Whether these rows have no running episode; of games, whether none of their rows has."""
        if not self._agents:
            return self._over[env_ids]
        over: Any = self._over.reshape(-1, self._agents).all(axis=1)
        return over[env_ids // self._agents]  # type: ignore[no-any-return]

    # -- what it does in bad times -------------------------------------------------------------------------------------

    def lose(self, env_ids: Sequence[int], reason: str) -> float | None:
        pause = self.restarts.request(env_ids, reason)
        if pause is not None:
            _log.warning("%s; restarting%s", reason, f" in {pause:g} s" if pause else "")
            self.lost[list(env_ids)] = True
        return pause

    def keep_step(self, i: int, slots: Slots) -> None:
        self._stepped[i] = [column[i] for column in _of_step(slots)]

    def keep_row(self, i: int, slots: Slots) -> None:
        """Keep a row that has arrived but is not delivered yet, and whose sub-environment is now lost."""
        first, flags = bool(slots.first[i]), (slots.terminations[i], slots.truncations[i])
        scatter(self._memory(slots), [i], take(slots.observations.batch(), [i]))
        self._flags[:, i] = flags
        self._over[i] = slots.gone[i] or (not first and (any(flags) or self._over[i]))
        self.scheduled[i] = slots.scheduled[i]

    def takeover(self, i: int, frames: Frames) -> Takeover:
        resting = None
        if self._mode is Autoreset.EPISODIC and self._shown is not None:
            flags = (bool(self._flags[0, i]), bool(self._flags[1, i])) if self._over[i] else (False, True)
            resting = (row(self._shown, i), *flags)
        return Takeover(
            seed=self._another_seed(i, self._seeds[i]),
            attributes=self._attributes[i],
            schedule=self.schedule,
            scheduled=int(self.scheduled[i]),
            frames=frames,
            resting=resting,
        )

    def settle(self, i: int, slots: Slots) -> Reset | None:
        """Return the reset to request for a pending row that was lost; None if the row is complete, in the slots."""
        if i in self._resets:
            return self._resets[i]
        if self._mode is Autoreset.SAME_STEP or (self._mode is Autoreset.NEXT_STEP and self._begins(np.array([i]))[0]):
            return Reset()
        slots.rest(slice(i, i + 1), keep_dones=True)
        if self._agents:
            slots.waits[i] = slots.gone[i] = True
        slots.observations.put(i, row(self._shown, i))
        slots.forget_info(i)
        if self._over[i]:  # it rests
            slots.terminations[i], slots.truncations[i] = self._flags[:, i]
            if self._agents and not self._begins(np.array([i]))[0]:  # its agent had left, but its game was running
                if self._mode is not Autoreset.EPISODIC:
                    slots.terminations[i] = slots.truncations[i] = False
                self._tell(i, slots, episode=False)
        else:
            slots.terminations[i], slots.truncations[i] = False, True
            self._tell(i, slots)
        return None

    def tell(self, rows: Sequence[int], slots: Slots) -> None:
        """Turn the new sub-environments' first rows into reports of the loss of the old ones."""
        if not self.lost.any():
            return
        for i in rows:
            if self.lost[i] and slots.first[i]:
                self._tell_with_reset(i, slots)

    def give_up(self, i: int) -> None:
        """Record that no further restart is allowed for a failed row; it needs a reset."""
        self._stepped.pop(i, None)

    def reset_failed(self, i: int) -> None:
        """Advance the schedule if a pending row was being reset: what cannot start is not retried forever."""
        by_step = self._mode is not Autoreset.EPISODIC and (self._over[i] or self.lost[i] or i in self._stepped)
        if i in self._resets or by_step:
            self.scheduled[i] += 1

    def lost_while_out(self, i: int) -> None:
        asked = self._resets.get(i)
        if asked is not None:
            self._resets[i] = replace(asked, seed=self._another_seed(i, asked.given))

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _tell_with_reset(self, i: int, slots: Slots) -> None:
        stepped = self._stepped.pop(i, None)
        if stepped is not None:  # the old one's last step was complete; only the reset failed
            for column, value in zip(_of_step(slots), stepped, strict=True):
                column[i] = value
            self._tell(i, slots, lost=not slots.raw_dones[i], episode=False)
            return
        running = not self._over[i]
        if running and i not in self._resets:
            slots.truncations[i] = True
            slots.final_observations.put(i, row(self._shown, i))
            slots.forget_final_info(i)
        self._tell(i, slots, episode=running)

    def _tell(self, i: int, slots: Slots, *, lost: bool = True, episode: bool = True) -> None:
        slots.lost[i] = lost
        self.told[i] = self.restarts.counts[i]
        self.lost_episodes[i] += episode
        self.lost[i] = False

    def _another_seed(self, i: int, seed: int | None) -> int | None:
        """Return a different seed for each restart, so that a crash caused by the old one does not repeat."""
        if seed is None:
            return None
        return int(np.random.SeedSequence([seed, int(self.restarts.counts[i])]).generate_state(1)[0])

    def _memory(self, slots: Slots) -> Batch:
        if self._shown is None:
            self._shown = empty_like(slots.observations.batch(), slots.num_rows)
        return self._shown


def _of_step(slots: Slots) -> Sequence[Any]:
    flags = slots.acted, slots.completed, slots.terminations, slots.truncations, slots.raw_dones
    return slots.rewards, slots.raw_rewards, *flags
