"""The ``VecNormalize`` that ``to_sb3`` returns if wrappers normalise; imports Stable-Baselines3."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnvWrapper, VecNormalize

from vecwrap.adapters.sb3_vec_env import AdaptedVecEnv
from vecwrap.errors import ArgumentError, CheckpointError, PlanError
from vecwrap.rows import batch as batches
from vecwrap.rows import members
from vecwrap.rows.normalizers import ObservationNormalizer, RewardNormalizer
from vecwrap.rows.statistics import RunningStatistics
from vecwrap.rows.step_result import BoolArray

Array = np.ndarray[Any, Any]


# SB3 is not read by mypy, for it would read torch.
class NormalizedVecEnv(VecNormalize):  # type: ignore[misc]
    """A ``VecNormalize`` that represents a chain that normalises, and leaves steps unchanged.

    SB3 looks for a ``VecNormalize`` to synchronise an evaluation environment (``EvalCallback``), to
    store values from before normalisation (off-policy algorithms), to normalise stored values, and
    to save statistics (``CheckpointCallback``). All of this uses the statistics of the wrappers
    here; the arithmetic is SB3's own.

    SB3 un-normalises terminal observations, which cannot undo clipping; here the original ones are
    returned.
    """

    norm_obs = property(lambda self: self._observations is not None)
    norm_obs_keys = property(
        lambda self: self._observations and list(self._observations.statistics)
    )
    clip_obs = property(lambda self: self._observations and self._observations.clip)
    clip_reward = property(lambda self: self._rewards and self._rewards.clip)
    epsilon = property(lambda self: (self._rewards or self._observations).epsilon)
    gamma = property(lambda self: self._rewards and self._rewards.gamma)

    def __init__(
        self,
        venv: AdaptedVecEnv,
        observations: ObservationNormalizer | None,
        rewards: RewardNormalizer | None,
    ) -> None:
        VecEnvWrapper.__init__(self, venv)  # not VecNormalize's, which creates its own statistics
        self._observations = observations
        self._rewards = rewards
        self._norm_reward = rewards is not None
        self._stepped = False
        self._last_returned: Any = None
        # Of the last step: terminal observations as shown, and as they came.
        self._ends: list[tuple[Any, Any]] = []
        # As the adapter's, as they were before normalisation.
        self._resting: tuple[BoolArray, Any] | None = None

    # -- rows --------------------------------------------------------------------------------------

    def reset(self) -> Any:
        self._last_returned = self.venv.reset()
        self.reset_infos = self.venv.reset_infos  # the same list, because steps write into it
        self._paid = np.zeros(self.num_envs, np.float32)
        self._resting = self._original_of_resting()
        self._ends = []
        self._stepped = False
        return batches.copy(self._last_returned)

    def step(self, actions: Array) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        return self._keep(*self.venv.step(actions))

    def step_wait(self) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        return self._keep(*self.venv.step_wait())

    def _keep(
        self, observations: Any, paid: Array, dones: Array, infos: list[dict[str, Any]]
    ) -> tuple[Any, Array, Array, list[dict[str, Any]]]:
        self._last_returned = observations
        self._paid = paid
        self._stepped = True
        self._ends = []
        rested = self._resting
        self._resting = self._original_of_resting()
        if self._observations is not None and dones.any():
            final = self._observations.final  # None if agents have left games that go on
            if final is None:
                final = self._observations.original()
            if rested is not None:
                final = batches.where(*rested, final)
            for i in np.flatnonzero(dones).tolist():
                shown = infos[i]["terminal_observation"]
                self._ends.append((batches.tree_map(np.copy, shown), batches.row(final, i)))
        if self._rewards is None or self._norm_reward:
            rewards = self._paid
        else:
            rewards = self.get_original_reward()
        return batches.copy(self._last_returned), rewards.copy(), dones, infos

    def _original_of_resting(self) -> tuple[BoolArray, Any] | None:
        resting = self.venv.resting
        if resting is None or self._observations is None:
            return None
        return resting[0], self._observations.original()

    # -- what SB3 asks -----------------------------------------------------------------------------

    def get_original_obs(self) -> Any:
        """Return the observations last shown, as they were before normalisation."""
        if self._observations is None:
            return batches.copy(self._last_returned)
        original = self._observations.original()
        shown = self._observations.last_returned()
        if self._stepped and shown is not None and not _same(shown, self._last_returned):
            _refuse("observations", "normalize_obs")
        return original

    def get_original_reward(self) -> Array:
        """Return the rewards of the last step, as they were before normalisation, (n,) float32."""
        if self._rewards is None:
            return self._paid.copy()
        original = self._rewards.original()
        shown = self._rewards.last_returned()
        if self._stepped and shown is not None and not _same(shown.astype(np.float32), self._paid):
            _refuse("rewards", "normalize_reward")
        return original.astype(np.float32)

    def unnormalize_obs(self, obs: Any) -> Any:
        """Undo ``normalize_obs``; for terminal observations of the last step, return originals."""
        for k, (shown, came) in enumerate(self._ends):
            if _same(obs, shown):
                # Two that were clipped to the same values look equal; SB3 requests each once, in
                # row order.
                self._ends.append(self._ends.pop(k))
                return batches.tree_map(np.copy, came)
        return super().unnormalize_obs(obs)

    # -- statistics --------------------------------------------------------------------------------

    @property
    def obs_rms(self) -> Any:
        """A copy of the observations' statistics, by key for a Dict, or None; can be replaced."""
        if self._observations is None:
            return None
        copies = {
            key: _as_sb3(statistics) for key, statistics in self._observations.statistics.items()
        }
        return copies.get(None, copies)

    @obs_rms.setter
    def obs_rms(self, new: Any) -> None:
        if new is None and self._observations is None:
            return
        if isinstance(new, dict):
            given = new
        else:
            given = {None: new}
        own = {}
        if self._observations is not None:
            own = self._observations.statistics
        if set(given) != set(own) or new is None:
            if not new:
                given = {}
            raise CheckpointError(
                f"obs_rms: expected statistics of {_names(own)}, got those of "
                f"{_names(given)}; the training and the evaluation environment need "
                "the same wrapper that normalises observations"
            )
        for key, statistics in own.items():
            _load(statistics, given[key], members.name_of(key))

    @property
    def ret_rms(self) -> Any:
        """A copy of the statistics of the returns; setting it replaces them."""
        if self._rewards is None:
            return RunningMeanStd()
        return _as_sb3(self._rewards.statistics)

    @ret_rms.setter
    def ret_rms(self, new: Any) -> None:
        if self._rewards is not None:
            _load(self._rewards.statistics, new, "returns")

    @property
    def returns(self) -> Array:
        """Each sub-environment's running return, (n,) float64; zeros without normalised rewards."""
        if self._rewards is None:
            return np.zeros(self.num_envs)
        return self._rewards.returns.copy()

    @property
    def training(self) -> bool:
        """Whether the statistics of the chain are updated."""
        return bool(self.venv.vecwrap_env.training)

    @training.setter
    def training(self, mode: bool) -> None:
        self.venv.vecwrap_env.train(bool(mode))

    @property
    def norm_reward(self) -> bool:
        """Whether rewards are returned normalised; False returns them as before that wrapper."""
        return self._norm_reward

    @norm_reward.setter
    def norm_reward(self, yes: bool) -> None:
        if yes and self._rewards is None:
            raise ArgumentError(
                "norm_reward: no wrapper normalises rewards here; add normalize_reward to the "
                "pipeline"
            )
        self._norm_reward = bool(yes)

    # -- files -------------------------------------------------------------------------------------

    def save(self, save_path: str) -> None:
        """Write the state of the chain as ``vecwrap_env.save`` does, under any file name."""
        self.venv.vecwrap_env.save(save_path)

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            "a vecwrap environment is not pickled: save(path) writes its state, build(stats=path) "
            "reads it"
        )


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(_same(one[k], other[k]) for k in one)
        )
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")


def _refuse(what: str, wrapper: str) -> NoReturn:
    raise PlanError(
        f"to_sb3: Stable-Baselines3 asks for {what} as they were before they were normalised, to "
        f"normalise them again later, but other wrappers change them after that; put {wrapper} (or "
        "normalize) outside of those"
    )


def _as_sb3(statistics: RunningStatistics) -> RunningMeanStd:
    copied = RunningMeanStd(shape=statistics.mean.shape)
    copied.mean = statistics.mean.copy()
    copied.var = statistics.var.copy()
    copied.count = statistics.count
    return copied


def _load(statistics: RunningStatistics, new: Any, where: str) -> None:
    statistics.load({"mean": new.mean, "var": new.var, "count": new.count}, where)


def _names(statistics: dict[Any, Any]) -> str:
    return ", ".join(members.name_of(key) for key in statistics) or "nothing"
