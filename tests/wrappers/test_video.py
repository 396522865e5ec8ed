"""Videos, read back from the files: which frames are in them, in what order, what they cost."""

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import ale_py
import cv2
import gymnasium
import imageio_ffmpeg
import numpy as np
import psutil
import pytest
from gymnasium import spaces

import vecwrap
from tests.helpers.backends import DummyBackend, ShmemBackend, SubprocessBackend
from tests.helpers.stream_envs import Joined, Lives, assert_same
from vecwrap.errors import PlanError
from vecwrap.sources.source_factories import SubEnvFactory
from vecwrap.wrappers.video import Video

ROOT = Path(__file__).parents[2]
BACKENDS = [DummyBackend, SubprocessBackend, ShmemBackend]
MODES = ["same_step", "next_step", "disabled", "episodic"]


class Painted(gymnasium.Env):
    """Frames of one colour, which tells (index, episode, step); episodes last ``length`` steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, index=0, length=4, size=(32, 48)):
        self.render_mode = "rgb_array"
        self.index, self.length, self.size = index, length, size
        self.episode = -1
        self.renders = 0
        self.trouble = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.steps = self.episode + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 1.0, self.steps == self.length, False, {}

    def render(self):
        self.renders += 1
        if self.trouble:
            raise RuntimeError(self.trouble)
        return np.full((*self.size, 3), painted(self.index, self.episode, self.steps), np.uint8)


def painted(index, episode, step):
    return 40 * index + 30, 12 * episode + 20, 12 * step + 20


def told(colour):
    """(index, episode, step) of a colour that a video has changed a little."""
    red, green, blue = (int(value) for value in colour)
    return round((red - 30) / 40), round((green - 20) / 12), round((blue - 20) / 12)


def make(n=1, length=4, **options):
    lengths = length if isinstance(length, tuple) else (length,) * n
    return [lambda i=i: Painted(i, lengths[i], **options) for i in range(n)]


def play(env, steps):
    """Step, resetting by a mask what asks for it."""
    for _ in range(steps):
        *_, terminations, truncations, _ = env.step(np.zeros(env.num_envs, np.int64))
        ended = terminations | truncations
        if env.core.autoreset.value in ("disabled", "episodic") and ended.any():
            env.reset(options={"reset_mask": ended})


def frames_of(path):
    """All frames, by another reader than the writer's library."""
    capture = cv2.VideoCapture(str(path))
    frames = []
    while True:
        there, frame = capture.read()
        if not there:
            capture.release()
            return frames
        frames.append(frame[:, :, ::-1])


def fps_of(path):
    capture = cv2.VideoCapture(str(path))
    try:
        return capture.get(cv2.CAP_PROP_FPS)
    finally:
        capture.release()


