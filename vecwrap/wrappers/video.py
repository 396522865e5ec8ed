"""Videos of some episodes or steps, streamed to disk during play."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from vecwrap.env.games import first_rows
from vecwrap.env.picture import refuse_without_frames
from vecwrap.env.vec_env import VecEnv
from vecwrap.env.wrapper import VecEnvWrapper
from vecwrap.errors import PlanError, at_least, chosen_envs, one_of, text_of
from vecwrap.rows.saved import put
from vecwrap.rows.step_result import IntArray, StepResult
from vecwrap.wrappers.recording.recorder import Recorder, VideoFolder
from vecwrap.wrappers.recording.run_files import make_folder
from vecwrap.wrappers.recording.video_file import check_ffmpeg

UNLIMITED_PIXELS = (2**30, 2**30)  # pixels


def cubes(episode: int) -> bool:
    """Return whether an episode's number is a cube below 1,000 or a multiple of 1,000.

    This is Gymnasium's rule.

    >>> [episode for episode in range(3000) if cubes(episode)]
    [0, 1, 8, 27, 64, 125, 216, 343, 512, 729, 1000, 2000]
    """
    if episode < 1000:
        return bool(round(episode ** (1 / 3)) ** 3 == episode)
    return episode % 1000 == 0


class Video(VecEnvWrapper):
    """Record videos at chosen episodes or steps: of whole episodes, or of a fixed number of frames.

    A recording starts with the frame of a reset (``by="episodes"``) or of the observation after the
    given number of agent steps (``by="steps"``; 0 is the first reset). It has one frame per
    observation, including the terminal frame and, if the recording continues, the next episode's
    first. It ends with the episode's last frame or, with ``length``, after exactly that many
    frames, across episodes if necessary. Episodes are those of the environment itself, so a game is
    one video even if lives are lost in it. Numbers count from 0 per sub-environment; a tiled video
    uses those of the first of ``envs``. A recording that would start during another is skipped.

    Frames are rendered where the sub-environments are, only while one is recorded, and arrive with
    the results. Each is written to disk at once: memory use stays flat, and after a killed run the
    file is playable, except for at most its last second.

    Files are ``{name}-episode-000008.mp4`` or ``{name}-step-001000.mp4``, with ``-env-3`` if each
    sub-environment has its own; existing files are never overwritten. Each has a ``.json`` next to
    it with ``env_id``, ``pipeline`` (its hash, null if the chain was assembled by hand),
    ``env_ids``, ``steps`` and ``episodes`` (the first and the last in the video), ``fps``,
    ``size``, ``frames`` (sent to ffmpeg; not all of a failed video's are in it), and ``ended``:
    ``"length"``, ``"episode"``, ``"reset"`` (it interrupted the episode), ``"closed"``,
    ``"failed"``, or null while it is unfinished.

    A folder that cannot be written is an error at the first reset. Any later failure (a full disk,
    a deleted folder, a frame that cannot be rendered, a trigger that raises) ends the recording
    with a warning, never the training.

    At an episode's end:
        The terminal frame is recorded; the video ends there, or continues if ``length`` is not
        reached.

    Args:
        env: what it wraps; built with ``render_mode="rgb_array"``.
        dir: the folder for the files, created if missing.
        by: what is counted.
        every: record each k-th: 0, k, 2k, ...
        at: the numbers to record.
        trigger: a function from the number to whether to record, in a pipeline its import path
            ``"module:attr"``. It is called once per number, one ahead. With none of the three,
            episodes are recorded at cubes: 0, 1, 8, 27, ...
        length: how many frames; None: until the episode ends.
        envs: which sub-environments; None means all, in games of several agents the first row of
            each game.
        files: ``"tiled"``: one video of all of them side by side, or ``"each"``: one per
            sub-environment.
        fps: frames per second; None means the environment's ``metadata["render_fps"]``, else 30.
        max_size: the longest side of a tiled video in pixels; a larger one is scaled down.
        name: the prefix of the file names.

    Attributes:
        paths: the videos so far.

    Raises:
        PlanError: an environment without ``rgb_array`` rendering, arguments that do not fit, or no
            ffmpeg.

    Example:
        >>> import gymnasium
        >>> import vecwrap
        >>> make = lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array")
        >>> env = vecwrap.build(make, n=2, backend="dummy")
        >>> Video(env, "videos", by="steps", every=10_000, length=200, envs=(0,))
        <VecEnv CartPole-v1, n=2, dummy, same_step, wrappers Video>
    """

    takes_frames: ClassVar[bool] = True
    reads_observations: ClassVar[bool] = False
    path_parameters: ClassVar[frozenset[str]] = frozenset({"dir"})
    not_hashed: ClassVar[frozenset[str]] = frozenset(
        {
            "dir",
            "by",
            "every",
            "at",
            "trigger",
            "length",
            "envs",
            "files",
            "fps",
            "max_size",
            "name",
        }
    )

    @classmethod
    def in_evaluation(cls, *, dir: str, **others: Any) -> dict[str, Any]:
        """Return the arguments for an evaluation: a folder of its own.

        In the training's folder, an evaluation would move the training's files aside.
        """
        return {"dir": str(Path(dir, "eval"))}

    def __init__(
        self,
        env: VecEnv,
        dir: str = "videos",
        *,
        by: Literal["episodes", "steps"] = "episodes",
        every: int | None = None,
        at: tuple[int, ...] | None = None,
        trigger: Callable[[int], bool] | None = None,
        length: int | None = None,
        envs: tuple[int, ...] | None = None,
        files: Literal["tiled", "each"] = "tiled",
        fps: float | None = None,
        max_size: int = 1920,
        name: str = "video",
    ) -> None:
        super().__init__(env)
        refuse_without_frames("video", env)
        if fps is None:
            fps = float(env.metadata.get("render_fps") or 30)
        else:
            fps = float(fps)
        if not 0 < fps < 1000:
            raise PlanError(f"video: fps: expected a number above 0 and below 1000, got {fps:g}")
        if not name or Path(name).name != name:
            raise PlanError(
                f'video: name: expected the prefix of file names, got "{name}"; set the folder '
                "with dir"
            )
        self._folder = VideoFolder(
            Path(dir).absolute(), name, fps, {"env_id": self.core.env_id, "pipeline": None}
        )
        by = one_of("video: by", by, ("episodes", "steps"))
        triggered = self._trigger(by, every, at, trigger)
        if length is not None:
            length = at_least("video: length", length, 1)
        largest = at_least("video: max_size", max_size, 16)
        chosen: Iterable[int] | None = envs
        if chosen is None:
            chosen = first_rows(env.call_state, env.core)
        ids = chosen_envs("video: envs", chosen, self.num_envs)
        if one_of("video: files", files, ("tiled", "each")) == "tiled":
            size = (largest, largest)
            groups = [(ids, "")]
        else:
            size = UNLIMITED_PIXELS
            groups = [((i,), f"-env-{i}") for i in ids]
        self._recorders = [
            Recorder(self._folder, some, by, triggered, length, size, suffix)
            for some, suffix in groups
        ]
        self._steps = np.zeros(self.num_envs, dtype=np.int64)
        self._episodes = np.full(self.num_envs, -1, dtype=np.int64)
        self._requested: Any = None
        self._opened = False
        self.request_frames(())  # raises now if an engine cannot provide frames

    @property
    def paths(self) -> list[Path]:
        return list(self._folder.paths)

    def on_pipeline(self, pipeline: Any) -> None:
        self._folder.header["pipeline"] = pipeline.hash

    def on_step(self, step: StepResult) -> None:
        rows = {i: k for k, i in enumerate(step.env_ids.tolist())}
        self._steps[step.env_ids] += step.acted & (step.dones | ~step.first)
        with self._surviving():
            for recorder in self._recorders:
                lead = recorder.env_ids[0]
                recorder.take(step, rows, int(self._steps[lead]), int(self._episodes[lead]))
            self._ask_for_frames(frozenset())
        self._episodes[step.env_ids[step.raw_first]] += 1

    def on_close(self) -> None:
        self._finish("closed")

    def __del__(self) -> None:
        self._close_wrapper()

    def wrapper_state(self) -> dict[str, Any]:
        return {"steps": self._steps.copy(), "episodes": self._episodes.copy()}

    def load_wrapper_state(self, state: dict[str, Any]) -> None:
        self._finish("closed")
        self._open()
        put(self._steps, state["steps"], "steps")
        put(self._episodes, state["episodes"], "episodes")
        for recorder in self._recorders:
            lead = recorder.env_ids[0]
            recorder.go_on(int(self._steps[lead]), int(self._episodes[lead]))
        with self._surviving():
            self._ask_for_frames(frozenset())

    def before_reset(self, env_ids: IntArray, seeds: Sequence[int | None]) -> None:
        """Open the files, and ask for the frames that come with the reset."""
        self._open()
        with self._surviving():
            # If each row has its options, more rows are reset than ``env_ids`` has.
            self._ask_for_frames(self.call_state.pending.resetting)

    def _open(self) -> None:
        if not self._opened:
            check_ffmpeg()
            make_folder(self._folder.folder, "video")
            self._opened = True

    def _ask_for_frames(self, about_to_reset: frozenset[int]) -> None:
        always: set[int] = set()
        opening: set[int] = set()
        for recorder in self._recorders:
            every, first = recorder.wants_frames(about_to_reset)
            always.update(every)
            opening.update(first)
        if (always, opening) != self._requested:
            self.request_frames(sorted(always), sorted(opening))
            self._requested = always, opening

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            for recorder in self._recorders:
                recorder.stop()
            self._ask_for_frames(frozenset())
            warnings.warn(
                (
                    "video: the recording has ended; the run continues, and what was written is "
                    f"kept. {text_of(error)}"
                ),
                RuntimeWarning,
                stacklevel=2,
            )

    def _finish(self, reason: str) -> None:
        for recorder in getattr(self, "_recorders", ()):
            with self._surviving():
                recorder.finish(reason)

    @staticmethod
    def _trigger(
        by: str, every: int | None, at: Sequence[int] | None, trigger: Any
    ) -> Callable[[int], bool]:
        given = [
            key
            for key, value in (("every", every), ("at", at), ("trigger", trigger))
            if value is not None
        ]
        if len(given) > 1:
            raise PlanError(
                f"video: expected only one of every, at and trigger, got {' and '.join(given)}"
            )
        if every is not None:
            period = at_least("video: every", every, 1)
            return lambda number: number % period == 0
        if at is not None:
            numbers = frozenset(at_least("video: at", number, 0) for number in at)
            return lambda number: number in numbers
        if trigger is not None:
            if not callable(trigger):
                raise PlanError(
                    "video: trigger: expected a function of the number (in a pipeline its import "
                    f'path "module:attr"), got {trigger!r}'
                )
            return lambda number: bool(trigger(number))
        if by == "steps":
            raise PlanError(
                'video: by="steps": expected every, at or trigger to say which steps, got none of '
                "them"
            )
        return cubes
