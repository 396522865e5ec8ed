"""Terminal observations as one dense array, in the same place in every autoreset mode."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from vecwrap.env.atomic_files import write_atomically
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ArgumentError, PlanError, at_least, check_info_key
from vecwrap.rows.batch import Batch, row, tree_map
from vecwrap.rows.columns import ARRAY_SPACES
from vecwrap.rows.saved import fitting, fitting_list, put
from vecwrap.rows.step_result import BoolArray, StepResult


class Ending(NamedTuple):
    """How one episode ended.

    Attributes:
        observation: its last observation.
        score: the sum of the environment's own rewards in it.
        length: in agent steps.
        terminated: whether it terminated.
        truncated: whether it was truncated.
        lost: whether it ended because its sub-environment was lost, so that the score is
            meaningless.
    """

    observation: Any
    score: float
    length: int
    terminated: bool
    truncated: bool
    lost: bool


class TerminalObs(VecEnvWrapper):
    """Report each ended episode's last observation in ``infos``, as one dense batch.

    In same-step mode the observation that a step returns already opens the next episode, and
    Gymnasium's ``final_obs`` is an object array; in the other modes the step itself returns the
    terminal observation. Here it is in the same place in every mode, ready for bootstrapping::

        infos["terminal_obs"]   # (m, *shape), like observations: zeros (None for objects)
                                # where no episode ended
        infos["_terminal_obs"]  # (m,) bool, whether an episode ended in this row

    As with any other column of ``infos``, both are present only in steps in which an episode ended.
    The observation is the one at this wrapper's place in the chain: outside a frame stack it is a
    stack, inside it is a frame. A row that rests in episodic mode reports its end once.
    Observations of Dict and Tuple spaces give dicts and tuples of arrays.

    With ``record=k`` the last k endings of each sub-environment are also kept: see ``endings`` and
    ``save_endings``. Their scores are sums of the environment's own rewards, even if wrappers clip
    them. An episode interrupted by a reset leaves no ending.

    At an episode's end:
        The terminal observation is reported in ``infos``, and kept if ``record`` is above 0.

    Args:
        env: what it wraps.
        key: the column's name; ``"terminal_observation"`` is Stable-Baselines3's.
        record: how many endings of each sub-environment to keep.

    Raises:
        PlanError: a key that is empty, starts with an underscore (reserved for masks), has a
            meaning in Gymnasium, or is used by an inner wrapper of this kind; a negative number of
            endings.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> make = lambda: gymnasium.make("CartPole-v1", max_episode_steps=3)
        >>> env = TerminalObs(vecwrap.build(make, n=2, backend="dummy", autoreset="next_step"))
        >>> observations, infos = env.reset(seed=1)
        >>> while "terminal_obs" not in infos:
        ...     observations, rewards, terminations, truncations, infos = env.step([0, 1])
        >>> infos["terminal_obs"].shape, infos["_terminal_obs"]
        ((2, 4), array([ True,  True]))
        >>> bool((infos["terminal_obs"] == observations).all())
        True
        >>> env.close()
    """

    not_hashed: ClassVar[frozenset[str]] = frozenset({"record"})

    def __init__(self, env: VecEnv, *, key: str = "terminal_obs", record: int = 0) -> None:
        super().__init__(env)
        check_info_key("terminal_obs: key", key, "terminal_obs")
        at_least("terminal_obs: record", record, 0)
        if any(isinstance(inner, TerminalObs) and inner.column == key for inner in env.chain):
            raise PlanError(
                f'terminal_obs: key: an inner terminal_obs reports infos["{key}"] already; leave '
                'one out, or give this one another name with key="..."'
            )
        self._key: str = key
        self._record = record
        self._scores = np.zeros(env.num_envs)
        self._lengths = np.zeros(env.num_envs, dtype=np.int64)
        self._endings: list[deque[Ending]] = [deque(maxlen=record) for _ in range(env.num_envs)]

    @property
    def column(self) -> str:
        """The column's name in ``infos``."""
        return self._key

    @property
    def endings(self) -> tuple[tuple[Ending, ...], ...]:
        """The last endings of each sub-environment, oldest first; at most ``record`` of each."""
        return tuple(map(tuple, self._endings))

    def save_endings(self, path: str | os.PathLike[str]) -> None:
        """Write the endings as an ``.npz`` file, which ``np.load`` reads without pickle.

        For e endings, ordered by sub-environment, oldest first, it contains: ``env_ids`` (e,)
        int64, ``scores`` (e,) float64, ``lengths`` (e,) int64, ``terminations``, ``truncations``
        and ``lost`` (e,) bool, and ``observations`` (e, *shape), or for a Dict or Tuple space
        ``observations.<key>`` for each part.

        Raises:
            ArgumentError: observations that have no array form, such as text.
            OSError: the file cannot be written; an existing file is left unchanged.
        """
        rows = [(env_id, ending) for env_id, kept in enumerate(self._endings) for ending in kept]
        observations = [ending.observation for _, ending in rows]
        arrays: dict[str, Any] = {
            "env_ids": np.array([env_id for env_id, _ in rows], dtype=np.int64),
            "scores": np.array([ending.score for _, ending in rows], dtype=np.float64),
            "lengths": np.array([ending.length for _, ending in rows], dtype=np.int64),
            "terminations": np.array([ending.terminated for _, ending in rows], dtype=np.bool_),
            "truncations": np.array([ending.truncated for _, ending in rows], dtype=np.bool_),
            "lost": np.array([ending.lost for _, ending in rows], dtype=np.bool_),
            **_columns("observations", self.single_observation_space, observations),
        }
        write_atomically(Path(path), lambda file: np.savez(file, **arrays))

    def on_step(self, step: StepResult) -> None:
        ended = step.ended
        terminal = None
        if ended.any():
            terminal = _only(ended, step.terminal_observations)
        if terminal is not None:
            step.add_info(self._key, terminal, ended)
        if self._record:
            self._note(step, ended, terminal)

    def _note(self, step: StepResult, ended: BoolArray, terminal: Batch) -> None:
        """Add up the running scores, and keep the endings."""
        paid, _ = step.raw_of_step or (step.raw_rewards, step.raw_dones)
        scores = self._scores[step.rows] + paid
        lengths = self._lengths[step.rows] + step.acted
        cut_off = step.cut_off
        for i in np.flatnonzero(ended).tolist():
            flags = bool(step.terminations[i]), bool(step.truncations[i]), bool(cut_off[i])
            ending = Ending(row(terminal, i), float(scores[i]), int(lengths[i]), *flags)
            self._endings[step.env_ids[i]].append(ending)
        cleared = ended | step.first
        joined = step.paid_on_joining
        self._scores[step.rows] = np.where(cleared, np.where(joined, paid, 0.0), scores)
        self._lengths[step.rows] = np.where(cleared, 0, lengths)

    def wrapper_state(self) -> dict[str, Any]:
        """Return the scores and lengths of the running episodes, and the endings."""
        return {
            "scores": self._scores.copy(),
            "lengths": self._lengths.copy(),
            "endings": [[list(deepcopy(ending)) for ending in kept] for kept in self._endings],
        }

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        """Load what ``wrapper_state`` returned."""
        put(self._scores, state["scores"], "scores")
        put(self._lengths, state["lengths"], "lengths")
        for kept, needs_reset in zip(self._endings, state["endings"], strict=True):
            kept.clear()
            for saved in needs_reset:
                observation, *others = fitting_list(
                    deepcopy(saved), len(Ending._fields), "an ending"
                )
                kept.append(
                    Ending(observation, *map(fitting, others, (0.0, 0, False, False, False)))
                )


