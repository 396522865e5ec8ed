"""The last k observations stacked into one."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from vecwrap.env.call_results import KeptByWrapper
from vecwrap.env.picture import load_cv2
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import at_least, one_of
from vecwrap.rows import members
from vecwrap.rows.batch import recycle
from vecwrap.rows.saved import fitting, put
from vecwrap.rows.step_result import BoolArray, IntArray, StepResult

Array = np.ndarray[Any, np.dtype[Any]]

# elements of a run, such as a pixel's channels: up to this, OpenCV merges several times as fast
_MAX_MERGED_ELEMENTS = 16
_MAX_JOINED_BYTES = 128  # of a run that is joined to others as one value
_MAX_CHANNELS = 512  # of an OpenCV image
# By size in bytes, an OpenCV type whose bits it copies unchanged.
_PIXELS = {1: "u1", 2: "u2", 4: "i4", 8: "f8"}


class FrameStack(VecEnvWrapper):
    """Stack the last k observations of each sub-environment, the newest last.

    Every stack returned is a fresh array. A stack never mixes episodes: terminal observations are
    stacked with the history of the episode that they end, and an episode's first stack is padded.

    | space | ``axis="new"`` | ``axis="channel"`` | with channels ``first`` |
    |---|---|---|---|
    | (H, W, C) | (k, H, W, C) | (H, W, k*C) | |
    | (C, H, W) | (k, C, H, W) | | (k*C, H, W) |
    | (H, W) | (k, H, W) | (H, W, k) | (k, H, W) |
    | (D,) | (k, D) | (k*D,) | (k*D,) |

    Members of a Dict space are stacked separately; those that ``keys`` does not name pass through
    unchanged.

    At an episode's end:
        The terminal observation is stacked with its own episode's history; the next stack starts
        with the padding.

    Args:
        env: what it wraps; its observations are a Box, or a Dict with Boxes.
        k: how many observations a stack holds.
        axis: ``"new"`` adds a leading axis of length k; ``"channel"`` concatenates along the
            channels, the oldest observation first. An image without a channel axis counts as one
            channel, and a vector is all channels.
        padding: what fills a stack before an episode's first observation: ``"zero"``, as in
            Baselines, SB3 and ALE, or ``"first"``, copies of that observation.
        channels: with ``axis="channel"``, whether they are the ``"last"`` axis or the ``"first"``.
        keys: which members of a Dict to stack; None means all.

    Raises:
        PlanError: observations that cannot be stacked, or an argument out of range.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = FrameStack(vecwrap.build("CartPole-v1", n=2, backend="dummy"), 4)
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
            "framestack",
            space,
            keys,
            lambda member: isinstance(member, spaces.Box),
            "a Box",
            "put a wrapper that makes them one, such as flatten, inside",
        )
        at_least("framestack: k", k, 1)
        one_of("framestack: axis", axis, ("new", "channel"))
        one_of("framestack: padding", padding, ("zero", "first"))
        one_of("framestack: channels", channels, ("last", "first"))
        # In games of several agents: whose agents were in the game.
        self._present: BoolArray | None = None
        if env.possible_agents:
            self._present = np.ones(env.num_envs, dtype=np.bool_)
        self._stacks = {
            key: _Stack(box, env.num_envs, k, axis, channels, padding)
            for key, box in stacked.items()
        }
        space = members.replaced(space, {key: each.space for key, each in self._stacks.items()})
        self.call_state.set_observation_space(self, space)
        if None in self._stacks:
            self.call_state.results.last_observations = KeptByWrapper(self._stacks[None].all)

    def on_step(self, step: StepResult) -> None:
        """Stack terminal observations before their history is cleared, then append observations."""
        observations = step.observations
        final_obs = step.final_obs
        joined = None
        if self._present is not None:
            # An agent may join and be done in one step.
            joined = step.observed & ~self._present[step.rows]
            self._present[step.rows] = step.alive
        stacks = {}
        final_stacks = {}
        for key, each in self._stacks.items():
            final = None
            if final_obs is not None:
                final = members.of(final_obs, key)
            stacks[key], final_stacks[key] = each.push(
                step, members.of(observations, key), final, joined
            )
        step.observations = members.with_new(observations, stacks)
        if final_obs is not None:
            step.final_obs = members.with_new(final_obs, final_stacks)

    def wrapper_state(self) -> dict[str, Any]:
        stacks = {key: each.all() for key, each in self._stacks.items()}
        state: dict[str, Any] = {"stacks": members.with_new({}, stacks)}
        if self._present is not None:
            state["present"] = self._present.copy()
        return state

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        for key, each in self._stacks.items():
            each.load(fitting(members.of(state["stacks"], key), each.all(), "stacks"))
        if self._present is not None:
            put(self._present, state["present"], "present")


