"""Observations that include the elapsed time of the episode."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError, at_least
from vecwrap.rows.batch import Batch
from vecwrap.rows.members import flat, flat_box
from vecwrap.rows.saved import put
from vecwrap.rows.step_result import IntArray, StepResult


class TimeAware(VecEnvWrapper):
    """Add the number of agent steps since the episode started to the observations.

    If the end of an episode depends on time, an agent that cannot see the time cannot predict what
    happens next (Pardo et al. 2018, Time limits in reinforcement learning). A terminal observation
    has the time of its own episode.

    A Dict space gets another member; a Tuple gets the time appended; anything else becomes a Dict
    of ``obs`` and the time. Then, unless ``flatten`` is off, everything is flattened to one vector.
    Members, order and dtypes are those of Gymnasium's ``TimeAwareObservation``.

    At an episode's end:
        The terminal observation has the time of its own episode; the next episode starts at 0.

    Args:
        env: what it wraps.
        flatten: whether to flatten to one vector, as the wrapper ``flatten`` does.
        normalize: whether to give the elapsed fraction of the limit (float32, 0 to 1) instead of
            steps (int32).
        limit: the maximum length of an episode in agent steps; the time stops there if it lasts
            longer. None: the environment's declared time limit, counted in its own steps. If an
            inner wrapper skips steps or ends episodes earlier, set the limit here (``vecwrap
            check`` detects the former).
        key: the member's name.

    Attributes:
        limit: the limit that holds, in agent steps.

    Raises:
        PlanError: no limit is known, the name is taken, or the observations cannot be flattened.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = TimeAware(vecwrap.build("CartPole-v1", n=2, backend="dummy"), flatten=False)
        >>> observations, infos = env.reset(seed=1)
        >>> observations, *rest = env.step([0, 1])
        >>> observations["time"]
        array([[1],
               [1]], dtype=int32)
        >>> env.close()
    """

    def __init__(
        self,
        env: VecEnv,
        *,
        flatten: bool = True,
        normalize: bool = False,
        limit: int | None = None,
        key: str = "time",
    ) -> None:
        super().__init__(env)
        self._flatten = flatten
        self._normalize = normalize
        if limit is None:
            limit = _limit_of(env)
        self.limit: int = at_least("time_aware: limit", limit, 1)
        self._key = key
        self._times = np.zeros(env.num_envs, dtype=np.int64)
        self._shown = self._times.copy()
        self._space = self._with_time(env.single_observation_space)
        self._box: spaces.Box | None = None
        if flatten:
            self._box = flat_box("time_aware", self._space)
        self.call_state.set_observation_space(self, self._space if self._box is None else self._box)

    def on_step(self, step: StepResult) -> None:
        times = self._times[step.rows] + step.acted
        if step.final_obs is not None:
            step.final_obs = self._join(step.final_obs, times)
        times = np.where(step.first, 0, times)
        # An agent may come back, and be done at once.
        self._times[step.rows] = np.where(step.dones, 0, times)
        if not step.uneventful:  # an agent that waits for its turn sees what it saw
            times = np.where(step.observed, times, self._shown[step.rows])
        self._shown[step.rows] = times
        step.observations = self._join(step.observations, times)

    def wrapper_state(self) -> dict[str, Any]:
        return {"times": self._times.copy()}

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        put(self._times, state["times"], "times")
        self._shown[:] = self._times

    def _with_time(self, space: spaces.Space[Any]) -> spaces.Space[Any]:
        if self._normalize:
            time: spaces.Space[Any] = spaces.Box(0.0, 1.0, (1,), np.float32)
        else:
            time = spaces.Box(0, self.limit, (1,), np.int32)
        if isinstance(space, spaces.Tuple):
            return spaces.Tuple((*space.spaces, time))
        if not isinstance(space, spaces.Dict):
            space = spaces.Dict({"obs": space})
        if self._key in space.spaces:
            raise PlanError(
                f'time_aware: key: the observations have a member "{self._key}" already; give '
                "another name"
            )
        # older versions of Gymnasium always sort
        if hasattr(space, "sort_keys"):
            sort: Any = {"sort_keys": space.sort_keys}
        else:
            sort = {}
        return spaces.Dict({self._key: time, **space.spaces}, **sort)

    def _join(self, observations: Batch, times: IntArray) -> Batch:
        times = np.minimum(times, self.limit)[:, None]
        if self._normalize:
            column = (times / self.limit).astype(np.float32)
        else:
            column = times.astype(np.int32)
        joined: Batch
        if isinstance(self._space, spaces.Dict):
            inner = self.env.single_observation_space
            if isinstance(inner, spaces.Dict):
                parts = {**observations, self._key: column}
            else:
                parts = {"obs": observations, self._key: column}
            joined = {key: parts[key] for key in self._space.spaces}
        else:
            joined = (*observations, column)
        if self._box is None:
            return joined
        return flat(self._space, joined).astype(self._box.dtype, copy=False)


def _limit_of(env: VecEnv) -> int:
    limit = env.spec.max_episode_steps if env.spec is not None else None
    if limit is None:
        raise PlanError(
            "time_aware: expected an environment with a time limit, got one without; put "
            "time_limit inside this wrapper, or give limit="
        )
    return int(limit)
