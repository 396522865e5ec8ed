"""What one rollout brought: T steps of n rows, dense, and the ends of episodes, sparse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vecwrap.learning.arrays import copied, to_numpy
from vecwrap.rows.batch import Batch, take, tree_map
from vecwrap.rows.step_result import BoolArray, FloatArray, IntArray

__all__ = ["RolloutBatch"]


@dataclass(eq=False, repr=False)
class RolloutBatch:
    """T steps of n rows, as ``vecwrap.rollouts`` collects them; all arrays are yours.

    Observations of Dict and Tuple spaces are dicts and tuples of arrays. Where an environment gives
    tensors, all of these are tensors on its device.

    Attributes:
        observations: (T + 1, n, ...) of the space's dtype. Entry t is what the policy saw before
            step t, entry T what followed the last step. After an episode's end it is the next
            episode's first observation, but for next-step mode, where the reset takes a step.
        actions: (T, n, ...) of the action space's dtype.
        extras: what the policy returned beside its actions, each (T, n, ...) of its dtype, from the
            library that it came from, on its device.
        rewards: (T, n) float64. Of games in turns: what the action of this step has earned until
            its agent was to move again. 0 where ``valid`` is False.
        terminations, truncations: (T, n) bool. The episode ended in the step.
        valid: (T, n) bool. The row acted, and what its action earned is known. False on
            resets in next-step mode, lost rows, rows that rest, wait for their turn or are not in
            the game, and for what is missing of rows that were late.
        final_obs: (k, ...) of the space's dtype. The last observations of the k episodes that
            ended.
        final_obs_index: (k, 2) int64. The step and the row of each, ascending.
        late: (j, 3) int64, or None outside of games. The step and the row of each action that moves
            of others followed, and the index of the observation that its agent then had.
        state: what the policy remembered before the first step; None if it has no state.

    >>> import vecwrap
    >>> env = vecwrap.build("CartPole-v1", n=4, backend="dummy", seed=1)
    >>> batch = next(vecwrap.rollouts(env, lambda observations: [1, 1, 1, 0], n_steps=16))
    >>> batch
    <RolloutBatch T=16, n=4, 64 valid steps, 4 ends>
    >>> batch.observations.shape, batch.final_obs.shape, batch.final_obs_index[0].tolist()
    ((17, 4, 4), (4, 4), [7, 3])
    >>> batch.next_observations().shape, sorted(batch.asdict())[:3]
    ((16, 4, 4), ['actions', 'extras', 'observations'])
    >>> env.close()
    """

    observations: Batch
    actions: Batch
    extras: dict[str, Any]
    rewards: FloatArray
    terminations: BoolArray
    truncations: BoolArray
    valid: BoolArray
    final_obs: Batch
    final_obs_index: IntArray
    state: Any = None
    late: IntArray | None = None

    def next_observations(self) -> Batch:
        """Return what followed each step, (T, n, ...): at an episode's end its last observation."""
        following = copied(take(self.observations, slice(1, None)))
        if self.late is not None and len(self.late):
            steps, rows, seen = self.late.T
            later = tree_map(lambda array: array[seen, rows], self.observations)
            _put(following, steps, rows, later)
        steps, rows = to_numpy(self.final_obs_index).T
        if len(steps):
            _put(following, steps, rows, self.final_obs)
        return following

    def asdict(self) -> dict[str, Any]:
        """Return what has a leading (T, n), without the last observations, as a nested dict.

        ``TensorDict(batch.asdict(), batch_size=[T, n])`` takes it. Tuples become dicts, by the
        members' positions as text.
        """
        names = ("actions", "extras", "rewards", "terminations", "truncations", "valid")
        found = {name: _as_dicts(getattr(self, name)) for name in names}
        return {"observations": _as_dicts(take(self.observations, slice(-1))), **found}

    def __repr__(self) -> str:
        steps, rows = self.valid.shape
        return (
            f"<RolloutBatch T={steps}, n={rows}, {int(self.valid.sum())} valid steps, "
            f"{len(self.final_obs_index)} ends>"
        )


def _put(batch: Batch, steps: Any, rows: Any, values: Batch) -> None:
    def put(array: Any, of_rows: Any) -> None:
        array[steps, rows] = of_rows

    tree_map(put, batch, values)


def _as_dicts(batch: Any) -> Any:
    if isinstance(batch, tuple):
        return {str(i): _as_dicts(part) for i, part in enumerate(batch)}
    if isinstance(batch, dict):
        return {key: _as_dicts(part) for key, part in batch.items()}
    return batch
