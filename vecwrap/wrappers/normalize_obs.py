"""Observations with mean 0 and variance 1."""

from __future__ import annotations

from typing import Any

from vecwrap.batch import Batch
from vecwrap.contract import StepResult
from vecwrap.parts.normalizers import ObservationNormalizer
from vecwrap.running import RunningStatistics
from vecwrap.vec_env import VecEnv
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["NormalizeObs"]


class NormalizeObs(VecEnvWrapper):
    """Normalise observations by their running mean and variance.

    An observation becomes ``(observation - mean) / √(var + epsilon)``, clipped to ±``clip``, in float32. The statistics
    are elementwise, over all sub-environments together, in float64, and updated while ``env.training`` is True (see
    ``env.train()`` and ``env.eval()``). In every autoreset mode they count each observation that the agent acts on:
    including the one that opens an episode, but not the one that ends it. A terminal observation is still normalised,
    with the statistics of that moment.

    ``env.get_original_obs()`` returns the observations before normalisation, also through outer layers.

    At an episode's end:
        The terminal observation is normalised with the statistics of that moment, but not counted.

    Args:
        env: what it wraps; its observations are a Box of floats, or a Dict of them.
        clip: the largest absolute value.
        epsilon: added to the variance, to avoid division by 0.
        keys: which members of a Dict to normalise; None means all.
        integers: whether to normalise Boxes of integers too, such as images.

    Attributes:
        normalizer: holds the ``statistics``.

    Raises:
        PlanError: observations that cannot be normalised, or an argument out of range.
        NotFiniteError: during training, an observation to be counted is not finite.

    Example:
        >>> import gymnasium
        >>> from vecwrap.backends.dummy import DummyBackend
        >>> env = NormalizeObs(DummyBackend([lambda: gymnasium.make("CartPole-v1")] * 8))
        >>> observations, infos = env.reset(seed=1)
        >>> for _ in range(100):
        ...     observations, *_ = env.step([0, 1] * 4)
        >>> observations.dtype, bool((abs(observations) < 10).all()), env.get_original_obs().dtype
        (dtype('float32'), True, dtype('float32'))
        >>> env.close()

    References:
        Chan, Golub and LeVeque (1979) for the statistics; the rest as in OpenAI Baselines.
    """

    def __init__(
        self,
        env: VecEnv,
        *,
        clip: float = 10.0,
        epsilon: float = 1e-8,
        keys: tuple[str, ...] | None = None,
        integers: bool = False,
    ) -> None:
        super().__init__(env)
        self.normalizer = ObservationNormalizer(
            "normalize_obs",
            env.single_observation_space,
            env.num_envs,
            clip=clip,
            epsilon=epsilon,
            keys=keys,
            integers=integers,
        )
        self._set_observation_space(self.normalizer.space)

    def on_step(self, step: StepResult) -> None:
        """Count, then normalise."""
        self.normalizer.on_step(step, self.normalizer.to_count(step, self.training))

    def layer_statistics(self) -> dict[str, RunningStatistics]:
        """The statistics themselves."""
        return self.normalizer.layer_statistics()

    def use_statistics(self, statistics: dict[str, RunningStatistics]) -> None:
        """Use other statistics."""
        self.normalizer.use_statistics(statistics)

    def layer_state(self) -> dict[str, Any]:
        """Return the statistics, and the last observations before and after normalisation."""
        return self.normalizer.state()

    def load_layer_state(self, state: dict[str, Any]) -> None:
        """Take in what ``layer_state`` gave."""
        self.normalizer.load(state)

    def _original_observations(self) -> Batch:
        return self.normalizer.original()
