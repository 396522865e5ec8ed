"""Gymnasium's own vector environments: Sync, and Async with shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gymnasium import vector, wrappers
from gymnasium.wrappers import vector as vector_wrappers

from vecwrap.bench.contender import SEED, Contender, Steps, Throughput, action_batches
from vecwrap.bench.peers.translation import (
    Counterpart,
    Work,
    atari_settings,
    cannot,
    contenders_of,
    sub_env_factories,
    warm_forkserver,
    wrapped,
)
from vecwrap.contract import Autoreset
from vecwrap.plan import Plan
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.clip_action import ClipAction
from vecwrap.wrappers.clip_reward import ClipReward
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.normalize import Normalize
from vecwrap.wrappers.normalize_obs import NormalizeObs
from vecwrap.wrappers.normalize_reward import NormalizeReward

__all__ = ["Gymnasium", "atari", "framestack"]

NO_CLIP = "its normalisers do not clip"


class Gymnasium:
    """``SyncVectorEnv`` and ``AsyncVectorEnv(shared_memory=True)``, with Gymnasium's wrappers for our layers."""

    names = ("Gymnasium Sync", "Gymnasium Async")

    def contenders(self, planned: Plan) -> Sequence[Contender]:
        """Return both, with the same sub-environments."""
        mode = Autoreset.parse(planned.pipeline.autoreset)

        def normalize_obs(given: Mapping[str, Any]) -> Counterpart:
            if mode is not Autoreset.NEXT_STEP:
                cannot("Gymnasium", f"its NormalizeObservation needs autoreset=next_step, got {mode.value}")
            return Counterpart((partial(vector_wrappers.NormalizeObservation, epsilon=given["epsilon"]),), NO_CLIP)

        def normalize(given: Mapping[str, Any]) -> Counterpart:
            return Counterpart((*normalize_obs(given).wraps, *_normalize_reward(given).wraps), NO_CLIP)

        work = sub_env_factories(
            planned,
            "Gymnasium",
            worker={Atari: atari},
            inside={FrameStack: framestack},
            parent={
                Monitor: monitor,
                Normalize: normalize,
                NormalizeObs: normalize_obs,
                NormalizeReward: _normalize_reward,
                ClipAction: lambda given: Counterpart((vector_wrappers.ClipAction,)),
                ClipReward: _clip_reward,
            },
        )
        copy = planned.pipeline.copy

        def sync() -> Throughput:
            return _running(work, vector.SyncVectorEnv(work.factories, copy=copy, autoreset_mode=mode.gymnasium))

        def asynchronous() -> Throughput:
            warm_forkserver()
            env = vector.AsyncVectorEnv(
                work.factories, shared_memory=True, copy=copy, autoreset_mode=mode.gymnasium, context="forkserver"
            )
            return _running(work, env)

        return contenders_of(self.names, (sync, asynchronous), work.note)


def _running(work: Work, env: Any) -> Throughput:
    env = work.wrapped(env)
    env.reset(seed=SEED)
    return Throughput(Steps(env.step, action_batches(env.single_action_space, env.num_envs), env.num_envs), env.close)


def atari(given: Mapping[str, Any]) -> Counterpart:
    """``AtariPreprocessing``, and ``ClipReward`` if rewards are clipped."""
    settings = atari_settings(given)
    preprocess = wrapped(
        wrappers.AtariPreprocessing,
        noop_max=settings.noop_max,
        frame_skip=settings.frame_skip,
        screen_size=settings.screen_size,
        terminal_on_life_loss=settings.terminal_on_life_loss,
    )
    clip = (wrapped(wrappers.ClipReward, -1.0, 1.0),) if settings.clip_reward else ()
    notes = ["AtariPreprocessing takes the maximum of greys"]
    if settings.fire_reset:
        notes.append("and presses no FIRE")
    return Counterpart((preprocess, *clip), " ".join(notes))


def framestack(given: Mapping[str, Any]) -> Counterpart:
    """``FrameStackObservation``, around each sub-environment."""
    if given["axis"] != "new" or given["keys"] is not None:
        cannot("Gymnasium", "its FrameStackObservation stacks whole observations along a new leading axis")
    padding = "zero" if given["padding"] == "zero" else "reset"
    stack = wrapped(wrappers.FrameStackObservation, given["k"], padding_type=padding)
    return Counterpart((stack,), "stacks in the sub-environments")


def monitor(given: Mapping[str, Any]) -> Counterpart:
    """``RecordEpisodeStatistics`` around the vector."""
    note = "its RecordEpisodeStatistics writes no file" if given.get("dir") else ""
    return Counterpart((vector_wrappers.RecordEpisodeStatistics,), note)


def _normalize_reward(given: Mapping[str, Any]) -> Counterpart:
    wrap = partial(vector_wrappers.NormalizeReward, gamma=given["gamma"], epsilon=given["epsilon"])
    return Counterpart((wrap,), NO_CLIP)


def _clip_reward(given: Mapping[str, Any]) -> Counterpart:
    sign = given["low"] is None and given["high"] is None
    low, high = (-1.0, 1.0) if sign else (given["low"], given["high"])
    wrap = partial(vector_wrappers.ClipReward, min_reward=low, max_reward=high)
    return Counterpart((wrap,), "clips rewards to -1 and 1 instead of to their sign" if sign else "")
