"""Terminal observations as one dense array, in the same place in every autoreset mode."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError, check_info_key
from vecwrap.rows.batch import Batch, tree_map
from vecwrap.rows.step_result import StepResult


class TerminalObs(VecEnvWrapper):
    """Report each ended episode's last observation in ``infos``, as one dense batch.

    In same-step mode the observation that a step returns already opens the next episode, and Gymnasium's ``final_obs``
    is an object array; in the other modes the step itself returns the terminal observation. Here it is in the same
    place in every mode, ready for bootstrapping::

        infos["terminal_obs"]   # (m, *shape), like observations: zeros (None for objects) where no episode ended
        infos["_terminal_obs"]  # (m,) bool, whether an episode ended in this row

    As with any other column of ``infos``, both are present only in steps in which an episode ended. The observation is
    the one at this wrapper's place in the chain: outside a frame stack it is a stack, inside it is a frame. A row that
    rests in episodic mode reports its end once. Observations of Dict and Tuple spaces give dicts and tuples of arrays.

    At an episode's end:
        The terminal observation is reported in ``infos``.

    Args:
        env: what it wraps.
        key: the column's name; ``"terminal_observation"`` is Stable-Baselines3's.

    Raises:
        PlanError: a key that is empty, starts with an underscore (reserved for masks), has a meaning in Gymnasium, or
            is used by an inner wrapper of this kind.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> make = lambda: gymnasium.make("CartPole-v1", max_episode_steps=3)
        >>> env = TerminalObs(vecwrap.build(make, n=2, backend="dummy", autoreset="next_step"))
        >>> observations, infos = env.reset(seed=1)
        >>> while "terminal_obs" not in infos:
        ...     observations, rewards, terminations, truncations, infos = env.step([0, 1])
        >>> infos["terminal_obs"].shape, infos["_terminal_obs"]
        ((2, 4), array([ True,  True]))
        >>> bool((infos["terminal_obs"] == observations).all())
        True
        >>> env.close()
    """

    def __init__(self, env: VecEnv, *, key: str = "terminal_obs") -> None:
        super().__init__(env)
        check_info_key("terminal_obs: key", key, "terminal_obs")
        if any(isinstance(inner, TerminalObs) and inner.key == key for inner in env.chain):
            raise PlanError(
                f'terminal_obs: key: an inner terminal_obs reports infos["{key}"] already; leave one out, or give this '
                'one another name with key="..."'
            )
        self.key: str = key

    def on_step(self, step: StepResult) -> None:
        ended = step.ended
        if ended.any():
            step.add_info(self.key, _only(ended, step.terminal_observations), ended)


def _only(mask: np.ndarray[Any, Any], batch: Batch) -> Batch:
    """The rows of a mask, and zeros (None for objects) elsewhere; fresh arrays."""

    def choose(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        out = np.full_like(array, None) if array.dtype == object else np.zeros_like(array)
        out[mask] = array[mask]
        return out

    return tree_map(choose, batch)
