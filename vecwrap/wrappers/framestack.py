"""The last k observations as one."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from vecwrap.batch import Batch, recycle
from vecwrap.contract import StepResult
from vecwrap.errors import PlanError, did_you_mean
from vecwrap.parts import members
from vecwrap.vec_env import VecEnv
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["FrameStack"]

Array = np.ndarray[Any, np.dtype[Any]]

_SHORT = 4  # elements, such as the channels of a pixel: so many are better written one after another


class FrameStack(VecEnvWrapper):
    """Stack the last k observations of each sub-environment, the newest last.

    Every stack handed out is a fresh array. A stack holds one episode alone: terminal observations are stacked with the
    history of the episode that they end, and an episode's first stack is padded.

    ========== ============================ ==================== ======================
    space      ``axis="new"``               ``axis="channel"``   with channels ``first``
    ========== ============================ ==================== ======================
    (H, W, C)  (k, H, W, C)                 (H, W, k*C)
    (C, H, W)  (k, C, H, W)                                      (k*C, H, W)
    (H, W)     (k, H, W)                    (H, W, k)            (k, H, W)
    (D,)       (k, D)                       (k*D,)               (k*D,)
    ========== ============================ ==================== ======================

    Of observations of a Dict space, each member is stacked by itself; those that ``keys`` does not name pass unchanged.

    At an episode's end:
        The terminal observation is stacked with its own episode's history; the next begins as ``padding`` says.

    Args:
        env: what it wraps; its observations are a Box, or a Dict with Boxes.
        k: how many observations a stack holds.
        axis: ``"new"`` puts a leading axis of length k before any shape; ``"channel"`` concatenates along the channels,
            those of the oldest observation first. An image without a channel axis counts as one channel, and a vector
            is all channels.
        padding: what stands before an episode's first observation: ``"zero"``, as in Baselines, SB3 and ALE, or
            ``"first"``, copies of that observation.
        channels: with ``axis="channel"``, whether they are the ``"last"`` axis or the ``"first"``.
        keys: which members of a Dict to stack; None means all.

    Raises:
        PlanError: observations that cannot be stacked, or an argument out of range.

    Example:
        >>> import gymnasium
        >>> from vecwrap.backends.dummy import DummyBackend
        >>> env = FrameStack(DummyBackend([lambda: gymnasium.make("CartPole-v1")] * 2), 4)
        >>> observations, infos = env.reset(seed=1)
        >>> observations.shape, observations.dtype
        ((2, 4, 4), dtype('float32'))
        >>> observations.any(axis=2)  # three of zeros, then the first observation
        array([[False, False, False,  True],
               [False, False, False,  True]])
        >>> env.close()
    """

    def __init__(
        self,
        env: VecEnv,
        k: int,
        *,
        axis: Literal["new", "channel"] = "new",
        padding: Literal["zero", "first"] = "zero",
        channels: Literal["last", "first"] = "last",
        keys: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(env)
        space = env.single_observation_space
        stacked = members.choose(
            "framestack", space, keys, _is_box, "a Box", "put a layer that makes them one inside of it (flatten does)"
        )
        if k < 1:
            raise PlanError(f"framestack: k: expected 1 or more observations, got {k}")
        _one_of("axis", axis, ("new", "channel"))
        _one_of("padding", padding, ("zero", "first"))
        _one_of("channels", channels, ("last", "first"))
        self.k = k
        self.axis = axis
        self.padding = padding
        self.channels = channels
        self._stacks = {
            key: _Stack(box, env.num_envs, _layout(box.shape, k, axis, channels), padding)
            for key, box in stacked.items()
        }
        self._set_observation_space(members.replaced(space, {key: each.space for key, each in self._stacks.items()}))

    def on_step(self, step: StepResult) -> None:
        """Stack terminal observations with the ended history, clear the rows that open an episode, append."""
        observations, final_obs = step.observations, step.final_obs
        stacks, final_stacks = {}, {}
        for key, each in self._stacks.items():
            final = None if final_obs is None else members.of(final_obs, key)
            stacks[key], final_stacks[key] = each.push(step, members.of(observations, key), final)
        step.observations = members.with_new(observations, stacks)
        if final_obs is not None:
            step.final_obs = members.with_new(final_obs, final_stacks)

    def layer_state(self) -> dict[str, Any]:
        """Give the stacks: (n, *shape), or for a Dict such by key."""
        return {"stacks": members.with_new({}, {key: each.last.copy() for key, each in self._stacks.items()})}

    def load_layer_state(self, state: dict[str, Any]) -> None:
        """Take in what ``layer_state`` gave."""
        for key, each in self._stacks.items():
            each.last[:] = members.of(state["stacks"], key)

    def _remember(self, step: StepResult) -> None:
        """Keep what other members show; what the stacks show is kept already."""
        if None not in self._stacks:
            super()._remember(step)

    def _all_observations(self) -> Batch:
        return self._stacks[None].last.copy() if None in self._stacks else super()._all_observations()


def _is_box(space: spaces.Space[Any]) -> bool:
    return type(space) is spaces.Box


@dataclass(frozen=True)
class _Layout:
    """Where the k values lie in one stack.

    Attributes:
        k: how many.
        position: before which axis of a value the axis of length k stands.
        merged: whether it is merged with the axis behind it.
        value_shape: of one value.
    """

    k: int
    position: int
    merged: bool
    value_shape: tuple[int, ...]

    @property
    def split_shape(self) -> tuple[int, ...]:
        """Of a stack before two axes of it are merged."""
        return (*self.value_shape[: self.position], self.k, *self.value_shape[self.position :])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a stack."""
        if not self.merged:
            return self.split_shape
        before, after = self.value_shape[: self.position], self.value_shape[self.position + 1 :]
        return (*before, self.k * self.value_shape[self.position], *after)

    @property
    def run(self) -> int:
        """How many elements of one value stand together in a stack."""
        return math.prod(self.value_shape[self.position :])

    def values(self, stacks: Array) -> Array:
        """See (m, *shape) as (m, k, *value_shape), without a copy."""
        split = stacks.reshape(len(stacks), *self.split_shape)
        return np.moveaxis(split, 1 + self.position, 1) if self.position else split

    def stack(self, values: Array) -> Array:
        """Lay (k, *value_shape) out as one stack."""
        return np.moveaxis(values, 0, self.position).reshape(self.shape)