def _only(mask: np.ndarray[Any, Any], batch: Batch) -> Batch:
    """The rows of a mask, and zeros (None for objects) elsewhere; fresh arrays."""

    def choose(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if array.dtype == object:
            out = np.full_like(array, None)
        else:
            out = np.zeros_like(array)
        out[mask] = array[mask]
        return out

    return tree_map(choose, batch)


def _columns(name: str, space: spaces.Space[Any], values: list[Batch]) -> dict[str, NDArray[Any]]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts: Iterable[tuple[Any, spaces.Space[Any]]]
        if isinstance(space, spaces.Dict):
            parts = space.spaces.items()
        else:
            parts = enumerate(space.spaces)
        columns: dict[str, NDArray[Any]] = {}
        for key, part in parts:
            inner = _columns(f"{name}.{key}", part, [value[key] for value in values])
            if twice := columns.keys() & inner.keys():
                raise ArgumentError(
                    f"terminal_obs: save_endings: two members of {space} are called "
                    f'"{twice.pop()}" in a file; rename one, or save the endings themselves'
                )
            columns.update(inner)
        return columns
    if not isinstance(space, ARRAY_SPACES):
        raise ArgumentError(
            f"terminal_obs: save_endings: {name}: expected observations that have an array form, "
            f"got {space}; the endings themselves hold them"
        )
    return {name: np.array(values, dtype=space.dtype).reshape(len(values), *(space.shape or ()))}
