"""What passes between layers: the autoreset modes and the one record that every layer receives.

A batch is m <= n rows and every row carries the index of its sub-environment. Inside the chain a batch of observations
is an array with leading axis m, or a dict or tuple of such; values that have no array form (Text, Graph, Sequence,
OneOf and custom spaces) are one-dimensional object arrays. Only the face turns those into Gymnasium's tuples.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from gymnasium.vector import AutoresetMode

from vecwrap.batch import Batch, where
from vecwrap.errors import PlanError, did_you_mean

if TYPE_CHECKING:
    from vecwrap.errors import SubEnvError

__all__ = ["Autoreset", "BoolArray", "FloatArray", "Frames", "Infos", "IntArray", "StepResult"]

BoolArray: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
FloatArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
IntArray: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Infos: TypeAlias = dict[str, Any]


class Autoreset(Enum):
    """When an ended sub-environment begins its next episode.

    ``SAME_STEP``: within the step that ended it. ``NEXT_STEP``: in the step after, whose action is ignored.
    ``DISABLED``: when asked; stepping an ended row is an error. ``EPISODIC``: when asked; an ended row rests meanwhile
    (not stepped, reward 0, its done flag stays True).
    """

    SAME_STEP = "same_step"
    NEXT_STEP = "next_step"
    DISABLED = "disabled"
    EPISODIC = "episodic"

    @classmethod
    def parse(cls, mode: Autoreset | AutoresetMode | str) -> Autoreset:
        """Read a mode from vecwrap's names, Gymnasium's names (``"SameStep"``) or Gymnasium's enum.

        Raises:
            PlanError: for anything else.

        >>> Autoreset.parse("next_step"), Autoreset.parse(AutoresetMode.SAME_STEP)
        (<Autoreset.NEXT_STEP: 'next_step'>, <Autoreset.SAME_STEP: 'same_step'>)
        """
        if isinstance(mode, cls):
            return mode
        name = mode.name.lower() if isinstance(mode, AutoresetMode) else mode
        if isinstance(name, str):
            for candidate in cls:
                if name in (candidate.value, candidate.gymnasium.value) and name != "Disabled":
                    return candidate
            if name == "Disabled":
                return cls.DISABLED
        names = [candidate.value for candidate in cls]
        raise PlanError(f"autoreset: expected one of {', '.join(names)}, got {mode!r}.{did_you_mean(str(mode), names)}")

    @property
    def gymnasium(self) -> AutoresetMode:
        """What ``metadata["autoreset_mode"]`` says; Gymnasium has no word for episodic, whose resets are asked for."""
        return _GYMNASIUM_MODES[self]


_GYMNASIUM_MODES = {
    Autoreset.SAME_STEP: AutoresetMode.SAME_STEP,
    Autoreset.NEXT_STEP: AutoresetMode.NEXT_STEP,
    Autoreset.DISABLED: AutoresetMode.DISABLED,
    Autoreset.EPISODIC: AutoresetMode.DISABLED,
}


class Frames(Enum):
    """Which results of a sub-environment bring a frame along: none, those that open an episode, or all."""

    NONE = "none"
    OPENING = "opening"
    ALL = "all"


@dataclass(slots=True)
class StepResult:
    """m rows that come up through the chain, after a step, a reset, a masked reset or a ``recv``.

    Layers *assign* fields and never write into the arrays, which may be shared with what the user was given. A reset is
    a StepResult too: ``first`` True, ``acted`` False, rewards 0; so no layer asks which mode it is in.

    Attributes:
        env_ids: (m,) int64. Which sub-environment each row is; ascending, each at most once.
        rows: the index of these rows into per-sub-environment state: ``slice(None)`` where all n rows are present, else
            ``env_ids``; ``state[step.rows]`` is right in both cases.
        observations: m rows. What the agent acts on next.
        rewards: (m,) float64. What the agent is given.
        terminations: (m,) bool. As Gymnasium.
        truncations: (m,) bool. As Gymnasium.
        first: (m,) bool. This observation opens an episode.
        acted: (m,) bool. An action really happened in this row: not on a reset, not on the reset step of next-step
            mode, not while a row rests, not on a lost row.
        lost: (m,) bool. The sub-environment was lost since its last row, and with it whatever episode or game it had
            running. Where the agent's episode was running it ends here: truncated, reward 0, ``acted`` False, and its
            last observation is the last one that was delivered. Elsewhere the row opens the next episode.
        raw_rewards: (m,) float64. What the environment itself paid, before any layer clipped or scaled it.
        raw_dones: (m,) bool. The environment's own episode ended in this row (a lost life is no end).
        raw_first: (m,) bool. This observation opens an episode of the environment itself: a new game.
        infos: columns, each with its ``_key`` mask, m rows.
        final_obs: m rows or None. Where ``first & dones``: the ended episode's last observation. Other rows hold the
            same as ``observations``.
        final_infos: columns or None, m rows. Where ``first & dones``: the ended episode's last info.
        frames: a tuple of m frames (or None each), beside ``observations``; None where no recorder asked. Where
            rendering raised, an exception stands in the frame's place.
        final_frames: the same, beside ``final_obs``.
        raw_of_step: ``raw_rewards`` and ``raw_dones`` as they were before the reset that followed an end, where a game
            ended within that reset (in its no-ops, say); None where none did.
        failures: sub-environments that raised in this call; their rows are not among these.
        added: the names of columns that layers put into ``infos``; these are about the step, also where the row's other
            infos are those of the reset that followed it.

    >>> import vecwrap
    >>> class Look(vecwrap.VecEnvWrapper):
    ...     def on_step(self, step):
    ...         print(step.env_ids, step.first, step.acted, step.rewards)
    >>> env = vecwrap.build("CartPole-v1", n=2, wrappers=[Look], backend="dummy")
    >>> _ = env.reset(seed=1)
    [0 1] [ True  True] [False False] [0. 0.]
    >>> _ = env.step([0, 1])
    [0 1] [False False] [ True  True] [1. 1.]
    >>> env.close()
    """

    env_ids: IntArray
    rows: slice | IntArray
    observations: Batch
    rewards: FloatArray
    terminations: BoolArray
    truncations: BoolArray
    first: BoolArray
    acted: BoolArray
    lost: BoolArray
    raw_rewards: FloatArray
    raw_dones: BoolArray
    raw_first: BoolArray
    infos: Infos
    final_obs: Batch | None = None
    final_infos: Infos | None = None
    frames: tuple[Any, ...] | None = None
    final_frames: tuple[Any, ...] | None = None
    raw_of_step: tuple[FloatArray, BoolArray] | None = None
    failures: tuple[SubEnvError, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def dones(self) -> BoolArray:
        """(m,) bool: terminated or truncated."""
        return self.terminations | self.truncations

    @property
    def ended(self) -> BoolArray:
        """(m,) bool: an episode ended in this very row; False for a row that rests after its end."""
        return (self.terminations | self.truncations) & (self.acted | self.lost)

    @property
    def cut_off(self) -> BoolArray:
        """(m,) bool: the agent's episode ended in this row because its sub-environment was lost."""
        return self.lost & (self.terminations | self.truncations) & ~self.acted

    @property
    def live(self) -> BoolArray:
        """(m,) bool: the row carries a new observation; False where it rests, or was lost without a reset."""
        return self.acted | self.first

    @property
    def terminal_observations(self) -> Batch:
        """M rows: where an episode ended its last observation, elsewhere the present one."""
        if self.final_obs is None:
            return self.observations
        return where(self.first & self.dones, self.final_obs, self.observations)

    def add_info(self, key: str, values: Any, mask: BoolArray) -> None:
        """Put a column into ``infos`` beside the others, with its mask, without touching the dict that came.

        Args:
            key: the column's name; a column of that name is replaced.
            values: (m, ...) array, or a dict of such.
            mask: (m,) bool, which rows have it.
        """
        self.infos = {**self.infos, key: values, f"_{key}": mask}
        self.added = (*self.added, key)

    def replace(self, **changes: Any) -> StepResult:
        """Give a copy that shares its arrays with this one.

        Args:
            **changes: fields with what they are in the copy.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return StepResult(**{**values, **changes})
