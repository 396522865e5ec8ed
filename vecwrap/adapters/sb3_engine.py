"""The engine that ``from_sb3`` steps, around an SB3 ``VecEnv``; imports Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from stable_baselines3.common.monitor import Monitor as Sb3Monitor
from stable_baselines3.common.vec_env import VecEnv as Sb3VecEnv

from vecwrap.errors import ArgumentError, PlanError
from vecwrap.rows import batch as batches
from vecwrap.rows.infos import columns, snapshot
from vecwrap.rows.step_result import Autoreset, BoolArray, Infos
from vecwrap.sources.engine import Engine, one_seed
from vecwrap.sources.engine_infos import ENDS, rows_of_infos
from vecwrap.sources.known_engines import refuse_lacking


class Sb3Engine(Engine):
    """An SB3 ``VecEnv``; closing this closes it."""

    why_no_masked_resets: ClassVar[str] = (
        "a Stable-Baselines3 VecEnv resets all its sub-environments together; the backends of "
        "vecwrap.build (dummy, subprocess, shmem) can reset some"
    )

    def __init__(self, venv: Any) -> None:
        refuse_lacking(venv, "from_sb3: expected a stable_baselines3.common.vec_env.VecEnv")
        self.venv = venv
        super().__init__(SteppedVecEnv(venv), autoreset=Autoreset.SAME_STEP, masked_resets=False)

    def monitor(self) -> str:
        try:
            wrapped = self.venv.env_is_wrapped(Sb3Monitor)
        except Exception:
            # A VecEnv of somebody's own need not have sub-environments that can be asked.
            return ""
        return (
            "Stable-Baselines3's Monitor" if wrapped and any(one is True for one in wrapped) else ""
        )

    def refuse_reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None) -> None:
        """Refuse non-consecutive seeds, and options that SuperSuit's class does not pass on."""
        if any(seed is not None for seed in seeds) and not isinstance(one_seed(seeds), int):
            raise ArgumentError(
                "reset: expected one seed, because sub-environment i of an SB3 VecEnv gets seed + "
                f"i, got {list(seeds)}"
            )
        if options is not None and not self.vector_env.is_sb3:
            raise ArgumentError(
                f"reset: {self.name} receives no options through SB3's interface, got {options}; "
                'vecwrap.wrap passes them on: concat_vec_envs_v1(..., base_class="gymnasium")'
            )

    def call_each(
        self, method: str, ids: list[int], arguments: Sequence[tuple[Any, ...]]
    ) -> Sequence[Any]:
        """Call a method through SB3's interface."""
        name = arguments[0][0]
        values: Sequence[Any]
        if method == "set_attr":
            values = [None] * len(ids)
            for i, (_, value) in zip(ids, arguments, strict=True):
                self.venv.set_attr(name, value, i)
        elif method == "get_attr":
            values = self.venv.get_attr(name, ids)
        elif method == "has_attr":
            values = [self.venv.has_attr(name)] * len(ids)
        elif name == "render" and self.vector_env.render_mode == "rgb_array":
            images = self.venv.get_images()
            values = [images[i] for i in ids]
        else:
            _, args, kwargs = arguments[0]
            values = self.venv.env_method(name, *args, indices=ids, **kwargs)
        return values


class SteppedVecEnv:
    """The part of Gymnasium's vector interface that ``Engine`` uses, on top of SB3's."""

    def __init__(self, venv: Any) -> None:
        self.venv = venv
        self.unwrapped = venv.unwrapped  # errors use its name
        # SuperSuit puts SB3's wrapper around one of Gymnasium's.
        self.is_sb3 = isinstance(self.unwrapped, Sb3VecEnv)
        self.envs = getattr(venv.unwrapped, "envs", None)
        self.num_envs: int = venv.num_envs
        self.single_observation_space = venv.observation_space
        self.single_action_space = venv.action_space
        # What SB3's base class sets may be missing in a class derived from it, as in SuperSuit's.
        metadata = (
            getattr(venv, "metadata", None) or getattr(self.unwrapped, "metadata", None) or {}
        )
        self.metadata = {**metadata, "autoreset_mode": Autoreset.SAME_STEP.gymnasium}
        self.render_mode = getattr(venv, "render_mode", None)
        self.spec = _spec(venv)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Infos]:
        if seed is not None:
            # Around SuperSuit's, what SB3's interface calls `seed` is not there: the vector's own
            # reset takes it.
            if self.is_sb3:
                self.venv.seed(seed)
            else:
                self.unwrapped.reset(seed=seed)
        if options is not None:
            self.venv.set_options(options)
        observations = self.venv.reset()
        return observations, columns([snapshot(info) for info in self._reset_infos()])

    def render(self) -> Sequence[Any]:
        """Return one image of each sub-environment, as Gymnasium's vector environments do."""
        images: Sequence[Any] = self.venv.get_images()
        return images

    def _reset_infos(self) -> list[dict[str, Any]]:
        """Return the infos of the latest resets, from the innermost wrapper that has them.

        SB3's wrappers do not update their own ``reset_infos``.
        """
        wrapper = self.venv
        found: Any = None
        while wrapper is not None:
            found = vars(wrapper).get("reset_infos", found)
            wrapper = vars(wrapper).get("venv")
        return rows_of_infos(self.unwrapped, found)

    def step(self, actions: Any) -> tuple[Any, Any, BoolArray, BoolArray, Infos]:
        observations, rewards, dones, given = self.venv.step(actions)
        infos = rows_of_infos(self.unwrapped, given)
        dones = np.array(dones, dtype=np.bool_)
        truncations = dones & [bool(info.get("TimeLimit.truncated", False)) for info in infos]
        rows = [
            snapshot({key: value for key, value in info.items() if key not in ENDS})
            for info in infos
        ]
        if not dones.any():
            return observations, rewards, dones & ~truncations, truncations, columns(rows)
        final_obs = batches.object_array([None] * self.num_envs)
        final_infos: list[dict[str, Any]] = [{}] * self.num_envs
        for i in np.flatnonzero(dones).tolist():
            if infos[i].get("terminal_observation") is None:
                raise PlanError(
                    f"from_sb3: sub-environment {i} is done, but its info has no "
                    "terminal_observation: the episode's last observation is lost; SB3's own "
                    "VecEnvs always include it"
                )
            final_obs[i] = infos[i]["terminal_observation"]
            final_infos[i] = rows[i]
            if self.is_sb3:  # SuperSuit's adds those of the reset to those of the step
                rows[i] = snapshot(self._reset_infos()[i])
        ends = {
            "final_obs": final_obs,
            "_final_obs": dones,
            "final_info": columns(final_infos),
            "_final_info": dones,
        }
        return observations, rewards, dones & ~truncations, truncations, {**columns(rows), **ends}

    def close(self) -> None:
        self.venv.close()


def _spec(venv: Any) -> Any:
    try:
        specs: Sequence[Any] = venv.get_attr("spec", 0)
    except Exception:
        # A VecEnv of somebody's own need not have one, nor sub-environments that can be asked.
        return None
    return specs[0]
