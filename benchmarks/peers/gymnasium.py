"""Gymnasium's own vector environments, under its own wrappers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gymnasium import vector, wrappers
from gymnasium.wrappers import vector as vector_wrappers

from benchmarks.measure import Contender
from benchmarks.peers.translation import (
    Counterpart,
    Given,
    Work,
    cannot,
    translated,
    warm_forkserver,
    wrapped,
)
from vecwrap.pipeline.plan import Plan
from vecwrap.tools.throughput import SEED, Throughput, action_batches, make_stepper
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.clip_action import ClipAction
from vecwrap.wrappers.emulator.lineages import resolve_settings
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor

__all__ = ["Gymnasium", "gymnasium_atari", "gymnasium_framestack"]


class Gymnasium:
    """``SyncVectorEnv`` and ``AsyncVectorEnv(shared_memory=True)``, with Gymnasium's wrappers for
    our wrappers.
    """

    names: tuple[str, ...] = ("Gymnasium Sync", "Gymnasium Async")

    def contenders(self, planned: Plan) -> Sequence[Contender]:
        makes, note = self.makes(planned)
        return [
            Contender(name, "peer", partial(_gymnasium_steps, make), note)
            for name, make in makes.items()
        ]

    def makes(self, planned: Plan) -> tuple[dict[str, Callable[[], Any]], str]:
        """Return what makes each vector environment, by its name, and where its work differs."""
        mode = planned.pipeline.autoreset_mode
        work = translated(
            planned,
            "Gymnasium",
            inner={Atari: gymnasium_atari, FrameStack: gymnasium_framestack},
            outer={
                Monitor: _record_statistics,
                ClipAction: lambda given: Counterpart((vector_wrappers.ClipAction,)),
            },
        )
        shared: dict[str, Any] = {"copy": planned.pipeline.copy, "autoreset_mode": mode.gymnasium}
        kinds = (
            partial(vector.SyncVectorEnv, **shared),
            partial(vector.AsyncVectorEnv, shared_memory=True, context="forkserver", **shared),
        )
        makes = [partial(_made, kind, work) for kind in kinds]
        return dict(zip(self.names, makes, strict=True)), work.note


def _made(kind: Callable[..., Any], work: Work) -> Any:
    warm_forkserver()
    return work.start(kind)


def _gymnasium_steps(make: Callable[[], Any]) -> Throughput:
    env = make()
    env.reset(seed=SEED)
    return Throughput(
        make_stepper(env.step, action_batches(env.single_action_space, env.num_envs), env.num_envs),
        env.close,
    )


def gymnasium_atari(given: Given) -> Counterpart:
    """``AtariPreprocessing``, and ``ClipReward`` if rewards are clipped."""
    settings = resolve_settings(**given)
    preprocess = wrapped(
        wrappers.AtariPreprocessing,
        noop_max=settings.noop_max,
        frame_skip=settings.frame_skip,
        screen_size=settings.screen_size,
        terminal_on_life_loss=settings.terminal_on_life_loss,
    )
    clip = (wrapped(wrappers.ClipReward, -1.0, 1.0),) if settings.clip_reward else ()
    note = "AtariPreprocessing takes the maximum of greys"
    return Counterpart(
        (preprocess, *clip), note + (" and presses no FIRE" if settings.fire_reset else "")
    )


def gymnasium_framestack(given: Given) -> Counterpart:
    """``FrameStackObservation``, around each sub-environment."""
    if given["axis"] != "new" or given["keys"] is not None:
        cannot(
            "Gymnasium",
            "its FrameStackObservation stacks whole observations along a new leading axis",
        )
    padding = "zero" if given["padding"] == "zero" else "reset"
    stack = wrapped(wrappers.FrameStackObservation, given["k"], padding_type=padding)
    return Counterpart((stack,), "stacks in the sub-environments")


def _record_statistics(given: Given) -> Counterpart:
    note = "its RecordEpisodeStatistics writes no file" if given.get("dir") else ""
    return Counterpart((vector_wrappers.RecordEpisodeStatistics,), note)
