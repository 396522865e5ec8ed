"""Factories of the engines that a pipeline names: EnvPool's and ale-py's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.engine import Engine
from vecwrap.sources.factories import own_arguments

MAX_SEED = 2**31 - 1  # EnvPool's seeds are C's int


@dataclass(frozen=True)
class MakeEnvPool:
    """A factory of one of EnvPool's engines, which takes seeds only when it is made."""

    task: str
    kwargs: Mapping[str, Any]
    num_envs: int
    mode: Autoreset
    stacks_one: bool = False
    seed: int | None = None  # of its first row

    def __call__(self) -> Engine:
        first = self.seed
        if first is None:
            first = int(np.random.SeedSequence().generate_state(1)[0]) % (MAX_SEED - self.num_envs)
        seeds = list(range(first, first + self.num_envs))
        return Engine(
            self._make(seeds),
            autoreset=self.mode,
            make_seeded=self._make,
            seeds=seeds,
            stacks_one=self.stacks_one,
        )

    def of_rows_from(self, row: int) -> MakeEnvPool:
        """Return the factory of the engine whose first row is this one."""
        if self.seed is None:
            return self
        return replace(self, seed=self.seed + row)

    def _make(self, seeds: Sequence[int]) -> Any:
        import envpool

        kwargs = own_arguments(dict(self.kwargs))
        env: Any = envpool.make(
            self.task,
            env_type="gymnasium",
            num_envs=self.num_envs,
            seed=[seed % MAX_SEED for seed in seeds],
            **kwargs,
        )
        if kwargs.get("render_mode") is not None:
            # of all, as Gymnasium's vector environments do
            env.render = partial(env.render, env_ids=np.arange(self.num_envs))
        return env

    def __str__(self) -> str:
        return self.task


@dataclass(frozen=True)
class MakeAle:
    """A factory of ale-py's vector engine; rewards are clipped outside, where raw ones are kept."""

    game: str
    kwargs: Mapping[str, Any]
    num_envs: int
    mode: Autoreset
    stacks_one: bool = False
    clip_rewards: bool = False

    def __call__(self) -> Engine:
        from ale_py.vector_env import AtariVectorEnv

        env = AtariVectorEnv(self.game, self.num_envs, **own_arguments(dict(self.kwargs)))
        return Engine(
            env,
            autoreset=self.mode,
            clip_rewards=self.clip_rewards,
            stacks_one=self.stacks_one,
        )

    def __str__(self) -> str:
        return self.game


def has_display() -> bool:
    """Whether OpenGL has a display to draw with."""
    return os.name == "nt" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
