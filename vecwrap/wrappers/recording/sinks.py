"""Where a monitor logs games besides its files of rows: TensorBoard, W&B, callables, each in a thread of its own."""

from __future__ import annotations

import itertools
import math
import os
import socket
import struct
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from vecwrap.errors import PlanError, cut, in_a_line, install_command, is_installed, one_of, printable, read_names
from vecwrap.rows.step_result import FloatArray
from vecwrap.sources.import_paths import import_target, is_import_path
from vecwrap.wrappers.recording.run_files import GrowingFile, move_aside, seen_from_here, take_unused

NAMES = ("csv", "tensorboard", "wandb")
_PACKAGES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "tensorboard": ("tensorboardX", lambda: install_command("live")),
    "wandb": ("wandb", lambda: "pip install wandb"),
}
STEPS = "agent_steps"  # the x-axis in W&B
QUANTILES = (10, 50, 90)  # per cent
INTERVAL = 0.1  # seconds between two points of a curve
MOST_WAITING = 100_000  # games in a queue
PATIENCE = 10.0  # seconds that closing waits for what is in a queue


class Episode(NamedTuple):
    """One finished episode.

    Attributes:
        score: the sum of its rewards.
        length: in agent steps.
        seconds: how long it took.
        env: the sub-environment's index; in games of several agents, the row's.
        agent: the agent's name, in such games.
        steps: the agent steps of all sub-environments by then, since the run began.
    """

    score: float
    length: int
    seconds: float
    env: int
    agent: str = ""
    steps: int = 0


class Ended(NamedTuple):
    """The games that ended in one vector step, and the ``info_keys`` of each."""

    episodes: Sequence[Episode]
    infos: Sequence[Mapping[str, Any]]


def read_log(log: Any) -> tuple[Any, ...]:
    """Return what ``log`` names, with import paths imported; refuse what is unknown, or not installed."""
    is_list = isinstance(log, (list, tuple)) or (isinstance(log, str) and not is_import_path(log))
    entries = read_names(log) if is_list else (log,)
    for entry in entries:
        if isinstance(entry, str) and not is_import_path(entry):
            one_of("monitor: log", entry, NAMES)
            package, command = _PACKAGES.get(entry, ("", str))
            if package and not is_installed(package):
                raise PlanError(f"monitor: log: {entry} needs {package}: {command()}")
        elif not (isinstance(entry, str) or _is_writer(entry) or _is_run(entry) or callable(entry)):
            raise PlanError(
                f"monitor: log: expected {', '.join(NAMES)}, a SummaryWriter, a run of W&B or a callable, got {entry!r}"
            )
    if any(entry in entries[:i] for i, entry in enumerate(entries)):
        raise PlanError(f"monitor: log: expected each once, got {log!r}")
    where = "monitor: log"
    return tuple(import_target(one, where) if isinstance(one, str) and is_import_path(one) else one for one in entries)


def only_files(log: Any) -> list[str]:
    return [name for name in NAMES[:2] if name in read_log(log)]


def _is_writer(entry: Any) -> bool:
    return hasattr(entry, "add_scalar")


def _is_run(entry: Any) -> bool:
    return hasattr(entry, "define_metric") and hasattr(entry, "log")


@dataclass(frozen=True)
class Setting:
    key: str  # how the names of curves begin
    agents: Sequence[str]  # of each row; empty names where there are none
    folder: Path | None
    resume: bool
    steps: int  # agent steps before the first game is logged
    facts: Mapping[str, Any]


def open_sink(entry: Any, setting: Setting) -> Sink:
    target: _EventFile | _Writer | _Run
    if isinstance(entry, str):
        name = entry
        target = _EventFile(setting) if entry == "tensorboard" else _run(setting)
    elif _is_writer(entry) or _is_run(entry):
        name = type(entry).__qualname__
        target = _Writer(entry) if _is_writer(entry) else _Run(entry, own=False)
    else:
        return Sink(f"the callable {getattr(entry, '__qualname__', type(entry).__qualname__)}", _Calls(entry))
    return Sink(name, Curves(target, setting.key, setting.agents))