class _Stack:
    """The last k values of one Box, for each of n sub-environments.

    In memory, a stack interleaves runs of elements: a run of each of its k values in turn, then the
    next run of each. So a value is kept as (runs, run length), and a stack is its k values
    concatenated along the second axis.
    """

    def __init__(
        self, space: spaces.Box, num_envs: int, k: int, axis: str, channels: str, padding: str
    ) -> None:
        shape = space.shape
        # The axis of the k values with that of the channels.
        merged = axis == "channel" and len(shape) not in (0, 2)
        # the axis before which it stands
        at = 0
        if axis == "channel" and channels == "last":
            at = len(shape) - merged
        self._axis = at
        self._split = (*shape[:at], k, *shape[at:])
        if merged:
            self._shape = (*shape[:at], k * shape[at], *shape[at + 1 :])
        else:
            self._shape = self._split
        self._padding = padding
        low, high = (np.repeat(bound[None], k, axis=0) for bound in (space.low, space.high))
        if padding == "zero":  # stacks contain zeros even if the space of one value does not
            low[:-1] = np.minimum(low[:-1], 0)
            high[:-1] = np.maximum(high[:-1], 0)
        low, high = (np.moveaxis(bounds, 0, at).reshape(self._shape) for bounds in (low, high))
        self.space = spaces.Box(low, high, dtype=low.dtype.type)
        # For every value: runs are merged as raw bytes, which needs one byte order.
        dtype = self.space.dtype
        runs = math.prod(shape[:at])
        self._run = math.prod(shape[at:])
        # Oldest first; in each turn the newest reuse the memory of the oldest.
        memory = np.zeros((k, num_envs, runs, self._run), dtype)
        values = list(memory)
        self._turns = [values[turn:] + values[:turn] for turn in range(k)]
        self._turn = 0
        self._values = values
        self.nbytes = memory.nbytes
        recycle(self.nbytes)
        self._cv2 = None
        short = (
            runs > 1 and 0 < self._run <= _MAX_MERGED_ELEMENTS and k * self._run <= _MAX_CHANNELS
        )
        if short and low.itemsize in _PIXELS:
            self._cv2 = load_cv2("framestack")
        # The same values, a run as one value of bytes: short ones are joined in half the time.
        self._bytes: list[list[Array]] | None = None
        num_bytes = self._run * dtype.itemsize
        if self._cv2 is None and 0 < num_bytes <= _MAX_JOINED_BYTES:
            runs_of_bytes = list(memory.view(np.dtype((np.void, num_bytes))))
            self._bytes = [runs_of_bytes[turn:] + runs_of_bytes[:turn] for turn in range(k)]

    def push(
        self,
        step: StepResult,
        observations: Array,
        final_obs: Array | None,
        joined: BoolArray | None,
    ) -> tuple[Array, Array | None]:
        """Append observations, and return new stacks of observations and of final observations."""
        if step.uneventful or joined is None:
            opens = step.first
        else:
            opens = step.first | joined
        needs_reset = []
        if final_obs is not None:
            needs_reset = self._endings(step, final_obs, joined)
        self._append(
            step, observations.reshape(len(observations), *self._values[0].shape[1:]), opens
        )
        stacks = self._of(step.rows)
        if final_obs is None:
            return stacks, None
        final_stacks = stacks.copy()
        for ended, those in needs_reset:
            final_stacks[ended] = those
        return stacks, final_stacks

    def all(self) -> Array:
        return self._of(slice(None))

    def load(self, stacks: Array) -> None:
        split = stacks.reshape(len(stacks), *self._split)
        for value, loaded in zip(self._values, np.moveaxis(split, 1 + self._axis, 0), strict=True):
            value[:] = loaded.reshape(value.shape)

    def _append(self, step: StepResult, observations: Array, first: BoolArray) -> None:
        """Append the newest values and drop the oldest, in rows with a new observation."""
        live = step.observed
        values = self._values
        in_stride = step.uneventful
        if not in_stride:
            # An agent may be absent when its game begins, and its row opens all the same.
            live = live | first
        if (in_stride or live.all()) and len(live) == len(values[0]):
            self._turn = (self._turn + 1) % len(values)
            values = self._turns[self._turn]
            self._values = values
            values[-1][:] = observations
        else:
            ids = step.env_ids[live]
            for older, newer in pairwise(values):
                older[ids] = newer[ids]
            values[-1][ids] = observations[live]
        if not in_stride and first.any():
            padding: Any = 0
            if self._padding == "first":
                padding = observations[first]
            opening = step.env_ids[first]
            for older in values[:-1]:
                older[opening] = padding

    def _endings(
        self, step: StepResult, final_obs: Array, joined: BoolArray | None
    ) -> list[tuple[IntArray, Array]]:
        """Stack terminal observations with their episodes' history, which is cleared later."""
        dones = step.dones
        ended = (step.first & dones).nonzero()[0]
        ids = step.env_ids[ended]
        history = [value[ids] for value in self._values[1:]]
        newest = final_obs[ended].astype(self.space.dtype, copy=False)
        newest = newest.reshape(len(newest), *self._values[0].shape[1:])
        if joined is not None and joined[ended].any():
            alone = joined[ended]
            for older in history:
                if self._padding == "first":
                    older[alone] = newest[alone]
                else:
                    older[alone] = 0
        needs_reset = [(ended, self._together([*history, newest]))]
        if np.count_nonzero(step.lost):  # its last observation is in the history already
            lost = step.cut_off.nonzero()[0]
            needs_reset.append((lost, self._of(step.env_ids[lost])))
        return needs_reset

    def _of(self, rows: slice | IntArray) -> Array:
        if self._bytes is None:
            return self._together([value[rows] for value in self._values])
        joined = np.concatenate([value[rows] for value in self._bytes[self._turn]], axis=2)
        return joined.view(self.space.dtype).reshape(len(joined), *self._shape)

    def _together(self, values: list[Array]) -> Array:
        """Merge k arrays of (m, runs, run length) into (m, *shape), as a fresh array."""
        num_rows = len(values[0])
        if self._cv2 is None or not num_rows:
            return np.concatenate(values, axis=2).reshape(num_rows, *self._shape)
        run = self._run
        dtype = values[0].dtype
        pixel: str | None = _PIXELS.get(run * dtype.itemsize)
        shape: tuple[int, ...] = (-1, 1)  # each run as one number
        if pixel is None:
            pixel = _PIXELS[dtype.itemsize]
            shape = (-1, 1, run)
        stacks: Array = self._cv2.merge([value.view(pixel).reshape(shape) for value in values])
        return stacks.view(dtype).reshape(num_rows, *self._shape)
