"""Terminal observations as one dense array, in the same place in every autoreset mode."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vecwrap.batch import Batch, row, tree_map
from vecwrap.contract import BoolArray, StepResult
from vecwrap.errors import PlanError
from vecwrap.parts.argument_checks import check_info_key
from vecwrap.parts.endings import Ending, Endings
from vecwrap.space_text import bytes_of
from vecwrap.vec_env import VecEnv
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["TerminalObs"]


class TerminalObs(VecEnvWrapper):
    """Report each ended episode's last observation in ``infos``, as one dense batch.

    In same-step mode the observation that a step returns already opens the next episode, and Gymnasium's ``final_obs``
    is an object array; in the other modes the step itself returns the terminal observation. Here it is in the same
    place in every mode, ready for bootstrapping::

        infos["terminal_obs"]   # (m, *shape), like observations: zeros (None for objects) where no episode ended
        infos["_terminal_obs"]  # (m,) bool, whether an episode ended in this row

    As with any other column of ``infos``, both are present only in steps in which an episode ended. The observation is
    the one at this layer's place in the chain: outside a frame stack it is a stack, inside it is a frame. A row that
    rests in episodic mode reports its end once. Observations of Dict and Tuple spaces give dicts and tuples of arrays.

    With ``record=k`` the last k endings of each sub-environment are also kept: see ``endings``, ``save_endings`` and
    ``draw_endings``. Their scores are sums of the environment's own rewards, even if layers clip them; an episode
    interrupted by a reset leaves no ending.

    At an episode's end:
        The terminal observation is reported in ``infos``, and kept if ``record`` is above 0.

    Args:
        env: what it wraps.
        key: the column's name; ``"terminal_observation"`` is Stable-Baselines3's.
        record: how many endings of each sub-environment to keep.

    Raises:
        PlanError: a key that is empty, starts with an underscore (reserved for masks), has a meaning in Gymnasium, or
            is used by an inner layer of this kind; a negative number of endings.

    Example:
        >>> import gymnasium
        >>> from vecwrap.backends.dummy import DummyBackend
        >>> make = lambda: gymnasium.make("CartPole-v1", max_episode_steps=3)
        >>> env = TerminalObs(DummyBackend([make, make], autoreset="next_step"))
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
        if record < 0:
            raise PlanError(f"terminal_obs: record: expected 0 or more endings, got {record}")
        if any(isinstance(inner, TerminalObs) and inner.key == key for inner in env.layers):
            raise PlanError(
                f'terminal_obs: key: an inner terminal_obs reports infos["{key}"] already; leave one out, or give this '
                'one another name with key="..."'
            )
        self.key: str = key
        self.record = record
        self._scores = np.zeros(env.num_envs)
        self._lengths = np.zeros(env.num_envs, dtype=np.int64)
        self._endings = Endings(env.single_observation_space, env.num_envs, record)

    @property
    def endings(self) -> tuple[tuple[Ending, ...], ...]:
        """The last endings of each sub-environment, oldest first; at most ``record`` of each."""
        return self._endings.all()

    def save_endings(self, path: str | os.PathLike[str]) -> None:
        """Write the endings as an ``.npz`` file, which ``np.load`` reads without pickle.

        For e endings, ordered by sub-environment, oldest first, it contains: ``env_ids`` (e,) int64, ``scores`` (e,)
        float64, ``lengths`` (e,) int64, ``terminations``, ``truncations`` and ``lost`` (e,) bool, and ``observations``
        (e, *shape), or for a Dict or Tuple space ``observations.<key>`` for each part.

        Raises:
            ArgumentError: observations that have no array form, such as text.
            OSError: the file cannot be written; an existing file is left unchanged.
        """
        self._endings.save(path)

    def draw_endings(self, member: str | None = None) -> NDArray[np.uint8]:
        """Draw the last observations of the endings as one image of tiles, by sub-environment, oldest first.

        Args:
            member: which member of a Dict is the image.

        Returns:
            (height, width, 3) uint8. For a stack of images, the newest is drawn; a stack of three, six, ... grey images
            cannot be told from colour, and is drawn as colour.

        Raises:
            ArgumentError: no episode has ended yet, or the observations are not images.
        """
        return self._endings.draw(member)

    def on_step(self, step: StepResult) -> None:
        """Add the column where an episode ended."""
        ended = step.ended
        terminal = _only(ended, step.terminal_observations) if ended.any() else None
        if terminal is not None:
            step.add_info(self.key, terminal, ended)
        if self.record:
            self._note(step, ended, terminal)

    def bytes_held(self) -> int:
        """The maximum memory held, for the plan: all possible endings, and the running scores."""
        endings = 0 if not self.record else self.record * self.num_envs * (bytes_of(self.single_observation_space) or 0)
        return endings + self._scores.nbytes + self._lengths.nbytes

    def _note(self, step: StepResult, ended: BoolArray, terminal: Batch) -> None:
        """Add up the running scores, and keep the endings."""
        paid, _ = step.raw_of_step or (step.raw_rewards, step.raw_dones)
        scores = self._scores[step.rows] + paid
        lengths = self._lengths[step.rows] + step.acted
        cut_off = step.cut_off
        for i in np.flatnonzero(ended).tolist():
            flags = bool(step.terminations[i]), bool(step.truncations[i]), bool(cut_off[i])
            ending = Ending(row(terminal, i), float(scores[i]), int(lengths[i]), *flags)
            self._endings.add(int(step.env_ids[i]), ending)
        cleared = ended | step.first
        self._scores[step.rows] = np.where(cleared, 0.0, scores)
        self._lengths[step.rows] = np.where(cleared, 0, lengths)

    def layer_state(self) -> dict[str, Any]:
        """Return the scores and lengths of the running episodes, and the endings."""
        return {
            "scores": self._scores.copy(),
            "lengths": self._lengths.copy(),
            "endings": self._endings.state(),
        }

    def load_layer_state(self, state: dict[str, Any]) -> None:
        """Take in what ``layer_state`` gave."""
        self._scores[:] = state["scores"]
        self._lengths[:] = state["lengths"]
        self._endings.load(state["endings"])


def _only(mask: np.ndarray[Any, Any], batch: Batch) -> Batch:
    """The rows of a mask, and zeros (None for objects) elsewhere; fresh arrays."""

    def choose(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        out = np.full_like(array, None) if array.dtype == object else np.zeros_like(array)
        out[mask] = array[mask]
        return out

    return tree_map(choose, batch)
