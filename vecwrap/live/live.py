"""An environment of this program as a page shows it: its health, its monitor, and frames.

The server's thread reads; it never waits for a step, and a step never waits for it. The stepping
thread writes what is shown of single steps: see ``observer.py``.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecwrap.env.health import Health
from vecwrap.env.picture import fit, grid, load_cv2, tile
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import VecwrapError, printable, printable_lines, truncate
from vecwrap.live.leaderboard import leaderboard
from vecwrap.live.observer import MAX_TILES, Observer
from vecwrap.live.page_source import duration_text, reload_hint, score_text
from vecwrap.live.recording import Recording
from vecwrap.live.server import LOOPBACK, Page, serve
from vecwrap.selfplay.opponents import Opponents
from vecwrap.tools.core_use import contention
from vecwrap.tools.runs import MAX_ABS_SCORE, Run, RunGroup, read_runs
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.recording.run_record import VIDEOS

MAX_ROWS = 512
MAX_GAMES = 100_000  # kept for curves, if no file has them
MAX_RECORDINGS = 2 * MAX_TILES  # that are shown
MAX_SPRITE_PIXELS = (1920, 1080)  # of all tiles together
RATE_WINDOW_SECONDS = 5.0
REMARK_WINDOW_SECONDS = 5.0
RESTARTED_SECONDS = 30.0  # for which a row is shown as restarted
NO_MONITOR = "For scores and curves, give the pipeline the wrapper monitor."
READ_PAUSE_FACTOR = 30  # reading a growing file may take a thirtieth of the time


# By the chain's core; a page is kept by its thread, and has the core.
_pages: weakref.WeakKeyDictionary[Any, weakref.ref[Page]] = weakref.WeakKeyDictionary()


def page_of(env: VecEnv, port: int | None = None, host: str = LOOPBACK) -> Page:
    """Serve the page of an environment; a second call returns the same page."""
    page = _pages.get(env.core, lambda: None)()
    if page is None or not page.is_served:
        live = Live(env)
        page = serve(live, port, host, record_in=live.folder)
        _pages[env.core] = weakref.ref(page)
    return page


class Live:
    """A source that shows an environment, which it does not keep alive."""

    def __init__(self, env: VecEnv) -> None:
        self._env = weakref.ref(env)
        self._core = env.core
        backend = env.unwrapped
        self._agents = [""] * backend.num_envs
        if backend.possible_agents:
            self._agents = backend.row_agents.tolist()
        _, first_rows = np.unique(backend.row_games, return_index=True)
        # of each row, the first row of its game
        self._first_rows = dict(enumerate(first_rows[backend.row_games].tolist()))
        self._title = truncate(printable(str(env.core.env_id)), 80)
        self._description = truncate(printable(repr(env)[1:-1].removeprefix("VecEnv ")), 300)
        self._plan = printable_lines(str(env.plan or repr(env)))
        self._monitor = _outermost(env, Monitor)
        self._opponents = _outermost(env, Opponents)
        self.folder: Path | None = None
        self._run_folder: Path | None = None  # the same, if the monitor writes files
        self._games: deque[Any] = deque()
        monitor = self._monitor()
        if monitor is not None:
            self.folder = monitor.dir
            if monitor.paths:
                self._run_folder = monitor.dir
            else:
                self._games = monitor.keep_games(MAX_GAMES)
        self._began = time.perf_counter()
        self._observer = Observer(env)
        self._videos = (self.folder or Path()).absolute() / VIDEOS
        self._fps = float(env.metadata.get("render_fps") or 30)
        self._counts: deque[tuple[float, int]] = deque()
        self._restarts = env.health().restarts
        self._restarted_at = np.full(env.core.num_envs, -np.inf)
        self._core_counts = self._observer.cores.read()
        self._remark = ""
        self._remark_due_at = 0.0
        self._version = 0
        self._games_read = (-1, 0)  # those of the monitor, and those that opponents played
        self._read_again_at = 0.0
        self._runs: list[RunGroup] = []
        self._leaderboard: dict[str, Any] | None = None
        self._last_state: dict[str, Any] = {}

    @property
    def ended(self) -> bool:
        return self._env() is None or not self._core.is_open

    def state(self, row: int | None) -> dict[str, Any]:
        self._update()  # again: a step that just ended may have missed it
        status = "running"
        if self.ended:
            status = "finished"
            self.done()
        now = time.perf_counter()
        health = self._core.health()
        monitor = self._monitor()
        if status == "finished" and self._last_state and monitor is None:
            return {**self._last_state, "status": status, "recordings": self._recordings()}
        trouble = NO_MONITOR
        step_unit = "steps while watched"
        steps = self._observer.steps
        games = 0
        episodes = score = "–"
        if monitor is not None:
            trouble = ""
            step_unit = "agent steps"
            steps = monitor.num_steps
            games = monitor.num_episodes
            episodes = f"{games:,}"
            score = score_text(monitor.return_queue)
        self._read_games(games, now, at_once=status == "finished")
        last_steps: list[Any] = []
        if row is not None:
            last_steps = self._observer.last_steps(row)
        self._last_state = {
            "title": self._title,
            "env": self._description,
            "live": True,
            "status": status,
            "trouble": trouble,
            "again": reload_hint(self._run_folder),
            "version": self._version,
            "games": games,
            "figures": [
                [step_unit, f"{steps:,}"],
                ["steps/s", self._rate(now, steps)],
                ["episodes", episodes],
                ["score, last 100", score],
                ["restarts", f"{int(health.restarts.sum()):,}"],
                ["watched for", duration_text(now - self._began)],
            ],
            "rows": self._rows(health, monitor, now),
            **self._frames(),
            "times": self._observer.shares.shares(),
            "remark": self._remark_on_cores(now),
            "recordings": self._recordings(),
            "last": last_steps,
        }
        return self._last_state

    def about(self) -> dict[str, Any]:
        return {
            "plan": self._plan,
            "leaderboard": self._leaderboard,
            "versions": [],
            "picture": None,
            "videos": [],
        }

    def runs(self) -> list[RunGroup]:
        return self._runs

    def frame(self, row: int | None) -> bytes | None:
        observer = self._observer
        if row is not None:
            image = observer.frames.get(row, observer.frames.get(self._first_rows.get(row, row)))
            if image is None:
                return None
            return _encoded(image, ".png")
        images = [observer.frames.get(i) for i in observer.tiles]
        if all(image is None for image in images):
            return None
        return _encoded(fit(tile(images), MAX_SPRITE_PIXELS), ".jpg")

    def file(self, name: str) -> Path | None:
        return next(
            (
                recording.file
                for recording in self._observer.recordings
                if recording.file is not None and name == _video_name(recording)
            ),
            None,
        )

    def record(self, row: int | None) -> str:
        observer = self._observer
        if observer.why_no_frames or self.ended:
            return observer.why_no_frames or "The run has ended."
        if row is not None and row not in observer.tiles:
            return f"No frames: row {row} has no tile."
        rows = set(observer.tiles)
        if row is not None:
            rows = {row}
        in_progress = [recording for recording in observer.recordings if not recording.over]
        rows.difference_update(recording.row for recording in in_progress)
        new = [Recording(i, self._videos, self._fps, self._title) for i in sorted(rows)]
        over = [recording for recording in observer.recordings if recording.over]
        observer.recordings = [*over[-MAX_RECORDINGS:], *in_progress, *new]
        self._update()
        return ""

    def watched(self, viewers: int) -> None:
        """Observe while there are viewers; the stepping thread stops when there are none."""
        self._observer.viewers = viewers
        self._update()

    def done(self) -> None:
        for recording in self._observer.recordings:
            recording.finish()

    def _update(self) -> None:
        if self._observer.is_needed and not self.ended:
            self._core.observe(self._observer)

    # -- parts -------------------------------------------------------------------------------------

    def _rate(self, now: float, steps: int) -> str:
        self._counts.append((now, steps))
        while len(self._counts) > 2 and self._counts[0][0] < now - RATE_WINDOW_SECONDS:
            self._counts.popleft()
        then, before = self._counts[0]
        if now > then:
            return f"{max(0, steps - before) / (now - then):,.0f}"
        return "–"

    def _remark_on_cores(self, now: float) -> str:
        """Return what the last few seconds say of the learner's threads, "" if nothing."""
        if now >= self._remark_due_at:
            counts = self._observer.cores.read()
            self._remark = contention(counts.since(self._core_counts))
            self._core_counts = counts
            self._remark_due_at = now + REMARK_WINDOW_SECONDS
        return self._remark

    def _rows(self, health: Health, monitor: Monitor | None, now: float) -> list[dict[str, Any]]:
        scores = np.full(self._core.num_envs, np.nan)
        lengths = np.full(self._core.num_envs, np.nan)
        if monitor is not None:
            rows = monitor.call_state.numbered_rows.sources(monitor.call_state.pending.all_ids)
            scores[rows], lengths[rows], _ = monitor.games
        self._restarted_at[health.restarts > self._restarts] = now
        self._restarts = health.restarts
        plays = self._plays()
        lives = self._observer.lives.copy()
        if not (lives > 0).any():  # a game that has none says 0, as Pong does
            lives[:] = np.nan
        return [
            {
                "row": i,
                "agent": truncate(printable(self._agents[i]), 40),
                "plays": plays[i],
                "lives": _number(lives[i]),
                "score": _number(scores[i]),
                "length": _number(lengths[i]),
                "state": self._row_state(health, i, now),
                "restarts": int(health.restarts[i]),
                "reason": truncate(printable(health.failures[i]), 300),
            }
            for i in range(min(len(scores), MAX_ROWS))
        ]

    def _row_state(self, health: Health, i: int, now: float) -> str:
        if health.lost[i]:
            return "lost"
        if now - self._restarted_at[i] < RESTARTED_SECONDS:
            return "restarted"
        if health.resting[i]:
            return "resting"
        if health.in_flight[i] and not health.in_flight.all():  # not in a step of all rows
            return "out"
        return "running"

    def _plays(self) -> list[str]:
        """Say of each row whom it plays against, or who plays it; ``""`` without opponents."""
        opponents = self._opponents()
        if opponents is None:
            return [""] * len(self._agents)
        plays: list[str] = []
        for opponent, seats in zip(opponents.opponents, opponents.seats.tolist(), strict=True):
            name = truncate(printable(opponent), 40)
            for seat in range(len(self._agents) // len(opponents.opponents)):
                relation = "against" if seat in seats else "played by"
                plays.append(name and f"{relation} {name}")
        return plays

    def _frames(self) -> dict[str, Any]:
        if self._observer.why_no_frames:
            return {"frames": False, "why_no_frames": self._observer.why_no_frames}
        tiles = self._observer.tiles
        opponents = self._opponents()
        if opponents is not None:  # the learner's row of each game
            tiles = [i + int(seats[0]) for i, seats in zip(tiles, opponents.seats, strict=False)]
        return {"frames": {"columns": grid(len(tiles))[1], "rows": tiles}}

    def _recordings(self) -> list[dict[str, Any]]:
        entries = []
        for recording in self._observer.recordings:
            file = ""
            if recording.file is not None:
                file = _video_name(recording)
            entries.append({"row": recording.row, "text": recording.status_text(), "file": file})
        return entries

    def _read_games(self, games: int, now: float, *, at_once: bool) -> None:
        """Read the games again if there are more, but only for a bounded share of the time."""
        opponents = self._opponents()
        played = 0
        if opponents is not None:
            played = sum(row.games for row in opponents.pool.results.rows())
        if (games, played) == self._games_read or (now < self._read_again_at and not at_once):
            return
        self._games_read = (games, played)
        with contextlib.suppress(VecwrapError):  # no file yet, or no longer
            if opponents is not None:
                pool = opponents.pool
                self._leaderboard = leaderboard(
                    pool.all_results(), {name: pool.facts(name) for name in pool.members}
                )
            if self._run_folder is None:
                self._runs = self._runs_in_memory()
            else:
                self._runs = read_runs([self._run_folder])
        self._version += 1
        end = time.perf_counter()
        self._read_again_at = end + max(1.0, READ_PAUSE_FACTOR * (end - now))

    def _runs_in_memory(self) -> list[RunGroup]:
        games = [(episode, (ended - self._began) / 60) for episode, ended in list(self._games)]
        scores = np.array([episode.score for episode, _ in games])
        steps = np.array([episode.steps for episode, _ in games], dtype=np.int64)
        envs = np.array([episode.env for episode, _ in games], dtype=np.int64)
        kept = np.abs(scores) < MAX_ABS_SCORE
        total_steps = 0
        if len(steps):
            total_steps = int(steps[-1])
        run = Run(
            Path(),
            env_id=self._title,
            step_unit="agent steps",
            scores=scores[kept],
            steps=steps[kept],
            minutes=np.array([minutes for _, minutes in games])[kept],
            envs=envs[kept],
            total_steps=total_steps,
            not_finite=int((~kept).sum()),
        )
        return [RunGroup(self._title, (run,))]


def _number(value: float) -> int | float | str | None:
    """A number for JSON, which has no infinity; None if it is unknown."""
    if np.isnan(value):
        return None
    number = round(float(value), 2)
    if np.isinf(value):
        return str(number)
    if number.is_integer():
        return int(number)
    return number


def _outermost(env: VecEnv, kind: type[Any]) -> Callable[[], Any]:
    """Return a weak reference to the outermost wrapper of a kind, or a function returning None."""
    found = next((wrapper for wrapper in env.chain if isinstance(wrapper, kind)), None)
    if found is None:
        return lambda: None
    return weakref.ref(found)


def _video_name(recording: Recording) -> str:
    """The name by which the page requests a video that has a file."""
    assert recording.path is not None
    return f"{VIDEOS}/{recording.path.name}"


def _encoded(image: NDArray[np.uint8], suffix: str) -> bytes:
    if image.ndim == 2 or image.shape[2] == 1:
        image = np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=2)
    _, content = load_cv2("watch").imencode(suffix, np.ascontiguousarray(image[..., ::-1]))
    return bytes(content)