def _layout(shape: tuple[int, ...], k: int, axis: str, channels: str) -> _Layout:
    if axis == "new":
        return _Layout(k, 0, merged=False, value_shape=shape)
    has_channels = len(shape) not in (0, 2)
    if channels == "first":
        return _Layout(k, 0, has_channels, shape)
    return _Layout(k, len(shape) - has_channels, has_channels, shape)


class _Stack:
    """The last k values of one Box, for each of n sub-environments.

    Attributes:
        space: of one stack.
        last: (n, *space.shape). The stacks as they were last given.
    """

    def __init__(self, space: spaces.Box, num_envs: int, layout: _Layout, padding: str) -> None:
        self._layout = layout
        self._padding = padding
        low, high = (np.repeat(bound[None], layout.k, axis=0) for bound in (space.low, space.high))
        if padding == "zero":  # stacks hold zeros, also where the space of one value does not
            low[:-1], high[:-1] = np.minimum(low[:-1], 0), np.maximum(high[:-1], 0)
        self.space = spaces.Box(layout.stack(low), layout.stack(high), dtype=low.dtype.type)
        self.last = np.zeros((num_envs, *layout.shape), dtype=low.dtype)
        recycle(self.last.nbytes)
        self._run = layout.run
        self._word = _word(low.dtype, layout.k) if self._run == 1 else None

    def push(self, step: StepResult, observations: Array, final_obs: Array | None) -> tuple[Array, Array | None]:
        """Give the stacks of observations and of final observations, and remember the former."""
        history = self.last[step.rows]
        stacks = self._appended(history, observations)
        if np.count_nonzero(step.first):
            values = self._layout.values(stacks)
            values[step.first, :-1] = observations[step.first][:, None] if self._padding == "first" else 0
        if np.count_nonzero(step.live) < len(stacks):  # nothing new in these rows
            stacks[~step.live] = history[~step.live]
        final_stacks = None if final_obs is None else self._end(stacks, history, step, final_obs)
        self.last[step.rows] = stacks  # not before: `history` may be a view of it
        return stacks, final_stacks

    def _appended(self, history: Array, observations: Array) -> Array:
        """Give stacks without their oldest values, with the observations as their newest; a fresh array.

        In memory, stacks are runs of elements: one run of each of k values, then again, for each element before the
        axis of length k. Moved forward by a run as a whole, each value stands in the place of the one before it, and
        what comes to stand in the place of the newest is overwritten. NumPy takes 20 times as long where it moves the
        values of each pixel by themselves.
        """
        stacks = np.empty_like(history)
        old, new = history.reshape(-1), stacks.reshape(-1)
        if self._word is not None and observations.dtype == stacks.dtype:
            self._append_words(old, new, observations)
            return stacks
        run, k = self._run, self._layout.k
        new[: new.size - run] = old[run:]
        newest = new.reshape(observations.size // max(run, 1), k * run)[:, (k - 1) * run :]
        values = observations.reshape(newest.shape)
        if run > _SHORT:
            newest[:] = values
        else:  # NumPy's innermost loop is as short as a run
            for i in range(run):
                newest[:, i] = values[:, i]
        return stacks

    def _append_words(self, old: Array, new: Array, observations: Array) -> None:
        """Do the same where runs are single elements and k of them fit a machine word: with words."""
        assert self._word is not None
        element = f"u{new.itemsize}"
        np.right_shift(old.view(self._word), 8 * new.itemsize, out=new.view(self._word))  # 0 for the newest
        widened = np.empty(observations.size + 1, self._word)
        widened[0] = 0
        widened[1:] = observations.reshape(-1).view(element)  # each element stands first in its word, then zeros
        bits = new.view(element)
        bits |= widened.view(element)[1 : new.size + 1]  # seen from one element on, it stands last

    def _end(self, stacks: Array, history: Array, step: StepResult, final_obs: Array) -> Array:
        """Stack the terminal observations with the history of the episodes that they end."""
        final_stacks = stacks.copy()
        ended = step.first & step.dones
        final_stacks[ended] = self._appended(history[ended], final_obs[ended])
        lost = step.cut_off  # its last observation stands in the history already
        if np.count_nonzero(lost):
            final_stacks[lost] = history[lost]
        return final_stacks


def _word(dtype: np.dtype[Any], k: int) -> np.dtype[Any] | None:
    """An unsigned integer of the size of k elements, whose lowest bits are the first element; None without such."""
    size = k * dtype.itemsize
    return np.dtype(f"u{size}") if k > 1 and size in (2, 4, 8) and sys.byteorder == "little" else None


def _one_of(name: str, value: str, names: tuple[str, ...]) -> None:
    if value not in names:
        raise PlanError(
            f'framestack: {name}: expected one of {", ".join(names)}, got "{value}".{did_you_mean(value, names)}'
        )
