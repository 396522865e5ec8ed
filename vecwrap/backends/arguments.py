"""Reads and checks the indices of sub-environments and the seeds that callers pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecwrap.contract import IntArray
from vecwrap.errors import ArgumentError

__all__ = ["read_indices", "read_seeds"]


def read_indices(indices: Any, num_envs: int, what: str = "env_ids", *, once: bool = False) -> IntArray:
    """Read indices of sub-environments, an int or a sequence of them, into (k,) int64 in their order.

    >>> read_indices([2, 0], 3), read_indices(1, 3)
    (array([2, 0]), array([1]))
    """
    ids = np.atleast_1d(np.asarray(indices))
    if ids.dtype.kind not in "iu" and ids.size:
        raise ArgumentError(f"{what}: expected integers, got {indices!r}")
    if ids.ndim != 1 or (ids < 0).any() or (ids >= num_envs).any():
        raise ArgumentError(f"{what}: expected indices from 0 to {num_envs - 1}, got {indices!r}")
    if once and len(np.unique(ids)) != len(ids):
        raise ArgumentError(f"{what}: expected each index once, got {ids.tolist()}")
    return ids.astype(np.int64)


def read_seeds(seed: Any, env_ids: IntArray, num_envs: int, start_index: int = 0) -> list[int | None]:
    """Return the seed of each of these rows, or None if it gets none; i gets ``seed + start_index + i`` of an int.

    >>> read_seeds(7, np.array([0, 2]), 3, start_index=10), read_seeds([1, None, 3], np.array([1, 2]), 3)
    ([17, 19], [None, 3])
    """
    if seed is None:
        return [None] * len(env_ids)
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, (bool, np.bool_)):
        return [_seed(int(seed) + start_index + i) for i in env_ids.tolist()]
    try:
        seeds = [] if isinstance(seed, (str, bytes)) else list(seed)
    except TypeError:
        seeds = []
    if not seeds:
        raise ArgumentError(f"seed: expected an int, a sequence of {num_envs} or None, got {seed!r}")
    if len(seeds) != num_envs:
        raise ArgumentError(f"seed: expected {num_envs} seeds, one for each sub-environment, got {len(seeds)}")
    return [None if seeds[i] is None else _seed(seeds[i]) for i in env_ids.tolist()]


def _seed(seed: Any) -> int:
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, (bool, np.bool_)):
        raise ArgumentError(f"seed: expected an int, got {seed!r}")
    if seed < 0:
        raise ArgumentError(f"seed: expected an int of at least 0, got {seed}")
    return int(seed)
