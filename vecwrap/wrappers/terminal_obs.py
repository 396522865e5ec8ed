"""Terminal observations as one dense array, in the same place in every autoreset mode."""

from __future__ import annotations

from typing import Any

import numpy as np

from vecwrap.batch import Batch, tree_map
from vecwrap.contract import StepResult
from vecwrap.errors import PlanError
from vecwrap.vec_env import VecEnv
from vecwrap.wrapper import VecEnvWrapper

__all__ = ["TerminalObs"]

RESERVED = ("final_obs", "final_info", "env_id")  # what the face writes


class TerminalObs(VecEnvWrapper):
    """Report each ended episode's last observation in ``infos``, as one dense batch.

    In same-step mode the observation that a step returns opens the next episode already, and Gymnasium's ``final_obs``
    is an object array; in the other modes the step itself returns the terminal observation. Here it is in one place in
    every mode, ready to bootstrap from::

        infos["terminal_obs"]   # (m, *shape), as observations are: zeros (None for objects) where no episode ended
        infos["_terminal_obs"]  # (m,) bool, where an episode ended in this very row

    Both are there in the steps in which an episode ended, as with every other column of ``infos``. The observation is
    the one at this layer's place in the chain: outside of a frame stack it is a stack, inside it is a frame. A row that
    rests in episodic mode reports its end once. Observations of Dict and Tuple spaces give dicts and tuples of arrays.

    Args:
        env: what it wraps.
        key: the column's name; ``"terminal_observation"`` is Stable-Baselines3's.

    Raises:
        PlanError: a key that is empty, begins with an underscore (these are masks), or that Gymnasium gives a meaning.

    Example:
        >>> import gymnasium
        >>> from vecwrap.backends.dummy import DummyBackend
        >>> make = lambda: gymnasium.make("CartPole-v1", max_episode_steps=3)
        >>> env = TerminalObs(DummyBackend([make, make], autoreset="next_step"))
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
        if not key or key.startswith("_") or key in RESERVED:
            raise PlanError(
                f"terminal_obs: key: expected a name without a leading underscore and none of {', '.join(RESERVED)}, "
                f'got "{key}"; the default is "terminal_obs"'
            )
        self.key = key
        self._running = np.zeros(env.num_envs, dtype=np.bool_)

    def on_step(self, step: StepResult) -> None:
        """Add the column where an episode ended."""
        dones = step.dones
        ended = dones & self._running[step.rows]  # a row that rests has ended before
        self._running[step.rows] = step.first | (self._running[step.rows] & ~dones)
        if ended.any():
            step.add_info(self.key, _only(ended, step.terminal_observations), ended)

    def layer_state(self) -> dict[str, Any]:
        """Give which sub-environments have a running episode."""
        return {"running": self._running.copy()}

    def load_layer_state(self, state: dict[str, Any]) -> None:
        """Take in what ``layer_state`` gave."""
        self._running[:] = state["running"]


def _only(mask: np.ndarray[Any, Any], batch: Batch) -> Batch:
    """The rows of a mask, and zeros (None for objects) elsewhere; fresh arrays."""

    def choose(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        out = np.full_like(array, None) if array.dtype == object else np.zeros_like(array)
        out[mask] = array[mask]
        return out

    return tree_map(choose, batch)
