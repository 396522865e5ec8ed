"""Normalising by running statistics: observations, rewards, and the hooks of their wrappers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.errors import (
    ArgumentError,
    CheckpointError,
    NotFiniteError,
    PlanError,
    ResetNeededError,
)
from vecwrap.rows import members
from vecwrap.rows.batch import Batch, copy, take
from vecwrap.rows.members import Key, LastRows, RowsKeptElsewhere
from vecwrap.rows.saved import fitting, put
from vecwrap.rows.statistics import Moments, RunningStatistics, moments
from vecwrap.rows.step_result import BoolArray, FloatArray, StepResult

Array = np.ndarray[Any, Any]


class NormalizerHooks:
    """The hooks of a wrapper that normalises; its class names this one before VecEnvWrapper."""

    training: bool
    # by the names that a saved state uses; a half that is alone has the name ""
    _normalizers: dict[str, Any]

    def on_step(self, step: StepResult) -> None:
        """Count, then normalise; if one half cannot be counted, neither is."""
        halves = self._normalizers.values()
        if self.training:
            with np.errstate(invalid="ignore", over="ignore"):
                for half in halves:
                    half.sum_up(step)
        for half in halves:
            half.on_step(step)

    def wrapper_statistics(self) -> dict[str, RunningStatistics]:
        return {
            name: each for half in self._normalizers.values() for name, each in half.named().items()
        }

    def use_statistics(self, statistics: dict[str, RunningStatistics]) -> None:
        for half in self._normalizers.values():
            half.borrow(statistics)

    def wrapper_state(self) -> dict[str, Any]:
        states: dict[str, Any] = {name: half.state() for name, half in self._normalizers.items()}
        alone: dict[str, Any] | None = states.get("")
        return states if alone is None else alone

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        for name, half in self._normalizers.items():
            own = state
            if name:
                own = state[name]
            half.load(own)

    def normalizers(self) -> tuple[Any, ...]:
        return tuple(self._normalizers.values())


class _RunningNormalizer:
    """What both halves keep: how to normalise, and which of their rows mean something."""

    def __init__(self, wrapper: str, clip_name: str, clip: float, epsilon: float) -> None:
        for name, value in (
            ("clip" if wrapper != "normalize" else clip_name, clip),
            ("epsilon", epsilon),
        ):
            if math.isnan(value) or value <= 0:
                raise PlanError(f"{wrapper}: {name}: expected a number above 0, got {value}")
        self._wrapper = wrapper
        self.clip = clip
        self.epsilon = epsilon
        self._borrowed = (
            False  # whether the statistics are another wrapper's, which a load must not change
        )
        self._begun = self._has_shown = False

    def _refuse_unbegun(self) -> None:
        if not self._begun:
            raise ResetNeededError("there is no original yet; call reset() first")

    def _not_finite(
        self, what: str, values: Array, counted: BoolArray, step: StepResult
    ) -> NotFiniteError:
        """Report which value cannot be counted."""
        rows = np.flatnonzero(counted & ~np.isfinite(values).reshape(len(values), -1).all(axis=1))
        i = None
        whose = "too large to be squared"
        value = ""
        if len(rows):
            i = int(step.env_ids[rows[0]])
            whose = f"of sub-environment {i}"
            value = f", got {take(values, rows[0])}"
        return NotFiniteError(
            f"{self._wrapper}: {what} {whose}: expected finite numbers{value}; nothing was "
            "counted. The wrapper check_nan, inside of this one, names the action that led "
            "there; eval() lets them through",
            index=i,
        )


class ObservationNormalizer(_RunningNormalizer):
    """Normalises observations by the mean and variance of those counted; see ``normalize_obs``."""

    def __init__(
        self,
        wrapper: str,
        env: Any,
        *,
        clip: float,
        epsilon: float,
        keys: tuple[str, ...] | None,
        integers: bool,
    ) -> None:
        space: spaces.Space[Any] = env.single_observation_space
        boxes = members.choose(
            wrapper,
            space,
            keys,
            lambda member: (
                members.is_box(member) and (integers or np.dtype(member.dtype).kind == "f")
            ),
            "a Box of floats" if not integers else "a Box of numbers",
            "the wrapper flatten, inside of this one, makes a Box of most spaces"
            + (
                ""
                if integers
                else "; integers=true normalises Boxes of integers too, images for instance"
            ),
        )
        super().__init__(wrapper, "clip_obs", clip, epsilon)
        scaled: dict[Key, Any] = {
            key: spaces.Box(-clip, clip, box.shape, np.float32) for key, box in boxes.items()
        }
        self.space: spaces.Space[Any] = members.replaced(space, scaled)
        self.statistics: dict[Key, RunningStatistics] = {
            key: RunningStatistics(box.shape) for key, box in boxes.items()
        }
        self._last_returned = {key: LastRows(box, env.num_envs) for key, box in scaled.items()}
        inner = env.call_state.results.last_observations
        if inner.is_kept_by_wrapper:
            self._original: LastRows = RowsKeptElsewhere(space, env.num_envs, inner.all)
        else:
            self._original = LastRows(space, env.num_envs)
        self.final: Batch | None = None
        self._summed: dict[Key, Moments] = {}

    def sum_up(self, step: StepResult) -> None:
        """Sum up what counts: observations that open an episode, or do not end one."""
        self._summed = {}
        counted = step.acted
        if not step.uneventful:
            counted = step.observed & (step.first | ~step.dones)
        all_count = step.uneventful or counted.all()
        if not (all_count or counted.any()):
            return
        for key in self.statistics:
            values = members.of(step.observations, key)
            summed = values
            if not all_count:
                summed = values[counted]
            try:
                self._summed[key] = moments(summed)
            except FloatingPointError:
                raise self._not_finite(members.name_of(key), values, counted, step) from None

    def on_step(self, step: StepResult) -> None:
        """Update the statistics, then normalise both observations with the new statistics."""
        summed = self._summed
        self._summed = {}
        for key, batch in summed.items():
            self.statistics[key].merge(batch)
        self._original.put(step.rows, step.observations)
        self.final = step.final_obs
        self._begun = self._has_shown = True
        live = step.observed
        rests = not (step.uneventful or live.all())
        observations = self._normalised(step.observations)
        for key, shown in self._last_returned.items():
            values = members.of(observations, key)
            if rests:  # such a row repeats its values, although the statistics have changed
                values[~live] = shown.of(step.rows)[~live]
            shown.put(step.rows, values)
        step.observations = observations
        if step.final_obs is not None:
            step.final_obs = self._with_ends(step, step.final_obs)

    def normalize(self, observations: Batch) -> Batch:
        """Normalise any observations, as ``on_step`` does those of a step; nothing is counted."""
        return self._normalised(self._checked(observations))

    def unnormalize(self, observations: Batch) -> Batch:
        """Undo ``normalize``, except for clipping and rounding; return float64."""
        given = self._checked(observations)
        statistics = self.statistics.items()
        return members.with_new(
            given,
            {
                key: members.of(given, key) * one.scale(self.epsilon) + one.mean
                for key, one in statistics
            },
        )

    def _checked(self, observations: Batch) -> Batch:
        """The same with arrays, if they are observations of this wrapper, with any leading axes."""
        given: dict[Key, Array] = {}
        for key, statistics in self.statistics.items():
            shape = statistics.mean.shape
            where = f"{self._wrapper}: {members.name_of(key)}"
            if key is not None and not (isinstance(observations, Mapping) and key in observations):
                raise ArgumentError(
                    f"{where}: expected a dict with this key, got {type(observations).__name__}"
                )
            values = given[key] = np.asarray(members.of(observations, key))
            if values.shape[values.ndim - len(shape) :] != shape:
                expected = ", ".join(map(str, ("...", *shape)))
                raise ArgumentError(
                    f"{where}: expected an array of shape ({expected}), got {values.shape}"
                )
        return members.with_new(observations, given)

    def original(self) -> Batch:
        self._refuse_unbegun()
        return self._original.all()

    def last_returned(self) -> Batch | None:
        """Return all n rows as last returned, read-only; None if there were none since a load."""
        if not self._has_shown:
            return None
        return self._returned()

    def all_returned(self) -> Batch:
        """Return all n rows as last returned, also by what a loaded state returned; fresh."""
        return copy(self._returned())

    def _returned(self) -> Batch:
        whole = slice(None)
        shown = {key: shown.of(whole) for key, shown in self._last_returned.items()}
        if None in shown:
            return shown[None]
        return members.with_new(self._original.of(whole), shown)

    def named(self) -> dict[str, RunningStatistics]:
        return {members.name_of(key): statistics for key, statistics in self.statistics.items()}

    def borrow(self, statistics: dict[str, RunningStatistics]) -> None:
        self.statistics = {key: statistics[members.name_of(key)] for key in self.statistics}
        self._borrowed = True

    def state(self) -> dict[str, Any]:
        return {
            "statistics": {
                key or "": statistics.state() for key, statistics in self.statistics.items()
            },
            "shown": {key or "": shown.state() for key, shown in self._last_returned.items()},
            "original": self._original.state(),
            "begun": self._begun,
        }

    def load(self, state: dict[str, Any]) -> None:
        expected = {key or "" for key in self.statistics}
        got = set(state["statistics"])
        if expected != got:
            raise CheckpointError(
                f"{self._wrapper}: expected statistics of {sorted(expected)}, got {sorted(got)}"
            )
        if self._borrowed:
            self.statistics = {
                key: RunningStatistics(old.mean.shape) for key, old in self.statistics.items()
            }
            self._borrowed = False
        for key, statistics in self.statistics.items():
            where = f"{self._wrapper}: {members.name_of(key)}"
            statistics.load(state["statistics"][key or ""], where)
            self._last_returned[key].load(state["shown"][key or ""], where)
        self._original.load(state["original"], f"{self._wrapper}: original observations")
        self._begun = fitting(state["begun"], False, "begun")
        self._has_shown = False

    def _normalised(self, observations: Batch) -> Batch:
        new = {}
        for key, statistics in self.statistics.items():
            # Cast first: within subtract, NumPy would cast piece by piece. This is an array even
            # for one observation without axes.
            out = np.array(members.of(observations, key), dtype=np.float64)
            out -= statistics.mean
            out /= statistics.scale(self.epsilon)
            # One pass; of a few numbers, _clipped takes less.
            out.clip(-self.clip, self.clip, out=out)
            new[key] = out.astype(np.float32)
        return members.with_new(observations, new)

    def _with_ends(self, step: StepResult, final_obs: Batch) -> Batch:
        """Normalise terminal observations; other rows are those of ``observations`` already."""
        at = (step.first & step.dones).nonzero()[0]
        ends = self._normalised(take(final_obs, at))
        new = {}
        for key in self.statistics:
            new[key] = members.of(step.observations, key).copy(order="K")
            new[key][at] = members.of(ends, key)
        return members.with_new(final_obs, new)


class RewardNormalizer(_RunningNormalizer):
    """Divides rewards by the standard deviation of each sub-environment's discounted return."""

    def __init__(
        self, wrapper: str, num_envs: int, *, gamma: float, clip: float, epsilon: float
    ) -> None:
        if not 0 <= gamma <= 1:
            raise PlanError(f"{wrapper}: gamma: expected a number from 0 to 1, got {gamma}")
        super().__init__(wrapper, "clip_reward", clip, epsilon)
        self.gamma = gamma
        self.statistics: RunningStatistics = RunningStatistics()
        self.returns: FloatArray = np.zeros(num_envs)
        self._original = np.zeros(num_envs)
        self._last_returned = np.zeros(num_envs)
        self._summed: tuple[FloatArray, Moments] | None = None

    def sum_up(self, step: StepResult) -> None:
        """Compute the running returns, and sum them up, where a reward is complete."""
        returns = self.returns[step.rows]
        in_stride = step.uneventful
        acted = step.acted if in_stride else step.completed
        all_acted = in_stride or acted.all()
        self._summed = None
        if not (all_acted or acted.any()):
            return
        discounted = returns * self.gamma + step.rewards
        summed = discounted
        if all_acted:
            returns = discounted
        else:
            returns = np.where(acted, discounted, returns)
            summed = returns[acted]
        try:
            self._summed = returns, moments(summed)
        except FloatingPointError:
            raise self._not_finite("rewards", step.rewards, acted, step) from None

    def on_step(self, step: StepResult) -> None:
        """Count what was summed up, normalise, and restart returns where an episode ended."""
        summed = self._summed
        self._summed = None
        if summed is not None:
            self.returns[step.rows], batch = summed
            self.statistics.merge(batch)
        if not step.uneventful:
            self.returns[step.env_ids[step.first | step.dones]] = 0.0
        self._original[step.rows] = step.rewards
        self._begun = self._has_shown = True
        step.rewards = self._normalised(step.rewards)
        if step.unplayed:
            step.change_unplayed(self._normalised)
        self._last_returned[step.rows] = step.rewards

    def normalize(self, rewards: Any) -> Array:
        return self._normalised(np.asarray(rewards))

    def unnormalize(self, rewards: Any) -> Array:
        return np.asarray(np.asarray(rewards) * self.statistics.scale(self.epsilon))

    def original(self) -> FloatArray:
        self._refuse_unbegun()
        return self._original.copy()

    def last_returned(self) -> FloatArray | None:
        return self._last_returned if self._has_shown else None

    def named(self) -> dict[str, RunningStatistics]:
        return {"returns": self.statistics}

    def borrow(self, statistics: dict[str, RunningStatistics]) -> None:
        self.statistics = statistics["returns"]
        self._borrowed = True

    def state(self) -> dict[str, Any]:
        return {
            "statistics": self.statistics.state(),
            "returns": self.returns.copy(),
            "original": self._original.copy(),
            "begun": self._begun,
        }

    def load(self, state: dict[str, Any]) -> None:
        if self._borrowed:
            self.statistics = RunningStatistics()
            self._borrowed = False
        self.statistics.load(state["statistics"], f"{self._wrapper}: rewards")
        put(self.returns, state["returns"], "returns")
        put(self._original, state["original"], "original")
        self._begun = fitting(state["begun"], False, "begun")
        self._has_shown = False

    def _normalised(self, rewards: Array) -> Array:
        scaled = np.divide(rewards, self.statistics.scale(self.epsilon), dtype=np.float64)
        return _clipped(np.asarray(scaled), self.clip)


def _clipped(values: Array, most: float) -> Array:
    """Clip in place; two NumPy functions are faster than ``clip``, which is written in Python."""
    np.minimum(values, most, out=values)
    return np.maximum(values, -most, out=values)
