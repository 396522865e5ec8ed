"""The same work on other libraries: a plan is translated, and what has no equivalent is refused."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.forkserver import ensure_running
from typing import Any, NoReturn

import gymnasium

from benchmarks.measure import CannotRun
from vecwrap.pipeline.plan import Plan
from vecwrap.rows.step_result import Autoreset
from vecwrap.sources.factories import WrapSubEnv

__all__ = ["Counterpart", "Given", "Work", "cannot", "translated", "warm_forkserver", "wrapped"]

Env = gymnasium.Env[Any, Any]
Given = Mapping[str, Any]  # a wrapper's arguments, defaults included
Wrap = Callable[[Any], Any]


def cannot(peer: str, why: str) -> NoReturn:
    """Say that a peer cannot do the same work."""
    raise CannotRun(f"{peer} cannot do the same work: {why}")


@dataclass(frozen=True)
class Counterpart:
    """A peer's equivalent of a wrapper of ours: callables that wrap, inner first, and where it
    differs.
    """

    wraps: tuple[Wrap, ...]
    note: str = ""


Table = Mapping[Any, Callable[[Given], Counterpart]]  # by a wrapper's class


@dataclass(frozen=True)
class Work:
    """What a peer's contender is made of: factories of sub-environments, what wraps the vector, and
    differences.
    """

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

    ``inner`` has equivalents that stand around each sub-environment, ``outer`` those around the
    vector. Wrappers of the sub-environments without an equivalent run there unchanged.
    """
    mode = planned.pipeline.autoreset_mode
    if mode not in modes:
        cannot(
            peer,
            f"it has no autoreset mode {mode.value} (it has {', '.join(m.value for m in modes)})",
        )
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
                    peer,
                    (
                        f"its {wrapper.spec.name} stands in the sub-environments, inside of "
                        f"{peer}'s other wrappers"
                    ),
                )
            counterpart = table[wrapper.target](wrapper.bound.complete)
            wraps += counterpart.wraps
            notes.append(counterpart.note)
        elif wrapper.runs_in == "worker":
            inside.append(wrapper.around_sub_env)
        else:
            cannot(peer, f'make bench knows no equivalent of the wrapper "{wrapper.spec.name}"')
    makes = planned.environment.factories
    makes = makes if planned.environment.parts else makes * planned.n
    note = "; ".join(filter(None, dict.fromkeys(notes)))
    return Work([partial(_made, make, tuple(inside)) for make in makes], tuple(around), note)


def wrapped(target: Callable[..., Any], *args: Any, **kwargs: Any) -> WrapSubEnv:
    """Return a peer's wrapper with its arguments, as a callable that is sent by value."""
    return WrapSubEnv(target, args, kwargs)


def warm_forkserver() -> None:
    """Have the forkserver import what peers' workers need: this speeds up starting, not stepping.

    If it is already running, this does nothing. It ignores Ctrl-C, and so do the peers' workers:
    the parent handles interrupts, without a traceback from every process.
    """
    modules = [
        "numpy",
        "gymnasium",
        "benchmarks.peers.translation",
        "ale_py",
        "stable_baselines3.common.vec_env",
    ]
    multiprocessing.set_forkserver_preload(modules)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)
