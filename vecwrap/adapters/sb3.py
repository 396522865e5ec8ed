"""Conversion to and from Stable-Baselines3 (SB3), which is imported when a function is called."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from gymnasium.vector import VectorEnv

from vecwrap.env.refusals import refuse_tensors
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ArgumentError, PlanError, install_command
from vecwrap.rows.normalizers import ObservationNormalizer, RewardNormalizer
from vecwrap.rows.step_result import Autoreset

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv as Sb3VecEnv

__all__ = ["from_sb3", "to_sb3"]


def to_sb3(env: VecEnv) -> Sb3VecEnv:
    """Convert an environment to a Stable-Baselines3 (SB3) ``VecEnv``; closing it closes ``env``.

    ``step`` returns ``(observations, rewards, dones, infos)``: rewards in float32, and a list of n
    infos. When an episode ends, its info is that of the step itself, with ``terminal_observation``
    and ``TimeLimit.truncated``; the infos of resets are in ``reset_infos``. If the chain has a
    ``monitor`` wrapper, SB3 finds ``info["episode"]`` and treats it as its own ``Monitor``. If
    wrappers normalise, the result is a ``VecNormalize`` with the statistics of the wrappers, so
    that SB3 synchronises, stores and un-normalises correctly.

    The environment itself is available as ``vecwrap_env``.

    Args:
        env: a vecwrap environment in same-step mode.

    Returns:
        A ``stable_baselines3.common.vec_env.VecEnv``. All arrays that it returns are yours to keep.

    Raises:
        PlanError: another autoreset mode, more than one wrapper that normalises the same thing, an
            environment that returns tensors, or SB3 is not installed.
        ArgumentError: not a vecwrap environment.

    >>> import vecwrap
    >>> env = to_sb3(vecwrap.build("CartPole-v1", n=2, wrappers=["monitor"], backend="dummy"))
    >>> env.reset().shape
    (2, 4)
    >>> observations, rewards, dones, infos = env.step([0, 1])
    >>> rewards, infos[0]
    (array([1., 1.], dtype=float32), {'TimeLimit.truncated': False})
    >>> env.close()
    """
    if not isinstance(env, VecEnv):
        raise ArgumentError(
            f"to_sb3: expected a vecwrap environment, got {type(env).__name__}; vecwrap.build "
            "makes one, and vecwrap.wrap turns a gymnasium.vector.VectorEnv into one"
        )
    refuse_tensors("to_sb3", env, "Stable-Baselines3 converts them itself")
    if env.core.autoreset is not Autoreset.SAME_STEP:
        raise PlanError(
            "to_sb3: expected an environment in same_step mode, because Stable-Baselines3 takes "
            "the observation returned with a done for the next episode's first, got "
            f'{env.core.autoreset.value}; build it with autoreset="same_step", or '
            'vecwrap.wrap(engine, autoreset="same_step") an engine that can reset some of its rows'
        )
    observations, rewards = _halves_of(env)
    _refuse_without_sb3("to_sb3")
    from vecwrap.adapters.sb3_normalized import NormalizedVecEnv
    from vecwrap.adapters.sb3_vec_env import AdaptedVecEnv

    adapted = AdaptedVecEnv(env)
    if observations is None and rewards is None:
        return adapted
    return NormalizedVecEnv(adapted, observations, rewards)


def from_sb3(venv: Sb3VecEnv) -> VecEnv:
    """Convert an SB3 ``VecEnv`` to a vecwrap environment in same-step mode.

    ``vecwrap.wrap`` puts wrappers around the result.

    Terminal observations come from the infos, truncations from ``TimeLimit.truncated`` (if an
    episode was both terminated and truncated, SB3 cannot express that, and it counts as terminated
    here). The infos of the step that ended an episode, for example the ``episode`` of SB3's own
    ``Monitor``, are in ``infos["final_info"]``.

    Args:
        venv: any SB3 ``VecEnv``, wrapped or not; closed with the result.

    Returns:
        The environment: a ``gymnasium.vector.VectorEnv``. Masked resets are refused, because SB3
            has none, and the seed
        is a single number or None.

    Raises:
        ArgumentError: not an SB3 ``VecEnv``.
        PlanError: SB3 is not installed.

    >>> import vecwrap
    >>> from stable_baselines3.common.env_util import make_vec_env
    >>> env = vecwrap.wrap(from_sb3(make_vec_env("CartPole-v1", n_envs=2)), ["framestack:4"])
    >>> env.reset(seed=1)[0].shape
    (2, 4, 4)
    >>> env.close()
    """
    _refuse_without_sb3("from_sb3")
    from stable_baselines3.common.vec_env import VecEnv as Sb3VecEnv

    from vecwrap.adapters.sb3_engine import Sb3Engine
    from vecwrap.backends.dummy import around

    if not isinstance(venv, Sb3VecEnv):
        other: Any = venv
        remedy = (
            "pass it to vecwrap.wrap"
            if isinstance(other, VectorEnv)
            else "derive its class from that one"
        )
        raise ArgumentError(
            "from_sb3: expected a stable_baselines3.common.vec_env.VecEnv, got "
            f"{type(other).__name__}"
            f"{', a gymnasium.vector.VectorEnv' * isinstance(other, VectorEnv)}; {remedy}"
        )
    return around(Sb3Engine(venv))


def _refuse_without_sb3(name: str) -> None:
    try:
        import stable_baselines3.common.vec_env  # noqa: F401
    except ModuleNotFoundError as error:
        raise PlanError(
            f"{name} needs Stable-Baselines3 ({error}): {install_command('sb3')}"
        ) from error


def _halves_of(env: VecEnv) -> tuple[ObservationNormalizer | None, RewardNormalizer | None]:
    """Find the normalisers; SB3 supports one of each kind."""
    wrappers: Any = env.chain[:-1]
    for wrapper in wrappers:
        if wrapper.wrapper_statistics() and not wrapper.normalizers():
            warnings.warn(
                "to_sb3: Stable-Baselines3's EvalCallback does not know the statistics of "
                f"{type(wrapper).__name__}, and does not copy them to the evaluation environment; "
                "build that with stats=env, which shares them",
                stacklevel=3,
            )
    found = [(wrapper, half) for wrapper in wrappers for half in wrapper.normalizers()]
    return _only("observations", ObservationNormalizer, found), _only(
        "rewards", RewardNormalizer, found
    )


def _only(what: str, kind: type[Any], found: list[tuple[VecEnv, Any]]) -> Any:
    of_kind = [(wrapper, part) for wrapper, part in found if isinstance(part, kind)]
    if len(of_kind) > 1:
        names = ", ".join(type(wrapper).__name__ for wrapper, _ in reversed(of_kind))
        raise PlanError(
            f"to_sb3: expected one wrapper that normalises {what}, as Stable-Baselines3 "
            f"synchronises and un-normalises one, got {names}; leave one out (one wrapper takes "
            "several members: keys=[...])"
        )
    if of_kind:
        return of_kind[0][1]
    return None
