"""Checks for numbers that are not finite."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import NotFiniteError, one_of
from vecwrap.rows import batch as batches
from vecwrap.rows.batch import Batch
from vecwrap.rows.members import LastRows
from vecwrap.rows.saved import fitting, put
from vecwrap.rows.step_result import BoolArray, IntArray, StepResult


class CheckNan(VecEnvWrapper):
    """Raise or warn if an action, an observation or a reward is not finite, and report where.

    Checks the agent's actions on their way down, and on their way up the observations, terminal
    observations and rewards from the environment and the wrappers inside this one; not what has no
    array form (Sequence, Graph, OneOf, custom spaces). The report names the sub-environment, the
    agent step of its episode, and the action that led there. If it raises on an action, nothing has
    been stepped; if it raises on a result, the wrappers outside this one have not seen that result,
    so reset before continuing.

    At an episode's end:
        The terminal observation is checked too; the step count restarts.

    Args:
        env: what it wraps.
        report: ``"raise"`` an error or ``"warn"``.
        inf: whether infinities are reported too.
        once: whether to warn of the first finding only, and check nothing after it.

    Raises:
        NotFiniteError: with ``report="raise"``, from ``step``, ``recv`` and ``reset``; has
            ``index``, ``step`` and ``action``.
        PlanError: an argument out of range.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = CheckNan(vecwrap.build("Pendulum-v1", n=2, backend="dummy"))
        >>> observations, infos = env.reset(seed=1)
        >>> env.step([[0.5], [float("nan")]])
        Traceback (most recent call last):
        ...
        vecwrap.errors.NotFiniteError: check_nan: nan in actions for sub-environment 1, at step 1 of
        its episode: expected finite numbers from the agent, got array([nan],
        dtype=float32); nothing was stepped
        >>> env.close()
    """

    def __init__(
        self,
        env: VecEnv,
        report: Literal["raise", "warn"] = "raise",
        *,
        inf: bool = True,
        once: bool = True,
    ) -> None:
        super().__init__(env)
        self._raises = one_of("check_nan: report", report, ("raise", "warn")) == "raise"
        self._inf = inf
        self._once = once
        self._warned = False
        self._steps = np.zeros(env.num_envs, dtype=np.int64)
        self._actions = LastRows(env.single_action_space, env.num_envs)

    def on_actions(self, actions: Batch, env_ids: IntArray) -> Batch:
        bad = self._find("actions", actions, np.ones(len(env_ids), dtype=np.bool_))
        if bad is not None:
            what, row = bad
            i = int(env_ids[row])
            step = int(self._steps[i]) + 1
            action = batches.row(actions, row)
            self._report(
                f"{what} for sub-environment {i}, at step {step} of its episode: expected finite "
                f"numbers from the agent, got {action!r}"
                + ("; nothing was stepped" if self._raises else ""),
                i,
                step,
                action,
            )
        self._actions.put(env_ids, actions)
        return actions

    def on_step(self, step: StepResult) -> None:
        steps = self._steps[step.rows] + step.acted
        self._steps[step.rows] = np.where(step.first, 0, steps)
        paid = step.completed | (step.raw_rewards != 0)  # or before the agent's first action
        found = self._find("rewards", step.rewards, paid)
        if found is None and step.final_obs is not None:
            found = self._find("final_obs", step.final_obs, step.first & step.dones)
        if found is None:
            found = self._find("observations", step.observations, step.observed)
            steps = self._steps[step.rows]
        if found is None:
            return
        what, row = found
        i = int(step.env_ids[row])
        number = int(steps[row])
        action = None
        when = "the reset of its episode"
        if number:
            action = batches.row(self._actions.of([i]), 0)
            when = f"step {number} of its episode, after the action {action!r}"
        expected = "expected finite numbers from the environment and the wrappers inside this one"
        self._report(f"{what} of sub-environment {i}, in {when}: {expected}", i, number, action)

    def wrapper_state(self) -> dict[str, Any]:
        return {
            "steps": self._steps.copy(),
            "actions": self._actions.state(),
            "warned": self._warned,
        }

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        self._actions.load(state["actions"], "check_nan: actions")
        put(self._steps, state["steps"], "steps")
        self._warned = fitting(state["warned"], False, "warned")

    def _find(self, name: str, batch: Batch, rows: BoolArray) -> tuple[str, int] | None:
        """Return a description of the first finding and its row; None if all numbers are finite."""
        if self._warned and self._once:
            return None
        for path, leaf in batches.leaves(batch):
            bad = _not_finite(leaf, self._inf)
            if bad is not None and (bad & rows).any():
                row = int(np.flatnonzero(bad & rows)[0])
                kind = (
                    "nan"
                    if not self._inf or _not_finite(leaf[row : row + 1], False) is not None
                    else "inf"
                )
                return f"{kind} in {name}{''.join(f'[{step!r}]' for step in path)}", row
        return None

    def _report(self, message: str, index: int, step: int, action: Any) -> None:
        if self._raises:
            raise NotFiniteError(f"check_nan: {message}", index=index, step=step, action=action)
        self._warned = True
        warnings.warn(f"check_nan: {message}", RuntimeWarning, stacklevel=2)


def _not_finite(array: np.ndarray[Any, Any], inf: bool) -> BoolArray | None:
    """Return which rows have a NaN (or an infinity), (m,) bool; None if no row has one."""
    if array.dtype.kind not in "fc":
        return None
    if inf:
        bad = ~np.isfinite(array)
    else:
        bad = np.isnan(array)
    if not bad.any():
        return None
    rows: BoolArray = bad.reshape(len(array), -1).any(axis=1)
    return rows
