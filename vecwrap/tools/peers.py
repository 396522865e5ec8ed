"""The same work on Gymnasium and Stable-Baselines3: a plan is translated, and what has no equivalent is refused."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.forkserver import ensure_running
from typing import Any, NoReturn

import gymnasium
from gymnasium import vector, wrappers
from gymnasium.wrappers import vector as vector_wrappers

from vecwrap.errors import SpecError, did_you_mean
from vecwrap.pipeline.plan import Plan
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.factories import WrapSubEnv
from vecwrap.tools.bench import Peer
from vecwrap.tools.measure import SEED, CannotRun, Contender, Throughput, action_batches, peer_module, steps
from vecwrap.wrappers.atari import Atari
from vecwrap.wrappers.clip_action import ClipAction
from vecwrap.wrappers.emulator.lineages import settle
from vecwrap.wrappers.framestack import FrameStack
from vecwrap.wrappers.monitor import Monitor

SB3_PIP = "torch==2.13.0 stable-baselines3"  # that torch is a CPU build; the newest comes with GBs of GPU libraries

Env = gymnasium.Env[Any, Any]
Given = Mapping[str, Any]  # a wrapper's arguments, defaults included
Wrap = Callable[[Any], Any]


def read_names(text: str) -> list[str]:
    """Read names of peers with commas between them; SpecError for an unknown one."""
    names = dict.fromkeys(filter(None, map(str.strip, text.split(","))))
    for name in names:
        if name not in PEERS:
            hint = did_you_mean(name, PEERS) or f" Known are {', '.join(PEERS)}."
            raise SpecError(f"--vs: there is no peer {name!r}.{hint}")
    return list(names)


def cannot(peer: str, why: str) -> NoReturn:
    """Say that a peer cannot do the same work."""
    raise CannotRun(f"{peer} cannot do the same work: {why}")


# -- translation ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counterpart:
    """A peer's equivalent of a wrapper of ours: callables that wrap, inner first, and where it differs."""

    wraps: tuple[Wrap, ...]
    note: str = ""


Table = Mapping[Any, Callable[[Given], Counterpart]]  # by a wrapper's class


@dataclass(frozen=True)
class Work:
    """What a peer's contender is made of: factories of sub-environments, what wraps the vector, and differences."""

    factories: Sequence[Callable[[], Env]]  # sent to workers by value
    around: tuple[Wrap, ...]
    note: str

    def start(self, make: Callable[[list[Callable[[], Env]]], Any]) -> Any:
        return _made(partial(make, list(self.factories)), self.around)


def _made(make: Callable[[], Any], wraps: Sequence[Wrap]) -> Any:
    env = make()
    for wrap in wraps:
        env = wrap(env)
    return env


def translated(
    planned: Plan,
    peer: str,
    *,
    inner: Table,
    outer: Table,
    modes: Sequence[Autoreset] = (Autoreset.SAME_STEP, Autoreset.NEXT_STEP),
    batches: bool = False,
) -> Work:
    """Translate a plan for a peer; CannotRun if something has no equivalent.

    ``inner`` has equivalents that stand around each sub-environment, ``outer`` those around the vector. Wrappers of the
    sub-environments without an equivalent run there unchanged.
    """
    mode = Autoreset.parse(planned.pipeline.autoreset)
    if mode not in modes:
        cannot(peer, f"it has no autoreset mode {mode.value} (it has {', '.join(m.value for m in modes)})")
    if planned.pipeline.batch_size is not None and not batches:
        cannot(peer, "it waits for all rows of a step, and the pipeline has a batch_size")
    inside: list[Wrap] = []
    around: list[Wrap] = []
    notes: list[str] = []
    for wrapper in planned.wrappers:
        table, wraps = (outer, around) if wrapper.target in outer else (inner, inside)
        if wrapper.target in table:
            if around and wraps is inside:
                cannot(
                    peer, f"its {wrapper.spec.name} stands in the sub-environments, inside of {peer}'s other wrappers"
                )
            counterpart = table[wrapper.target](wrapper.bound.complete)
            wraps += counterpart.wraps
            notes.append(counterpart.note)
        elif wrapper.runs_in == "worker":
            inside.append(wrapper.around_sub_env)
        else:
            cannot(peer, f'vecwrap bench knows no equivalent of the wrapper "{wrapper.spec.name}"')
    makes = planned.environment.factories
    makes = makes if planned.environment.parts else makes * planned.n
    note = "; ".join(filter(None, dict.fromkeys(notes)))
    return Work([partial(_made, make, tuple(inside)) for make in makes], tuple(around), note)


def wrapped(target: Callable[..., Any], *args: Any, **kwargs: Any) -> WrapSubEnv:
    """Return a peer's wrapper with its arguments, as a callable that is sent by value."""
    return WrapSubEnv(target, args, kwargs)


def warm_forkserver() -> None:
    """Have the forkserver import what peers' workers need: this speeds up starting, not stepping.

    If it is already running, this does nothing. It ignores Ctrl-C, and so do the peers' workers: the parent handles
    interrupts, without a traceback from every process.
    """
    modules = ["numpy", "gymnasium", "vecwrap.tools.peers", "ale_py", "stable_baselines3.common.vec_env"]
    multiprocessing.set_forkserver_preload(modules)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


# -- Gymnasium --------------------------------------------------------------------------------------------------------


