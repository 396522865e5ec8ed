"""A policy in front of an environment: what it is, and what it is given."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecwrap.env.action_masks import PLACES, draw_legal, legal_nearest_to_zero
from vecwrap.env.array_converter import ArrayConverter
from vecwrap.env.policy import PolicyCall
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ArgumentError
from vecwrap.rows.infos import columns, row_of
from vecwrap.rows.step_result import BoolArray, StepResult
from vecwrap.sources.masks import METHOD


def share_last_observations(wrapper: VecEnvWrapper) -> None:
    """Share the inner environment's last observations with a temporary wrapper.

    The wrapper itself changes nothing.

    Its own masked resets show it again, however the playing ends.
    """
    wrapper.call_state.results.last_observations = wrapper.env.call_state.results.last_observations


_KEYWORDS = frozenset({METHOD, "infos", "rng", "rngs"})


class RandomPolicy:
    """Draws actions from an environment's space; legal ones if the environment reports masks."""

    def __init__(self, env: VecEnv) -> None:
        self._space = env.action_space
        self._single = env.single_action_space

    def __call__(self, observations: Any, *, action_masks: BoolArray | None = None) -> Any:
        if action_masks is None:
            return self._space.sample()
        return draw_legal(self._single, action_masks, self._space.np_random)


class ZerosPolicy:
    """Takes the action nearest to zero; a legal one where the environment says which are."""

    def __init__(self, env: VecEnv, zeros: Any) -> None:
        self._zeros = zeros
        self._single = env.single_action_space

    def __call__(self, observations: Any, *, action_masks: BoolArray | None = None) -> Any:
        if action_masks is None:
            return self._zeros
        return legal_nearest_to_zero(self._single, action_masks)


MASKS_OPTIONAL = (RandomPolicy, ZerosPolicy)  # without masks, all actions are legal


class PolicyRunner(VecEnvWrapper):
    """An environment played by a policy: `act` passes the declared inputs and returns the actions.

    A policy is a callable of batched observations, or has ``predict`` as in Stable-Baselines3. If
    it declares a keyword ``action_masks``, it gets the masks of the actions, (n, k) bool, and an
    environment without any is an error; if it declares ``infos``, it gets the infos that came with
    the observations; ``rng`` is a generator that always begins alike, ``rngs`` one for each row.
    With a ``converter``, a callable is given that library's arrays, and returns them.
    """

    def __init__(
        self,
        env: VecEnv,
        policy: Any,
        *,
        where: str = "evaluate: policy",
        deterministic: bool = True,
        converter: ArrayConverter | None = None,
    ) -> None:
        super().__init__(env)
        share_last_observations(self)
        self._policy = policy
        self._call = PolicyCall(policy, _KEYWORDS, where, deterministic=deterministic)
        self.given = self._call.given & {METHOD, "infos"}
        self._where = where
        self._converter = converter
        if self._call.is_model:  # predict is Stable-Baselines3's, which converts arrays itself
            self._converter = None
        self._rng = np.random.default_rng(0)
        self._rngs = []
        if "rngs" in self._call.given:
            self._rngs = [np.random.default_rng([0, i]) for i in range(env.num_envs)]
        self._masks = env.call_state.action_masks
        self._state: Any = None
        self._first = np.ones(env.num_envs, np.bool_)  # whose last observation opens an episode
        self._idle = np.zeros(env.num_envs, np.bool_)  # whose next action is not used
        self._infos: dict[str, Any] = {}
        self.steps = 0  # of agents in all sub-environments: neither resets nor lost rows

    def on_step(self, step: StepResult) -> None:
        self.steps += int(np.count_nonzero(step.acted))
        self._first[step.rows] = step.first
        self._idle[step.rows] = step.dones & ~step.first
        if not self.given:
            return
        if isinstance(step.rows, slice):
            self._infos = step.infos
        else:
            rows = [row_of(self._infos, i) for i in range(self.num_envs)]
            for k, i in enumerate(step.env_ids.tolist()):
                rows[i] = row_of(step.infos, k)
            self._infos = columns(rows)

    def act(self, observations: Any) -> Any:
        """Return the policy's actions for the observations just received."""
        keywords: dict[str, Any] = {"infos": self._infos, "rng": self._rng, "rngs": self._rngs}
        if METHOD in self.given:
            masks = self._masks.find(observations, self._infos, np.flatnonzero(~self._idle))
            if masks is None and not isinstance(self._policy, MASKS_OPTIONAL):
                raise ArgumentError(
                    f"{self._where}: the policy takes {METHOD}, but {self.env!r} reports none, so "
                    f"it might choose illegal actions; expected {PLACES}. If all actions are "
                    f"legal, pass a callable without {METHOD}"
                )
            keywords[METHOD] = masks
        space = self.single_action_space
        first: Any = self._first.copy()
        converter = self._converter
        if converter is not None:
            observations, keywords, first = converter.from_numpy((observations, keywords, first))
        actions, self._state = self._call(observations, keywords, self._state, first, space)
        if converter is not None:
            actions = converter.to_numpy(actions)
        return actions
