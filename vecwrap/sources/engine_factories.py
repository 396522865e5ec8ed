"""Factories of the engines that a pipeline names: EnvPool's and ale-py's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from vecwrap.sources.engine import EngineOptions
from vecwrap.sources.factories import own_arguments
from vecwrap.sources.known_engines import MAX_SEED


@dataclass(frozen=True)
class MakeEnvPool:
    """A factory of one of EnvPool's engines, which takes seeds only when it is made."""

    task: str
    kwargs: Mapping[str, Any]
    num_envs: int
    stacks_one: bool = False
    batch_size: int | None = None  # how many rows it returns at a time; None: all
    seed: int | None = None  # of its first row

    def __call__(self) -> Any:
        seeds = self._seeds
        if not seeds:
            drawn = np.random.SeedSequence().generate_state(self.num_envs)
            seeds = drawn.tolist()
        return self.seeded(seeds)

    @property
    def engine_options(self) -> EngineOptions:
        """What the engine is told besides."""
        return EngineOptions(self.seeded, self._seeds, stacks_one=self.stacks_one)

    @property
    def _seeds(self) -> Sequence[int]:
        if self.seed is None:
            return ()
        return range(self.seed, self.seed + self.num_envs)

    def of_rows_from(self, row: int) -> MakeEnvPool:
        """Return the factory of the engine whose first row is this one."""
        if self.seed is None:
            return self
        return replace(self, seed=self.seed + row)

    def seeded(self, seeds: Sequence[int]) -> Any:
        """Make it with a seed for each row."""
        import envpool

        kwargs = own_arguments(dict(self.kwargs))
        env: Any = envpool.make(
            self.task,
            env_type="gymnasium",
            num_envs=self.num_envs,
            batch_size=self.batch_size or self.num_envs,
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
    stacks_one: bool = False
    batch_size: int | None = None  # how many rows it returns at a time; None: all
    clip_rewards: bool = False

    def __call__(self) -> Any:
        from ale_py.vector_env import AtariVectorEnv

        return AtariVectorEnv(
            self.game,
            self.num_envs,
            batch_size=self.batch_size or 0,
            **own_arguments(dict(self.kwargs)),
        )

    @property
    def engine_options(self) -> EngineOptions:
        """What the engine is told besides."""
        return EngineOptions(clip_rewards=self.clip_rewards, stacks_one=self.stacks_one)

    def __str__(self) -> str:
        return self.game


def has_display() -> bool:
    """Whether OpenGL has a display to draw with."""
    return os.name == "nt" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
