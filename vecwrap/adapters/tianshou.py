"""Conversion to tianshou, which is imported when the function is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from vecwrap.env.refusals import describe_env, refuse_tensors
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ArgumentError, PlanError, install_command
from vecwrap.rows.step_result import Autoreset

if TYPE_CHECKING:
    from tianshou.env import BaseVectorEnv

__all__ = ["to_tianshou"]


def to_tianshou(env: VecEnv, *, timeout: float | None = None) -> BaseVectorEnv:
    """Convert an environment to a tianshou 2 ``BaseVectorEnv``; closing it closes ``env``.

    ``step(action, id)`` and ``reset(env_id)`` take some of the sub-environments, as tianshou's
    collectors ask for them, and return one info per row, with ``env_id``. ``seed`` gives
    sub-environment i ``seed + i`` and resets it; ``reset(seed=...)`` gives the same seed to each,
    as in tianshou. ``action_space`` and ``observation_space`` are lists, as there, of the spaces
    after all wrappers.

    An environment that was built with a ``batch_size`` smaller than n is for tianshou's
    ``AsyncCollector``: ``step`` returns as soon as that many rows have arrived (tianshou's
    ``wait_num``). A reset then waits for the rows that are still being stepped; the next ``step``
    returns them. So is one with a ``timeout``.

    The environment itself is available as ``vecwrap_env``.

    Args:
        env: a vecwrap environment in disabled mode.
        timeout: seconds after which ``step`` returns the rows that have arrived, one at least, even
            if they are fewer than ``wait_num``, as in tianshou; None waits for that many.

    Returns:
        A ``tianshou.env.BaseVectorEnv``. All arrays that it returns are yours to keep.

    Raises:
        PlanError: another autoreset mode, observations of a Tuple space, an environment that
            returns tensors, or tianshou is not installed.
        ArgumentError: not a vecwrap environment, or ``timeout`` is not a positive number.

    >>> import vecwrap
    >>> venv = to_tianshou(vecwrap.build("CartPole-v1", n=3, backend="dummy", autoreset="disabled"))
    >>> observations, infos = venv.reset()
    >>> observations, rewards, terminations, truncations, infos = venv.step([0, 1], id=[0, 2])
    >>> observations.shape, infos[1]
    ((2, 4), {'env_id': 2})
    >>> venv.close()
    """
    if not isinstance(env, VecEnv):
        raise ArgumentError(f"to_tianshou: expected a vecwrap environment, got {describe_env(env)}")
    refuse_tensors("to_tianshou", env, "tianshou's buffers hold them")
    given: Any = timeout
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if given is not None and not (is_number and given > 0):
        raise ArgumentError(
            f"to_tianshou: timeout: expected a positive number of seconds, or None, got {timeout!r}"
        )
    if env.core.autoreset is not Autoreset.DISABLED:
        raise PlanError(
            "to_tianshou: expected an environment in disabled mode, because tianshou resets what "
            f'has ended, got {env.core.autoreset.value}; build it with autoreset="disabled"'
        )
    if isinstance(env.single_observation_space, spaces.Tuple):
        raise PlanError(
            "to_tianshou: expected observations in an array or a Dict, as tianshou has no Tuple "
            f"spaces, got {env.single_observation_space}; the wrapper flatten makes a Box of most "
            "spaces"
        )
    try:
        from vecwrap.adapters.tianshou_vec_env import AdaptedVectorEnv
    except ModuleNotFoundError as error:
        raise PlanError(
            f"to_tianshou needs tianshou ({error}): {install_command('tianshou')}"
        ) from error
    return AdaptedVectorEnv(env, timeout)
