"""Observations with mean 0 and variance 1."""

from __future__ import annotations

from vecwrap.env.call_results import KeptByWrapper
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.rows.normalizers import NormalizerHooks, ObservationNormalizer


class NormalizeObs(NormalizerHooks, VecEnvWrapper):
    """Normalise observations by their running mean and variance.

    An observation becomes ``(observation - mean) / √(var + epsilon)``, clipped to ±``clip``, in
    float32. The statistics are elementwise, over all sub-environments together, in float64, and
    updated while ``env.training`` is True (see ``env.train()`` and ``env.eval()``). In every
    autoreset mode they count each observation that the agent acts on: including the one that opens
    an episode, but not the one that ends it. A terminal observation is still normalised, with the
    statistics of that moment.

    ``env.get_original_obs()`` returns the observations before normalisation, also through outer
    wrappers.

    At an episode's end:
        The terminal observation is normalised with the statistics of that moment, but not counted.

    Args:
        env: what it wraps; its observations are a Box of floats, or a Dict of them.
        clip: the largest absolute value.
        epsilon: added to the variance, to avoid division by 0.
        keys: which members of a Dict to normalise; None means all.
        integers: whether to normalise Boxes of integers too, such as images.

    Attributes:
        observations: holds the ``statistics`` of the observations.

    Raises:
        PlanError: observations that cannot be normalised, or an argument out of range.
        NotFiniteError: during training, an observation to be counted is not finite.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> env = NormalizeObs(vecwrap.build("CartPole-v1", n=8, backend="dummy"))
        >>> observations, infos = env.reset(seed=1)
        >>> for _ in range(100):
        ...     observations, *_ = env.step([0, 1] * 4)
        >>> observations.dtype, bool((abs(observations) < 10).all()), env.get_original_obs().dtype
        (dtype('float32'), True, dtype('float32'))
        >>> env.close()
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
        self.observations: ObservationNormalizer = ObservationNormalizer(
            "normalize_obs", env, clip=clip, epsilon=epsilon, keys=keys, integers=integers
        )
        self._normalizers = {"": self.observations}
        self.call_state.set_observation_space(self, self.observations.space)
        self.call_state.results.last_observations = KeptByWrapper(self.observations.all_returned)
