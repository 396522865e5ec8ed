"""The pending call of a chain, and how the indices and seeds that a call is given are read."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecwrap.errors import ArgumentError
from vecwrap.rows.step_result import IntArray

__all__ = ["PendingCall", "read_indices", "read_seeds"]


class PendingCall:
    """The pending call of the environments of a chain with one numbering, and what they share."""

    def __init__(
        self,
        all_ids: IntArray,
        *,
        seed: int | None = None,
        start_index: int = 0,
        rows_per_seed: int = 1,
        batch_size: int | None = None,
    ) -> None:
        self.num_envs: int = len(all_ids)
        self.rows_per_seed = (
            rows_per_seed  # so many consecutive rows have one seed: the agents of a game
        )
        self.batch_size = batch_size
        self.all_ids = all_ids  # the very array by which all rows are recognised below
        self.call: str | None = None  # "step", "reset", "send" or "call"
        # all rows of the last call that requested resets
        self.resetting: frozenset[int] = frozenset()
        self.seed = seed  # of build; used by the first reset if it is given none
        self.start_index = start_index
        # the Pending of all numberings in the chain, of which one at most has a call
        self.all_numberings: list[PendingCall] = [self]
        self.called_rows: list[int] = []  # the sub-environments of the pending call to methods

    def seeds(self, seed: Any, env_ids: IntArray) -> list[int | None]:
        """Return the seed of each of these rows; build's seed is used if none is given."""
        sources = env_ids // self.rows_per_seed
        number = self.num_envs // self.rows_per_seed
        what = "game" if self.rows_per_seed > 1 else "sub-environment"
        given = read_seeds(seed, sources, number, self.start_index, what)
        if self.seed is None:
            return given
        of_build = read_seeds(self.seed, sources, number, self.start_index)
        return [
            own if own is not None else built for own, built in zip(given, of_build, strict=True)
        ]

    def indices(self, indices: Any, what: str = "env_ids", *, once: bool = False) -> IntArray:
        if indices is None:
            return self.all_ids
        return read_indices(indices, self.num_envs, what, once=once)


def read_indices(
    indices: Any, num_envs: int, what: str = "env_ids", *, once: bool = False
) -> IntArray:
    """Read indices of sub-environments, an int or a sequence, into (k,) int64 in their order."""
    ids = np.atleast_1d(np.asarray(indices))
    if ids.dtype.kind not in "iu" and ids.size:
        raise ArgumentError(f"{what}: expected integers, got {indices!r}")
    if ids.ndim != 1 or (ids < 0).any() or (ids >= num_envs).any():
        raise ArgumentError(f"{what}: expected indices from 0 to {num_envs - 1}, got {indices!r}")
    if once and len(np.unique(ids)) != len(ids):
        raise ArgumentError(f"{what}: expected each index once, got {ids.tolist()}")
    return ids.astype(np.int64)


def read_seeds(
    seed: Any, env_ids: IntArray, num_envs: int, start_index: int = 0, what: str = "sub-environment"
) -> list[int | None]:
    """Return the seed of each of these rows, or None if the row gets none.

    From an int, row i gets ``seed + start_index + i``.
    """
    if seed is None:
        return [None] * len(env_ids)
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, (bool, np.bool_)):
        return [_seed(int(seed) + start_index + i) for i in env_ids.tolist()]
    try:
        seeds = []
        if not isinstance(seed, (str, bytes)):
            seeds = list(seed)
    except TypeError:
        seeds = []
    if not seeds:
        raise ArgumentError(
            f"seed: expected an int, a sequence of {num_envs} or None, got {seed!r}"
        )
    if len(seeds) != num_envs:
        raise ArgumentError(
            f"seed: expected {num_envs} seeds, one for each {what}, got {len(seeds)}"
        )
    return [_seed(seeds[i]) for i in env_ids.tolist()]


def _seed(seed: Any) -> int | None:
    if seed is None:
        return None
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, (bool, np.bool_)):
        raise ArgumentError(f"seed: expected an int, got {seed!r}")
    if seed < 0:
        raise ArgumentError(f"seed: expected an int of at least 0, got {seed}")
    return int(seed)