# -- a thread for each ------------------------------------------------------------------------------------------------


class Sink:
    """Logs games in a thread of its own: a step only puts them into a queue, and whatever goes wrong is one warning."""

    def __init__(self, name: str, log: _Calls | Curves) -> None:
        self._name = cut(printable(name), 80)
        self._log = log
        self._queue: SimpleQueue[Ended | None] = SimpleQueue()  # of which nothing ever waits for a place
        self._put = self._done = 0  # games, each counted by one thread
        self._due = -math.inf
        self._trouble = ""
        self._warned = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"monitor: {name}", daemon=True)
        self._thread.start()

    def put(self, ended: Ended) -> None:
        """Have games logged; they are left out if too many are waiting."""
        if self._put - self._done < MOST_WAITING:
            self._put += len(ended.episodes)
            self._queue.put(ended)
        else:
            self._trouble = f"{MOST_WAITING:,} games are waiting for it"
        self._warn()

    def close(self) -> None:
        self._queue.put(None)
        self._closing.set()
        if threading.current_thread() is not self._thread:  # a callable may close the environment
            self._thread.join(PATIENCE)
            if self._thread.is_alive():
                self._trouble = f"it was not done within {PATIENCE:g} seconds"
        self._warn()

    def _warn(self) -> None:
        if self._trouble and not self._warned:
            self._warned = True
            warnings.warn(
                f"monitor: log: {self._name} failed ({self._trouble}); the run continues, and games are missing there",
                RuntimeWarning,
                stacklevel=2,
            )

    def _work(self) -> None:
        last = False
        while not last:
            ended, last = self._take()
            if ended:
                self._attempt(partial(self._log.write, ended))
                self._done += sum(len(one.episodes) for one in ended)
        self._attempt(self._log.close)

    def _attempt(self, do: Callable[[], None]) -> None:
        try:
            do()
        except BaseException as error:  # a callable may raise anything
            self._trouble = in_a_line(error)

    def _take(self) -> tuple[list[Ended], bool]:
        """Wait until games have ended and the next point is due; return all since the last, and whether that is all."""
        ended = [self._queue.get()]
        self._closing.wait(max(self._due - time.monotonic(), 0.0))  # instead of waking up for each
        self._due = time.monotonic() + self._log.interval
        ended += [self._queue.get() for _ in range(self._queue.qsize())]
        return [one for one in ended if one is not None], None in ended


class _Calls:
    interval = 0.02

    def __init__(self, function: Callable[[Episode], object]) -> None:
        self._function = function

    def write(self, ended: Sequence[Ended]) -> None:
        failed = None
        for episode in itertools.chain.from_iterable(one.episodes for one in ended):
            try:
                self._function(episode)
            except BaseException as error:  # the others are called with all the same
                failed = error
        if failed is not None:
            raise failed

    def close(self) -> None:
        pass


# -- curves -----------------------------------------------------------------------------------------------------------


class Curves:
    """Points over agent steps, by agent: means of games that ended, quantiles over the sub-environments' last."""

    def __init__(self, target: _EventFile | _Writer | _Run, key: str, agents: Sequence[str]) -> None:
        self.interval = INTERVAL
        self._target = target
        self._key = key
        self._agents = np.array(agents)
        self._last = {"return": np.full(len(agents), np.nan), "length": np.full(len(agents), np.nan)}

    def write(self, ended: Sequence[Ended]) -> None:
        self._target.add(ended[-1].episodes[-1].steps, self.values(ended))

    def values(self, ended: Sequence[Ended]) -> dict[str, float]:
        episodes = [episode for one in ended for episode in one.episodes]
        infos = [info for one in ended for info in one.infos]
        found: dict[str, float] = {}
        for agent in dict.fromkeys(episode.agent for episode in episodes):
            own = [i for i, episode in enumerate(episodes) if episode.agent == agent]
            rows = [episodes[i].env for i in own]
            suffix = f"_{agent}" if agent else ""
            for name, numbers in (
                ("return", [episodes[i].score for i in own]),
                ("length", [float(episodes[i].length) for i in own]),
            ):
                curve = f"{self._key}/{name}{suffix}"
                found[curve] = float(np.mean(numbers))
                self._last[name][rows] = numbers  # of a row that is there twice, the later one
                found |= _quantiles(curve, self._last[name][self._agents == agent])
            for key in dict.fromkeys(key for i in own for key in infos[i]):
                cells = [_number(infos[i].get(key)) for i in own]
                if present := [cell for cell in cells if cell is not None]:
                    found[f"{self._key}/{key}{suffix}"] = float(np.mean(present))
        return found

    def close(self) -> None:
        self._target.close()


