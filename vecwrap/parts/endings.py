"""The last endings of each sub-environment: a bounded record that can be inspected, saved and drawn."""

from __future__ import annotations

import os
from collections import deque
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vecwrap.batch import Batch
from vecwrap.columns import ARRAY_SPACES
from vecwrap.errors import ArgumentError
from vecwrap.parts.run_files import write_whole
from vecwrap.parts.tiles import tile

__all__ = ["Ending", "Endings"]


class Ending(NamedTuple):
    """How one episode ended.

    Attributes:
        observation: its last observation.
        score: the sum of the environment's own rewards in it.
        length: in agent steps.
        terminated: whether it terminated.
        truncated: whether it was truncated.
        lost: whether it ended because its sub-environment was lost, so that the score is meaningless.
    """

    observation: Any
    score: float
    length: int
    terminated: bool
    truncated: bool
    lost: bool


class Endings:
    """The last ``most`` endings of each of n sub-environments.

    Args:
        space: of one observation.
        num_envs: n.
        most: how many to keep of each.
    """

    def __init__(self, space: spaces.Space[Any], num_envs: int, most: int) -> None:
        self._space = space
        self._kept: list[deque[Ending]] = [deque(maxlen=most) for _ in range(num_envs)]

    def add(self, env_id: int, ending: Ending) -> None:
        """Keep an ending, whose observation must not be shared; may drop the sub-environment's oldest."""
        self._kept[env_id].append(ending)

    def all(self) -> tuple[tuple[Ending, ...], ...]:
        """Those of each sub-environment, oldest first."""
        return tuple(map(tuple, self._kept))

    def state(self) -> list[list[list[Any]]]:
        """Return all of them, as plain data."""
        return [[list(deepcopy(ending)) for ending in kept] for kept in self._kept]

    def load(self, state: list[list[list[Any]]]) -> None:
        """Restore the result of ``state``."""
        for kept, endings in zip(self._kept, state, strict=True):
            kept.clear()
            kept.extend(Ending(*deepcopy(values)) for values in endings)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all e endings as arrays, by sub-environment, oldest first.

        Returns:
            ``env_ids`` (e,) int64, ``scores`` (e,) float64, ``lengths`` (e,) int64, ``terminations``, ``truncations``
            and ``lost`` (e,) bool, and ``observations`` (e, *shape); of a Dict or Tuple space
            ``observations.<key>`` for each part.

        Raises:
            ArgumentError: observations that have no array form, or two members of one name.
        """
        rows = [(env_id, ending) for env_id, kept in enumerate(self._kept) for ending in kept]
        return {
            "env_ids": np.array([env_id for env_id, _ in rows], dtype=np.int64),
            "scores": np.array([ending.score for _, ending in rows], dtype=np.float64),
            "lengths": np.array([ending.length for _, ending in rows], dtype=np.int64),
            "terminations": np.array([ending.terminated for _, ending in rows], dtype=np.bool_),
            "truncations": np.array([ending.truncated for _, ending in rows], dtype=np.bool_),
            "lost": np.array([ending.lost for _, ending in rows], dtype=np.bool_),
            **_columns("observations", self._space, [ending.observation for _, ending in rows]),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``arrays`` as an ``.npz`` file, atomically, which ``np.load`` reads without pickle.

        Raises:
            ArgumentError: observations that have no array form, or two members of one name.
            OSError: the file cannot be written.
        """
        arrays = self.arrays()
        write_whole(Path(path), lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]

    def draw(self, member: str | None = None) -> NDArray[np.uint8]:
        """Draw the observations as one image, by sub-environment, oldest first.

        Args:
            member: which member of a Dict to draw.

        Returns:
            (height, width, 3) uint8. For a stack of images, the newest is drawn; a stack of three, six, ... grey images
            cannot be told from colour, and is drawn as colour.

        Raises:
            ArgumentError: there is no ending yet, or the observations are not images.
        """
        observations = [ending.observation for kept in self._kept for ending in kept]
        if not observations:
            raise ArgumentError("terminal_obs: draw_endings: expected at least one ending, got none yet; step on")
        space: Any = self._space
        if member is not None:
            if not isinstance(space, spaces.Dict) or member not in space.spaces:
                raise ArgumentError(
                    f'terminal_obs: draw_endings: expected a member of a Dict, got "{member}" of {space}'
                )
            space, observations = space[member], [observation[member] for observation in observations]
        if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) < 2:
            raise ArgumentError(
                f"terminal_obs: draw_endings: expected images, a Box of uint8, got {space}; say with "
                "member= which member of a Dict is one"
            )
        return tile([_image(observation) for observation in observations])


def _image(observation: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The newest image of a stack, or the image itself, (height, width) or (height, width, channels)."""
    while observation.ndim > 3:
        observation = observation[-1]
    if observation.ndim == 2 or observation.shape[2] in (1, 3):
        return observation
    height, width, channels = observation.shape
    if 2 * channels <= min(height, width):  # the channels are the last axis
        return observation[:, :, -_newest(channels) :]
    stacked, height, width = observation.shape
    if stacked <= min(height, width):  # images one after the other, or channels before the image
        return np.moveaxis(observation[-_newest(stacked) :], 0, 2)
    raise ArgumentError(
        "terminal_obs: draw_endings: expected images, or stacks of them along a new axis or their channels, got "
        f"observations of shape {observation.shape}"
    )


def _newest(channels: int) -> int:
    """How many channels the newest image of a stack has: three if possible."""
    return 1 if channels % 3 else 3


def _columns(name: str, space: spaces.Space[Any], values: list[Batch]) -> dict[str, NDArray[Any]]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        columns: dict[str, NDArray[Any]] = {}
        for key, part in parts:
            inner = _columns(f"{name}.{key}", part, [value[key] for value in values])
            if twice := columns.keys() & inner.keys():
                raise ArgumentError(
                    f'terminal_obs: save_endings: two members of {space} are called "{twice.pop()}" in a file; rename '
                    "one, or save the endings themselves"
                )
            columns.update(inner)
        return columns
    if not isinstance(space, ARRAY_SPACES):
        raise ArgumentError(
            f"terminal_obs: save_endings: {name}: expected observations that have an array form, got {space}; the "
            "endings themselves hold them"
        )
    return {name: np.array(values, dtype=space.dtype).reshape(len(values), *(space.shape or ()))}