class Gymnasium:
    """``SyncVectorEnv`` and ``AsyncVectorEnv(shared_memory=True)``, with Gymnasium's wrappers for our wrappers."""

    names: tuple[str, ...] = ("Gymnasium Sync", "Gymnasium Async")

    def contenders(self, planned: Plan) -> Sequence[Contender]:
        mode = Autoreset.parse(planned.pipeline.autoreset)
        work = translated(
            planned,
            "Gymnasium",
            inner={Atari: gymnasium_atari, FrameStack: gymnasium_framestack},
            outer={Monitor: _record_statistics, ClipAction: lambda given: Counterpart((vector_wrappers.ClipAction,))},
        )
        shared: dict[str, Any] = {"copy": planned.pipeline.copy, "autoreset_mode": mode.gymnasium}
        kinds = (
            partial(vector.SyncVectorEnv, **shared),
            partial(vector.AsyncVectorEnv, shared_memory=True, context="forkserver", **shared),
        )
        starts = [partial(_gymnasium_steps, kind, work) for kind in kinds]
        return [Contender(name, "peer", start, work.note) for name, start in zip(self.names, starts, strict=True)]


def _gymnasium_steps(kind: Callable[..., Any], work: Work) -> Throughput:
    warm_forkserver()
    env = work.start(kind)
    env.reset(seed=SEED)
    return Throughput(steps(env.step, action_batches(env.single_action_space, env.num_envs), env.num_envs), env.close)


def gymnasium_atari(given: Given) -> Counterpart:
    """``AtariPreprocessing``, and ``ClipReward`` if rewards are clipped."""
    settings = settle(**given)
    preprocess = wrapped(
        wrappers.AtariPreprocessing,
        noop_max=settings.noop_max,
        frame_skip=settings.frame_skip,
        screen_size=settings.screen_size,
        terminal_on_life_loss=settings.terminal_on_life_loss,
    )
    clip = (wrapped(wrappers.ClipReward, -1.0, 1.0),) if settings.clip_reward else ()
    note = "AtariPreprocessing takes the maximum of greys"
    return Counterpart((preprocess, *clip), note + (" and presses no FIRE" if settings.fire_reset else ""))


def gymnasium_framestack(given: Given) -> Counterpart:
    """``FrameStackObservation``, around each sub-environment."""
    if given["axis"] != "new" or given["keys"] is not None:
        cannot("Gymnasium", "its FrameStackObservation stacks whole observations along a new leading axis")
    padding = "zero" if given["padding"] == "zero" else "reset"
    stack = wrapped(wrappers.FrameStackObservation, given["k"], padding_type=padding)
    return Counterpart((stack,), "stacks in the sub-environments")


def _record_statistics(given: Given) -> Counterpart:
    note = "its RecordEpisodeStatistics writes no file" if given.get("dir") else ""
    return Counterpart((vector_wrappers.RecordEpisodeStatistics,), note)


# -- Stable-Baselines3 ------------------------------------------------------------------------------------------------


class StableBaselines3:
    """``DummyVecEnv`` and ``SubprocVecEnv``, under AtariWrapper, VecFrameStack, VecMonitor."""

    names: tuple[str, ...] = ("SB3 DummyVecEnv", "SB3 SubprocVecEnv")

    def contenders(self, planned: Plan) -> Sequence[Contender]:
        work = translated(
            planned,
            "SB3",
            inner={Atari: _atari_wrapper},
            outer={FrameStack: _vec_frame_stack, Monitor: _vec_monitor},
            modes=(Autoreset.SAME_STEP,),
        )
        starts = [partial(_sb3_steps, kind, work) for kind in ("DummyVecEnv", "SubprocVecEnv")]
        return [Contender(name, "peer", start, work.note) for name, start in zip(self.names, starts, strict=True)]


def _sb3_steps(kind: str, work: Work) -> Throughput:
    warm_forkserver()
    env = work.start(getattr(sb3_vec_env(), kind))
    env.seed(SEED)
    env.reset()
    batches = action_batches(env.action_space, env.num_envs, as_list=True)
    return Throughput(steps(env.step, batches, env.num_envs), env.close)


def sb3_vec_env() -> Any:
    """Return its module of VecEnvs and their wrappers; CannotRun if it is not installed."""
    return peer_module("stable_baselines3.common.vec_env", SB3_PIP)


def _around(name: str, *args: Any, note: str = "", **kwargs: Any) -> Counterpart:
    """Return one of its wrappers around a VecEnv, looked up when it is opened."""

    def wrap(env: Any) -> Any:
        return getattr(sb3_vec_env(), name)(env, *args, **kwargs)

    return Counterpart((wrap,), note)


def _atari_wrapper(given: Given) -> Counterpart:
    settings = settle(**given)
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
    return peer_module("stable_baselines3.common.atari_wrappers", SB3_PIP).AtariWrapper(env, **arguments)


def _vec_frame_stack(given: Given) -> Counterpart:
    if given["padding"] != "zero" or given["keys"] is not None:
        cannot("SB3", "its VecFrameStack pads with zeros and stacks all members")
    first = given["axis"] == "channel" and given["channels"] == "first"
    note = "stacks along the channels" + ("" if first else ", the last axis")
    return _around("VecFrameStack", given["k"], channels_order="first" if first else "last", note=note)


def _vec_monitor(given: Given) -> Counterpart:
    file = None if given.get("dir") is None else f"{given['dir']}/sb3"
    return _around("VecMonitor", file, tuple(given.get("info_keys") or ()))


PEERS: dict[str, Peer] = {"gymnasium": Gymnasium(), "sb3": StableBaselines3()}
