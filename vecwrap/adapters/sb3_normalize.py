"""Presents normalising layers to Stable-Baselines3 as a ``VecNormalize`` with their statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnvWrapper, VecNormalize

from vecwrap import batch as batches
from vecwrap.adapters.sb3_vec_env import AdaptedVecEnv
from vecwrap.errors import ArgumentError, CheckpointError, PlanError
from vecwrap.parts import members
from vecwrap.parts.normalizers import ObservationNormalizer, RewardNormalizer
from vecwrap.running import RunningStatistics

__all__ = ["NormalizedVecEnv"]

Array = np.ndarray[Any, Any]


def _as_built(name: str, read: Callable[[Any], Any]) -> property:
    """Return a ``VecNormalize`` attribute that reads a layer's setting and cannot be changed."""

    def refuse_another(own: Any, value: Any) -> None:
        if value != read(own):
            raise ArgumentError(
                f"{name}: expected {read(own)!r}, as the layers that normalise were built, got {value!r}; build the "
                "environment with other layers (training and norm_reward can be set here)"
            )

    return property(read, refuse_another)


class NormalizedVecEnv(VecNormalize):  # type: ignore[misc]  # SB3 is not read by mypy, for it would read torch
    """A ``VecNormalize`` that leaves steps unchanged, because the chain has normalised them, and represents the chain.

    SB3 looks for a ``VecNormalize`` to synchronise an evaluation environment (``EvalCallback``), to store values from
    before normalisation (off-policy algorithms), to normalise stored values, and to save statistics
    (``CheckpointCallback``). All of this uses the statistics and arithmetic of the layers here.

    SB3 un-normalises terminal observations, which cannot undo clipping; here the original ones are returned.

    Args:
        venv: the environment.
        observations: the observation normaliser of its chain, or None.
        rewards: the reward normaliser, or None.

    Attributes:
        norm_obs: whether observations are normalised.
        norm_obs_keys: which members of a Dict are; None for other observations.
        clip_obs, clip_reward: the largest absolute values; None if these are not normalised.
        epsilon: added to variances; that of the rewards if two layers have different ones.
        gamma: the discount of the running return; None if rewards are not normalised.
    """

    norm_obs = _as_built("norm_obs", lambda own: own._observations is not None)
    norm_obs_keys = _as_built("norm_obs_keys", lambda own: own._keys())
    clip_obs = _as_built("clip_obs", lambda own: own._observations and own._observations._clip)
    clip_reward = _as_built("clip_reward", lambda own: own._rewards and own._rewards._clip)
    epsilon = _as_built("epsilon", lambda own: (own._rewards or own._observations)._epsilon)
    gamma = _as_built("gamma", lambda own: own._rewards and own._rewards._gamma)

    def __init__(
        self, venv: AdaptedVecEnv, observations: ObservationNormalizer | None, rewards: RewardNormalizer | None
    ) -> None:
        VecEnvWrapper.__init__(self, venv)  # not VecNormalize's, which creates its own statistics
        self._observations = observations
        self._rewards = rewards
        self._norm_reward = rewards is not None
        self._stepped = False
        self._shown: Any = None
        self._ends: list[tuple[Any, Any]] = []  # of the last step: terminal observations as shown, and as they came

    # -- rows ----------------------------------------------------------------------------------------------------------

    def reset(self) -> Any:
        """Start an episode in every sub-environment."""
        self._shown = self.venv.reset()
        self.reset_infos = self.venv.reset_infos  # the same list, because steps write into it
        self._paid = np.zeros(self.num_envs, np.float32)
        self._stepped, self._ends = False, []
        return batches.copy(self._shown)

    def step_wait(self) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        """Wait for the result of ``step_async``."""
        self._shown, self._paid, dones, infos = self.venv.step_wait()
        self._stepped, self._ends = True, []
        if self._observations is not None:
            for i in np.flatnonzero(dones).tolist():
                shown = infos[i]["terminal_observation"]
                self._ends.append((batches.tree_map(np.copy, shown), batches.row(self._observations.final, i)))
        rewards = self._paid if self._rewards is None or self._norm_reward else self.get_original_reward()
        return batches.copy(self._shown), rewards.copy(), dones, infos

    # -- what SB3 asks -------------------------------------------------------------------------------------------------

    def get_original_obs(self) -> Any:
        """Return the observations last shown, as they were before normalisation.

        Raises:
            PlanError: outer layers change the normalised observations, so these are not what SB3 expects.
        """
        if self._observations is None:
            return batches.copy(self._shown)
        original, shown = self._observations.original(), self._observations.last_shown()
        if self._stepped and shown is not None and not _same(shown, self._shown):
            _refuse("observations", "normalize_obs")
        return original

    def get_original_reward(self) -> Array:
        """Return the rewards of the last step, as they were before normalisation, (n,) float32.

        Raises:
            PlanError: outer layers change the normalised rewards.
        """
        if self._rewards is None:
            return self._paid.copy()
        original, shown = self._rewards.original(), self._rewards.last_shown()
        if self._stepped and shown is not None and not _same(shown.astype(np.float32), self._paid):
            _refuse("rewards", "normalize_reward")
        return original.astype(np.float32)

    def normalize_obs(self, obs: Any) -> Any:
        """Normalise observations, one or a batch, as the layer does; nothing is counted."""
        return batches.copy(obs) if self._observations is None else self._observations._normalised(obs)

    def normalize_reward(self, reward: Array) -> Array:
        """Normalise rewards as the layer does; nothing is counted."""
        return self._rewards._normalised(reward) if self._rewards is not None and self._norm_reward else reward

    def unnormalize_obs(self, obs: Any) -> Any:
        """Undo ``normalize_obs``; for a terminal observation of the last step, return the original."""
        if self._observations is None:
            return batches.copy(obs)
        for k, (shown, came) in enumerate(self._ends):
            if _same(obs, shown):
                # Two that were clipped to the same values look equal; SB3 requests each once, in row order.
                self._ends.append(self._ends.pop(k))
                return batches.tree_map(np.copy, came)
        new = {}
        for key, statistics in self._observations.statistics.items():
            new[key] = members.of(obs, key) * statistics.scale(self._observations._epsilon) + statistics.mean
        return members.with_new(obs, new)

    def unnormalize_reward(self, reward: Array) -> Array:
        """Undo ``normalize_reward``, except for clipping."""
        if self._rewards is None or not self._norm_reward:
            return reward
        return np.asarray(reward * self._rewards.statistics.scale(self._rewards._epsilon))

    # -- statistics ----------------------------------------------------------------------------------------------------

    @property
    def obs_rms(self) -> Any:
        """A copy of the statistics of the observations, by key for a Dict; None if they are not normalised.

        Setting it replaces the statistics, as SB3's ``sync_envs_normalization`` does.
        """
        if self._observations is None:
            return None
        copies = {key: _as_sb3(statistics) for key, statistics in self._observations.statistics.items()}
        return copies.get(None, copies)

    @obs_rms.setter
    def obs_rms(self, new: Any) -> None:
        if new is None and self._observations is None:
            return
        given = new if isinstance(new, dict) else {None: new}
        own = {} if self._observations is None else self._observations.statistics
        if set(given) != set(own) or new is None:
            raise CheckpointError(
                f"obs_rms: expected statistics of {_names(own)}, got those of {_names(given if new else {})}; "
                "the training and the evaluation environment need the same layer that normalises observations"
            )
        for key, statistics in own.items():
            _load(statistics, given[key], members.name_of(key))

    @property
    def ret_rms(self) -> Any:
        """A copy of the statistics of the returns; setting it replaces them."""
        return RunningMeanStd() if self._rewards is None else _as_sb3(self._rewards.statistics)

    @ret_rms.setter
    def ret_rms(self, new: Any) -> None:
        if self._rewards is not None:
            _load(self._rewards.statistics, new, "returns")

    @property
    def returns(self) -> Array:
        """(n,) float64: the running return of each sub-environment; zeros if rewards are not normalised."""
        return np.zeros(self.num_envs) if self._rewards is None else self._rewards.returns.copy()

    @property
    def training(self) -> bool:
        """Whether the statistics of the chain are updated."""
        return bool(self.venv.vecwrap_env.training)

    @training.setter
    def training(self, mode: bool) -> None:
        self.venv.vecwrap_env.train(bool(mode))

    @property
    def norm_reward(self) -> bool:
        """Whether rewards are returned normalised; False returns them as before that layer."""
        return self._norm_reward

    @norm_reward.setter
    def norm_reward(self, yes: bool) -> None:
        if yes and self._rewards is None:
            raise ArgumentError("norm_reward: no layer normalises rewards here; add normalize_reward to the pipeline")
        self._norm_reward = bool(yes)

    def _keys(self) -> list[str] | None:
        if self._observations is None or not isinstance(self.observation_space, spaces.Dict):
            return None
        return [str(key) for key in self._observations.statistics]

    # -- files ---------------------------------------------------------------------------------------------------------

    def save(self, save_path: str) -> None:
        """Write the state of the chain as ``vecwrap_env.save`` does: ``vecwrap.build(..., stats=save_path)`` reads it.

        It is an ``.npz`` file whatever its name, not a pickle, so ``VecNormalize.load`` cannot read it.
        """
        self.venv.vecwrap_env.save(save_path)

    def __getstate__(self) -> NoReturn:
        raise TypeError("a vecwrap environment is not pickled: save(path) writes its state, build(stats=path) reads it")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")


def _refuse(what: str, layer: str) -> NoReturn:
    raise PlanError(
        f"to_sb3: Stable-Baselines3 asks for {what} as they were before they were normalised, to normalise them again "
        f"later, but other layers change them after that; put {layer} (or normalize) outside of those"
    )


def _as_sb3(statistics: RunningStatistics) -> RunningMeanStd:
    copied = RunningMeanStd(shape=statistics.mean.shape)
    copied.mean, copied.var, copied.count = statistics.mean.copy(), statistics.var.copy(), statistics.count
    return copied


def _load(statistics: RunningStatistics, new: Any, where: str) -> None:
    statistics.load({"mean": new.mean, "var": new.var, "count": new.count}, where)


def _names(statistics: dict[Any, Any]) -> str:
    return ", ".join(members.name_of(key) for key in statistics) or "nothing"