def story(path, tile=0, width=48):
    """What each frame of a video tells, of one tile (tiles lie side by side for n = 2)."""
    return [told(frame[16, tile * width + width // 2]) for frame in frames_of(path)]


def changes(shown):
    """Without what is shown again while other tiles change."""
    return [now for before, now in zip([None, *shown], shown, strict=False) if now != before]


def beside(path):
    return json.loads(path.with_suffix(".json").read_text())


def episode(number, length=4, index=0):
    return [(index, number, step) for step in range(length + 1)]


# -- which frames ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_episode_is_in_it_from_its_first_frame_to_its_terminal_one(backend, mode, tmp_path):
    workers = {} if backend is DummyBackend else {"workers": 1}
    with Video(
        backend(make(2), autoreset=mode, **workers), tmp_path, at=(1, 3), files="each"
    ) as env:
        env.reset()
        play(env, 22)
    names = [f"video-episode-{number:06d}-env-{i}.mp4" for number in (1, 3) for i in (0, 1)]
    assert sorted(path.name for path in tmp_path.glob("*.mp4")) == sorted(names)
    for path in env.paths:
        index, number = int(path.stem[-1]), int(path.stem[14:20])
        assert story(path) == episode(number, index=index)
        assert beside(path) == {
            "env_id": "Painted",
            "pipeline": None,
            "env_ids": [index],
            "steps": [4 * number, 4 * number + 4],
            "episodes": [number, number],
            "ended": "episode",
            "fps": 20.0,
            "size": [48, 32],
            "frames": 5,
        }


class FailsOnce(Painted):
    """Its second reset raises."""

    def reset(self, **options):
        if self.episode == 0:
            raise RuntimeError("no next game")
        return super().reset(**options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_terminal_frame_is_in_it_where_the_reset_that_follows_raises(backend, tmp_path):
    with Video(backend([FailsOnce], on_failure="restart"), tmp_path, every=1) as env:
        env.reset()
        play(env, 4)
    assert story(env.paths[0]) == episode(0)
    assert (beside(env.paths[0])["ended"], beside(env.paths[0])["frames"]) == ("episode", 5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("length", [1, 7, 12])
def test_exactly_length_frames_with_every_terminal_one_and_every_next_first(mode, length, tmp_path):
    with Video(
        DummyBackend(make(), autoreset=mode), tmp_path, by="steps", at=(2,), length=length
    ) as env:
        env.reset()
        play(env, 20)
    (path,) = env.paths
    assert path.name == "video-step-000002.mp4"
    everything = episode(0) + episode(1) + episode(2)
    assert story(path) == everything[2 : 2 + length]
    assert beside(path)["frames"] == length
    assert beside(path)["ended"] == "length"
    assert beside(path)["steps"][0] == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_tiled_video_leaves_no_frame_of_any_tile_out(mode, tmp_path):
    backend = DummyBackend(make(2, length=(3, 5)), autoreset=mode)
    with Video(backend, tmp_path, by="steps", at=(0,), length=14) as env:
        env.reset()
        play(env, 20)
    (path,) = env.paths
    assert frames_of(path)[0].shape == (32, 96, 3)
    assert beside(path)["env_ids"] == [0, 1]
    for index, length in ((0, 3), (1, 5)):
        shown = story(path, index)
        assert len(shown) == 14
        different = changes(shown)
        everything = [frame for number in range(4) for frame in episode(number, length, index)]
        assert different == everything[: len(different)]
        assert len(different) >= 10


def test_a_tiled_video_begins_with_the_first_frame_of_its_first_tile(tmp_path):
    with Video(DummyBackend(make(2, length=(3, 5))), tmp_path, at=(1,)) as env:
        env.reset()
        play(env, 12)
    (path,) = env.paths
    assert changes(story(path, 0)) == episode(1, 3)
    assert beside(path)["steps"] == [3, 6]
    # Not asked for before: shows what comes next.
    assert story(path, 1)[:2] == [
        (1, 0, 4),
        (1, 0, 4),
    ]


def test_partial_batches_leave_nothing_out(tmp_path):
    with Video(DummyBackend(make(2), batch_size=1), tmp_path, by="steps", at=(0,), length=9) as env:
        env.reset()
        env.send([0, 0])
        for _ in range(16):
            *_, infos = env.recv()
            env.send([0], env_ids=infos["env_id"])
    (path,) = env.paths
    assert story(path, 0) == (episode(0) + episode(1))[:9]
    assert changes(story(path, 1)) == (episode(0, index=1) + episode(1, index=1))[:8]


def test_an_episode_that_a_reset_breaks_off(tmp_path):
    with Video(DummyBackend(make(2)), tmp_path, every=2, files="each", envs=(1,)) as env:
        env.reset()
        play(env, 2)
        env.reset(options={"reset_mask": np.array([True, False])})
        play(env, 1)
        env.reset()
        play(env, 6)
    first, second = env.paths
    assert story(first) == episode(0, index=1)[:4]
    assert beside(first)["ended"] == "reset"
    assert story(second) == episode(2, index=1)[:3]
    assert beside(second)["ended"] == "closed"


def test_a_game_in_which_lives_are_lost_is_one_video(tmp_path):
    factory = SubEnvFactory(lambda: Painted(length=5), (Lives,))
    with Video(DummyBackend([factory]), tmp_path, at=(0, 1)) as env:
        env.reset()
        play(env, 12)
    assert [story(path)[0] for path in env.paths] == [(0, 0, 0), (0, 1, 0)]
    assert story(env.paths[0]) == episode(0, 5)


@pytest.mark.parametrize("at", [(0, 1, 2), (1,)])
@pytest.mark.parametrize("mode", MODES)
def test_a_game_that_a_wrapper_begins_within_a_step_is_a_video_of_its_own_from_its_first_frame(
    mode, at, tmp_path
):
    factory = SubEnvFactory(lambda: Painted(length=3), (Joined,))
    with Video(DummyBackend([factory], autoreset=mode), tmp_path, at=at) as env:
        env.reset()
        play(env, 14)
    # The last frame of a game is known to the wrapper alone that has begun the next one.
    shown = {0: episode(0, 2), 1: episode(1, 3), 2: episode(2, 2)}
    assert [story(path) for path in env.paths] == [shown[number] for number in at]


def test_cubes_by_default_and_every_kth(tmp_path):
    with Video(DummyBackend(make(length=1)), tmp_path / "cubes") as env:
        env.reset()
        play(env, 30)
    assert [path.stem[-3:] for path in env.paths] == ["000", "001", "008", "027"]
    with Video(
        DummyBackend(make()), tmp_path / "every", by="steps", every=6, length=2, name="now"
    ) as env:
        env.reset()
        play(env, 13)
    assert [path.name for path in env.paths] == [
        f"now-step-{number:06d}.mp4" for number in (0, 6, 12)
    ]
    assert [len(frames_of(path)) for path in env.paths] == [2, 2, 2]


def third(number):
    return number == 3


@pytest.mark.parametrize("mode", MODES)
def test_a_function_is_asked_once_for_each_number_and_what_begins_during_a_recording_is_left_out(
    mode, tmp_path
):
    asked = []

    def trigger(number):
        asked.append(number)
        return number in (2, 3, 9)

    with Video(
        DummyBackend(make(), autoreset=mode), tmp_path, by="steps", trigger=trigger, length=4
    ) as env:
        env.reset()
        play(env, 16)
    assert [path.stem for path in env.paths] == ["video-step-000002", "video-step-000009"]
    assert len(asked) == len(set(asked))
    assert asked[:3] == [0, 1, 2]
    written = {"dir": str(tmp_path / "path"), "trigger": "tests.wrappers.test_video:third"}
    with vecwrap.build(
        make(), backend="dummy", autoreset=mode, wrappers=[{"video": written}]
    ) as env:
        env.reset()
        play(env, 25)
        env = env.find(Video)
    assert [path.stem for path in env.paths] == ["video-episode-000003"]


def test_state_counts_on(tmp_path):
    with Video(DummyBackend(make()), tmp_path, at=(0, 2)) as env:
        env.reset()
        play(env, 6)
        state = env.wrapper_state()
    with Video(DummyBackend(make()), tmp_path, at=(0, 2)) as env:
        env.reset()
        env.load_wrapper_state(state)
        play(env, 5)
    assert [path.stem for path in env.paths] == ["video-episode-000000-1", "video-episode-000002"]
    assert beside(env.paths[0])["ended"] == "closed"


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("files", ["tiled", "each"])
def test_counts_go_on_where_the_recording_has_ended(files, mode, tmp_path):
    lengths = (3, 5)
    with (
        Video(
            DummyBackend(make(2, length=lengths), autoreset=mode),
            tmp_path / "none",
            at=(99,),
            files=files,
        ) as plain,
        Video(
            DummyBackend(make(2, length=lengths), autoreset=mode), tmp_path, every=1, files=files
        ) as env,
    ):
        for one in (plain, env):
            one.reset()
            play(one, 2)
        env.set_attr("trouble", "no light")
        with pytest.warns(RuntimeWarning, match="no light"):
            play(env, 1)
        play(plain, 1)
        for _ in range(20):
            assert_same(env.wrapper_state(), plain.wrapper_state())
            play(env, 1)
            play(plain, 1)
        state = env.wrapper_state()
        assert state["episodes"].min() > 2
    with Video(DummyBackend(make(2, length=lengths)), tmp_path / "on", every=1, files=files) as env:
        env.load_wrapper_state(state)
        env.reset()
        assert_same(
            env.wrapper_state(), {"steps": state["steps"], "episodes": state["episodes"] + 1}
        )


def test_a_state_of_other_files_counts_on_too(tmp_path):
    with Video(DummyBackend(make(2, length=(3, 5))), tmp_path, every=1) as env:
        env.reset()
        play(env, 9)
        state = env.wrapper_state()
    with Video(DummyBackend(make(2)), tmp_path, every=1, files="each") as env:
        env.load_wrapper_state(state)
        env.reset()
        play(env, 1)
    numbers = [
        f"video-episode-{number + 1:06d}-env-{i}" for i, number in enumerate(state["episodes"])
    ]
    assert [path.stem for path in env.paths] == numbers


# -- the picture -----------------------------------------------------------------------------------


def test_the_terminal_frame_equals_the_rendered_one(tmp_path):
    name, limit = "PongNoFrameskip-v4", 90
    gymnasium.register_envs(ale_py)
    env = gymnasium.make(name, render_mode="rgb_array", max_episode_steps=limit)
    env.reset(seed=3)
    rendered = [env.render()]
    for step in range(limit):
        env.step(2 + step % 2)
        rendered.append(env.render())
    env.close()
    wrappers = [f"time_limit:{limit}", {"video": {"dir": str(tmp_path), "at": [0]}}]
    with vecwrap.build(name, n=1, wrappers=wrappers, render_mode="rgb_array") as env:
        env.reset(seed=3)
        for step in range(limit + 3):
            env.step([2 + step % 2])
        (path,) = env.find(Video).paths
        hash_ = env.pipeline.hash
    read = frames_of(path)
    assert len(read) == limit + 1
    assert read[-1].shape == rendered[-1].shape == (210, 160, 3)
    for got, expected in zip(read, rendered, strict=True):
        assert np.abs(got.astype(int) - expected).mean() < 3
    last = read[-1].astype(int)
    assert np.abs(last - rendered[-2]).mean() > np.abs(last - rendered[-1]).mean()
    assert (beside(path)["env_id"], beside(path)["pipeline"]) == (name, hash_)
    assert beside(path)["fps"] == fps_of(path) == 30.0


def test_odd_sizes_are_padded_and_not_stretched(tmp_path):
    with Video(DummyBackend(make(size=(35, 45))), tmp_path, at=(0,), fps=7.5) as env:
        env.reset()
        play(env, 5)
    frames = frames_of(env.paths[0])
    assert frames[0].shape == (36, 46, 3)
    assert beside(env.paths[0])["size"] == [46, 36]
    assert [told(frame[15, 23]) for frame in frames] == episode(0)
    assert np.abs(frames[-1][:34, :44].astype(int) - painted(0, 0, 4)).max() < 12
    assert frames[-1][35].mean() < 15
    assert frames[-1][:, 45].mean() < 15
    assert fps_of(env.paths[0]) == 7.5


def test_a_large_tiled_video_is_scaled_down(tmp_path):
    with Video(
        DummyBackend(make(3, size=(100, 60))), tmp_path, by="steps", at=(0,), length=2, max_size=100
    ) as env:
        env.reset()
        play(env, 2)
    # A row of three: 100 x 180; both sides of a video are even.
    assert frames_of(env.paths[0])[0].shape == (
        56,
        100,
        3,
    )


def test_frames_that_change_their_size_keep_their_aspect(tmp_path):
    with Video(DummyBackend(make(length=9)), tmp_path, at=(0,)) as env:
        env.reset()
        for size in ((16, 48), (64, 96), (32, 48)):
            env.set_attr("size", [size])
            env.step([0])
    frames = frames_of(env.paths[0])
    assert {frame.shape for frame in frames} == {(32, 48, 3)}
    assert told(frames[1][8, 24]) == (0, 0, 1)
    assert frames[1][20:].max() < 30
    assert told(frames[2][30, 46]) == (0, 0, 2)


# -- what it costs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_rendered_that_is_not_recorded(mode, tmp_path):
    with Video(DummyBackend(make(2), autoreset=mode), tmp_path, at=(2,), envs=(1,)) as env:
        env.reset()
        play(env, 25)
        recorded = len(frames_of(env.paths[0]))
        assert recorded == 5
        next_first = mode == "same_step"  # comes with the terminal one
        assert env.get_attr("renders") == (0, recorded + next_first)


def test_by_steps_only_what_is_recorded_is_rendered(tmp_path):
    with Video(DummyBackend(make(length=100)), tmp_path, by="steps", every=10, length=3) as env:
        env.reset()
        play(env, 25)
        assert [len(frames_of(path)) for path in env.paths] == [3, 3, 3]
        assert env.get_attr("renders") == (9,)


def test_two_recorders_do_not_disturb_each_other(tmp_path):
    inner = Video(DummyBackend(make(2)), tmp_path / "inner", at=(0,), envs=(0,))
    with Video(inner, tmp_path / "outer", by="steps", at=(2,), length=4, envs=(1,)) as env:
        env.reset()
        play(env, 12)
        assert story(inner.paths[0]) == episode(0)
        assert story(env.paths[0]) == [(1, 0, 2), (1, 0, 3), (1, 0, 4), (1, 1, 0)]


def test_memory_stays_flat(tmp_path):
    with Video(DummyBackend(make(length=10**6, size=(120, 160))), tmp_path, at=(0,)) as env:
        env.reset()
        play(env, 300)
        gc.collect()
        before = psutil.Process().memory_info().rss
        play(env, 1500)
        gc.collect()
        grown = psutil.Process().memory_info().rss - before
        large = sum(
            type(one) is np.ndarray and one.nbytes >= 120 * 160 * 3 for one in gc.get_objects()
        )
    assert grown < 3 * 2**20, (
        f"{grown / 2**20:.1f} MB in 1,500 frames of {120 * 160 * 3 / 2**20:.2f} MB each"
    )
    assert large < 20
    assert beside(env.paths[0])["frames"] == 1801


# -- what goes wrong -------------------------------------------------------------------------------

SCRIPT = """
import sys
from vecwrap.backends.dummy import Dummy
from vecwrap.testing import on
import numpy as np
import imageio_ffmpeg
from tests.wrappers.test_video import Painted
from vecwrap.wrappers.video import Video

env = Video(on(Dummy)([lambda: Painted(length=10**6)]), sys.argv[1], at=(0,))
env.reset()
for _ in range(100):
    env.step([0])
{end}
"""


def run(end, *arguments, **options):
    code = textwrap.dedent(SCRIPT).replace("{end}", textwrap.dedent(end))
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, text=True, **options
    )


def wait_until_released(path):
    """Until no process writes to it any more."""
    for process in psutil.process_iter():
        try:
            if str(path) in process.cmdline():
                process.wait(10)
        except psutil.Error:
            pass


@pytest.mark.parametrize("what", ["interrupt", "kill", "kill the encoder too"])
def test_it_can_be_played_after_the_run_was_cut_off(what, tmp_path):
    process = run(
        """
        print("played", flush=True)
        while True:
            env.step([0])
        """,
        tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout.readline() == "played\n"
    (path,) = tmp_path.glob("*.mp4")
    encoders = psutil.Process(process.pid).children()
    for encoder in encoders if what == "kill the encoder too" else []:
        encoder.kill()
    process.send_signal(signal.SIGINT if what == "interrupt" else signal.SIGKILL)
    process.wait(20)
    process.stdout.close()
    wait_until_released(path)
    assert len(frames_of(path)) >= (100 if what == "kill" else 50)
    assert story(path)[:10] == [(0, 0, step) for step in range(10)]
    assert beside(path)["env_ids"] == [0]
    assert psutil.pid_exists(process.pid) is False


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX's")
def test_a_disk_that_fills_ends_the_recording_and_not_the_run(tmp_path):
    process = run(
        """
        import resource, signal, warnings
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        env = Video(on(Dummy)([lambda: Noise(length=10**6)]), sys.argv[1], every=1, name="noise")
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        env.reset()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(400):
                env.step([0])
            env.close()
        ours = [one for one in caught if one.category is RuntimeWarning]
        print(len(ours), ours[0].message)
        """.replace(
            "import resource",
            """class Noise(Painted):
            def render(self):
                rng = np.random.default_rng(self.steps)
                return rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)

        import resource""",
        ),
        tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.startswith("1 video: the recording has ended; the run continues")
    assert "Is the disk full?" in out
    (first, *_) = sorted(tmp_path.glob("noise*.mp4"))
    assert beside(first)["ended"] == "failed"
    assert frames_of(first)


def test_an_end_that_cannot_be_written_is_noticed_though_ffmpeg_exits_with_0(tmp_path, monkeypatch):
    real = imageio_ffmpeg.get_ffmpeg_exe()  # ffmpeg 4 does so
    script = tmp_path / "ffmpeg"
    script.write_text(
        f'#!/bin/sh\n"{real}" "$@"\necho "Error writing trailer: No space left on device" >&2\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", lambda: str(script))
    with Video(DummyBackend(make()), tmp_path / "videos", at=(0,)) as env:
        env.reset()
        with pytest.warns(
            RuntimeWarning,
            match=r"Error writing trailer: No space left on device\). Is the disk full",
        ):
            play(env, 6)
    assert beside(env.paths[0])["ended"] == "failed"


def test_a_folder_that_disappears_ends_the_recording_and_not_the_run(tmp_path):
    folder = tmp_path / "videos"
    with Video(DummyBackend(make()), folder, every=1) as env:
        env.reset()
        play(env, 2)
        while not env.paths[0].stat().st_size:  # ffmpeg takes its time to open it
            time.sleep(0.01)
        folder.rename(tmp_path / "elsewhere")
        with pytest.warns(RuntimeWarning, match="the recording has ended") as caught:
            play(env, 10)
        assert len(caught) == 1
        renders = env.get_attr("renders")
        play(env, 5)
        assert env.get_attr("renders") == renders  # nothing is asked for any more
    assert len(frames_of(tmp_path / "elsewhere" / env.paths[0].name)) == 5


def test_rendering_that_raises_ends_the_recording_and_not_the_run(tmp_path):
    with Video(DummyBackend(make()), tmp_path, every=1) as env:
        env.reset()
        play(env, 2)
        env.set_attr("trouble", "no display")
        with pytest.warns(RuntimeWarning, match="no display"):
            play(env, 1)
        play(env, 5)
    assert story(env.paths[0]) == episode(0)[:3]
    assert beside(env.paths[0])["ended"] == "failed"


@pytest.mark.parametrize("backend", BACKENDS)
def test_rendering_that_gives_none_ends_the_recording_and_not_the_run(backend, tmp_path):
    class Dark(Painted):
        def render(self):
            return None if self.trouble else super().render()

    with Video(backend([Dark]), tmp_path, by="steps", every=5, length=4) as env:
        env.reset()
        play(env, 1)
        env.set_attr("trouble", "dark")
        with pytest.warns(
            RuntimeWarning, match=r"(?s)the recording has ended.*render\(\) gave None"
        ):
            play(env, 1)
        play(env, 5)
    assert story(env.paths[0]) == episode(0)[:2]
    assert beside(env.paths[0])["ended"] == "failed"


def speechless(number):
    """A trigger that raises what cannot even be printed."""

    class Speechless(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    raise Speechless


def test_a_trigger_that_raises_and_frames_that_are_none(tmp_path):
    with Video(DummyBackend(make()), tmp_path, trigger=lambda number: 1 / (number - 2) > 0) as env:
        env.reset()
        with pytest.warns(RuntimeWarning, match="division by zero"):
            play(env, 9)
    with Video(DummyBackend(make()), tmp_path, trigger=speechless) as env:
        with pytest.warns(RuntimeWarning, match="its message cannot be shown"):
            env.reset()
        play(env, 9)
    with Video(DummyBackend(make(size=(4, 4, 4))), tmp_path, every=1) as env:
        with pytest.warns(RuntimeWarning, match=r"expected \(height, width, 3\)"):
            env.reset()
        play(env, 9)


def test_envs_may_be_numpys_integers(tmp_path):
    with Video(DummyBackend(make(3)), tmp_path, at=(0,), envs=tuple(np.array([2, 0]))) as env:
        env.reset()
        play(env, 5)
    assert beside(env.paths[0])["env_ids"] == [2, 0]
    assert beside(env.paths[0])["ended"] == "episode"


def test_a_trigger_that_raises_while_a_state_is_loaded_ends_the_recording_and_not_the_run(tmp_path):
    with Video(DummyBackend(make()), tmp_path, at=(0,)) as env:
        env.reset()
        play(env, 5)
        state = env.wrapper_state()
    with Video(DummyBackend(make()), tmp_path, trigger=lambda number: 1 / (number - 2) > 0) as env:
        env.reset()
        with pytest.warns(RuntimeWarning, match="the recording has ended.*division by zero"):
            env.load_wrapper_state(state)
        play(env, 5)
        assert_same(env.wrapper_state(), {"steps": np.array([10]), "episodes": np.array([2])})


def test_files_that_are_there_are_never_overwritten(tmp_path):
    for _ in range(3):
        with Video(DummyBackend(make()), tmp_path, at=(0,)) as env:
            env.reset()
            play(env, 5)
    assert sorted(path.name for path in tmp_path.glob("*.mp4")) == [
        "video-episode-000000-1.mp4",
        "video-episode-000000-2.mp4",
        "video-episode-000000.mp4",
    ]
    assert len(list(tmp_path.glob("*.json"))) == 3


def test_another_who_is_quicker_keeps_the_name(tmp_path, monkeypatch):
    theirs = tmp_path / "video-episode-000000.mp4"
    theirs.write_bytes(b"another's")
    monkeypatch.setattr(Path, "exists", lambda path: False)  # it was not there yet when we looked
    with Video(DummyBackend(make()), tmp_path, at=(0,)) as env:
        env.reset()
        play(env, 5)
    assert theirs.read_bytes() == b"another's"
    assert [path.name for path in env.paths] == ["video-episode-000000-1.mp4"]
    assert story(env.paths[0]) == episode(0)


def test_what_is_said_of_a_video_that_was_moved_away_stays(tmp_path):
    for length in (2, 3):
        with Video(DummyBackend(make(length=length)), tmp_path, at=(0,)) as env:
            env.reset()
            play(env, 4)
        (path,) = env.paths
        if length == 2:
            path.rename(tmp_path / "kept.mp4")
    assert beside(tmp_path / "video-episode-000000.mp4")["frames"] == 3
    assert (path.name, beside(path)["frames"]) == ("video-episode-000000-1.mp4", 4)


@pytest.mark.skipif(os.name == "nt", reason="a file where a folder should be")
def test_a_folder_that_cannot_be_written_is_an_error_before_the_first_step(tmp_path):
    (tmp_path / "taken").write_text("")
    with (
        Video(DummyBackend(make()), tmp_path / "taken") as env,
        pytest.raises(PlanError, match="video: dir: expected"),
    ):
        env.reset()


def test_without_frames_to_be_had_it_is_refused():
    with pytest.raises(
        PlanError,
        match='"video": expected an environment built with render_mode="rgb_array", got None',
    ):
        vecwrap.build("CartPole-v1", n=1, wrappers=["video"])


def test_without_ffmpeg_it_is_refused(tmp_path, monkeypatch):
    def missing():
        raise RuntimeError("No ffmpeg exe could be found")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", missing)
    with (
        Video(DummyBackend(make()), tmp_path) as env,
        pytest.raises(PlanError, match=r'pip install "imageio\[ffmpeg\]"'),
    ):
        env.reset()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "frames"}, "by: expected episodes or steps, got"),
        ({"by": "steps"}, "expected every, at or trigger to say which steps"),
        ({"every": 2, "at": (1,)}, "expected only one of every, at and trigger, got every and at"),
        ({"every": 0}, "every: expected at least 1, got 0"),
        ({"at": (-1,)}, "at: expected at least 0, got -1"),
        ({"trigger": 3}, "trigger: expected a function of the number"),
        ({"length": 0}, "length: expected at least 1, got 0"),
        ({"envs": (2,)}, "envs: expected indices from 0 to 1, each once"),
        ({"envs": (1, 1)}, "envs: expected indices from 0 to 1, each once"),
        ({"files": "both"}, "files: expected tiled or each"),
        ({"fps": 0}, "fps: expected a number above 0"),
        ({"name": "a/b"}, "name: expected the prefix of file names"),
        ({"max_size": 3}, "max_size: expected at least 16"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with DummyBackend(make(2)) as env, pytest.raises(PlanError, match=f"video: .*{message}"):
        Video(env, **arguments)


def test_no_process_and_no_warning_is_left_behind(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = Video(DummyBackend(make()), tmp_path, at=(0,))
        env.reset()
        env.step([0])
        assert psutil.Process().children()
        env.close()
        env.close()
    assert not [child for child in psutil.Process().children() if "ffmpeg" in child.name()]
    assert story(env.paths[0]) == episode(0)[:2]


@pytest.fixture
def copy_of_this_process():
    """Fork, by calling it: a copy that holds on to whatever it was given until it is ended, after
    half a minute.
    """
    copies = []

    def fork():
        pid = os.fork()
        if not pid:
            signal.alarm(30)
            while True:
                signal.pause()
        copies.append(pid)
        return pid

    yield fork
    for pid in copies:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_copy_of_the_process_holds_no_video_up(tmp_path, copy_of_this_process):
    with Video(DummyBackend(make(n=2)), dir=tmp_path, every=1) as env:
        env.reset(seed=1)
        env.step([0, 0])
        pid = copy_of_this_process()
        play(env, 10)  # some episodes end
        paths = env.paths
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)  # nobody has waited for its end
    assert len(paths) > 2
    assert all(len(frames_of(path)) == beside(path)["frames"] > 1 for path in paths)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_worker_that_is_made_anew_by_a_fork_holds_no_video_up(tmp_path):
    settings = {
        "backend": "subprocess",
        "workers": 2,
        "start_method": "fork",
        "on_failure": "restart",
    }
    with vecwrap.build(
        make(n=2), wrappers=[{"video": {"dir": str(tmp_path), "every": 1}}], **settings
    ) as env:
        env.reset(seed=1)
        env.step([0, 0])
        os.kill(env.health().workers[1].pid, signal.SIGKILL)
        watch = threading.Timer(
            30, lambda: [os.kill(one.pid, signal.SIGKILL) for one in env.health().workers]
        )
        watch.start()
        play(env, 10)
        # And nobody had to end one so that it went on.
        assert env.health().restarts.tolist() == [
            0,
            1,
        ]
        watch.cancel()
