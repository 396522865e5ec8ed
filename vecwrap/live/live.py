"""An environment of this program as a page shows it: its health, its monitor, and frames.

The server's thread reads; it never waits for a step, and a step never waits for it. Only while a
browser is connected (or an episode being recorded) does the environment tell an observer of its
steps, in the stepping thread: it keeps the last steps, and asks for frames at a bounded rate.
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

from vecwrap.env.games import first_rows
from vecwrap.env.health import Health
from vecwrap.env.picture import fit, grid, load_cv2, tile
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import VecwrapError, printable, printable_lines, text_of, truncate
from vecwrap.live.leaderboard import leaderboard
from vecwrap.live.page_source import duration_text, reload_hint, score_text
from vecwrap.live.recording import Recording
from vecwrap.live.server import LOOPBACK, Page, serve
from vecwrap.live.shares import StepShares
from vecwrap.rows.batch import Batch, copy, row
from vecwrap.rows.step_result import BoolArray, FloatArray, IntArray, StepResult
from vecwrap.selfplay.opponents import Opponents
from vecwrap.sources.factories import has_no_render_mode
from vecwrap.tools.runs import MAX_ABS_SCORE, Run, RunGroup, read_runs
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.recording.run_record import VIDEOS

FRAME_INTERVAL_SECONDS = 0.2  # seconds between two frames of a row
MAX_TILES = 24
MAX_ROWS = 512
MAX_GAMES = 100_000  # kept for curves, if no file has them
MAX_STEPS = 12  # the last ones of a row
MAX_RECORDINGS = 2 * MAX_TILES  # that are shown
MAX_SPRITE_PIXELS = (1920, 1080)  # the most pixels of all tiles together
RATE_WINDOW_SECONDS = 5.0  # seconds
RESTARTED_SECONDS = 30.0  # seconds for which a row is shown as restarted
NO_MONITOR = "For scores and curves, give the pipeline the wrapper monitor."
READ_PAUSE_FACTOR = 30  # reading a growing file may take a thirtieth of the time


# By the chain's core; a page is kept by its thread, and has the core.
_pages: weakref.WeakKeyDictionary[Any, weakref.ref[Page]] = weakref.WeakKeyDictionary()


def page_of(env: VecEnv, port: int | None = None, host: str = LOOPBACK) -> Page:
    """Serve the page of an environment; the same one when asked again."""
    known = _pages.get(env.core)
    page = None
    if known is not None:
        page = known()
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
        self._first_rows = np.unique(backend.row_games, return_index=True)[1][
            backend.row_games
        ].tolist()
        self._title = truncate(printable(str(env.core.env_id)), 80)
        self._described = truncate(printable(repr(env)[1:-1].removeprefix("VecEnv ")), 300)
        self._plan = printable_lines(str(env.plan or repr(env)))
        self._monitor = _outermost(env, Monitor)
        self._opponents = _outermost(env, Opponents)
        monitor = self._monitor()
        self.folder = None if monitor is None else monitor.dir
        self._file = self.folder if monitor is not None and monitor.paths else None
        self._began = time.perf_counter()
        self._games: deque[Any] = deque()
        if monitor is not None and not self._file:
            self._games = monitor.keep_games(MAX_GAMES)
        self._observer = _Observer(env)
        self._videos = (self.folder or Path()).absolute() / VIDEOS
        self._fps = float(env.metadata.get("render_fps") or 30)
        self._counts: deque[tuple[float, int]] = deque()
        self._restarts = env.health().restarts
        self._restarted_at = np.full(env.core.num_envs, -np.inf)
        self._version = 0
        self._seen = (-1, 0)
        self._next = 0.0
        self._latest: list[RunGroup] = []
        self._leaderboard: dict[str, Any] | None = None
        self._last: dict[str, Any] = {}

    @property
    def ended(self) -> bool:
        return self._env() is None or not self._core.is_open

    def state(self, row: int | None) -> dict[str, Any]:
        self._update()  # again: a step that just ended may have missed it
        ended = self.ended
        now = time.perf_counter()
        health = self._core.health()
        if ended:
            self.done()
        monitor = self._monitor()
        if ended and self._last and monitor is None:
            return {**self._last, "status": "finished", "recordings": self._recordings()}
        steps = monitor.num_steps if monitor is not None else self._observer.steps
        games = 0 if monitor is None else monitor.num_episodes
        self._renew(games, now, at_once=ended)
        episodes = score = "–"
        if monitor is not None:
            episodes = f"{games:,}"
            score = score_text(monitor.return_queue)
        last: list[Any] = []
        if row is not None:
            last = self._observer.last(row)
        self._last = {
            "title": self._title,
            "env": self._described,
            "live": True,
            "status": "finished" if ended else "running",
            "trouble": "" if monitor is not None else NO_MONITOR,
            "again": reload_hint(self._file),
            "version": self._version,
            "games": games,
            "figures": [
                ["agent steps" if monitor is not None else "steps while watched", f"{steps:,}"],
                ["steps/s", self._rate(now, steps)],
                ["episodes", episodes],
                ["score, last 100", score],
                ["restarts", f"{int(health.restarts.sum()):,}"],
                ["watched for", duration_text(now - self._began)],
            ],
            "rows": self._rows(health, monitor, now),
            **self._frames(),
            "times": self._observer.shares.shares(),
            "recordings": self._recordings(),
            "last": last,
        }
        return self._last

    def about(self) -> dict[str, Any]:
        shown = {"plan": self._plan, "leaderboard": self._leaderboard}
        return {**shown, "versions": [], "picture": None, "videos": []}

    def runs(self) -> list[RunGroup]:
        return self._latest

    def frame(self, row: int | None) -> bytes | None:
        observer = self._observer
        if row is not None:
            # of its game
            first = row
            if row < len(self._first_rows):
                first = self._first_rows[row]
            image = observer.frames.get(row, observer.frames.get(first))
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
                one.file
                for one in self._observer.recordings
                if one.file is not None and name == _name(one)
            ),
            None,
        )

    def record(self, row: int | None) -> str:
        observer = self._observer
        if observer.why_no_frames or self.ended:
            return observer.why_no_frames or "The run has ended."
        if row is not None and row not in observer.tiles:
            return f"No frames: row {row} has no tile."
        known = [one for one in observer.recordings if not one.over]
        rows = set(observer.tiles)
        if row is not None:
            rows = {row}
        new = rows.difference(one.row for one in known)
        recordings = [Recording(i, self._videos, self._fps, self._title) for i in sorted(new)]
        over = [one for one in observer.recordings if one.over]
        observer.recordings = [*over[-MAX_RECORDINGS:], *known, *recordings]
        self._update()
        return ""

    def watched(self, viewers: int) -> None:
        """Look while there are viewers; the stepping thread stops by itself when there are none."""
        self._observer.viewers = viewers
        self._update()

    def done(self) -> None:
        for one in self._observer.recordings:
            one.finish()

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

    def _rows(self, health: Health, monitor: Monitor | None, now: float) -> list[dict[str, Any]]:
        scores = np.full(self._core.num_envs, np.nan)
        lengths = np.full(self._core.num_envs, np.nan)
        if monitor is not None:
            at = monitor.call_state.numbered_rows.sources(monitor.call_state.pending.all_ids)
            scores[at], lengths[at], _ = monitor.games
        self._restarted_at[health.restarts > self._restarts] = now
        self._restarts = health.restarts
        plays = self._plays()
        lives = self._observer.lives.copy()
        if not (lives > 0).any():  # a game that has none says 0, as Pong does
            lives[:] = np.nan
        some_wait = not health.in_flight.all()  # for others; a step of all rows is no news
        rows = []
        for i in range(min(len(scores), MAX_ROWS)):
            state = "running"
            if health.lost[i]:
                state = "lost"
            elif now - self._restarted_at[i] < RESTARTED_SECONDS:
                state = "restarted"
            elif health.resting[i]:
                state = "resting"
            elif some_wait and health.in_flight[i]:
                state = "out"
            rows.append(
                {
                    "row": i,
                    "agent": truncate(printable(self._agents[i]), 40),
                    "plays": plays[i],
                    "lives": _number(lives[i]),
                    "score": _number(scores[i]),
                    "length": _number(lengths[i]),
                    "state": state,
                    "restarts": int(health.restarts[i]),
                    "reason": truncate(printable(health.failures[i]), 300),
                }
            )
        return rows

    def _plays(self) -> list[str]:
        """What there is to say of each row's opponent; "" without any."""
        opponents = self._opponents()
        if opponents is None:
            return [""] * len(self._agents)
        said: list[str] = []
        for opponent, seats in zip(opponents.opponents, opponents.seats.tolist(), strict=True):
            name = truncate(printable(opponent), 40)
            for seat in range(len(self._agents) // len(opponents.opponents)):
                how = "against" if seat in seats else "played by"
                said.append(name and f"{how} {name}")
        return said

    def _frames(self) -> dict[str, Any]:
        why = self._observer.why_no_frames
        tiles = self._observer.tiles
        if why:
            return {"frames": False, "why_no_frames": why}
        opponents = self._opponents()
        if opponents is not None:  # the learner's row of each game
            tiles = [i + int(seats[0]) for i, seats in zip(tiles, opponents.seats, strict=False)]
        return {"frames": {"columns": grid(len(tiles))[1], "rows": tiles}}

    def _recordings(self) -> list[dict[str, Any]]:
        said = []
        for one in self._observer.recordings:
            file = ""
            if one.file is not None:
                file = _name(one)
            said.append({"row": one.row, "text": one.status_text(), "file": file})
        return said

    def _renew(self, games: int, now: float, *, at_once: bool) -> None:
        """Read the games again if there are more, but only for a bounded share of the time."""
        opponents = self._opponents()
        played = 0
        if opponents is not None:
            played = sum(row.games for row in opponents.pool.results.rows())
        if (games, played) == self._seen or (now < self._next and not at_once):
            return
        self._seen = games, played
        with contextlib.suppress(VecwrapError):  # no file yet, or no longer
            if opponents is not None:
                pool = opponents.pool
                self._leaderboard = leaderboard(
                    pool.all_results(), {name: pool.facts(name) for name in pool.members}
                )
            if self._file is None:
                self._latest = self._in_memory()
            else:
                self._latest = read_runs([self._file])
        self._version += 1
        self._next = time.perf_counter() + max(1.0, READ_PAUSE_FACTOR * (time.perf_counter() - now))

    def _in_memory(self) -> list[RunGroup]:
        games = [(episode, (ended - self._began) / 60) for episode, ended in list(self._games)]
        scores = np.array([episode.score for episode, _ in games])
        steps = np.array([episode.steps for episode, _ in games], dtype=np.int64)
        envs = np.array([episode.env for episode, _ in games], dtype=np.int64)
        kept = np.abs(scores) < MAX_ABS_SCORE
        total_steps = 0
        if len(steps):
            total_steps = int(steps[-1])
        seed = Run(
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
        return [RunGroup(self._title, (seed,))]


class _Observer:
    """Records steps in the stepping thread while a viewer is connected, for the server's thread."""

    def __init__(self, env: VecEnv) -> None:
        self.viewers = 0
        backend = env.unwrapped
        n = backend.num_envs
        self._ignore = env.core.ignore
        self._request = env.core.request_frames
        self._can_request = not env.core.is_engine
        firsts = first_rows(backend.call_state, env.core)
        if firsts is None:
            firsts = list(range(n))
        self.tiles = firsts[:MAX_TILES]
        self.why_no_frames = ""
        if backend.render_mode != "rgb_array":
            cure = (
                has_no_render_mode(backend.metadata, env.core.env_id)
                or 'build it with render_mode="rgb_array"'
            )
            self.why_no_frames = (
                f"No frames: the environment renders {backend.render_mode or 'nothing'}; {cure}."
            )
        elif env.core.is_engine:
            self.why_no_frames = "No frames: an engine sends none."
        self.frames: dict[int, NDArray[np.uint8]] = {}
        self.shares = StepShares()
        self.on_call = self.shares.on_call
        self.on_return = self.shares.on_return
        self.steps = 0
        self.lives: FloatArray = np.full(n, np.nan)
        # Rows, actions, rewards; whether each acted, was lost, terminated, truncated. Words are
        # made when asked for.
        self._steps: deque[tuple[IntArray, Batch, FloatArray, BoolArray]] = deque(maxlen=200)
        self._sent: tuple[IntArray, Batch] | None = None  # the latest actions, and whose they are
        self._missing: set[int] = set()  # whose frames have been asked for
        self._requested: tuple[set[int], set[int]] = set(), set()
        self._next_frame_at = 0.0
        self.recordings: list[Recording] = []  # replaced by the server's thread

    @property
    def is_needed(self) -> bool:
        """Whether somebody looks, or something is being recorded."""
        return bool(self.viewers) or not all(one.over for one in self.recordings)

    def on_send(self, actions: Batch, env_ids: IntArray) -> None:
        """Ask for frames when they are due."""
        self._sent = None
        if actions is not None:
            self._sent = (env_ids, copy(actions))
        if not self.viewers:
            self._missing = set()
        elif (
            not self.why_no_frames and not self._missing and time.monotonic() >= self._next_frame_at
        ):
            self._missing = set(self.tiles)
        always = set(self._missing)
        opening = set[int]()
        about_to_reset = frozenset[int]()
        if actions is None:
            about_to_reset = frozenset(env_ids.tolist())
        for one in self.recordings:
            every, first = one.wants_frames(about_to_reset)
            always |= every
            opening |= first
        if (always, opening) != self._requested:
            self._requested = always, opening
            self._request_frames(sorted(always), sorted(opening))
        self.shares.on_send()
        if not self.is_needed:
            self.shares.stop()
            self._ignore(self)

    def on_receive(self, step: StepResult) -> None:
        self.shares.on_receive()
        for one in self.recordings:
            one.take(step)
        try:
            self._keep(step)
        except Exception as error:  # what cannot be shown is no reason to end the run
            self.why_no_frames = f"No frames: {truncate(printable(text_of(error)), 300)}"
            self._missing = set()

    def last(self, i: int) -> list[list[str]]:
        """The last steps of a row, the newest first: action, reward, and how the episode ended."""
        found: list[list[str]] = []
        for ids, actions, rewards, (acted, lost, over, late) in reversed(list(self._steps)):
            at = np.flatnonzero((ids == i) & (acted | lost | over | late))
            if len(at) and len(found) < MAX_STEPS:
                k = int(at[0])
                ending = "truncated" * bool(late[k])
                if lost[k]:
                    ending = "lost"
                elif over[k]:
                    ending = "terminated"
                found.append(
                    [truncate(printable(str(row(actions, k))), 60), f"{rewards[k]:g}", ending]
                )
        return found

    def _keep(self, step: StepResult) -> None:
        ids = step.env_ids
        self.steps += int(np.count_nonzero(step.acted))
        lives = step.infos.get("lives")
        if isinstance(lives, np.ndarray) and lives.dtype.kind in "iuf" and lives.shape == ids.shape:
            told = step.infos.get("_lives", np.ones(len(ids), dtype=np.bool_))
            self.lives[ids[told]] = lives[told]
        # the actions are theirs
        if self._sent is not None and (ids is self._sent[0] or np.array_equal(ids, self._sent[0])):
            flags = np.array((step.acted, step.lost, step.terminations, step.truncations))
            self._steps.append((ids, self._sent[1], step.raw_rewards.copy(), flags))
        if step.frames is None or not self._missing:
            return
        for k, i in enumerate(ids.tolist()):
            frame = step.frames[k]
            if isinstance(frame, Exception):
                raise frame
            if i in self._missing and frame is not None:
                self.frames[i] = np.asarray(frame)
                self._missing.discard(i)
        if not self._missing:
            self._next_frame_at = time.monotonic() + FRAME_INTERVAL_SECONDS

    def _request_frames(self, rows: list[int], opening: list[int]) -> None:
        if self._can_request:
            self._request(self, np.array(rows, dtype=np.int64), np.array(opening, dtype=np.int64))


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


def _name(recording: Recording) -> str:
    """How the page asks for a video."""
    return f"{VIDEOS}/{'' if recording.path is None else recording.path.name}"


def _encoded(image: NDArray[np.uint8], suffix: str) -> bytes:
    if image.ndim == 2 or image.shape[2] == 1:
        image = np.repeat(image.reshape(*image.shape[:2], 1), 3, axis=2)
    _, content = load_cv2("watch").imencode(suffix, np.ascontiguousarray(image[..., ::-1]))
    return bytes(content)
