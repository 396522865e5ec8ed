"""Stable-Baselines3's VecEnvs, under its own wrappers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium

from vecwrap.bench.contender import SEED, Contender, Steps, Throughput, action_batches, peer_module
from vecwrap.bench.peers.translation import (
    Counterpart,
    Work,
    atari_settings,
    cannot,
    contenders_of,
    sub_env_factories,
    warm_forkserver,
)
from vecwrap.contract import Autoreset
from vecwrap.plan import Plan
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.check_nan import CheckNan
from vecwrap.wrappers.extract_obs import ExtractObs
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.normalize import Normalize
from vecwrap.wrappers.normalize_obs import NormalizeObs
from vecwrap.wrappers.normalize_reward import NormalizeReward
from vecwrap.wrappers.transpose import Transpose

__all__ = ["StableBaselines3", "vec_env"]

PIP = "torch==2.13.0 stable-baselines3"  # that torch is a CPU build; the newest comes with GBs of GPU libraries


def vec_env() -> Any:
    """Return its module of VecEnvs and their wrappers.

    Raises:
        CannotRun: it is not installed.
    """
    return peer_module("stable_baselines3.common.vec_env", PIP)


class StableBaselines3:
    """``DummyVecEnv`` and ``SubprocVecEnv``, under AtariWrapper, VecFrameStack, VecMonitor, VecNormalize."""

    names = ("SB3 DummyVecEnv", "SB3 SubprocVecEnv")

    def contenders(self, planned: Plan) -> Sequence[Contender]:
        """Return both, with the same sub-environments."""
        work = sub_env_factories(
            planned,
            "SB3",
            worker={Atari: _atari},
            parent={
                FrameStack: _framestack,
                Monitor: _monitor,
                Normalize: lambda given: _normalize(
                    given, clip_obs=given["clip_obs"], clip_reward=given["clip_reward"]
                ),
                NormalizeObs: lambda given: _normalize(given, clip_obs=given["clip"], norm_reward=False),
                NormalizeReward: lambda given: _normalize(given, clip_reward=given["clip"], norm_obs=False),
                CheckNan: lambda given: _around(
                    "VecCheckNan",
                    raise_exception=given["report"] == "raise",
                    warn_once=given["once"],
                    check_inf=given["inf"],
                ),
                ExtractObs: lambda given: _around("VecExtractDictObs", given["key"]),
                Transpose: lambda given: _around("VecTransposeImage"),
            },
            modes=(Autoreset.SAME_STEP,),
        )

        starts = [partial(_running, kind, work) for kind in ("DummyVecEnv", "SubprocVecEnv")]
        return contenders_of(self.names, starts, work.note)


def _running(kind: str, work: Work) -> Throughput:
    warm_forkserver()
    env = work.wrapped(getattr(vec_env(), kind)(list(work.factories)))
    env.seed(SEED)
    env.reset()
    batches = action_batches(env.action_space, env.num_envs, as_list=True)
    return Throughput(Steps(env.step, batches, env.num_envs), env.close)


def _around(name: str, *args: Any, note: str = "", **kwargs: Any) -> Counterpart:
    """Return one of its wrappers around a VecEnv, looked up when it is opened."""

    def wrap(env: Any) -> Any:
        return getattr(vec_env(), name)(env, *args, **kwargs)

    return Counterpart((wrap,), note)


class _AtariWrapper:
    """``AtariWrapper``, imported where it runs."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments

    def __call__(self, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        wrapper = peer_module("stable_baselines3.common.atari_wrappers", PIP).AtariWrapper
        wrapped: gymnasium.Env[Any, Any] = wrapper(env, **self.arguments)
        return wrapped


def _atari(given: Mapping[str, Any]) -> Counterpart:
    settings = atari_settings(given)
    notes = []
    if settings.lineage != "deepmind":
        notes.append("AtariWrapper takes the grey of the maximum")
    if not settings.fire_reset:
        notes.append("AtariWrapper presses FIRE at resets")
    # On both sides, the emulator does the sticky actions.
    wrap = _AtariWrapper(
        noop_max=settings.noop_max,
        frame_skip=settings.frame_skip,
        screen_size=settings.screen_size,
        terminal_on_life_loss=settings.terminal_on_life_loss,
        clip_reward=settings.clip_reward,
    )
    return Counterpart((wrap,), "; ".join(notes))


def _framestack(given: Mapping[str, Any]) -> Counterpart:
    if given["padding"] != "zero" or given["keys"] is not None:
        cannot("SB3", "its VecFrameStack pads with zeros and stacks all members")
    first = given["axis"] == "channel" and given["channels"] == "first"
    note = "stacks along the channels" + ("" if first else ", the last axis")
    return _around("VecFrameStack", given["k"], channels_order="first" if first else "last", note=note)


def _monitor(given: Mapping[str, Any]) -> Counterpart:
    file = None if given.get("dir") is None else f"{given['dir']}/sb3"
    return _around("VecMonitor", file, tuple(given.get("info_keys") or ()))


def _normalize(given: Mapping[str, Any], **arguments: Any) -> Counterpart:
    if given.get("keys") is not None or given.get("integers"):
        cannot("SB3", "vecwrap bench knows no VecNormalize for keys= and integers=")
    gamma = {"gamma": given["gamma"]} if "gamma" in given else {}
    return _around("VecNormalize", epsilon=given["epsilon"], **gamma, **arguments)
