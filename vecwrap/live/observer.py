"""Observes the steps of an environment for its page, in the stepping thread.

Only while a browser is connected, or an episode is being recorded, does the environment call the
observer. It keeps the last steps, and requests frames at a bounded rate.
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np
from numpy.typing import NDArray

from vecwrap.env.games import first_rows
from vecwrap.env.vec_env import VecEnv
from vecwrap.errors import printable, text_of, truncate
from vecwrap.live.recording import Recording
from vecwrap.live.shares import StepShares
from vecwrap.rows.batch import Batch, copy, row
from vecwrap.rows.step_result import BoolArray, FloatArray, IntArray, StepResult
from vecwrap.sources.factories import has_no_render_mode
from vecwrap.tools.core_use import CoreMeter

FRAME_INTERVAL_SECONDS = 0.2  # between two frames of a row
MAX_TILES = 24
MAX_STEPS = 12  # the last ones of a row


class Observer:
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
            remedy = (
                has_no_render_mode(backend.metadata, env.core.env_id)
                or 'build it with render_mode="rgb_array"'
            )
            self.why_no_frames = (
                f"No frames: the environment renders {backend.render_mode or 'nothing'}; {remedy}."
            )
        elif env.core.is_engine:
            self.why_no_frames = "No frames: an engine sends none."
        self.frames: dict[int, NDArray[np.uint8]] = {}
        self.shares = StepShares()
        self.cores = CoreMeter(env.core.runner)
        self.on_return = self.shares.on_return
        self.steps = 0
        self.lives: FloatArray = np.full(n, np.nan)
        # Rows, actions, rewards; whether each acted, was lost, terminated, truncated. They become
        # text when a page requests them.
        self._steps: deque[tuple[IntArray, Batch, FloatArray, BoolArray]] = deque(maxlen=200)
        self._sent: tuple[IntArray, Batch] | None = None  # the latest actions, and whose they are
        self._missing: set[int] = set()  # whose frames have been requested
        self._requested: tuple[set[int], set[int]] = set(), set()
        self._next_frame_at = 0.0
        self.recordings: list[Recording] = []  # replaced by the server's thread

    @property
    def is_needed(self) -> bool:
        """Whether there is a viewer, or an episode is being recorded."""
        return bool(self.viewers) or not all(recording.over for recording in self.recordings)

    def on_send(self, actions: Batch, env_ids: IntArray) -> None:
        """Request frames when they are due."""
        self._sent = None
        if actions is not None:
            self._sent = (env_ids, copy(actions))
        if not self.viewers:
            self._missing = set()
        elif (
            not self.why_no_frames and not self._missing and time.monotonic() >= self._next_frame_at
        ):
            self._missing = set(self.tiles)
        every_frame = set(self._missing)
        opening_frames = set[int]()
        about_to_reset = frozenset[int]()
        if actions is None:
            about_to_reset = frozenset(env_ids.tolist())
        for recording in self.recordings:
            every, opening = recording.wants_frames(about_to_reset)
            every_frame |= every
            opening_frames |= opening
        if (every_frame, opening_frames) != self._requested:
            self._requested = (every_frame, opening_frames)
            self._request_frames(sorted(every_frame), sorted(opening_frames))
        self.shares.on_send()
        if self.cores.has_workers:
            self.cores.begin_wait()
        if not self.is_needed:
            self.shares.stop()
            self._ignore(self)

    def on_call(self) -> None:
        self.shares.on_call()
        if self.cores.has_workers:
            self.cores.begin_wait()

    def on_receive(self, step: StepResult) -> None:
        self.shares.on_receive()
        if self.cores.has_workers:
            self.cores.end_wait()
        for recording in self.recordings:
            recording.take(step)
        try:
            self._keep(step)
        except Exception as error:  # a failure to show a step must not end the run
            self.why_no_frames = f"No frames: {truncate(printable(text_of(error)), 300)}"
            self._missing = set()

    def last_steps(self, i: int) -> list[list[str]]:
        """The last steps of a row, the newest first: action, reward, and how the episode ended."""
        steps: list[list[str]] = []
        for ids, actions, rewards, flags in reversed(list(self._steps)):
            places = np.flatnonzero((ids == i) & flags.any(axis=0))
            if len(places) and len(steps) < MAX_STEPS:
                k = int(places[0])
                _, lost, terminated, truncated = flags[:, k]
                ending = ""
                if lost:
                    ending = "lost"
                elif terminated:
                    ending = "terminated"
                elif truncated:
                    ending = "truncated"
                action = truncate(printable(str(row(actions, k))), 60)
                steps.append([action, f"{rewards[k]:g}", ending])
        return steps

    def _keep(self, step: StepResult) -> None:
        ids = step.env_ids
        self.steps += int(np.count_nonzero(step.acted))
        lives = step.infos.get("lives")
        if isinstance(lives, np.ndarray) and lives.dtype.kind in "iuf" and lives.shape == ids.shape:
            reported = step.infos.get("_lives", np.ones(len(ids), dtype=np.bool_))
            self.lives[ids[reported]] = lives[reported]
        # whether the actions sent last are those of the rows that arrived
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
