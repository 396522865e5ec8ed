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
from vecwrap.rows.infos import columns, detached_copy, row_of
from vecwrap.rows.step_result import BoolArray, IntArray, StepResult
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


class PolicyInputs:
    """A policy, and what it is given beside observations, which every result of a chain updates.

    A policy is a callable of batched observations, or has ``predict`` as in Stable-Baselines3. If
    it declares a keyword ``action_masks``, it gets the masks of the actions, (n, k) bool, and an
    environment without any is an error; if it declares ``infos``, it gets the infos that came with
    the observations; ``rng`` is a generator that always begins alike, ``rngs`` one for each row.
    With a ``converter``, a callable is given that library's arrays; ``predict`` gets NumPy's.

    Attributes:
        given: which of ``action_masks`` and ``infos`` it declares.
        has_state, is_model: whether it takes a state, and whether it has ``predict``.
        state: what it remembers; None at first, and if it has no state.
        first: (n,) bool. Whose last observation opens an episode; kept for a policy with a state.
        idle: (n,) bool. Whose next action is not used; kept for a policy that is given something.
        infos: what came with the last observations.
    """

    def __init__(
        self,
        env: VecEnv,
        policy: Any,
        where: str,
        *,
        deterministic: bool,
        converter: ArrayConverter | None = None,
    ) -> None:
        self._converter = converter
        self._env = env
        self._policy = policy
        self._call = PolicyCall(policy, _KEYWORDS, where, deterministic=deterministic)
        self.given = self._call.given & {METHOD, "infos"}
        self.has_state = self._call.has_state
        self.is_model = self._call.is_model
        self._where = where
        self._rng = np.random.default_rng(0)
        self._rngs = []
        if "rngs" in self._call.given:
            self._rngs = [np.random.default_rng([0, i]) for i in range(env.num_envs)]
        self._masks = env.call_state.action_masks
        self.state: Any = None
        self.first = np.ones(env.num_envs, np.bool_)
        self.idle = np.zeros(env.num_envs, np.bool_)
        self.infos: dict[str, Any] = {}

    def update(self, step: StepResult) -> None:
        if self.has_state:
            self.first[step.rows] = step.first
        if not self.given:
            return
        self.idle[step.rows] = step.dones & ~step.first
        if isinstance(step.rows, slice):
            self.infos = step.infos
        else:
            rows = [row_of(self.infos, i) for i in range(self._env.num_envs)]
            for k, i in enumerate(step.env_ids.tolist()):
                rows[i] = row_of(step.infos, k)
            self.infos = columns(rows)

    def act(self, observations: Any, env_ids: IntArray | None = None) -> tuple[Any, dict[str, Any]]:
        """Return the policy's actions for the observations just received, and its extras.

        ``env_ids`` are the m rows that the observations are of; None: all n. The observations are
        the policy's own: it may write into them.
        """
        rows: Any = slice(None)
        if env_ids is not None:
            rows = env_ids
        keywords: dict[str, Any] = {"infos": self.infos, "rng": self._rng, "rngs": self._rngs}
        if METHOD in self.given:
            masks = self._action_masks(observations, env_ids)
            if masks is not None:
                masks = masks[rows]
            keywords[METHOD] = masks
        if env_ids is not None and self._call.given:
            ids = env_ids.tolist()
            keywords["infos"] = columns([row_of(self.infos, i) for i in ids])
            keywords["rngs"] = [self._rngs[i] for i in ids if self._rngs]
        first: Any = self.first[rows].copy()
        converter = self._converter
        if converter is not None and self._call.is_model:
            observations = converter.to_numpy(observations)
        elif converter is not None:
            observations, keywords, first = converter.from_numpy((observations, keywords, first))
        actions, extras, self.state = self._call.with_extras(
            observations, keywords, self.state, first, self._env.single_action_space
        )
        return actions, extras

    def _action_masks(self, observations: Any, env_ids: IntArray | None) -> BoolArray | None:
        acting = ~self.idle
        if env_ids is not None:
            acting = np.isin(np.arange(self._env.num_envs), env_ids) & acting
        if self._converter is not None:
            observations = self._converter.to_numpy(observations)
        masks = self._masks.find(observations, self.infos, np.flatnonzero(acting))
        if masks is None and not isinstance(self._policy, MASKS_OPTIONAL):
            raise ArgumentError(
                f"{self._where}: the policy takes {METHOD}, but {self._env!r} reports none, so "
                f"it might choose illegal actions; expected {PLACES}. If all actions are "
                f"legal, pass a callable without {METHOD}"
            )
        return masks


class PolicyRunner(VecEnvWrapper):
    """An environment played by a policy: `act` passes the declared inputs and returns the actions.

    ``PolicyInputs`` says what a policy is and is given.
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
        self._converter = converter
        self._inputs = PolicyInputs(
            env, policy, where, deterministic=deterministic, converter=converter
        )
        self.given = self._inputs.given
        self.steps = 0  # of agents in all sub-environments: neither resets nor lost rows

    def on_step(self, step: StepResult) -> None:
        self.steps += int(np.count_nonzero(step.acted))
        self._inputs.update(step)

    def act(self, observations: Any) -> Any:
        """Return the policy's actions for the observations just received."""
        actions = self._inputs.act(detached_copy(observations))[0]
        if self._converter is not None:
            actions = self._converter.to_numpy(actions)
        return actions
