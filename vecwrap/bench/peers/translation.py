"""What the peers' adapters share: taking a plan apart, and refusing what a peer has no equivalent for."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.forkserver import ensure_running
from typing import Any, NoReturn

import gymnasium

from vecwrap.bench.contender import CannotRun, Contender, Throughput
from vecwrap.contract import Autoreset
from vecwrap.environments import WrapSubEnv
from vecwrap.layers import PlannedLayer
from vecwrap.parts.atari_settings import Settings, settle
from vecwrap.plan import Plan
from vecwrap.wrappers.atari import Atari

__all__ = [
    "Counterpart",
    "Factory",
    "Work",
    "atari_only",
    "atari_settings",
    "cannot",
    "contenders_of",
    "forkserver",
    "sub_env_factories",
    "warm_forkserver",
    "wrapped",
]


@dataclass(frozen=True)
class Counterpart:
    """A peer's equivalent of a layer of ours.

    Attributes:
        wraps: callables that wrap, inner first; each returns the wrapped environment.
        note: where it differs.
    """

    wraps: tuple[Callable[[Any], Any], ...]
    note: str = ""


Translate = Callable[[Mapping[str, Any]], Counterpart]


@dataclass(frozen=True)
class Work:
    """What a peer's contender is made of.

    Attributes:
        factories: one callable for each sub-environment.
        around: what wraps the vector, inner first.
        notes: where it differs from ours.
    """

    factories: Sequence[Callable[[], gymnasium.Env[Any, Any]]]
    around: tuple[Callable[[Any], Any], ...]
    notes: tuple[str, ...]

    @property
    def note(self) -> str:
        """All differences in one line."""
        return "; ".join(note for note in self.notes if note)

    def wrapped(self, env: Any) -> Any:
        """Wrap a vector of the peer's in what belongs around it."""
        for wrap in self.around:
            env = wrap(env)
        return env


@dataclass(frozen=True)
class Factory:
    """Makes one sub-environment for a peer; sent to its workers by value."""

    make: Callable[[], gymnasium.Env[Any, Any]]
    wraps: tuple[Callable[[Any], Any], ...]

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Make it and wrap it."""
        env = self.make()
        for wrap in self.wraps:
            env = wrap(env)
        return env


def cannot(peer: str, why: str) -> NoReturn:
    """Say that a peer cannot do the same work."""
    raise CannotRun(f"{peer} cannot do the same work: {why}")


def contenders_of(names: Sequence[str], starts: Sequence[Callable[[], Throughput]], note: str) -> list[Contender]:
    """Return a contender per kind of vector that a peer has; all do the same work, so one note holds for them."""
    return [Contender(name, "peer", start, note) for name, start in zip(names, starts, strict=True)]


def sub_env_factories(
    planned: Plan,
    peer: str,
    *,
    worker: Mapping[Any, Translate],
    parent: Mapping[Any, Translate],
    inside: Mapping[Any, Translate] | None = None,
    modes: Sequence[Autoreset] = (Autoreset.SAME_STEP, Autoreset.NEXT_STEP),
    partial: bool = False,
) -> Work:
    """Translate a plan for a peer. Layers of the sub-environments without an equivalent run there unchanged.

    Args:
        planned: the plan.
        peer: its name, for refusals.
        worker: its equivalents of layers of the sub-environments, by class.
        parent: its equivalents of layers of the vector.
        inside: its equivalents, around each sub-environment, of layers of the vector; only before all of ``parent``.
        modes: which autoreset modes it has.
        partial: whether it has a ``batch_size``.

    Raises:
        CannotRun: something has no counterpart.
    """
    mode = Autoreset.parse(planned.pipeline.autoreset)
    if mode not in modes:
        cannot(peer, f"it has no autoreset mode {mode.value} (it has {', '.join(m.value for m in modes)})")
    if planned.pipeline.batch_size is not None and not partial:
        cannot(peer, "it waits for all rows of a step, and the pipeline has a batch_size")
    inner: list[Callable[[Any], Any]] = []
    around: list[Callable[[Any], Any]] = []
    notes = []
    for layer in planned.layers:
        if layer.runs_in == "worker":
            counterpart = _translated(worker, layer)
            inner += [layer.around_sub_env] if counterpart is None else counterpart.wraps
        elif (counterpart := _translated(inside or {}, layer)) is not None:
            if around:
                cannot(peer, f"its {layer.spec.name} stands in the sub-environments, inside of {peer}'s other layers")
            inner += counterpart.wraps
        elif (counterpart := _translated(parent, layer)) is not None:
            around += counterpart.wraps
        else:
            cannot(peer, f'it has nothing like the layer "{layer.spec.name}"')
        notes.append(counterpart.note if counterpart else "")
    makes = planned.environment.factories
    makes = makes if planned.environment.one_each else makes * planned.n
    return Work([Factory(make, tuple(inner)) for make in makes], tuple(around), tuple(dict.fromkeys(notes)))


def _translated(table: Mapping[Any, Translate], layer: PlannedLayer) -> Counterpart | None:
    translate = table.get(layer.target)
    return None if translate is None else translate(layer.bound.complete)


def atari_settings(arguments: Mapping[str, Any]) -> Settings:
    """Return what the ``atari`` layer of a pipeline does."""
    return settle(**arguments)


def atari_only(planned: Plan, peer: str) -> tuple[str, Settings, int, Mapping[str, Any]]:
    """Return the game, its preprocessing, the stack, and its registration, for engines that play Atari themselves.

    Raises:
        CannotRun: the pipeline is not an Atari game under ``atari`` and at most a plain ``framestack``.
    """
    from vecwrap.wrappers.framestack import FrameStack

    registered = planned.environment.effective_spec()
    layers = list(planned.layers)
    if registered is None or "game" not in registered.kwargs or not layers or layers[0].target is not Atari:
        cannot(peer, "its only layers are the preprocessing of Atari games, and the pipeline does not begin with atari")
    stack = 1
    for layer in layers[1:]:
        arguments = layer.bound.complete
        if layer.target is not FrameStack or stack != 1:
            cannot(peer, f'it has nothing like the layer "{layer.spec.name}"')
        if (arguments["axis"], arguments["padding"], arguments["keys"]) != ("new", "zero", None):
            cannot(peer, "its stack has a new leading axis and is padded with zeros")
        stack = arguments["k"]
    settings = atari_settings(layers[0].bound.complete)
    return str(registered.kwargs["game"]), settings, stack, registered.kwargs


def wrapped(target: Callable[..., Any], *args: Any, **kwargs: Any) -> WrapSubEnv:
    """Return a peer's wrapper with its arguments, as a callable that is sent by value."""
    return WrapSubEnv(target, args, kwargs)


@contextlib.contextmanager
def forkserver() -> Iterator[None]:
    """Make libraries that use multiprocessing's default start method use a forkserver meanwhile.

    Under ``fork``, their workers would be copies of a process with other engines' threads, and might never start.
    """
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("forkserver", force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


def warm_forkserver() -> None:
    """Have the forkserver import what peers' workers need, once for all: this speeds up starting, not stepping.

    It skips what is not installed. If it is already running, this does nothing. It ignores Ctrl-C, and so do the
    peers' workers: the parent handles interrupts, without a traceback from every process.
    """
    modules = ["numpy", "gymnasium", "vecwrap.environments", "ale_py", "stable_baselines3.common.vec_env"]
    multiprocessing.set_forkserver_preload(modules)
    if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)
