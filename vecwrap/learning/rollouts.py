"""Rollouts: what a policy did in an environment, in batches of a fixed number of steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ArgumentError
from vecwrap.learning.arrays import whole_number
from vecwrap.learning.collectors import OverlapCollector, PacedCollector, StepCollector
from vecwrap.learning.policy_steps import PolicySteps
from vecwrap.learning.rollout_batch import RolloutBatch

__all__ = ["rollouts"]


def rollouts(
    env: VecEnv,
    policy: Any,
    n_steps: int = 128,
    total_steps: int | None = None,
    reset: bool = True,
    *,
    min_fraction: float = 1.0,
    overlap: int = 1,
) -> Iterator[RolloutBatch]:
    """Let a policy act, and yield what it saw, did and received, in batches of T steps.

    Arrays of a batch are yours: they are writable, and never change afterwards. The environment is
    stepped while a batch is being collected and at no other time; leave it alone between two
    batches of one iterator. In disabled and episodic mode, rows whose episode ended are reset at
    once, by a mask.

    With ``batch_size``, each row fills its T steps at its own pace, so a slow one holds up nobody
    until the others are done; a row that is done waits for the next batch, and so for the next
    policy. Resets then take no step of a batch.

    Args:
        env: in any autoreset mode; with ``batch_size``, in same-step or next-step mode, engines in
            same-step mode.
        policy: a callable from batched observations (n rows; with ``batch_size`` those that are to
            act) to as many actions, or anything with ``predict``, as for ``vecwrap.evaluate``; it
            may declare ``action_masks``, ``infos`` and ``rng``. It returns the actions, or
            ``(actions, extras)`` with a dict of arrays or tensors, each with a row for each row
            of observations. If it declares ``state`` and ``episode_start``, (n,) bool, it gets
            what it remembered (None at first) and which rows begin an episode, and returns
            ``(actions, state)`` or ``(actions, extras, state)``.
        n_steps: T, 1 or more.
        total_steps: stop once so many agent steps were yielded, over all rows: those that are
            ``valid``. Batches are whole. None: never.
        reset: begin with ``env.reset()``; False goes on from the observations that the
            environment returned last.
        min_fraction: with ``batch_size``, the share of the T * n steps with which a batch is
            complete. What its stragglers have begun opens the next batch.
        overlap: 2 steps one half of the rows in the workers while the policy is called for the
            other half: rows 0, 2, ..., then rows 1, 3, ... Batches are those of ``overlap=1``, bit
            for bit, if the policy treats each row by itself and no wrapper has statistics over
            rows. Not for policies with a state, games of several agents, engines and
            ``batch_size``.

    Yields:
        ``RolloutBatch``: the fields, their shapes and dtypes are described there.

    Raises:
        TypeError: not a vecwrap environment, or not a policy.
        ArgumentError: ``n_steps``, ``total_steps``, ``min_fraction`` or ``overlap`` out of range;
            what does not go together with ``batch_size`` or ``overlap=2``; a policy that returned
            another number or shape of rows.
        VecwrapError: as in ``env.step``.

    Warns:
        UserWarning: with ``overlap=2``, a wrapper updates statistics over all rows.

    >>> import vecwrap
    >>> env = vecwrap.build("CartPole-v1", n=4, wrappers=["time_limit:6"], backend="dummy", seed=1)
    >>> def policy(observations):
    ...     return (observations[:, 2] > 0).astype(int), {"values": observations[:, 0]}
    >>> for batch in vecwrap.rollouts(env, policy, n_steps=8, total_steps=64):
    ...     print(batch, batch.extras["values"].shape, batch.truncations.sum())
    <RolloutBatch T=8, n=4, 32 valid steps, 4 ends> (8, 4) 4
    <RolloutBatch T=8, n=4, 32 valid steps, 4 ends> (8, 4) 4
    >>> env.close()
    """
    steps = PolicySteps(env, policy, "rollouts")
    num_steps = whole_number("rollouts: n_steps", n_steps)
    if total_steps is not None:
        total_steps = whole_number("rollouts: total_steps", total_steps)
    if not 0 < min_fraction <= 1:
        raise ArgumentError(
            f"rollouts: min_fraction: expected more than 0 and at most 1, got {min_fraction!r}"
        )
    if overlap not in (1, 2):
        raise ArgumentError(f"rollouts: overlap: expected 1 or 2, got {overlap!r}")
    collector: StepCollector | PacedCollector | OverlapCollector
    if overlap == 2:
        steps.refuse_overlap()
    if env.call_state.pending.batch_size is not None:
        steps.refuse_uneven()
        steps.refuse_engine_rows()
        collector = PacedCollector(steps, num_steps, env.num_envs, min_fraction)
    elif min_fraction < 1:
        raise ArgumentError(
            f"rollouts: min_fraction={min_fraction}: expected an environment built with "
            f"batch_size, whose rows come at their own pace, got {env!r}"
        )
    elif overlap == 2:
        steps.warn_of_statistics(stacklevel=2)
        collector = OverlapCollector(steps, num_steps, env.num_envs)
    else:
        collector = StepCollector(steps, num_steps, env.num_envs)
    return _batches(steps, collector, total_steps, reset=reset)


def _batches(
    steps: PolicySteps,
    collector: StepCollector | PacedCollector | OverlapCollector,
    total_steps: int | None,
    *,
    reset: bool,
) -> Iterator[RolloutBatch]:
    steps.begin(reset=reset)
    try:
        while total_steps is None or collector.num_valid < total_steps:
            yield collector.collect()
    except (Exception, GeneratorExit):
        collector.stop()
        raise
    collector.stop()
