"""How a rollout is filled: by steps of all rows, of halves, or by each row at its own pace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vecwrap.learning.arrays import ArrayPool, Grid, Stack, copied, is_numpy, joined, like, taken
from vecwrap.learning.policy_steps import PolicySteps, Received
from vecwrap.learning.rollout_batch import RolloutBatch
from vecwrap.rows.batch import Batch, take, tree_map
from vecwrap.rows.infos import detached_copy
from vecwrap.rows.step_result import IntArray

__all__ = ["OverlapCollector", "PacedCollector", "StepCollector"]

_ALL = slice(None)


class _Outcomes:
    """Rewards, flags and ends of T steps of n rows."""

    def __init__(self, num_steps: int, num_rows: int) -> None:
        shape = (num_steps, num_rows)
        self.rewards = np.zeros(shape)
        self.terminations = np.zeros(shape, np.bool_)
        self.truncations = np.zeros(shape, np.bool_)
        self.valid = np.zeros(shape, np.bool_)
        self._final_obs: list[Batch] = []
        self._places: list[IntArray] = []  # of ends that do not come in their order

    def add_ends(self, received: Received) -> None:
        """Add the last observations of the episodes that ended; their flags are set already."""
        self._final_obs.append(taken(received.last_observations, received.ended))

    def put_ends(self, received: Received, times: IntArray, rows: IntArray) -> None:
        """Add episodes that ended in these rows, whose last steps are at their own times."""
        self.terminations[times, rows] = received.step.terminations[received.ended]
        self.truncations[times, rows] = received.step.truncations[received.ended]
        self._places.append(times * len(self.valid[0]) + rows)
        self.add_ends(received)

    def batch(
        self,
        steps: PolicySteps,
        observations: Batch,
        actions: Batch,
        extras: dict[str, Any],
        state: Any,
        late: IntArray | None = None,
    ) -> RolloutBatch:
        """Return the batch; what is kept here becomes tensors where observations are."""
        index: Any = np.argwhere(self.terminations | self.truncations)
        if self._final_obs:
            final_obs = tree_map(joined, *self._final_obs)
        else:
            final_obs = copied(take(observations, (0, slice(0, 0))))
        if self._places:
            final_obs = take(final_obs, np.argsort(np.concatenate(self._places)))
        found: list[Any] = [self.terminations, self.truncations, self.valid]
        rewards: Any = self.rewards
        if not is_numpy(observations):
            example = steps.rewards
            rewards = like(rewards, example, example.dtype)
            found = [like(flags, example) for flags in found]
            index = like(index, example)
        terminations, truncations, valid = found
        return RolloutBatch(
            observations,
            actions,
            extras,
            rewards,
            terminations,
            truncations,
            valid,
            final_obs,
            index,
            state,
            late,
        )


class StepCollector:
    """Fills rollouts with steps of all rows."""

    def __init__(self, steps: PolicySteps, num_steps: int, num_rows: int) -> None:
        self._steps = steps
        self._num_steps = num_steps
        self._num_rows = num_rows
        self.num_valid = 0  # steps of all batches
        self._pool = ArrayPool()
        # of games in turns, the step in which each row acted, while its reward is not known; or -1
        self._open: IntArray = np.full(num_rows, -1)
        self._late: list[IntArray] = []
        self._carried: tuple[IntArray, list[Batch]] | None = None

    def collect(self) -> RolloutBatch:
        try:
            return self._collect()
        finally:
            if self._steps.fills_arrays:
                self._steps.take_back()

    def _collect(self) -> RolloutBatch:
        steps = self._steps
        outcomes = _Outcomes(self._num_steps, self._num_rows)
        observations = Grid(self._num_steps + 1, self._num_rows, self._pool)
        actions = Grid(self._num_steps, self._num_rows)
        extras = Stack()
        state = detached_copy(steps.state)
        add = self._add
        if steps.in_turns:
            add = self._add_turns
        observations.put(0, _ALL, steps.observations)
        for t in range(self._num_steps):
            seen = steps.observations
            if steps.reuses_arrays:
                seen = take(observations.batch, t)
            elif steps.keeps_arrays:
                seen = copied(seen)
            target = None
            if steps.fills_arrays:
                target = take(observations.batch, t + 1)
            acted, beside, received = steps.step(seen, target)
            actions.put(t, _ALL, acted)
            if beside:
                extras.add(beside)
            if received.observations is not target:
                observations.put(t + 1, _ALL, received.observations)
            add(outcomes, t, received)
        self.num_valid += int(np.count_nonzero(outcomes.valid))
        stacks = (observations.batch, actions.batch, extras.get())
        late = None
        if steps.in_turns:
            late = self._carry(stacks)
        return outcomes.batch(steps, *stacks, state, late)

    def stop(self) -> None:
        """Nothing is in flight."""

    @staticmethod
    def _add(outcomes: _Outcomes, t: int, received: Received) -> None:
        step = received.step
        outcomes.rewards[t] = step.rewards
        if step.uneventful:
            outcomes.valid[t] = True
            return
        outcomes.valid[t] = step.acted
        if len(received.ended):
            outcomes.terminations[t] = step.terminations
            outcomes.truncations[t] = step.truncations
            outcomes.add_ends(received)

    def _add_turns(self, outcomes: _Outcomes, t: int, received: Received) -> None:
        """Add rows of games: what an action has earned counts for the step that took it."""
        step = received.step
        began = self._open
        began[step.acted] = t
        rows = np.flatnonzero(step.completed & (began >= 0))
        times = np.full(self._num_rows, t)
        times[rows] = began[rows]
        outcomes.valid[times[rows], rows] = True
        outcomes.rewards[times[rows], rows] = step.rewards[rows]
        if len(received.ended):
            outcomes.put_ends(received, times[received.ended], received.ended)
        waited = rows[times[rows] < t]
        self._late.append(np.stack([times[waited], waited, np.full(len(waited), t + 1)], axis=1))
        began[rows] = -1
        began[received.ended] = -1
        began[step.first] = -1

    def _carry(self, stacks: Sequence[Batch]) -> IntArray:
        """Let what was open when the last batch ended be in this one, and keep what is open now.

        Such a row waits for its turn when the next batch begins: that step of it is free.
        """
        if self._carried is not None:
            at_first, parts = self._carried
            for stack, part in zip(stacks, parts, strict=True):
                _put(stack, 0, at_first, part)
        rows = np.flatnonzero(self._open >= 0)
        times = self._open[rows]
        self._carried = (rows, [_picked(stack, times, rows) for stack in stacks])
        self._open[rows] = 0
        late = np.concatenate(self._late)
        self._late = []
        return late


class OverlapCollector:
    """Fills rollouts with steps of one half of the rows while the policy acts for the other.

    Nothing is in flight between two batches. The halves are interleaved, as neighbouring rows
    share a worker, which thus has a part of both.
    """

    def __init__(self, steps: PolicySteps, num_steps: int, num_rows: int) -> None:
        self._steps = steps
        self._num_steps = num_steps
        self._num_rows = num_rows
        self._halves = [np.arange(start, num_rows, 2) for start in (0, 1)]
        self._pool = ArrayPool()
        self.num_valid = 0  # steps of all batches

    def collect(self) -> RolloutBatch:
        steps = self._steps
        outcomes = _Outcomes(self._num_steps, self._num_rows)
        observations = Grid(self._num_steps + 1, self._num_rows, self._pool)
        actions = Grid(self._num_steps, self._num_rows)
        extras = [Stack(), Stack()]
        observations.put(0, _ALL, steps.observations)
        for turn in range(2 * self._num_steps):
            t, half = divmod(turn, 2)
            rows = self._halves[half]
            acted, beside = steps.act_some(rows)
            actions.put(t, rows, acted)
            if beside:
                extras[half].add(beside)
            if turn:  # the other half, which has stepped meanwhile
                received = steps.receive()
            steps.send(acted, rows)
            if turn:
                self._add(outcomes, observations, turn - 1, received)
        self._add(outcomes, observations, turn, steps.receive())
        self.num_valid += int(np.count_nonzero(outcomes.valid))
        order = np.argsort(np.concatenate(self._halves))
        beside = tree_map(
            lambda *parts: joined(*parts, axis=1)[:, order], *(stack.get() for stack in extras)
        )
        return outcomes.batch(steps, observations.batch, actions.batch, beside, None)

    def stop(self) -> None:
        """Receive what is in flight, of a batch that was not completed."""
        self._steps.receive_all()

    def _add(self, outcomes: _Outcomes, observations: Grid, turn: int, received: Received) -> None:
        t, half = divmod(turn, 2)
        rows = self._halves[half]
        step = received.step
        outcomes.rewards[t, rows] = step.rewards
        outcomes.valid[t, rows] = step.acted
        if len(received.ended):
            ended = rows[received.ended]
            outcomes.put_ends(received, np.full(len(ended), t), ended)
        observations.put(t + 1, rows, received.observations)


class PacedCollector:
    """Fills rollouts with rows as they come, each at its own pace.

    A row whose steps are complete waits until the batch is. What is in flight when a batch is
    complete opens the next one.
    """

    def __init__(
        self, steps: PolicySteps, num_steps: int, num_rows: int, min_fraction: float
    ) -> None:
        self._steps = steps
        self._num_steps = num_steps
        self._num_rows = num_rows
        # rounded, or 0.7 of 10 were 8
        self._needed = math.ceil(round(min_fraction * num_steps * num_rows, 6))
        self.num_valid = 0  # steps of all batches
        self._in_flight = np.zeros(num_rows, np.bool_)
        self._carried: tuple[IntArray, Batch, Batch] | None = None

    def collect(self) -> RolloutBatch:
        steps = self._steps
        outcomes = _Outcomes(self._num_steps, self._num_rows)
        observations = Grid(self._num_steps + 1, self._num_rows)
        actions = Grid(self._num_steps, self._num_rows)
        extras = Grid(self._num_steps, self._num_rows)
        filled = np.zeros(self._num_rows, np.int64)
        observations.put(0, np.arange(self._num_rows), steps.observations)
        if self._carried is not None:
            rows, sent, beside = self._carried
            actions.put(0, rows, sent)
            extras.put(0, rows, beside)
        while filled.sum() < self._needed:
            rows = np.flatnonzero(~self._in_flight & (filled < self._num_steps))
            if len(rows):
                acted, beside = steps.act_some(rows)
                actions.put(filled[rows], rows, acted)
                extras.put(filled[rows], rows, beside)
                steps.send(acted, rows)
                self._in_flight[rows] = True
            received = steps.receive()
            self._add(outcomes, filled, received)
            ids = received.step.env_ids
            observations.put(filled[ids], ids, received.observations)
        rows = np.flatnonzero(self._in_flight)
        self._carried = (rows, actions.take(filled[rows], rows), extras.take(filled[rows], rows))
        observations.repeat_after(filled)
        self.num_valid += int(np.count_nonzero(outcomes.valid))
        return outcomes.batch(steps, observations.batch, actions.batch, extras.batch, None)

    def stop(self) -> None:
        """Receive what is in flight; no batch has it."""
        self._steps.receive_all()

    def _add(self, outcomes: _Outcomes, filled: IntArray, received: Received) -> None:
        """Add the steps of these rows; resets are none, and what a lost row does not do is one."""
        step = received.step
        self._in_flight[step.env_ids] = False
        taken = step.acted.copy()
        taken[received.ended] = True
        rows = step.env_ids[taken]
        outcomes.valid[filled[rows], rows] = step.acted[taken]
        outcomes.rewards[filled[rows], rows] = step.rewards[taken]
        if len(received.ended):
            ended = step.env_ids[received.ended]
            outcomes.put_ends(received, filled[ended], ended)
        filled[rows] += 1


def _picked(batch: Batch, times: IntArray, rows: IntArray) -> Batch:
    return tree_map(lambda array: array[times, rows], batch)


def _put(batch: Batch, time: int, rows: IntArray, values: Batch) -> None:
    def put(array: Any, of_rows: Any) -> None:
        array[time, rows] = of_rows

    tree_map(put, batch, values)
