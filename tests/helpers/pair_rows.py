"""A toy with fewer rows than it wraps: each row stands for two, of which it plays the second
itself.

It shows how an object numbers rows of its own (``vecwrap.env.row_protocol``), steps what is inside
several times before it gives a row, and leaves a step that is interrupted in between to be taken up
again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from tests.helpers.merge_results import Row, join
from vecwrap.env.row_protocol import NeedsReset
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import SubEnvError, WaitTimeoutError
from vecwrap.rows.batch import Batch
from vecwrap.rows.gymnasium_form import conform_actions
from vecwrap.rows.saved import fitting
from vecwrap.rows.step_result import Autoreset, IntArray, StepResult

_SECOND = 7919  # added to the seed of a first row, for the second's


class Pairs(VecEnvWrapper):
    """Has n rows of 2n: row i is row 2i, and after each of its steps row 2i + 1 is played 0, 1 or 2
    times.

    What a row returns is what row 2i returned, so the stream is that of every other sub-environment
    alone.

    >>> from vecwrap.testing import toy
    >>> from vecwrap.testing.drive import on_dummy
    >>> with Pairs(on_dummy([toy()] * 6)) as env:
    ...     observations, infos = env.reset(seed=1)
    ...     _ = env.step([0, 1, 2])
    ...     env.num_envs, observations.shape, env.played.tolist()
    (3, (3, 3), [1, 1, 1])
    """

    def __init__(self, env: VecEnv) -> None:
        super().__init__(env)
        self._pairs = PairRows(env, env.num_envs // 2)
        self._number_rows(self._pairs, env.num_envs // 2)

    @property
    def played(self) -> IntArray:
        """(n,) int64: how many steps each row has taken."""
        return self._pairs.played.copy()

    def wrapper_state(self) -> dict[str, Any]:
        """Return what the rows count, and which have ended."""
        rows = self._pairs
        return {
            "played": rows.played.copy(),
            "ended": rows.needs_reset.ended.copy(),
            "over": rows.over.copy(),
        }

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        """Take in what ``wrapper_state`` gave."""
        rows = self._pairs
        rows.played[:] = fitting(state["played"], rows.played, "played")
        rows.over[:] = fitting(state["over"], rows.over, "over")
        rows.needs_reset.ended[:] = fitting(state["ended"], rows.needs_reset.ended, "ended")
        rows.needs_reset.never_reset[:] = False
        rows.needs_reset.any_ended = bool(rows.needs_reset.ended.any())


class PairRows:
    """The rows of ``Pairs``: everything that a step has begun is kept here until its row is
    complete.
    """

    def __init__(self, inner: VecEnv, num_rows: int) -> None:
        self._within = inner.call_state
        self._numbering = inner.call_state.numbered_rows
        self._mode = mode = inner.core.autoreset
        self._space = space = inner.single_action_space
        chooses = deepcopy(space)
        chooses.seed(0)
        self._action = chooses.sample()  # of the second rows, always
        self.needs_reset = NeedsReset(num_rows, resets_on_request=mode is Autoreset.DISABLED)
        self.played: IntArray = np.zeros(num_rows, dtype=np.int64)
        self.over = np.zeros(num_rows, dtype=np.bool_)  # whether the second row has ended
        self._num_rows = num_rows
        self._all_ids = np.arange(num_rows)
        self._owed: dict[int, set[int]] = {}  # by pending row, what is still awaited of inside
        self._turns: dict[int, int] = {}  # and how often the second is to be played after that
        self._firsts: dict[int, Row] = {}  # what the first row of a pair returned
        self._ready: list[int] = []
        self._failed: dict[int, SubEnvError] = {}

    # -- what is pending ---------------------------------------------------------------------------

    @property
    def in_flight(self) -> frozenset[int]:
        """The pending rows."""
        return frozenset(self._owed)

    @property
    def num_arrived(self) -> int:
        """How many of them would be returned at once."""
        return len(self._ready)

    def sources(self, env_ids: IntArray) -> IntArray:
        """Return the first row of each pair."""
        return env_ids * 2

    frame_rows = sources

    # -- down --------------------------------------------------------------------------------------

    def send(self, actions: Batch, env_ids: IntArray) -> None:
        """Step the first rows; the others are played once these have arrived."""
        ids = env_ids.tolist()
        self._begin(ids, {i: {2 * i} for i in ids}, {i: int(self.played[i]) % 3 for i in ids})
        try:
            self._within.rows.send(actions, env_ids * 2)
        except BaseException:
            self._forget_unsent(ids)
            raise
        self.played[env_ids] += 1

    def reset(
        self, env_ids: IntArray, seeds: Sequence[int | None], options: dict[str, Any] | None
    ) -> None:
        """Reset both rows of each pair."""
        ids = env_ids.tolist()
        both = np.sort(np.concatenate([env_ids * 2, env_ids * 2 + 1]))
        of_both = [seed for one in seeds for seed in (one, None if one is None else one + _SECOND)]
        self._begin(ids, {i: {2 * i, 2 * i + 1} for i in ids}, {})
        try:
            self._within.rows.reset(both, of_both, options)
        except BaseException:
            self._forget_unsent(ids)
            raise
        self.played[env_ids], self.over[env_ids] = 0, False

    def drop_all(self) -> None:
        """Wait for nothing any more: an interrupt has ended the call."""
        self._owed = {}
        self._turns = {}
        self._firsts = {}
        self._ready = []
        self._failed = {}
        self.needs_reset.interrupt()

    def _begin(self, ids: Sequence[int], owed: dict[int, set[int]], turns: dict[int, int]) -> None:
        self._owed.update(owed)
        self._turns.update(turns)
        for i in ids:
            self._firsts.pop(i, None)

    def _forget_unsent(self, ids: Sequence[int]) -> None:
        for i in ids:
            if self._owed[i].isdisjoint(self._numbering.in_flight):
                del self._owed[i]

    # -- up ----------------------------------------------------------------------------------------

    def receive(self, count: int, timeout: float | None) -> StepResult:
        """Return ``count`` pairs; what a timeout leaves undone, the next call goes on with."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while len(self._ready) < count:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            self._take_in(self._within.rows.receive(max(1, self._numbering.num_arrived), left))
            if left == 0.0 and len(self._ready) < count:
                raise WaitTimeoutError(
                    f"{len(self._owed) - len(self._ready)} pairs are not complete yet; wait again"
                )
        taken = sorted(self._ready[:count])
        whole = [i for i in taken if i not in self._failed]
        ids = self._all_ids if len(whole) == self._num_rows else np.array(whole, dtype=np.int64)
        step = join([self._firsts[i] for i in whole], ids, self._num_rows, self._latest)
        failures = tuple(self._failed[i] for i in taken if i in self._failed)
        step.failures = failures
        self.needs_reset.update(step)
        if failures:
            self.needs_reset.require_reset([i for i in taken if i in self._failed])
        self._ready = self._ready[count:]
        for i in taken:
            del self._owed[i]
            self._firsts.pop(i, None)
            self._failed.pop(i, None)
        return step

    def _take_in(self, step: StepResult) -> None:
        """Note what has come from inside, and play on where the second row is to move."""
        self._latest = step
        came = [*step.env_ids.tolist(), *(error.index for error in step.failures)]
        for k, j in enumerate(step.env_ids.tolist()):
            if j % 2:
                self.over[j // 2] = step.dones[k] and not step.first[k]
            else:
                self._firsts[j // 2] = step, k
        for error in step.failures:
            self._failed[error.index // 2] = error
            self._turns[error.index // 2] = 0
            error.index //= 2
        again: list[int] = []
        anew: list[int] = []
        for j in came:
            i = j // 2
            self._owed[i].discard(j)
            if self._owed[i]:
                continue
            if self._turns.get(i, 0):
                self._turns[i] -= 1
                self._owed[i].add(2 * i + 1)
                (anew if self._mode is Autoreset.DISABLED and self.over[i] else again).append(
                    2 * i + 1
                )
            else:
                self._ready.append(i)
        if again:
            actions = conform_actions(self._space, [self._action] * len(again), len(again))
            self._within.rows.send(actions, np.array(sorted(again)))
        if anew:
            self._within.rows.reset(np.array(sorted(anew)), [None] * len(anew), None)
