"""Stable-Baselines3's vector environments, under its own wrappers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium

from benchmarks.measure import Contender, peer_module
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
from vecwrap.rows.step_result import Autoreset
from vecwrap.tools.throughput import SEED, Throughput, action_batches, make_stepper
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.emulator.lineages import resolve_settings
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor

__all__ = ["StableBaselines3", "sb3_vec_env"]

# that torch is a CPU build; the newest comes with GBs of GPU libraries
SB3_PIP = "torch==2.13.0 stable-baselines3"

Env = gymnasium.Env[Any, Any]


class StableBaselines3:
    """``DummyVecEnv`` and ``SubprocVecEnv``, under AtariWrapper, VecFrameStack, VecMonitor."""

    names: tuple[str, ...] = ("SB3 DummyVecEnv", "SB3 SubprocVecEnv")

    def contenders(self, planned: Plan) -> Sequence[Contender]:
        makes, note = self.makes(planned)
        return [
            Contender(name, "peer", partial(_sb3_steps, make), note) for name, make in makes.items()
        ]

    def makes(self, planned: Plan) -> tuple[dict[str, Callable[[], Any]], str]:
        """Return what makes each vector environment, by its name, and where its work differs."""
        work = translated(
            planned,
            "SB3",
            inner={Atari: _atari_wrapper},
            outer={FrameStack: _vec_frame_stack, Monitor: _vec_monitor},
            modes=(Autoreset.SAME_STEP,),
        )
        makes = [partial(_made, kind, work) for kind in ("DummyVecEnv", "SubprocVecEnv")]
        return dict(zip(self.names, makes, strict=True)), work.note


def _made(kind: str, work: Work) -> Any:
    warm_forkserver()
    return work.start(getattr(sb3_vec_env(), kind))


def _sb3_steps(make: Callable[[], Any]) -> Throughput:
    env = make()
    env.seed(SEED)
    env.reset()
    batches = action_batches(env.action_space, env.num_envs, as_list=True)
    return Throughput(make_stepper(env.step, batches, env.num_envs), env.close)


def sb3_vec_env() -> Any:
    """Return its module of VecEnvs and their wrappers; CannotRun if it is not installed."""
    return peer_module("stable_baselines3.common.vec_env", SB3_PIP)


def _around(name: str, *args: Any, note: str = "", **kwargs: Any) -> Counterpart:
    """Return one of its wrappers around a VecEnv, looked up when it is opened."""

    def wrap(env: Any) -> Any:
        return getattr(sb3_vec_env(), name)(env, *args, **kwargs)

    return Counterpart((wrap,), note)


def _atari_wrapper(given: Given) -> Counterpart:
    settings = resolve_settings(**given)
    notes = []
    if settings.lineage != "deepmind":
        notes.append("AtariWrapper takes the grey of the maximum")
    if not settings.fire_reset:
        notes.append("AtariWrapper presses FIRE at resets")
    # On both sides, the emulator does the sticky actions.
    wrap = wrapped(
        _wrap_atari,
        noop_max=settings.noop_max,
        frame_skip=settings.frame_skip,
        screen_size=settings.screen_size,
        terminal_on_life_loss=settings.terminal_on_life_loss,
        clip_reward=settings.clip_reward,
    )
    return Counterpart((wrap,), "; ".join(notes))


def _wrap_atari(env: Env, **arguments: Any) -> Any:
    return peer_module("stable_baselines3.common.atari_wrappers", SB3_PIP).AtariWrapper(
        env, **arguments
    )


def _vec_frame_stack(given: Given) -> Counterpart:
    if given["padding"] != "zero" or given["keys"] is not None:
        cannot("SB3", "its VecFrameStack pads with zeros and stacks all members")
    first = given["axis"] == "channel" and given["channels"] == "first"
    note = "stacks along the channels" + ("" if first else ", the last axis")
    return _around(
        "VecFrameStack", given["k"], channels_order="first" if first else "last", note=note
    )


def _vec_monitor(given: Given) -> Counterpart:
    file = None if given.get("dir") is None else f"{given['dir']}/sb3"
    return _around("VecMonitor", file, tuple(given.get("info_keys") or ()))
