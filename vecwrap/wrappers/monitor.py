"""Scores and lengths of finished episodes: in ``infos``, in ``monitor.csv`` and in other logs."""

from __future__ import annotations

import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError, check_info_key, one_of, printable, read_names, text_of
from vecwrap.interrupts import at_exit
from vecwrap.rows.batch import object_array
from vecwrap.rows.infos import row_of
from vecwrap.rows.saved import fitting, put
from vecwrap.rows.step_result import BoolArray, FloatArray, IntArray, StepResult
from vecwrap.sources.declares import declared_by
from vecwrap.wrappers.recording.ended_games import NO_GAMES, EndedGames
from vecwrap.wrappers.recording.monitor_file import COLUMNS, MonitorFile, header_of, warn_of_another
from vecwrap.wrappers.recording.run_files import relative_to_cwd
from vecwrap.wrappers.recording.run_record import (
    NOT_CLOSED,
    RunDescription,
    RunRecord,
    status_at_exit,
)
from vecwrap.wrappers.recording.sinks import Episode, Sink, only_files, open_sink, read_log

__all__ = ["Episode", "Monitor"]

NUM_RECENT = 100  # games in ``recent``


class Monitor(VecEnvWrapper):
    """Record the score and length of every game in ``infos``, ``monitor.csv`` and other logs.

    ``monitor.csv`` is written if a folder is given.

    An episode here is one of the environment itself, with its own rewards, wherever the monitor is
    in the chain: even if other wrappers clip or scale rewards or end the agent's episodes earlier.
    One that a wrapper ends is reported too, one interrupted by your reset is not.

    In a step in which games end, ``infos`` has the same columns as with Gymnasium's
    ``RecordEpisodeStatistics``::

        infos["episode"]   # {"r": (m,) float64 score, "l": (m,) int64 agent steps,
                           #  "t": (m,) float64 seconds it took}
        infos["_episode"]  # (m,) bool, which games ended; the three are 0 elsewhere

    and the ``info_keys`` beside the three, as with Stable-Baselines3's ``info_keywords``. Behind
    ``opponents`` several games of a row may end in one step: ``infos`` has the last of them, files
    and logs have all.

    ``monitor.csv`` can be read by Stable-Baselines3's ``load_results`` and by OpenAI Baselines. Its
    first line is ``#`` and JSON: ``t_start`` (seconds since 1970), ``env_id``, ``step_unit``,
    ``frame_skip`` (frames per agent step; null if it varies, and around an engine) and ``pipeline``
    (the pipeline's hash, null if the chain was assembled by hand). Then one row per game: ``r``,
    ``l``, ``t`` (unlike in ``infos``: seconds from ``t_start`` to its end, as in these libraries),
    ``env``, ``lost`` (1 if the game ended because its sub-environment was lost, so ``r`` is not a
    score), ``steps`` (the agent steps of all sub-environments by then, also those of games that are
    still running), ``agent`` in games of several agents, where each agent's part in a game is a row
    of the file, and the ``info_keys``. Each row is written when its game ends, so a killed run
    loses at most the row being written.

    Beside it, ``run.json`` says what ran and how it ended, and ``pipeline.yaml`` rebuilds it
    (docs/saving.md).

    Files of an earlier run in the folder are moved aside (``monitor.csv.1``, ``.2``, ...), never
    overwriting anything. If another environment, of this program or another, still writes them,
    there is a warning: it continues there, or with ``resume`` both append to the same files. A
    folder that cannot be written is refused when a pipeline is built, or at the first reset or
    load; a later write failure ends the recording with a warning, never the training.

    ``log`` says where games are logged (docs/logging.md). TensorBoard and W&B get curves over the
    agent steps of all sub-environments: ``episode/return``, ``episode/length``, and ``episode/KEY``
    for numeric ``info_keys``. A point is the mean of the games that ended since the last one; there
    are at most ten a second. With several sub-environments, ``episode/return_q10``, ``_q50`` and
    ``_q90`` are quantiles over the last game of each. In games of several agents, each has its own
    curves (``episode/return_AGENT``). A callable gets an ``Episode``. Each log has a thread of its
    own, and a step only puts games into its queue; if a log fails, there is one warning, and the
    run continues.

    At an episode's end:
        When the environment's own episode ends, its score and length are reported; a lost life is
        not an end.

    Args:
        env: what it wraps.
        dir: the folder for the files, created if missing; None for no files.
        info_keys: columns of ``infos`` to report and write with each game, taken from its last
            step, including those of inner wrappers; masked or empty if absent.
        per_env: one file per sub-environment, ``0.monitor.csv`` and so on, instead of one for all.
        rewards: ``"raw"``: the environment's own rewards, until its own episode ends. ``"seen"``:
            the rewards at this place in the chain, until the agent's episode ends.
        resume: append to the folder's files, keeping their header, instead of moving them aside.
            ``steps`` continue from a loaded state, or else from the files; an older file that has
            no such column does not get one.
        stats_key: the column's name in ``infos``, and how the names of curves begin.
        log: ``"csv"`` (``monitor.csv`` in ``dir``), ``"tensorboard"`` (files in
            ``dir/tensorboard``), ``"wandb"`` (the active run, or a new one), several of them in a
            list or as ``"csv+tensorboard"``; in Python also a SummaryWriter or a run of W&B, which
            stay open, or a callable (in a file its import path).

    Attributes:
        dir: the folder of its files, absolute; None without files.
        logs: what games are written to: names of files, writers and callables.
        column: the column's name in ``infos``.
        scores_games: whether the scores are those of ``rewards="raw"``.
        record: writes ``run.json``; None without ``dir``.
        num_episodes, episode_count: how many games ended.
        games: the scores so far and the lengths of the games that are running, and which are.
        num_steps: the agent steps of all sub-environments; a loaded state continues the count.
        latest: the games that ended in the last step or reset; several may be of one row, behind
            ``opponents``.
        recent: the last 100 games, as ``Episode(score, length, seconds, env, agent, steps)``.
        return_queue, length_queue, time_queue: their scores, lengths and seconds, as with
            ``RecordEpisodeStatistics``.
        paths: the files of rows, ``()`` without ``dir`` or without ``"csv"``.

    Raises:
        PlanError: arguments that do not fit, a second monitor with the same folder or
            ``stats_key``, or a log whose package is not installed.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> make = lambda: gymnasium.make("CartPole-v1", max_episode_steps=5)
        >>> env = Monitor(vecwrap.build(make, n=2, backend="dummy"))
        >>> observations, infos = env.reset(seed=1)
        >>> while "episode" not in infos:
        ...     observations, rewards, terminations, truncations, infos = env.step([0, 1])
        >>> infos["episode"]["r"], infos["episode"]["l"], infos["_episode"]
        (array([5., 5.]), array([5, 5]), array([ True,  True]))
        >>> env.num_episodes
        2
        >>> env.close()

    """

    path_parameters: ClassVar[frozenset[str]] = frozenset({"dir"})
    reads_observations: ClassVar[bool] = False
    not_hashed: ClassVar[frozenset[str]] = frozenset(
        {"dir", "info_keys", "per_env", "resume", "log"}
    )

    @classmethod
    def summary(cls, *, log: Any = ("csv",), **others: Any) -> str:
        """Nothing; what cannot be logged to is refused before anything is started."""
        read_log(log)
        return ""

    @classmethod
    def in_evaluation(
        cls, *, dir: str | None, log: Any = ("csv",), **others: Any
    ) -> dict[str, Any]:
        """Return the arguments for an evaluation: its own folder, and only logs that are files.

        A run or a writer that has the training's curves receives nothing.
        """
        files = only_files(log)
        changed = {}
        if len(files) != len(read_log(log)):
            changed = {"log": files}
        if dir is None:
            return changed
        return {"dir": str(Path(dir, "eval")), **changed}

    def __init__(
        self,
        env: VecEnv,
        dir: str | None = None,
        *,
        info_keys: tuple[str, ...] = (),
        per_env: bool = False,
        rewards: Literal["raw", "seen"] = "raw",
        resume: bool = False,
        stats_key: str = "episode",
        log: Any = ("csv",),
    ) -> None:
        super().__init__(env)
        if dir is None:
            self.dir: Path | None = None
        else:
            self.dir = Path(dir).absolute()
        of_wrappers = [
            key
            for wrapper in reversed(env.chain[:-1])
            for key in declared_by(type(wrapper)).episode_infos
        ]
        self._info_keys = tuple(dict.fromkeys((*of_wrappers, *read_names(info_keys))))
        self._per_env = per_env
        self._rewards = rewards
        self._resume = resume
        self._stats_key = stats_key
        self._log = read_log(log)
        self._count: Callable[..., BoolArray] | None = None
        self._agents = env.row_agents.tolist()
        self._is_game = bool(env.possible_agents)
        self._columns: tuple[str, ...] = COLUMNS
        if self._is_game:
            self._columns = (*COLUMNS, "agent")
        self._check()
        self.num_episodes: int = 0
        self._games = NO_GAMES  # that ended in the last step or reset
        self._recent: deque[EndedGames] = deque()
        self._num_recent = 0  # at least the last NUM_RECENT, if there were so many
        self.return_queue: deque[float] = deque(maxlen=NUM_RECENT)
        self.length_queue: deque[int] = deque(maxlen=NUM_RECENT)
        self.time_queue: deque[float] = deque(maxlen=NUM_RECENT)
        self._returns = np.zeros(env.num_envs)
        self._lengths = np.zeros(env.num_envs, dtype=np.int64)
        self._started = np.zeros(env.num_envs)
        self._running = np.zeros(env.num_envs, dtype=np.bool_)
        self.num_steps: int = 0
        self._steps_before = 0  # of earlier runs in the files, unless a loaded state counts them
        self._pipeline_hash: str | None = None
        if self.dir is None:
            self.record: RunRecord | None = None
        else:
            self.record = RunRecord(self.dir)
        self._began = 0.0  # seconds, when the record began
        self._before = (0, 0)  # steps and episodes of a loaded state, which another run played
        self._end: str | None = None  # how the run ended, if nothing else says it
        self._files: list[MonitorFile] = []
        self._sinks: list[Sink] = []
        self._kept: deque[tuple[Episode, float]] | None = None
        self._opened = False
        self._warned = False

    @property
    def episode_count(self) -> int:
        return self.num_episodes

    @property
    def latest(self) -> tuple[Episode, ...]:
        return tuple(self._games.episodes(self._agents))

    @property
    def recent(self) -> deque[Episode]:
        episodes: deque[Episode] = deque(maxlen=NUM_RECENT)
        for games in self._recent:
            episodes.extend(games.episodes(self._agents))
        return episodes

    @property
    def games(self) -> tuple[FloatArray, IntArray, BoolArray]:
        return self._returns.copy(), self._lengths.copy(), self._running.copy()

    @property
    def paths(self) -> tuple[Path, ...]:
        if self.dir is None or "csv" not in self._log:
            return ()
        if self._per_env:
            names = [f"{i}.monitor.csv" for i in range(self.num_envs)]
        else:
            names = ["monitor.csv"]
        return tuple(self.dir / name for name in names)

    @property
    def column(self) -> str:
        return self._stats_key

    @property
    def logs(self) -> tuple[Any, ...]:
        return self._log

    @property
    def scores_games(self) -> bool:
        return self._rewards == "raw"

    def report_only(self, count: Callable[..., BoolArray]) -> None:
        """Report those of the closed games that a function says; for evaluations."""
        self._count = count

    def keep_games(self, at_most: int) -> deque[tuple[Episode, float]]:
        """Return where each game from now on is kept, with ``time.perf_counter()`` of its end."""
        if self._kept is None:
            self._kept = deque(maxlen=at_most)
        return self._kept

    def __dir__(self) -> list[str]:
        """Without what tools use."""
        return [name for name in super().__dir__() if name not in ("keep_games", "report_only")]

    def on_pipeline(self, pipeline: Any) -> None:
        self._pipeline_hash = pipeline.hash
        self._warn_of_known()

    def on_step(self, step: StepResult) -> None:
        rows = step.rows
        self._games = NO_GAMES
        if step.uneventful:
            self._returns += step.raw_rewards if self._rewards == "raw" else step.rewards
            self._lengths += 1
            self.num_steps += self.num_envs
            return
        lost = step.lost  # usually no row
        if np.count_nonzero(lost):
            if self._rewards == "raw":
                lost = lost & self._running[rows]
            else:
                lost = step.cut_off
        if self._rewards == "raw":
            paid = step.raw_rewards
            over = step.raw_dones
            opens = step.raw_first
        else:
            paid = step.rewards
            over = step.ended
            opens = step.first
        self._returns[rows] += paid
        self._lengths[rows] += step.acted
        self.num_steps += int(np.count_nonzero(step.acted))
        closed = over | lost
        if np.count_nonzero(closed) or step.unplayed:
            self._close_episodes(step, closed, lost)
        if self._is_game:
            opens = opens & step.alive
        changes = closed | opens
        if self._is_game:  # a game may begin without its agent
            changes |= step.opens_absent
        changed = changes.nonzero()[0]
        if not len(changed):
            return
        ids = step.env_ids[changed]
        begins = opens[changed]
        self._running[ids] = begins
        self._returns[ids] = 0.0
        self._lengths[ids] = 0
        if self._is_game:  # or its agent may join later, and be paid at once
            joined = changed[step.paid_on_joining[changed]]
            self._returns[step.env_ids[joined]] = paid[joined]
        self._started[ids] = time.perf_counter()

    def wrapper_state(self) -> dict[str, Any]:
        return {
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "running": self._running.copy(),
            "elapsed": time.perf_counter() - self._started,
            "num_episodes": self.num_episodes,
            "num_steps": self.num_steps,
            "recent": [[*episode[:4], episode.steps] for episode in self.recent],
        }

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        steps = fitting(state["num_steps"], 0, "num_steps")
        episodes = fitting(state["num_episodes"], 0, "num_episodes")
        self._open(steps)
        self._steps_before = 0
        played = self._played()
        put(self._returns, state["returns"], "returns")
        put(self._lengths, state["lengths"], "lengths")
        put(self._running, state["running"], "running")
        put(
            self._started,
            time.perf_counter() - fitting(state["elapsed"], self._started, "elapsed"),
            "elapsed",
        )
        self.num_steps = steps
        for kept in (self.return_queue, self.length_queue, self.time_queue):
            kept.clear()
        self._recent.clear()
        self._num_recent = 0
        for saved in state["recent"]:
            score, length, seconds, i, by_then = map(fitting, saved, (0.0, 0, 0.0, 0, 0))
            if not 0 <= i < self.num_envs:
                raise ValueError(f"recent: expected a row below {self.num_envs}, got {i}")
            self._keep_recent(EndedGames.of_one(score, length, seconds, i, by_then))
        self.num_episodes = episodes
        self._before = (steps - played[0], episodes - played[1])

    def on_close(self) -> None:
        self._end_record()
        self._close_logs()

    def _close_logs(self) -> None:
        self._close_files()
        sinks = getattr(self, "_sinks", [])
        self._sinks = []
        for sink in sinks:
            sink.close()

    def close_at_exit(self) -> None:
        self._end = status_at_exit()
        self._close_wrapper()

    def __del__(self) -> None:
        self._end = NOT_CLOSED
        self._close_wrapper()

    # -- parts -------------------------------------------------------------------------------------

    def _check(self) -> None:
        one_of("monitor: rewards", self._rewards, ("raw", "seen"))
        check_info_key("monitor: stats_key", self._stats_key, "episode")
        names = self._columns + self._info_keys
        if len(set(names)) != len(names):
            columns = ", ".join(self._columns)
            raise PlanError(
                f"monitor: info_keys: expected each name once and none of {columns}, got "
                f"{self._info_keys}"
            )
        for inner in self.env.chain:
            if isinstance(inner, Monitor) and inner.column == self._stats_key:
                raise PlanError(
                    f'monitor: an inner monitor reports infos["{self._stats_key}"] already; leave '
                    'one out, or give this one a name of its own with stats_key="..."'
                )
            if not (isinstance(inner, Monitor) and self.dir and inner.dir):
                continue
            # `Path.resolve` raises at links in a circle.
            if os.path.realpath(inner.dir) == os.path.realpath(self.dir):
                raise PlanError(
                    f'monitor: dir: an inner monitor writes into "{relative_to_cwd(self.dir)}" '
                    "already; give each its own folder"
                )

    def _close_episodes(self, step: StepResult, closed: BoolArray, lost: BoolArray) -> None:
        ids = step.env_ids
        returns = self._returns[step.rows]
        lengths = self._lengths[step.rows]
        if self._count is not None:
            # An agent may be done in the step in which it joins a game; or it never joins, and the
            # game is shown ended.
            if not self._is_game:
                closed = closed & (self._running[step.rows] | ~step.alive)
            closed = self._count(ids, closed, lost, returns, lengths)
            lost = np.zeros_like(lost)
        now = time.perf_counter()
        at = closed.nonzero()[0]
        env_ids = ids[at]
        seconds = (now - self._started[env_ids]) * self._running[env_ids]
        infos = None
        if self._info_keys:
            infos = object_array([_info_of_end(step, self._info_keys, k) for k in at.tolist()])
        games = EndedGames(
            at, returns[at], lengths[at], seconds.round(6), env_ids, lost[at], infos, self.num_steps
        )
        if step.unplayed:
            games = games.followed_by(self._unplayed(step))
        if np.count_nonzero(games.lost):
            self._report(step, games.take(~games.lost), now)
        else:
            self._report(step, games, now)
        if self._files:
            self._write(games)

    def _unplayed(self, step: StepResult) -> EndedGames:
        raw = self._rewards == "raw"
        games = EndedGames.of_unplayed(
            step.unplayed, step.env_ids, raw=raw, info_keys=self._info_keys, steps=self.num_steps
        )
        if self._count is None:
            return games
        counted = []
        for k in range(len(games)):  # one by one: several may be of one row
            one = games.take([k])
            yes = np.ones(1, np.bool_)
            counted.append(self._count(one.env_ids, yes, one.lost, one.scores, one.lengths)[0])
        return replace(games, lost=np.zeros_like(games.lost)).take(np.array(counted))

    def _report(self, step: StepResult, games: EndedGames, now: float) -> None:
        number = len(games)
        if not number:
            return
        if self._stats_key in step.infos or self._stats_key in (step.final_infos or {}):
            self._warn_of_another("the other")
        step.add_info(self._stats_key, *games.columns(len(step.env_ids)))
        self._games = games
        self.num_episodes += number
        self._keep_recent(games)
        if self._kept is None and not self._sinks:
            return
        episodes = games.episodes(self._agents)
        if self._kept is not None:
            self._kept.extend((episode, now) for episode in episodes)
        for sink in self._sinks:
            sink.put(list(zip(episodes, games.info_dicts(), strict=True)))

    def _keep_recent(self, games: EndedGames) -> None:
        number = len(games)
        if number > NUM_RECENT:
            games = games.take(slice(-NUM_RECENT, None))
            number = NUM_RECENT
        recent = self._recent
        recent.append(games)
        self.return_queue.extend(games.scores.tolist())
        self.length_queue.extend(games.lengths.tolist())
        self.time_queue.extend(games.seconds.tolist())
        self._num_recent += number
        while self._num_recent - len(recent[0]) >= NUM_RECENT:
            self._num_recent -= len(recent.popleft())

    def _warn_of_known(self) -> None:
        """Warn before the first step, if it is known already what else reports the games."""
        if self._stats_key == "episode" and self.core.description.monitor:
            self._warn_of_another(self.core.description.monitor)

    def _warn_of_another(self, monitor: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f'monitor: infos["{self._stats_key}"] of the environment itself (as of '
                f'Stable-Baselines3\'s Monitor) is renamed to "{self._stats_key}_", that of an '
                "inner wrapper replaced, and games are counted twice; leave one of the two out: "
                f"{monitor} where the environments are made, as this wrapper reports the same, or "
                'this wrapper; or rename this one with stats_key="..."',
                stacklevel=2,
            )

    # -- files -------------------------------------------------------------------------------------

    def before_reset(self, env_ids: IntArray, seeds: Sequence[int | None]) -> None:
        self._open()
        self._warn_of_known()

    def _open(self, steps: int = 0) -> None:
        others = [entry for entry in self._log if entry != "csv"]
        if self._opened or not (self.dir is not None or others):
            return
        # Not earlier: explaining and checking give no folder.
        if "tensorboard" in others and self.dir is None:
            raise PlanError(
                "monitor: log: tensorboard needs a folder for its files: give dir, as in "
                'dir="runs/ppo"'
            )
        header = header_of(self.core, self._pipeline_hash)
        if self.dir is not None:
            warn_of_another(self.dir, resume=self._resume)
        try:
            if self.record is not None:
                self._open_files(self.record, header)
            for entry in others:
                sink = open_sink(
                    entry, self._stats_key, self._agents, self.dir, self._resume, steps, header
                )
                self._sinks.append(sink)
            # Before what was imported or begun meanwhile, such as a run of W&B, is closed.
            at_exit(self)
            self._opened = True
        finally:
            if not self._opened:
                self._close_logs()

    def _open_files(self, record: RunRecord, header: dict[str, Any]) -> None:
        try:
            record.prepare(resume=self._resume)
            for path in self.paths:
                self._files.append(MonitorFile(path, header, self._columns + self._info_keys))
            self._steps_before = max((file.steps for file in self._files), default=0)
            record.begin(self._described())
            self._began = time.perf_counter()
        except OSError as error:
            raise PlanError(
                "monitor: dir: expected a folder that files can be written to, got "
                f'"{relative_to_cwd(record.folder)}": {error}; give another, or leave dir out'
            ) from error

    def _described(self) -> RunDescription:
        """What is known of the chain up to here, if no pipeline describes it."""
        wrappers = [type(wrapper).__name__ for wrapper in reversed(self.chain[:-1])]
        settings = {"env": self.core.env_id, "n": self.num_envs, "wrappers": wrappers}
        return RunDescription(
            None, None, settings=settings, missing=("env: the chain was assembled by the program",)
        )

    def _played(self) -> tuple[int, int]:
        """The agent steps and the episodes of this run."""
        return self.num_steps - self._before[0], self.num_episodes - self._before[1]

    def _end_record(self) -> None:
        record: RunRecord | None = getattr(self, "record", None)
        if record is None or not record.is_running:
            return
        steps, episodes = self._played()
        record.end(
            self._end or record.end_status(),
            steps=steps,
            episodes=episodes,
            seconds=round(time.perf_counter() - self._began, 3),
            restarts=int(self.core.health().restarts.sum()),
        )

    def _write(self, games: EndedGames) -> None:
        """Write a row for each of these games, until a file can no longer be written."""
        of_agents = len(self._columns) > len(COLUMNS)
        episodes = games.episodes(self._agents)
        for episode, lost, info in zip(episodes, games.lost, games.info_dicts(), strict=True):
            file = self._files[episode.env if self._per_env else 0]
            elapsed = round(time.time() - file.t_start, 6)
            score = round(episode.score, 6)
            steps = episode.steps + self._steps_before
            row: list[Any] = [score, episode.length, elapsed, episode.env, int(lost), steps]
            if of_agents:
                row.append(episode.agent)
            row += [_cell(info.get(key, "")) for key in self._info_keys]
            try:
                file.write(row)
            except OSError as error:
                self._close_files()
                warnings.warn(
                    f"monitor: {printable(str(file.path))} can no longer be written "
                    f"({text_of(error)}); the run continues without it, and what was written is "
                    "kept",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return

    def _close_files(self) -> None:
        for file in getattr(self, "_files", ()):
            file.close()
        self._files = []


def _info_of_end(step: StepResult, keys: Sequence[str], i: int) -> dict[str, Any]:
    """Return these infos of one row, for the step that ended, without those that it lacks."""
    found: dict[str, Any] = {}
    for key in keys:
        of_reset = step.first[i] and step.dones[i] and key not in step.added
        infos = (step.final_infos if of_reset else step.infos) or {}
        if key in infos:
            found |= row_of({name: infos[name] for name in (key, f"_{key}") if name in infos}, i)
    return found


def _cell(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return value
