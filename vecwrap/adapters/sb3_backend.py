"""A Stable-Baselines3 VecEnv as the innermost environment of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from vecwrap.backends.native import NativeBackend
from vecwrap.batch import object_array
from vecwrap.contract import Autoreset, BoolArray, Infos
from vecwrap.errors import ArgumentError, PlanError
from vecwrap.infos import columns, snapshot

__all__ = ["Sb3Backend"]


class Sb3Backend(NativeBackend):
    """An SB3 ``VecEnv``; see ``from_sb3``, which makes it.

    Args:
        venv: the SB3 environment; closing this closes it.
    """

    name: ClassVar[str] = "sb3"
    _why_no_masked_resets: ClassVar[str] = (
        "a Stable-Baselines3 VecEnv resets all its sub-environments together; the backends of vecwrap.build (dummy, "
        "subprocess, shmem) can reset some"
    )

    def __init__(self, venv: Any) -> None:
        self.venv = venv
        super().__init__(_FiveTuples(venv), autoreset=Autoreset.SAME_STEP, masked_resets=False)

    def _ask_engine(self, method: str, ids: list[int], arguments: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        name = arguments[0][0]
        values: Sequence[Any]
        if method == "set_attr":
            for i, (_, value) in zip(ids, arguments, strict=True):
                self.venv.set_attr(name, value, i)
            values = [None] * len(ids)
        elif method == "get_attr":
            values = self.venv.get_attr(name, ids)
        elif method == "has_attr":
            values = [self.venv.has_attr(name)] * len(ids)
        elif name == "render" and self.venv.render_mode == "rgb_array":
            images = self.venv.get_images()
            values = [images[i] for i in ids]
        else:
            _, args, kwargs = arguments[0]
            values = self.venv.env_method(name, *args, indices=ids, **kwargs)
        return values


class _FiveTuples:
    """The part of Gymnasium's vector interface that ``NativeBackend`` uses, on top of SB3's."""

    def __init__(self, venv: Any) -> None:
        self.venv = venv
        self.unwrapped = venv.unwrapped  # errors use its name
        self.num_envs: int = venv.num_envs
        self.single_observation_space = venv.observation_space
        self.single_action_space = venv.action_space
        self.metadata = {**(venv.metadata or {}), "autoreset_mode": Autoreset.SAME_STEP.gymnasium}
        self.render_mode = venv.render_mode
        self.spec = _spec(venv)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Infos]:
        if seed is not None:
            if not isinstance(seed, int):
                raise ArgumentError(
                    f"reset: expected one seed, because sub-environment i of an SB3 VecEnv gets seed + i, got {seed}"
                )
            self.venv.seed(seed)
        if options is not None:
            self.venv.set_options(options)
        observations = self.venv.reset()
        return observations, columns([snapshot(info) for info in self.venv.unwrapped.reset_infos])

    def step(self, actions: Any) -> tuple[Any, Any, BoolArray, BoolArray, Infos]:
        observations, rewards, dones, infos = self.venv.step(actions)
        dones = np.array(dones, dtype=np.bool_)
        truncations = dones & [bool(info.get("TimeLimit.truncated", False)) for info in infos]
        rows = [_own(info) for info in infos]
        if not dones.any():
            return observations, rewards, dones & ~truncations, truncations, columns(rows)
        final_obs = object_array([None] * self.num_envs)
        final_infos: list[dict[str, Any]] = [{}] * self.num_envs
        for i in np.flatnonzero(dones).tolist():
            if infos[i].get("terminal_observation") is None:
                raise PlanError(
                    f"from_sb3: sub-environment {i} is done, but its info has no terminal_observation: the episode's "
                    "last observation is lost; SB3's own VecEnvs always include it"
                )
            final_obs[i] = infos[i]["terminal_observation"]
            final_infos[i], rows[i] = rows[i], snapshot(self.venv.unwrapped.reset_infos[i])
        ends = {"final_obs": final_obs, "_final_obs": dones, "final_info": columns(final_infos), "_final_info": dones}
        return observations, rewards, dones & ~truncations, truncations, {**columns(rows), **ends}

    def close(self) -> None:
        self.venv.close()


def _own(info: dict[str, Any]) -> dict[str, Any]:
    """An info without the keys for the flags and the terminal observation."""
    return snapshot(
        {key: value for key, value in info.items() if key not in ("terminal_observation", "TimeLimit.truncated")}
    )


def _spec(venv: Any) -> Any:
    try:
        specs: Sequence[Any] = venv.get_attr("spec", 0)
    except Exception:  # a VecEnv of somebody's own need not have one, nor sub-environments that can be asked
        return None
    return specs[0]