def _quantiles(curve: str, last: FloatArray) -> dict[str, float]:
    """Quantiles over the sub-environments that have finished a game, if there are several sub-environments."""
    known = last[~np.isnan(last)]
    if len(last) < 2 or not len(known):
        return {}
    return {f"{curve}_q{q}": float(value) for q, value in zip(QUANTILES, np.percentile(known, QUANTILES), strict=True)}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (bool, int, float, np.bool_, np.number)) else None


class _EventFile:
    """A file of TensorBoard's; each point is written at once and as a whole, as rows of CSV are.

    tensorboardX has the messages and the checksum. Its own writer would keep points in memory, and wait for ever on a
    disk that is full.
    """

    def __init__(self, setting: Setting) -> None:
        assert setting.folder is not None
        folder = setting.folder / "tensorboard"
        self._event = import_module("tensorboardX.proto.event_pb2")
        self._summary = import_module("tensorboardX.proto.summary_pb2").Summary
        self._checksum = import_module("tensorboardX.record_writer").masked_crc32c
        try:
            if os.path.lexists(folder) and not setting.resume:
                move_aside(folder)
            folder.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
            self._file = take_unused(folder / name, partial(GrowingFile, new=True))
            self._write(file_version="brain.Event:2")
            if setting.steps:  # what a run wrote after it was saved, and before it was killed, is not shown
                log = self._event.SessionLog
                self._write(step=setting.steps + 1, session_log=log(status=log.START))
        except OSError as error:
            raise PlanError(
                f"monitor: log: tensorboard: expected a folder that files can be written to, got "
                f'"{seen_from_here(folder)}": {error}; give another dir'
            ) from error

    def add(self, steps: int, values: Mapping[str, float]) -> None:
        points = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(step=steps, summary=self._summary(value=points))

    def close(self) -> None:
        self._file.close()

    def _write(self, **event: Any) -> None:
        content = self._event.Event(wall_time=time.time(), **event).SerializeToString()
        length = struct.pack("<Q", len(content))
        sums = [struct.pack("<I", self._checksum(part)) for part in (length, content)]
        self._file.append(length + sums[0] + content + sums[1])


class _Writer:
    """A SummaryWriter of the user's, which stays open."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def add(self, steps: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, steps)

    def close(self) -> None:
        self._writer.flush()


class _Run:
    """A run of W&B; one that others began goes on."""

    def __init__(self, run: Any, *, own: bool) -> None:
        self._run = run
        self._own = own
        self._defined: set[str] = set()

    def add(self, steps: int, values: Mapping[str, float]) -> None:
        for name in values.keys() - self._defined:
            self._run.define_metric(name, step_metric=STEPS)
            self._defined.add(name)
        self._run.log({STEPS: steps, **values})

    def close(self) -> None:
        if self._own:
            self._run.finish()


def _run(setting: Setting) -> _Run:
    """Return W&B's active run, or else a new one, whose project and mode are those of its environment variables."""
    wandb = import_module("wandb")
    if wandb.run is not None:
        return _Run(wandb.run, own=False)
    try:
        if setting.folder is not None:
            setting.folder.mkdir(parents=True, exist_ok=True)
        return _Run(wandb.init(dir=setting.folder, config=dict(setting.facts)), own=True)
    except Exception as error:
        raise PlanError(
            f"monitor: log: wandb.init raised {in_a_line(error)}; `wandb login` once, or set "
            "WANDB_MODE=offline, or begin the run yourself"
        ) from error
