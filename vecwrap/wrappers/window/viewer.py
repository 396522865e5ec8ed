"""``render_mode="human"``: one window for all sub-environments, around a finished chain."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vecwrap.env.picture import Labels, load_cv2
from vecwrap.env.refusals import refuse_mode
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import ArgumentError, PlanError, text_of
from vecwrap.rows.step_result import StepResult
from vecwrap.sources.factories import no_frames
from vecwrap.wrappers.window.window import Window, refuse_without_display

MIN_PICTURE_PIXELS = 480  # pixels; a narrower picture is enlarged
MAX_PICTURE_PIXELS = (1280, 800)  # at most


class Viewer(VecEnvWrapper):
    """Show all sub-environments in one window while they are stepped.

    The viewer is not a part of ``env.chain``.
    """

    _window: Window | None = None

    def __init__(self, env: VecEnv) -> None:
        super().__init__(env)
        modes = env.metadata.get("render_modes")
        if env.render_mode != "rgb_array" or (modes is not None and "rgb_array" not in modes):
            raise PlanError(
                'render_mode="human": '
                + no_frames(
                    str(self.core.env_id),
                    f"{env.render_mode!r}, and render_modes {modes} in its metadata",
                )
            )
        load_cv2('render_mode="human"')
        refuse_without_display()
        self.render_mode = "human"
        self.fps = env.metadata.get("render_fps") or 30
        self._labels = Labels(env.num_envs)
        self._frames: list[NDArray[np.uint8] | None] = [None] * env.num_envs
        self._next_frame_at = 0.0  # when the next picture may be shown, by time.monotonic
        self._watched = True  # until the window is closed
        self.request_frames(range(env.num_envs))  # refused here if an engine cannot do it

    @property
    def fps(self) -> float:
        return self._fps

    @fps.setter
    def fps(self, fps: float) -> None:
        if not fps > 0:
            raise ArgumentError(f"fps: expected steps a second above 0, got {fps}")
        self._fps = float(fps)

    @property
    def chain(self) -> tuple[VecEnv, ...]:
        return self.env.chain

    @property
    def pipeline(self) -> Any:  # type: ignore[override]
        return self.env.pipeline

    @property
    def training(self) -> bool:  # type: ignore[override]
        return self.env.training

    @property
    def viewer_open(self) -> bool:
        if self._window is None:
            return False
        if self._watched and not self._window.open:
            self._unwatch()
        return self._watched

    def on_step(self, step: StepResult) -> None:
        if not self._watched or (self._window is not None and not self.viewer_open):
            return
        self._labels.take(step)
        try:
            self._take_frames(step)
            picture = self._labels.picture(self._frames, MAX_PICTURE_PIXELS, MIN_PICTURE_PIXELS)
        except Exception as error:  # a failure to render or lay out must not end the run
            self._unwatch()
            message = (
                'render_mode="human": the window is closed, the run goes on without it. '
                f"{text_of(error)}"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return
        if self._window is None:
            self._window = Window(f"{self.core.env_id} n={self.num_envs} - vecwrap", picture)
        else:
            self._pace(len(step.env_ids))
            self._window.show(picture)

    def on_close(self) -> None:
        self._watched = False
        if self._window is not None:
            self._window.close()

    def __del__(self) -> None:
        self._close_wrapper()

    def render(self, mode: None = None) -> Any:
        refuse_mode(mode)
        return None

    def get_images(self, indices: Sequence[int] | int | None = None) -> tuple[Any, ...]:
        return self.env.get_images(indices)

    def _take_frames(self, step: StepResult) -> None:
        """Keep each row's frame, or its ended episode's last frame, which the label describes."""
        if step.frames is None:
            return
        ended = step.first & step.dones
        for k, i in enumerate(step.env_ids.tolist()):
            frame = step.frames[k]
            if ended[k] and step.final_frames is not None:
                frame = step.final_frames[k]
            if isinstance(frame, Exception):
                raise frame
            if frame is not None:
                self._frames[i] = np.asarray(frame)

    def _pace(self, rows: int) -> None:
        now = time.monotonic()
        time.sleep(max(0.0, self._next_frame_at - now))
        self._next_frame_at = max(now, self._next_frame_at) + rows / self.num_envs / self.fps

    def _unwatch(self) -> None:
        """Close the window for good, and stop rendering for it."""
        self.on_close()
        self.request_frames(())
