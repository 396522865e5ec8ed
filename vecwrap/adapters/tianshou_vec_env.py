"""What ``to_tianshou`` returns; importing it imports tianshou."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from tianshou.env import BaseVectorEnv

from vecwrap.env.call_results import FiveTuple
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import ArgumentError, WaitTimeoutError
from vecwrap.rows import batch as batches
from vecwrap.rows.gymnasium_form import element
from vecwrap.rows.infos import row_of
from vecwrap.rows.step_result import IntArray, StepResult

Array = np.ndarray[Any, Any]
POLL_SECONDS = 0.05  # past a timeout, until the first row has arrived
Ids = Any  # tianshou's: None, an int, or several


# tianshou is not read by mypy, for it would read torch.
class AdaptedVectorEnv(BaseVectorEnv):  # type: ignore[misc]
    """The tianshou interface around an environment in disabled mode; made by ``to_tianshou``."""

    def __init__(self, env: VecEnv, timeout: float | None) -> None:
        # Without the base class's, which makes sub-environments.
        self.vecwrap_env = env
        env.core.rows.read_observations()
        self.env_num = env.num_envs
        self.wait_num = env.call_state.pending.batch_size or env.num_envs
        self.timeout = timeout
        self.is_async = self.wait_num < env.num_envs or timeout is not None
        self.is_closed = False
        self.ready_id = list(range(env.num_envs))
        self.waiting_id: list[int] = []
        self._spaces: dict[str, list[Any]] = {
            "action_space": [deepcopy(env.single_action_space) for _ in self.ready_id],
            "observation_space": [env.single_observation_space] * env.num_envs,
            "metadata": [env.metadata] * env.num_envs,
            "spec": [env.spec] * env.num_envs,
        }
        self._arrived: dict[int, tuple[Any, ...]] = {}  # rows that `step` has not returned yet

    # -- rows --------------------------------------------------------------------------------------

    def reset(self, env_id: Ids = None, **kwargs: Any) -> tuple[Array, Array]:
        """Reset sub-environments; keyword arguments go to each, as in tianshou."""
        ids = self._ids(env_id)
        seed = kwargs.pop("seed", None)
        options = kwargs.pop("options", None)
        if kwargs:
            raise ArgumentError(
                f"reset: expected seed and options, got {', '.join(kwargs)}; Gymnasium has only "
                "these"
            )
        seeds = None
        if seed is not None:
            seeds = [seed] * self.env_num
        return self._reset(ids, seeds, options)

    def step(self, action: Any, id: Ids = None) -> tuple[Array, Array, Array, Array, Array]:
        """Step sub-environments, and return their rows, or the arrived rows if asynchronous.

        If asynchronous, ``action`` may be None.
        """
        ids = self._ids(id)
        if action is not None:
            self.vecwrap_env.send(action, ids)
            self.waiting_id += ids
            self.ready_id = [i for i in self.ready_id if i not in ids]
        elif not self.is_async:
            raise ArgumentError("step: action: expected an action for each of the rows, got None")
        if self.is_async:
            self._await(min(self.wait_num, len(self.waiting_id)))
            arrived = list(self._arrived)
        else:
            self._await(min(len(ids), len(self.waiting_id)))
            arrived = ids
        rows = [self._arrived.pop(i) for i in arrived]
        self.waiting_id = [i for i in self.waiting_id if i not in arrived]
        self.ready_id += arrived
        observations, rewards, terminations, truncations, infos = zip(*rows, strict=True)
        flags = np.stack(terminations), np.stack(truncations)
        return self._stacked(observations), np.stack(rewards), *flags, batches.object_array(infos)

    def seed(self, seed: int | Sequence[int] | None = None) -> list[list[int] | None]:
        """Seed and reset each sub-environment, and seed its action space.

        Sub-environment i gets ``seed + i``, or its own seed of a list.
        """
        if isinstance(seed, (int, np.integer)):
            seed = [seed + i for i in range(self.env_num)]
        self._reset(list(range(self.env_num)), seed)
        each: Sequence[int | None] = [None] * self.env_num
        if seed is not None:
            each = seed
        returned: list[list[int] | None] = [None] * self.env_num
        for i, (space, one) in enumerate(zip(self._spaces["action_space"], each, strict=True)):
            space.seed(one)
            if one is not None:
                returned[i] = [one]
        return returned

    def _reset(self, ids: list[int], seeds: Any, options: Any = None) -> tuple[Array, Array]:
        self._receive_pending()
        self.vecwrap_env.call_state.reset(
            seeds, [(np.sort(np.array(ids, dtype=np.int64)), options)]
        )
        came = self._rows(*self.vecwrap_env.call_state.wait("reset", None))
        for i in ids:
            self._arrived.pop(i, None)
        self.waiting_id = [i for i in self.waiting_id if i not in ids]
        self.ready_id += [i for i in ids if i not in self.ready_id]
        return self._stacked([came[i][0] for i in ids]), batches.object_array(
            [came[i][-1] for i in ids]
        )

    def _await(self, count: int) -> None:
        """Wait until so many rows have arrived, or past the timeout until one has."""
        if self.timeout is None:
            while len(self._arrived) < count:
                self._receive()
            return
        deadline = time.monotonic() + self.timeout
        while len(self._arrived) < count:
            left = deadline - time.monotonic()
            if left <= 0 and self._arrived:
                return
            with contextlib.suppress(WaitTimeoutError):
                self._receive(max(left, 0.0 if self._arrived else POLL_SECONDS), least=1)

    def _receive(self, timeout: float | None = None, least: int | None = None) -> None:
        came = self._rows(*self.vecwrap_env.call_state.wait("send", timeout, least))
        for i, row in came.items():
            row[-1]["env_id"] = i
        self._arrived.update(came)

    def _rows(self, step: StepResult, result: FiveTuple) -> dict[int, tuple[Any, ...]]:
        """The five values of each row, by its sub-environment."""
        observations, *columns, infos = result
        space = self.vecwrap_env.single_observation_space
        ids: list[int] = step.env_ids.tolist()
        if not self.vecwrap_env.core.copy:
            observations = batches.copy(observations)
        return {
            i: (
                element(space, batches.row(observations, k)),
                *(each[k] for each in columns),
                row_of(infos, k),
            )
            for k, i in enumerate(ids)
        }

    def _stacked(self, observations: Sequence[Any]) -> Array:
        if isinstance(observations[0], (np.ndarray, np.generic)):
            return np.stack(observations)
        return batches.object_array(list(observations))  # of dicts, which tianshou makes a Batch of

    def _receive_pending(self) -> None:
        """Wait for all rows that are being stepped, because nothing else can be asked before."""
        env = self.vecwrap_env
        while env.call_state.pending.call == "send":
            self._receive()
        if env.call_state.pending.call is not None:  # an interrupt has left it
            getattr(env, f"{env.call_state.pending.call}_wait")()

    # -- calls to the sub-environments -------------------------------------------------------------

    def get_env_attr(self, key: str, id: Ids = None) -> list[Any]:
        """Return an attribute of each sub-environment; spaces are those after all wrappers."""
        ids = self._ids(id)
        if key in self._spaces:
            return [self._spaces[key][i] for i in ids]
        self._receive_pending()
        return list(self.vecwrap_env.get_attr(key, ids))

    def set_env_attr(self, key: str, value: Any, id: Ids = None) -> None:
        """Set an attribute of each sub-environment to one value, on the wrapper that has it."""
        ids = self._ids(id)
        self._receive_pending()
        self.vecwrap_env.set_attr(key, [value] * len(ids), ids)

    def render(self, **kwargs: Any) -> list[Any]:
        self._receive_pending()
        return list(self.vecwrap_env.render())

    def close(self) -> None:
        self.is_closed = True
        self.vecwrap_env.close()

    def _ids(self, ids: Ids) -> list[int]:
        checked: IntArray = self.vecwrap_env.call_state.pending.indices(ids, once=True)
        return [int(i) for i in checked]

    def __repr__(self) -> str:
        return f"<to_tianshou of {self.vecwrap_env!r}>"
