"""Transitions, one batch for each vector step: what a replay buffer takes."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from vecwrap.env.vec_env import VecEnv
from vecwrap.learning.arrays import Grid, copied, like, put_rows, taken, whole_number
from vecwrap.learning.policy_steps import PolicySteps, Received
from vecwrap.rows.batch import Batch, take
from vecwrap.rows.step_result import BoolArray, FloatArray, IntArray

__all__ = ["TransitionBatch", "transitions"]


@dataclass(eq=False)
class TransitionBatch:
    """m transitions, as ``vecwrap.transitions`` yields them; all arrays are yours.

    Observations of Dict and Tuple spaces are dicts and tuples of arrays. Where an environment gives
    tensors, all of these are tensors on its device.

    Attributes:
        observations: (m, ...) of the space's dtype. What was acted on.
        actions: (m, ...) of the action space's dtype.
        extras: what the policy returned beside its actions, each (m, ...) of its dtype.
        rewards: (m,) float64.
        next_observations: (m, ...) of the space's dtype. What followed; the last observation of an
            episode that ended, and not the first of the next one.
        terminations, truncations: (m,) bool.
        env_ids: (m,) int64. The row of each, ascending.

    >>> import vecwrap
    >>> env = vecwrap.build("CartPole-v1", n=4, backend="dummy", autoreset="next_step", seed=1)
    >>> stream = vecwrap.transitions(env, lambda observations: [1, 1, 1, 0])
    >>> steps = [next(stream) for _ in range(9)]
    >>> steps[-1].env_ids, steps[-1].next_observations.shape
    (array([0, 1, 2]), (3, 4))
    >>> env.close()
    """

    observations: Batch
    actions: Batch
    extras: dict[str, Any]
    rewards: FloatArray
    next_observations: Batch
    terminations: BoolArray
    truncations: BoolArray
    env_ids: IntArray


def transitions(
    env: VecEnv, policy: Any, total_steps: int | None = None, reset: bool = True
) -> Iterator[TransitionBatch]:
    """Let a policy act, and yield the transitions that each vector step has completed.

    These are those of rows in which an action was taken: neither resets in next-step mode nor rows
    that were lost, rest, or are not in the game. In games in turns a transition is complete when
    its agent is to move again or has left; its reward is all that it was paid until then. A vector
    step that completes none yields nothing. With ``batch_size``, a vector step is what one ``recv``
    returns. In disabled and episodic mode, rows whose episode ended are reset at once, by a mask.

    Args:
        env: in any autoreset mode; with ``batch_size``, in same-step or next-step mode.
        policy: as for ``vecwrap.rollouts``.
        total_steps: stop once so many transitions were yielded. None: never.
        reset: begin with ``env.reset()``; False goes on from the observations that the
            environment returned last.

    Yields:
        ``TransitionBatch``: the fields, their shapes and dtypes are described there.

    Raises:
        TypeError: not a vecwrap environment, or not a policy.
        ArgumentError: ``total_steps`` is not a whole number of 1 or more; what does not go together
            with ``batch_size``; a policy that returned another number or shape of rows.
        VecwrapError: as in ``env.step``.

    >>> import vecwrap
    >>> env = vecwrap.build("CartPole-v1", n=4, backend="dummy", seed=1)
    >>> for step in vecwrap.transitions(env, lambda observations: [1, 1, 1, 0], total_steps=32):
    ...     ended = step.terminations | step.truncations
    ...     if ended.any():
    ...         print(step.env_ids[ended], abs(step.next_observations[ended][:, 2]) > 0.2)
    [3] [ True]
    >>> env.close()
    """
    steps = PolicySteps(env, policy, "transitions")
    if total_steps is not None:
        total_steps = whole_number("transitions: total_steps", total_steps)
    stream = _of_steps
    if env.call_state.pending.batch_size is not None:
        steps.refuse_uneven()
        stream = _as_they_come
    return _until(stream(steps, env.num_envs, reset=reset), total_steps)


def _until(
    stream: Generator[TransitionBatch, None, None], total_steps: int | None
) -> Iterator[TransitionBatch]:
    taken = 0
    with closing(stream):
        for batch in stream:
            yield batch
            taken += len(batch.env_ids)
            if total_steps is not None and taken >= total_steps:
                return


def _of_steps(
    steps: PolicySteps, num_rows: int, *, reset: bool
) -> Generator[TransitionBatch, None, None]:
    steps.begin(reset=reset)
    begun = _Begun(steps, num_rows)
    while True:
        seen = steps.observations
        if steps.reuses_arrays:
            seen = copied(seen)
        actions, extras, received = steps.step(copied(seen))
        rows = np.flatnonzero(received.step.acted)
        begun.put(rows, take(seen, rows), take(actions, rows), take(extras, rows))
        yield from begun.completed(received)


def _as_they_come(
    steps: PolicySteps, num_rows: int, *, reset: bool
) -> Generator[TransitionBatch, None, None]:
    steps.begin(reset=reset)
    begun = _Begun(steps, num_rows)
    in_flight = np.zeros(num_rows, np.bool_)
    while True:
        rows = np.flatnonzero(~in_flight)
        actions, extras = steps.act_some(rows)
        begun.put(rows, take(steps.observations, rows), actions, extras)
        steps.send(actions, rows)
        in_flight[rows] = True
        received = steps.receive()
        in_flight[received.step.env_ids] = False
        try:
            yield from begun.completed(received)
        except GeneratorExit:
            steps.receive_all()
            raise


class _Begun:
    """What each row saw and did last, while it is not known what it received for it."""

    def __init__(self, steps: PolicySteps, num_rows: int) -> None:
        self._steps = steps
        self._seen = Grid(1, num_rows)
        self._actions = Grid(1, num_rows)
        self._extras = Grid(1, num_rows)
        self._is_open = np.zeros(num_rows, np.bool_)

    def put(self, rows: IntArray, seen: Batch, actions: Batch, extras: dict[str, Any]) -> None:
        self._seen.put(0, rows, seen)
        self._actions.put(0, rows, actions)
        self._extras.put(0, rows, extras)
        self._is_open[rows] = True

    def completed(self, received: Received) -> Iterator[TransitionBatch]:
        """Yield the transitions that these rows complete, if there are any."""
        step = received.step
        ids = step.env_ids
        at = np.flatnonzero(step.completed & self._is_open[ids])
        rows = ids[at]
        if len(rows):
            following = taken(received.observations, at)
            is_end = np.zeros(len(ids), np.bool_)
            is_end[received.ended] = True
            ends = np.flatnonzero(is_end[at])
            if len(ends):
                put_rows(following, ends, taken(received.last_observations, at[ends]))
            rewards = self._steps.rewards
            yield TransitionBatch(
                self._seen.take(0, rows),
                self._actions.take(0, rows),
                self._extras.take(0, rows),
                like(step.rewards[at], rewards, rewards.dtype),
                following,
                like(step.terminations[at], rewards),
                like(step.truncations[at], rewards),
                like(rows, rewards),
            )
        self._is_open[rows] = False
        self._is_open[ids[received.ended]] = False
        self._is_open[ids[step.first]] = False
