"""Where a monitor logs besides its files: TensorBoard, W&B, callables, each in its own thread."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vecwrap.errors import (
    PlanError,
    install_command,
    is_installed,
    one_line,
    one_of,
    printable,
    read_names,
    truncate,
)
from vecwrap.rows.step_result import FloatArray
from vecwrap.sources.import_paths import import_target, is_import_path
from vecwrap.wrappers.recording.run_files import GrowingFile, move_aside, take_unused

NAMES = ("csv", "tensorboard", "wandb")
_PACKAGES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "tensorboard": ("tensorboardX", lambda: install_command("live")),
    "wandb": ("wandb", lambda: "pip install wandb"),
}
STEPS = "agent_steps"  # the x-axis in W&B
QUANTILES = (10, 50, 90)  # per cent
NUMBERS = (bool, int, float, np.bool_, np.number)
FLUSH_INTERVAL_SECONDS = 0.1  # seconds between two points of a curve
MAX_WAITING = 100_000  # steps whose games are in a queue
CLOSE_SECONDS = 10.0  # that closing waits for what is in a queue


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


Games = Sequence[tuple[Episode, Mapping[str, Any]]]  # each with its ``info_keys``
Task = Callable[[], object]
Add = Callable[[int, Mapping[str, float]], None]  # a point of each curve, at these agent steps


def read_log(log: Any) -> tuple[Any, ...]:
    """Return the logs that ``log`` names; refuse those that are unknown or not installed.

    Import paths are imported.
    """
    is_list = isinstance(log, (list, tuple)) or (isinstance(log, str) and not is_import_path(log))
    if is_list:
        entries = read_names(log)
    else:
        entries = (log,)
    for entry in entries:
        if isinstance(entry, str) and not is_import_path(entry):
            one_of("monitor: log", entry, NAMES)
            package, command = _PACKAGES.get(entry, ("", str))
            if package and not is_installed(package):
                raise PlanError(f"monitor: log: {entry} needs {package}: {command()}")
        elif not (isinstance(entry, str) or _is_writer(entry) or _is_run(entry) or callable(entry)):
            raise PlanError(
                f"monitor: log: expected {', '.join(NAMES)}, a SummaryWriter, a run of W&B or a "
                f"callable, got {entry!r}"
            )
    if any(entry in entries[:i] for i, entry in enumerate(entries)):
        raise PlanError(f"monitor: log: expected each once, got {log!r}")
    logs = list(entries)
    for i, entry in enumerate(logs):
        if isinstance(entry, str) and is_import_path(entry):
            logs[i] = import_target(entry, "monitor: log")
    return tuple(logs)


def only_files(log: Any) -> list[str]:
    return [name for name in NAMES[:2] if name in read_log(log)]


def _is_writer(entry: Any) -> bool:
    return hasattr(entry, "add_scalar")


def _is_run(entry: Any) -> bool:
    return hasattr(entry, "define_metric") and hasattr(entry, "log")


def open_sink(
    entry: Any,
    key: str,
    agents: Sequence[str],
    folder: Path | None,
    resume: bool,
    steps: int,
    facts: Mapping[str, Any],
) -> Sink:
    """Open one of the logs.

    Args:
        entry: as `read_log` returns it.
        key: how the names of curves begin.
        agents: of each row; empty names where there are none.
        folder: the monitor's.
        resume: whether the folder's run goes on.
        steps: agent steps before the first game is logged.
        facts: the settings of a new run of W&B.
    """
    if isinstance(entry, str):
        name = entry
    else:
        name = type(entry).__qualname__
    close: Task | None = None
    if entry == "tensorboard":
        assert folder is not None
        file = _EventFile(folder / "tensorboard", resume, steps)
        add: Add = file.add
        close = file.close
    elif entry == "wandb":
        add, close = _active_run(folder, key, facts)
    elif _is_writer(entry):
        add = partial(_add_to_writer, entry)
        close = entry.flush
    elif _is_run(entry):
        add = _to_run(entry, key)
    else:
        name = f"the callable {getattr(entry, '__qualname__', name)}"
        return Sink(name, lambda games: [partial(entry, episode) for episode, _ in games])
    curves = Curves(key, agents)
    return Sink(name, lambda games: [lambda: add(games[-1][0].steps, curves.values(games))], close)


# -- a thread for each -----------------------------------------------------------------------------


class Sink:
    """Logs games in its own thread: a step only fills a queue, and any failure is one warning.

    Args:
        name: in the warning.
        tasks: what is to be done with games.
        close: what is to be done at the end.
    """

    def __init__(
        self, name: str, tasks: Callable[[Games], Iterable[Task]], close: Task | None = None
    ) -> None:
        self._name = truncate(printable(name), 80)
        self._tasks = tasks
        self._close = close
        self._waiting: deque[Games] = deque()  # those of a step each, until they are logged
        self._trouble = ""
        self._warned = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"monitor: {name}", daemon=True)
        self._thread.start()

    def put(self, games: Games) -> None:
        """Have games logged; they are left out if too many are waiting."""
        if len(self._waiting) < MAX_WAITING:
            self._waiting.append(games)
        else:
            self._trouble = f"games of {MAX_WAITING:,} steps are waiting for it"
        self._warn()

    def close(self) -> None:
        self._closing.set()
        if threading.current_thread() is not self._thread:  # a callable may close the environment
            self._thread.join(CLOSE_SECONDS)
            if self._thread.is_alive():
                self._trouble = f"it was not done within {CLOSE_SECONDS:g} seconds"
        self._warn()

    def _warn(self) -> None:
        if self._trouble and not self._warned:
            self._warned = True
            warnings.warn(
                (
                    f"monitor: log: {self._name} failed ({self._trouble}); the run continues, and "
                    "games are missing there"
                ),
                RuntimeWarning,
                stacklevel=2,
            )

    def _work(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._closing.wait(FLUSH_INTERVAL_SECONDS)
            steps = list(self._waiting)
            games = [game for step in steps for game in step]
            if games:
                for task in self._tasks(games):
                    self._attempt(task)
            for _ in steps:
                self._waiting.popleft()
        if self._close is not None:
            self._attempt(self._close)

    def _attempt(self, task: Task) -> None:
        try:
            task()
        except BaseException as error:  # a callable may raise anything
            self._trouble = one_line(error)


# -- curves ----------------------------------------------------------------------------------------


class Curves:
    """Curves' values by agent: means of ended games, quantiles of sub-environments' last games."""

    def __init__(self, key: str, agents: Sequence[str]) -> None:
        self._key = key
        self._agents = np.array(agents)
        self._last = {name: np.full(len(agents), np.nan) for name in ("return", "length")}

    def values(self, games: Games) -> dict[str, float]:
        found: dict[str, float] = {}
        for agent in dict.fromkeys(episode.agent for episode, _ in games):
            suffix = ""
            if agent:
                suffix = f"_{agent}"
            own = [(episode, info) for episode, info in games if episode.agent == agent]
            for name, place in (("return", 0), ("length", 1)):
                curve = f"{self._key}/{name}{suffix}"
                numbers = [float(episode[place]) for episode, _ in own]
                found[curve] = float(np.mean(numbers))
                last = self._last[name]
                # Of a row that is there twice, the later one.
                last[[episode.env for episode, _ in own]] = numbers
                found |= _quantiles(curve, last[self._agents == agent])
            for key in dict.fromkeys(key for _, info in own for key in info):
                cells = [float(info[key]) for _, info in own if isinstance(info.get(key), NUMBERS)]
                if cells:
                    found[f"{self._key}/{key}{suffix}"] = float(np.mean(cells))
        return found


def _quantiles(curve: str, last: FloatArray) -> dict[str, float]:
    """Return quantiles over sub-environments with finished games; none for a single one."""
    known = last[~np.isnan(last)]
    if len(last) < 2 or not len(known):
        return {}
    return {
        f"{curve}_q{q}": float(value)
        for q, value in zip(QUANTILES, np.percentile(known, QUANTILES), strict=True)
    }


class _EventFile:
    """A file of TensorBoard's; each point is written at once and as a whole, as rows of CSV are.

    tensorboardX has the messages and the checksum. Its own writer would keep points in memory, and
    wait for ever on a disk that is full.
    """

    def __init__(self, folder: Path, resume: bool, steps: int) -> None:
        self._event = import_module("tensorboardX.proto.event_pb2")
        self._summary = import_module("tensorboardX.proto.summary_pb2").Summary
        self._checksum = import_module("tensorboardX.record_writer").masked_crc32c
        if os.path.lexists(folder) and not resume:
            move_aside(folder)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = take_unused(folder / name, partial(GrowingFile, new=True))
        self._write(file_version="brain.Event:2")
        if steps:  # what a run wrote after it was saved, and before it was killed, is not shown
            log = self._event.SessionLog
            self._write(step=steps + 1, session_log=log(status=log.START))

    def add(self, steps: int, values: Mapping[str, float]) -> None:
        points = [
            self._summary.Value(tag=name, simple_value=value) for name, value in values.items()
        ]
        self._write(step=steps, summary=self._summary(value=points))

    def close(self) -> None:
        self._file.close()

    def _write(self, **event: Any) -> None:
        content = self._event.Event(wall_time=time.time(), **event).SerializeToString()
        length = struct.pack("<Q", len(content))
        sums = [struct.pack("<I", self._checksum(part)) for part in (length, content)]
        self._file.append(length + sums[0] + content + sums[1])


def _add_to_writer(writer: Any, steps: int, values: Mapping[str, float]) -> None:
    """Add points to a SummaryWriter of the user's, which stays open."""
    for name, value in values.items():
        writer.add_scalar(name, value, steps)


def _to_run(run: Any, key: str) -> Add:
    """Have a run of W&B show curves over agent steps; return how points are added to it."""
    define = cache(lambda: run.define_metric(f"{key}/*", step_metric=STEPS))

    def add(steps: int, values: Mapping[str, float]) -> None:
        define()
        run.log({STEPS: steps, **values})

    return add


def _active_run(folder: Path | None, key: str, facts: Mapping[str, Any]) -> tuple[Add, Task | None]:
    """Join W&B's active run, which stays open, or begin a run.

    The project and the mode of a new run come from W&B's environment variables.
    """
    wandb = import_module("wandb")
    if wandb.run is not None:
        return _to_run(wandb.run, key), None
    try:
        run = wandb.init(dir=folder, config=dict(facts))
        return _to_run(run, key), run.finish
    except Exception as error:
        raise PlanError(
            f"monitor: log: wandb.init raised {one_line(error)}; `wandb login` once, or set "
            "WANDB_MODE=offline, or begin the run yourself"
        ) from error
