"""Advantages and returns of a rollout, right at every kind of end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vecwrap.errors import ArgumentError
from vecwrap.learning.arrays import like, to_numpy, whole_number
from vecwrap.learning.rollout_batch import RolloutBatch
from vecwrap.rows.batch import Batch, leaves, take
from vecwrap.rows.step_result import BoolArray, FloatArray

__all__ = ["gae", "nstep_returns"]

VALUES = "values"


def gae(
    batch: RolloutBatch,
    value: Callable[[Batch], Any],
    gamma: float = 0.99,
    gae_lambda: float = 0.95,
) -> tuple[Any, Any]:
    """Return generalised advantages and the returns that belong to them (Schulman et al., 2016).

    What follows a truncated step is worth the value of the episode's last observation, what follows
    a terminated one is worth nothing. What follows the last step is worth the value of the
    observation after it, and so is what followed the last step before a row was lost, of which
    nothing more is known. Steps in which a row waits for its turn are passed over.

    Args:
        batch: what ``vecwrap.rollouts`` yielded, with ``extras["values"]``, (T, n) float: the
            values of the observations that were acted on.
        value: from m observations to their values, (m,) float: an array, or a tensor on any device.
            Called at most twice: with ``final_obs`` of truncated episodes, and with the n
            observations after the last step.
        gamma: the discount, from 0 to 1.
        gae_lambda: the weight of longer returns, from 0 to 1.

    Returns:
        The advantages and the returns, (T, n) each, of the dtype and the library of
            ``extras["values"]``, on its device; 0 where ``batch.valid`` is False. Advantages are
            computed in float64 and rounded once; returns are their sums with the values.

    Raises:
        ArgumentError: the batch has no values, or values of another shape; ``gamma`` or
            ``gae_lambda`` out of range.

    >>> import numpy as np
    >>> import vecwrap
    >>> env = vecwrap.build("CartPole-v1", n=4, wrappers=["time_limit:9"], backend="dummy", seed=1)
    >>> def value(observations):
    ...     return 10 - np.abs(observations[:, 2])
    >>> def policy(observations):
    ...     return (observations[:, 2] > 0).astype(int), {"values": value(observations)}
    >>> for batch in vecwrap.rollouts(env, policy, n_steps=8, total_steps=64):
    ...     advantages, returns = vecwrap.gae(batch, value)
    >>> advantages.shape, advantages.dtype, bool((returns > 9).all())
    ((8, 4), dtype('float32'), True)
    >>> env.close()
    """
    _fraction("gae: gamma", gamma)
    _fraction("gae: gae_lambda", gae_lambda)
    values = _step_values(batch, "gae")
    backup = _Backup(batch, value, values, "gae")
    advantages = np.zeros(values.shape)
    running = np.zeros(values.shape[1])
    following = backup.last
    for t in reversed(range(len(values))):
        valid = backup.valid[t]
        ended = backup.ended[t]
        after = np.where(ended, backup.at_ends[t], following)
        surprise = backup.rewards[t] + gamma * after - values[t]
        estimated = surprise + gamma * gae_lambda * np.where(ended, 0.0, running)
        advantages[t] = np.where(valid, estimated, 0.0)
        running = np.where(valid, estimated, np.where(ended, 0.0, running))
        following = np.where(valid | ended, values[t], following)
    given = batch.extras[VALUES]
    of_steps = like(np.where(backup.valid, values, 0.0), given, given.dtype)
    found = like(advantages, given, given.dtype)
    return found, found + of_steps


def nstep_returns(
    batch: RolloutBatch, value: Callable[[Batch], Any], n: int | None = 5, gamma: float = 0.99
) -> Any:
    """Return the n-step returns (Sutton and Barto, 2018, chapter 7) of a rollout's steps.

    These are the rewards of n steps and the value of what they led to. Fewer steps count where the
    episode or the rollout ends before; what follows is worth what it is worth in ``vecwrap.gae``.

    Args:
        batch: what ``vecwrap.rollouts`` yielded; ``extras["values"]`` is needed for an ``n`` below
            T, and where rows were lost.
        value: as for ``vecwrap.gae``.
        n: how many rewards, 1 or more; None: all to the end of the episode or the rollout.
        gamma: the discount, from 0 to 1.

    Returns:
        (T, n) of the dtype and the library of ``extras["values"]``, on its device; without values
            float64, of ``rewards``' library. 0 where ``batch.valid`` is False.

    Raises:
        ArgumentError: as ``vecwrap.gae``; ``n`` is not a whole number of 1 or more.

    >>> import numpy as np
    >>> import vecwrap
    >>> env = vecwrap.build("CartPole-v1", n=2, backend="dummy", seed=1)
    >>> batch = next(vecwrap.rollouts(env, lambda observations: [0, 1], n_steps=4))
    >>> vecwrap.nstep_returns(batch, lambda observations: np.zeros(2), n=None, gamma=0.5)[:, 0]
    array([1.875, 1.75 , 1.5  , 1.   ])
    >>> env.close()
    """
    _fraction("nstep_returns: gamma", gamma)
    depth = None
    if n is not None:
        depth = whole_number("nstep_returns: n", n)
    given = batch.extras.get(VALUES)
    if given is not None or (depth is not None and depth < len(batch.valid)):
        values = _step_values(batch, "nstep_returns")
        given = batch.extras[VALUES]
    else:
        values = np.zeros(batch.valid.shape)
        given = batch.rewards
    backup = _Backup(batch, value, values, "nstep_returns")
    if (backup.ended & ~backup.valid).any() and VALUES not in batch.extras:
        _step_values(batch, "nstep_returns")  # raises: what the lost rows' last steps led to
    found = values
    number = 1
    if depth is not None:
        number = min(depth, len(values))
    for _ in range(number):
        found = backup.once(values, found, gamma, deep=depth is None)
    return like(np.where(backup.valid, found, 0.0), given, given.dtype)


class _Backup:
    """Rewards of a rollout, and what is known of what followed them, in float64.

    Attributes:
        ended, valid: (T, n) bool.
        at_ends: (T, n). Where a step ended an episode, the value of what would have followed.
        last: (n,). The values of the observations after the last step.
    """

    def __init__(
        self, batch: RolloutBatch, value: Callable[[Batch], Any], values: FloatArray, where: str
    ) -> None:
        self.rewards = to_numpy(batch.rewards).astype(np.float64)
        self.valid: BoolArray = to_numpy(batch.valid)
        terminations: BoolArray = to_numpy(batch.terminations)
        truncations: BoolArray = to_numpy(batch.truncations)
        self.ended: BoolArray = terminations | truncations
        self.at_ends = np.zeros(values.shape)
        steps, rows = to_numpy(batch.final_obs_index).T
        cut_off = (self.valid & truncations & ~terminations)[steps, rows]
        if cut_off.any():
            at = np.flatnonzero(cut_off)
            self.at_ends[steps[at], rows[at]] = _valued(value, take(batch.final_obs, at), where)
        self.last = _valued(value, take(batch.observations, -1), where)

    def once(
        self, values: FloatArray, found: FloatArray, gamma: float, *, deep: bool
    ) -> FloatArray:
        """Return what one more reward makes of the returns of each step; ``deep``: all that follow.

        Where a row waits, its next step's return stands for it.
        """
        result = np.zeros(values.shape)
        following = self.last
        for t in reversed(range(len(values))):
            after = np.where(self.ended[t], self.at_ends[t], following)
            result[t] = np.where(self.valid[t], self.rewards[t] + gamma * after, 0.0)
            deeper = found[t]
            if deep:
                deeper = result[t]
            deeper = np.where(self.valid[t], deeper, values[t])
            following = np.where(self.valid[t] | self.ended[t], deeper, following)
        return result


def _valued(value: Callable[[Batch], Any], observations: Batch, where: str) -> FloatArray:
    number = len(leaves(observations)[0][1])
    found = to_numpy(value(observations))
    if found.shape != (number,):
        raise ArgumentError(
            f"{where}: value: expected {number} values of {number} observations, shape "
            f"({number},), got shape {found.shape}{_squeezing(found, (number,))}"
        )
    return found.astype(np.float64)


def _step_values(batch: RolloutBatch, where: str) -> FloatArray:
    if VALUES not in batch.extras:
        raise ArgumentError(
            f'{where}: batch.extras: expected "{VALUES}", the values of the observations that were '
            f"acted on, got {sorted(batch.extras)}; have the policy return "
            f'(actions, {{"{VALUES}": values}})'
        )
    values = to_numpy(batch.extras[VALUES])
    shape = tuple(batch.valid.shape)
    if values.shape != shape or values.dtype.kind != "f":
        raise ArgumentError(
            f'{where}: batch.extras["{VALUES}"]: expected floats of shape {shape}, one for each '
            f"step and row, got {values.dtype} of shape {values.shape}{_squeezing(values, shape)}"
        )
    return values.astype(np.float64)


def _squeezing(array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> str:
    if array.shape == (*shape, 1):
        return "; values.squeeze(-1) has it"
    return ""


def _fraction(where: str, number: Any) -> None:
    if not (isinstance(number, (int, float)) and 0 <= number <= 1):
        raise ArgumentError(f"{where}: expected a number from 0 to 1, got {number!r}")
