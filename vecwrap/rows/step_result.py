"""The contract between wrappers: the autoreset modes, and the record that wrappers receive.

A batch is m <= n rows and every row carries the index of its sub-environment. Inside the chain a
batch of observations is an array with leading axis m, or a dict or tuple of such; values that have
no array form (Text, Graph, Sequence, OneOf and custom spaces) are one-dimensional object arrays.
Only the outermost environment makes Gymnasium's tuples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from gymnasium.vector import AutoresetMode

from vecwrap.errors import PlanError, SubEnvError, did_you_mean
from vecwrap.rows.batch import Batch, IntArray, where
from vecwrap.rows.infos import without_keys

__all__ = [
    "Autoreset",
    "BoolArray",
    "FloatArray",
    "Frames",
    "Infos",
    "IntArray",
    "StepResult",
    "UnplayedGame",
]

BoolArray: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
FloatArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Infos: TypeAlias = dict[str, Any]


# vecwrap's names of the modes, and Gymnasium's
AutoresetName: TypeAlias = Literal[
    "same_step", "next_step", "disabled", "episodic", "SameStep", "NextStep", "Disabled"
]


class Autoreset(Enum):
    """When an ended sub-environment starts its next episode.

    ``SAME_STEP``: within the step that ended it. ``NEXT_STEP``: in the following step, whose action
    is ignored. ``DISABLED``: on request; stepping an ended row is an error. ``EPISODIC``: on
    request; until then an ended row rests (not stepped, reward 0, its done flag stays True).
    """

    SAME_STEP = "same_step"
    NEXT_STEP = "next_step"
    DISABLED = "disabled"
    EPISODIC = "episodic"

    @classmethod
    def parse(cls, mode: Autoreset | AutoresetMode | str) -> Autoreset:
        """Read a mode from vecwrap's names, Gymnasium's names or Gymnasium's enum.

        Gymnasium's names are written like ``"SameStep"``.
        """
        if isinstance(mode, cls):
            return mode
        name: Any = mode
        if isinstance(mode, AutoresetMode):
            name = mode.value
        for candidate in cls:  # "Disabled" is Gymnasium's name of EPISODIC too, which comes later
            if isinstance(name, str) and name in (candidate.value, candidate.gymnasium.value):
                return candidate
        names = [candidate.value for candidate in cls]
        raise PlanError(
            f"autoreset: expected one of {', '.join(names)}, got "
            f"{mode!r}.{did_you_mean(str(mode), names)}"
        )

    @property
    def gymnasium(self) -> AutoresetMode:
        """The value of ``metadata["autoreset_mode"]``; episodic mode counts as DISABLED.

        Gymnasium does not have episodic mode.
        """
        if self is Autoreset.EPISODIC:
            return AutoresetMode.DISABLED
        return AutoresetMode[self.name]


class Frames(Enum):
    """Which results of a sub-environment include a frame: none, those that open an episode, all."""

    NONE = "none"
    OPENING = "opening"
    ALL = "all"


class UnplayedGame(NamedTuple):
    """A game that ended before the agent's first move: it has a score, but no transition.

    Attributes:
        env_id: the row.
        reward: what the agent received in it.
        raw_reward: the environment's own rewards in it, before any wrapper clipped or scaled them.
        lost: the game ended because its sub-environment was lost, so the rewards are not a score.
        seconds: how long it took.
        infos: the agent's last info, and what wrappers added to it.
    """

    env_id: int
    reward: float
    raw_reward: float
    lost: bool
    seconds: float
    infos: Infos


@dataclass(slots=True)
class StepResult:
    """m rows that pass up through the chain after a step, a reset, a masked reset or a ``recv``.

    Wrappers *assign* fields and never write into the arrays, which may be shared with arrays that
    the user holds. A reset is a StepResult too: ``first`` True, ``acted`` False, rewards 0; so
    wrappers need not know the autoreset mode.

    A row whose episode ends in step t, in each mode::

        mode        step t                            after it
        same_step   acted, done, first, final_obs     acted: the first step of the next episode
        next_step   acted, done                       first, not acted: the reset
        disabled    acted, done                       first, not acted: a reset on request
        episodic    acted, done                       done, not acted (rests); first once reset

    Fields named ``raw_*`` are the environment's own, before any wrapper; ``final_*`` are of ended
    episodes; ``to_move``, ``alive``, ``unplayed`` and ``games_ended`` are of games.

    Attributes:
        env_ids: (m,) int64. The sub-environment of each row; ascending, each at most once.
        rows: the index of these rows into per-sub-environment state: ``slice(None)`` if all n rows
            are present, else ``env_ids``; ``state[step.rows]`` is right in both cases.
        observations: m rows. What the agent acts on next.
        rewards: (m,) float64. What the agent receives.
        terminations: (m,) bool. As Gymnasium.
        truncations: (m,) bool. As Gymnasium.
        first: (m,) bool. This observation opens an episode.
        acted: (m,) bool. An action was taken in this row: False on a reset, on the reset step of
            next-step mode, while a row rests, and on a lost row.
        completed: (m,) bool. A transition of the agent is complete in this row, so the row's reward
            is what an action earned. The same as ``acted``, except in games in turns: there the
            agent is to move again, or has left, and has acted since it last was to move. False at
            its first turn, and for an agent that leaves before that: what they are paid then, no
            action earned.
        observed: (m,) bool. The row has a new observation: False while it rests or waits for its
            turn, or if it was lost without a reset.
        to_move: (m,) bool. In games of several agents: the row's next action will be used.
            Elsewhere True.
        alive: (m,) bool. In games of several agents: the agent is in the game. Its ``dones`` are
            True in the step in which it leaves, and it then rests until its game begins again.
            Elsewhere True.
        lost: (m,) bool. The sub-environment was lost since its last row, with any episode or game
            it was running. If the agent's episode was running, it ends here: truncated, reward 0,
            ``acted`` False, and its last observation is the last one delivered. Otherwise the row
            opens the next episode.
        raw_rewards: (m,) float64. The environment's own rewards, before any wrapper clipped or
            scaled them.
        raw_dones: (m,) bool. The environment's own episode ended in this row (a lost life is not an
            end).
        raw_first: (m,) bool. This observation opens an episode of the environment itself: a new
            game.
        infos: columns, each with its ``_key`` mask, m rows.
        final_obs: m rows or None. Where ``first & dones``: the ended episode's last observation.
            Other rows equal ``observations``.
        final_infos: columns or None, m rows. Where ``first & dones``: the ended episode's last
            info.
        frames: a tuple of m frames (or None each), matching ``observations``; None if no recorder
            requested any. If rendering raised, the exception takes the frame's place.
        final_frames: the same, matching ``final_obs``.
        raw_of_step: ``raw_rewards`` and ``raw_dones`` as they were before the reset that followed
            an end, if a game ended within that reset (during its no-ops, say); None if none did.
        failures: errors of sub-environments that raised in this call; their rows are not included.
        added: the names of columns that wrappers added to ``infos``; these are about the step, even
            if the row's other infos are those of the reset that followed it.
        uneventful_flags: for ``uneventful``: empty, or what the flags were when it was known:
            ``terminations``, ``truncations``, one array for all that are True, one for all that are
            False.
        unplayed: the games of these rows that began and ended within this result, before the
            agent's first move, in their order; they came after the end that the row itself shows,
            and before the game that it opens.
        games_ended: (m,) int64 or None. Where others move too: how many games of the agent ended in
            this row, those of ``unplayed`` included and lost ones not.

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
    # What happened in the row.
    first: BoolArray
    acted: BoolArray
    completed: BoolArray
    observed: BoolArray
    # Games of several agents.
    to_move: BoolArray
    alive: BoolArray
    # Restarts.
    lost: BoolArray
    # The environment's own, before any wrapper.
    raw_rewards: FloatArray
    raw_dones: BoolArray
    raw_first: BoolArray
    infos: Infos
    # Of ended episodes.
    final_obs: Batch | None = None
    final_infos: Infos | None = None
    frames: tuple[Any, ...] | None = None
    final_frames: tuple[Any, ...] | None = None
    raw_of_step: tuple[FloatArray, BoolArray] | None = None
    failures: tuple[SubEnvError, ...] = ()
    added: tuple[str, ...] = ()
    uneventful_flags: tuple[BoolArray, ...] = ()
    unplayed: tuple[UnplayedGame, ...] = ()
    games_ended: IntArray | None = None

    @property
    def uneventful(self) -> bool:
        """Whether the step is uneventful: every row acted, and nothing began, ended or was lost.

        No episode and no game began or ended, which is the common case.

        False may also mean that it is not known.
        """
        if not self.uneventful_flags:
            return False
        terminations, truncations, yes, no = self.uneventful_flags
        return (
            self.terminations is terminations
            and self.truncations is truncations
            and yes is self.acted is self.completed is self.observed is self.to_move is self.alive
            and no is self.first is self.lost is self.raw_dones is self.raw_first
        )

    @property
    def dones(self) -> BoolArray:
        """(m,) bool: terminated or truncated."""
        return self.terminations | self.truncations

    @property
    def ended(self) -> BoolArray:
        """(m,) bool: an episode ended in this row; False for a row that rests after its end."""
        return (self.terminations | self.truncations) & (self.observed | self.lost)

    @property
    def paid_on_joining(self) -> BoolArray:
        """(m,) bool: the row's agent joined a running game and received a reward at once.

        The reward belongs to the episode that the agent opens.
        """
        return self.raw_first & self.raw_rewards.astype(np.bool_) & ~(self.raw_dones | self.dones)

    @property
    def opens_absent(self) -> BoolArray:
        """(m,) bool: a game begins in this row without its agent.

        A running episode of the agent is broken off.
        """
        return self.first & ~self.alive

    @property
    def cut_off(self) -> BoolArray:
        """(m,) bool: the agent's episode ended in this row because its sub-environment was lost."""
        return self.lost & (self.terminations | self.truncations) & ~self.acted

    @property
    def terminal_observations(self) -> Batch:
        """As ``observations``: an ended episode's last observation, otherwise the current one."""
        if self.final_obs is None:
            return self.observations
        return where(self.first & self.dones, self.final_obs, self.observations)

    def add_info(self, key: str, values: Any, mask: BoolArray) -> None:
        """Add a column and its mask to ``infos``, in a new dict; the old dict is unchanged.

        Args:
            key: the column's name; a wrapper's column of that name is replaced, an environment's
                gets another name.
            values: (m, ...) array, or a dict of such.
            mask: (m,) bool, which rows have it.
        """
        if key in self.added or not self.infos:
            infos = self.infos
        else:
            infos = without_keys(self.infos, key)
        self.infos = {**infos, key: values, f"_{key}": mask}
        self.added = (*self.added, key)

    def change_unplayed(self, change: Callable[[FloatArray], FloatArray]) -> None:
        """Change the rewards of ``unplayed`` games, if any, as a wrapper changes ``rewards``.

        Args:
            change: from the rewards of k games, (k,) float64, to as many; not called without any.
        """
        if self.unplayed:
            changed = change(np.array([game.reward for game in self.unplayed]))
            games = zip(self.unplayed, changed.tolist(), strict=True)
            self.unplayed = tuple(game._replace(reward=reward) for game, reward in games)

    def replace(self, **changes: Any) -> StepResult:
        """Return a copy that shares its arrays with this one.

        Args:
            **changes: fields and their values in the copy.
        """
        return dataclasses.replace(self, **changes)
