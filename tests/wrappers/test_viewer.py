"""render_mode="human": one window for all sub-environments, looked at and closed under Xvfb."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import types

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces

import vecwrap
from tests.helpers.backends import DummyBackend
from tests.helpers.xvfb_display import Screen, screen, wait_until
from vecwrap.cli import main
from vecwrap.env import picture as tiles
from vecwrap.errors import ArgumentError, PlanError
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.compare import assert_same
from vecwrap.wrappers.tile import Tile
from vecwrap.wrappers.window.viewer import Viewer
from vecwrap.wrappers.window.window import Window

FAST = float("inf")
COLOURS = [(200, 30, 30), (30, 200, 30), (30, 30, 200), (200, 200, 30), (200, 30, 200)]


class Colour(gymnasium.Env):
    """A frame of one colour, a white line as long as the episode; ends after ``length`` steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1000}
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    rendered = 0

    def __init__(self, index=0, length=3, render_mode=None):
        self.render_mode, self.index, self.length = render_mode, index, length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), 1.0, self.steps == self.length, False, {}

    def render(self):
        Colour.rendered += 1
        image = np.full((100, 160, 3), COLOURS[self.index], np.uint8)
        image[90:, : 10 * self.steps] = 255
        return image


class Unseen(Colour):
    """Cannot render from its second step on."""

    def render(self):
        if self.steps > 1:
            raise RuntimeError("no light")
        return super().render()


def make(n=5, **options):
    return [
        lambda i=i, render_mode=None: Colour(i, render_mode=render_mode, **options)
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def display():
    with screen() as name:
        yield name


@pytest.fixture
def shown(display, monkeypatch):
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    # Pygame, which draws CartPole here, would end with the screen.
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    looked = Screen(display)
    yield looked
    looked.close()


def the_window(shown):
    """The one that is open, once its picture is seen."""
    found = []

    def there_is_one():
        found[:] = shown.windows("vecwrap")
        return len(found) == 1

    wait_until(there_is_one)
    shown.uncover(found[0])
    return found[0]


def human(factories, **options):
    env = vecwrap.build(factories, backend="dummy", render_mode="human", **options)
    env.fps = FAST
    return env


@pytest.mark.parametrize("fps", [0, -1, float("nan")])
def test_a_speed_that_is_none_is_refused(shown, fps):
    with (
        human([Colour] * 2) as env,
        pytest.raises(ArgumentError, match="fps: expected steps a second above 0, got"),
    ):
        env.fps = fps


def test_the_window_shows_every_sub_environment_in_its_place(shown):
    with human(make(5, length=9)) as env:
        assert not env.viewer_open
        env.reset(seed=1)
        env.step([0] * 5)
        assert env.viewer_open
        window = the_window(shown)
        # The second picture.
        wait_until(lambda: (shown.image(window)[115, [8, -8]] == [(255,) * 3, COLOURS[2]]).all())
        image = shown.image(window)
        height, width = tiles.STRIP + 100 + tiles.LINE, 160 + tiles.LINE
        assert image.shape[:2] == (2 * height + tiles.LINE, 3 * width + tiles.LINE)
        for k in range(6):
            expected = COLOURS[k] if k < 5 else (0, 0, 0)
            np.testing.assert_array_equal(
                image[k // 3 * height + height // 2, k % 3 * width + width // 2], expected
            )
        assert env.render_mode == "human"
        assert env.render() is None
        assert [frame.shape for frame in env.get_images()] == [(100, 160, 3)] * 5
        np.testing.assert_array_equal(env.picture(), tiles.tile(env.get_images()))
    wait_until(lambda: not shown.windows("vecwrap"))
    assert not env.viewer_open


@pytest.mark.parametrize("how", ["Escape", "its button"])
def test_the_user_closes_it_and_the_run_goes_on_without_rendering(shown, how):
    with human(make(2)) as env:
        env.reset(seed=1)
        env.step([0, 0])
        window = the_window(shown)
        shown.press(window, "a")  # any other key does nothing
        env.step([0, 0])
        assert env.viewer_open
        if how == "Escape":
            shown.press(window, "Escape")
        else:
            shown.push_the_button(window)
        wait_until(lambda: not env.viewer_open)
        wait_until(lambda: not shown.windows("vecwrap"))
        rendered = Colour.rendered
        rewards = [env.step([0, 0])[1].tolist() for _ in range(4)]
        assert rewards == [[1.0, 1.0]] * 4
        assert Colour.rendered == rendered
        env.reset()
        assert not env.viewer_open
        assert env.picture().shape == (100, 320, 3)


def test_escape_is_heard_while_the_run_does_something_else_or_steps_without_end(shown):
    with human(make(1)) as env:
        env.reset(seed=1)
        window = the_window(shown)
        shown.press(window, "Escape")

        def closed_while_stepping():
            env.step([0])
            return not env.viewer_open

        wait_until(closed_while_stepping)


def test_the_last_frame_of_an_episode_is_shown_within_a_border_and_then_the_next_ones(shown):
    with human(make(1, length=3)) as env:
        env.reset(seed=1)
        window = the_window(shown)
        # Tens of pixels, three times enlarged.
        for marked, line in [
            (False, 1),
            (False, 2),
            (True, 3),
            (False, 1),
        ]:
            env.step([0])

            def is_shown(marked=marked, line=line):
                image = shown.image(window)
                white = (image[-20, tiles.LINE :] == 255).all(axis=1).sum()
                return (image[100, 1] == tiles.ORANGE).all() == marked and abs(
                    white - 30 * line
                ) <= 3

            wait_until(is_shown)


def test_partial_batches_are_shown_as_they_come(shown):
    with human(make(4, length=9), batch_size=1) as env:
        env.reset(seed=1)
        window = the_window(shown)
        env.send([0], env_ids=[2])
        env.recv()

        def the_third_has_stepped_alone():  # at once: a window that is just mapped is white
            row = shown.image(window)[-10]
            return bool(
                (row[tiles.LINE :][:20] == 255).all()
                and (row[-20 : -tiles.LINE] == COLOURS[3]).all()
            )

        wait_until(the_third_has_stepped_alone)


def test_the_stream_the_wrappers_the_state_and_the_hash_are_those_without_a_window(shown, tmp_path):
    options = {"backend": "dummy", "seed": 3, "wrappers": ["normalize_obs", "framestack:2"]}
    with (
        vecwrap.build("CartPole-v1", 2, render_mode="rgb_array", **options) as plain,
        vecwrap.build("CartPole-v1", 2, render_mode="human", **options) as env,
    ):
        env.fps = FAST
        np.testing.assert_array_equal(env.reset()[0], plain.reset()[0])
        for _ in range(30):
            assert_same(plain.step([0, 1]), env.step([0, 1]))
        assert [type(wrapper) for wrapper in env.chain] == [
            type(wrapper) for wrapper in plain.chain
        ]
        assert env.pipeline.hash == plain.pipeline.hash
        assert repr(env) == repr(plain)
        plain.save(tmp_path / "state.npz")
        env.load(tmp_path / "state.npz")
        assert_same(plain.reset(seed=5), env.reset(seed=5))  # normalised by the same statistics
        assert env.eval() is env
        assert not env.training
        assert not env.chain[0].training
        assert "until Esc" in env._repr_html_()


def test_trouble_with_rendering_closes_the_window_and_not_the_run(shown):
    with human([Unseen]) as env:
        env.reset(seed=1)
        env.step([0])
        with pytest.warns(
            RuntimeWarning, match="(?s)the window is closed, the run goes on without it. .*no light"
        ):
            env.step([0])
        assert not env.viewer_open
        env.step([0])


class NoPicture(Colour):
    """Renders what cannot be shown."""

    def __init__(self, frame, **options):
        super().__init__(**options)
        self.frame = frame

    def render(self):
        return self.frame


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (None, r"render\(\) gave None"),
        (np.zeros((8, 8, 4), np.uint8), r"expected \(height, width, 3\)"),
    ],
)
def test_frames_that_cannot_be_laid_out_close_the_window_and_not_the_run(shown, frame, words):
    with human([lambda render_mode=None: NoPicture(frame, render_mode=render_mode)]) as env:
        with pytest.warns(
            RuntimeWarning, match=f"(?s)the window is closed, the run goes on without it.*{words}"
        ):
            env.reset(seed=1)
        assert not env.viewer_open
        env.step([0])


def test_a_window_that_is_killed_is_closed(shown):
    with human(make(1)) as env:
        env.reset(seed=1)
        the_window(shown)
        commands = [(child, " ".join(child.cmdline())) for child in psutil.Process().children()]
        (process,) = [child for child, command in commands if "window/process.py" in command]
        process.kill()
        wait_until(lambda: not env.viewer_open)
        env.step([0])


def test_nothing_is_left_when_the_run_is_killed(shown, tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent("""
            import vecwrap
            env = vecwrap.build("CartPole-v1", 1, backend="dummy", render_mode="human")
            env.reset()
            print("open", flush=True)
            while True:
                env.step([0])
        """)
    )
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "open\n"
        window = the_window(shown)
        assert window is not None
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: not shown.windows("vecwrap"))


def test_it_is_as_fast_as_its_frames_a_second_say(shown, monkeypatch):
    clock, naps = [100.0], []

    def sleep(seconds):
        naps.append(seconds)
        clock[0] += seconds

    with human(make(2)) as env:
        env.reset(seed=1)
        time = types.SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep)
        # The window itself waits by the real one.
        monkeypatch.setattr("vecwrap.wrappers.window.viewer.time", time)
        env.fps = 4
        env.step([0, 0])
        clock[0] += 0.05  # of the quarter of a second that the agent thinks
        env.step([0, 0])
        clock[0] += 7.0  # what was missed is not made up for
        env.step([0, 0])
        env.step([0, 0])
        monkeypatch.undo()
    assert naps == pytest.approx([0.0, 0.20, 0.0, 0.25])


def test_the_command_shows_it_and_records_and_takes_a_picture_as_ever(
    shown, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    line = "CartPole-v1 n=4 backend=dummy render_mode=human"
    opened = []
    real = Window.__init__
    monkeypatch.setattr(
        Window, "__init__", lambda self, *args: opened.append(args[0]) or real(self, *args)
    )
    assert (
        main(["run", line, "--steps", "40", "--record", "--snapshot", "shot.png", "--out", "run"])
        == 0
    )
    assert opened == ["CartPole-v1 n=4 - vecwrap"]
    assert "shot.png" in capsys.readouterr().out
    assert (tmp_path / "shot.png").exists()
    assert list((tmp_path / "run" / "videos").glob("*.mp4"))
    assert not shown.windows("vecwrap")


# -- where there can be none -----------------------------------------------------------------------


def test_without_a_display_it_is_said_what_to_use_instead(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(
        PlanError,
        match=r"expected a display.* got none .*rgb_array.*--snapshot.*env\.show\(\).*xvfb",
    ):
        human(make(1))


def test_a_display_that_cannot_be_used_is_an_error_and_not_the_end_of_the_process(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent("""
            import vecwrap
            env = vecwrap.build("CartPole-v1", 1, backend="dummy", render_mode="human")
            try:
                env.reset()
            except vecwrap.PlanError as error:
                print(error)
            env.close()
        """)
    )
    environment = {**os.environ, "DISPLAY": ":4095"}
    result = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"on the display :4095 \(.*:4095\)\. Instead: ", result.stdout)


@pytest.mark.parametrize(
    ("stub", "said"),
    [
        (
            "WINDOW_NORMAL = WINDOW_KEEPRATIO = WINDOW_GUI_NORMAL = 0\ndef namedWindow(*_): "
            "raise RuntimeError('The function is not implemented. Rebuild the library with ...')",
            (
                "got opencv-python-headless: pip uninstall opencv-python-headless && pip install "
                "opencv-python. Instead"
            ),
        ),
        (
            "raise ImportError('libGL.so.1')",
            r"can be opened on the display :\d+ \(ImportError: libGL.so.1\)",
        ),
    ],
)
def test_an_opencv_without_windows_is_named(shown, monkeypatch, tmp_path, stub, said):
    (tmp_path / "cv2.py").write_text(stub)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with human(make(1)) as env, pytest.raises(PlanError, match=said):
        env.reset()


HIDDEN = """
WINDOW_NORMAL = WINDOW_KEEPRATIO = WINDOW_GUI_NORMAL = WND_PROP_VISIBLE = COLOR_RGB2BGR = 0
namedWindow = resizeWindow = imshow = cvtColor = lambda *_: None
waitKey = lambda _: 255
getWindowProperty = lambda *_: 1
"""


def test_a_window_opens_in_a_process_that_holds_many_files(monkeypatch, tmp_path):
    (tmp_path / "cv2.py").write_text(HIDDEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":4095")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2000:
        pytest.skip("needs 2000 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), hard))
    with contextlib.ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while files.enter_context(open(os.devnull)).fileno() < 1024:  # noqa: PTH123
            pass
        window = Window("many", np.zeros((4, 4, 3), np.uint8))
        files.callback(window.close)
        window.show(np.ones((4, 4, 3), np.uint8))
        assert window.open


# The small picture waits for its answer, the large one for room to be sent.
@pytest.mark.parametrize("side", [4, pytest.param(2000, marks=pytest.mark.full)])
def test_a_window_that_does_not_answer_is_given_up(monkeypatch, tmp_path, side):
    (tmp_path / "cv2.py").write_text(HIDDEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("vecwrap.wrappers.window.window.ANSWER_SECONDS", 20)
    with contextlib.closing(Window("hangs", np.zeros((side, side, 3), np.uint8))) as window:
        monkeypatch.setattr("vecwrap.wrappers.window.window.ANSWER_SECONDS", 1)
        window._process.send_signal(signal.SIGSTOP)
        for _ in range(2):
            window.show(np.ones((side, side, 3), np.uint8))
        assert not window.open


def test_a_plan_of_it_needs_no_display_and_says_that_there_will_be_a_window(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    planned = plan(
        PipelineSpec.parse("CartPole-v1 n=2 backend=dummy render_mode=human | tile")
    ).with_spaces()
    assert str(planned).splitlines()[-1].strip() == "shown in a window until Esc"
    assert "shown in a window until Esc" in planned._repr_html_()
    plain = plan(PipelineSpec.parse("CartPole-v1 n=2 backend=dummy | tile"))
    assert "window" not in str(plain)
    assert plain.pipeline.hash == planned.pipeline.hash


class OwnWindow(Colour):
    """An environment that can only open a window of its own."""

    metadata = {"render_modes": ["human"]}


@pytest.mark.filterwarnings(
    "ignore:.*not in the possible render_modes"
)  # Gymnasium makes it all the same
def test_an_environment_that_renders_no_frames_is_named(shown):
    gymnasium.register("OwnWindow-v0", OwnWindow)
    try:
        with pytest.raises(
            PlanError,
            match=r"expected OwnWindow-v0 to render rgb_array, .* render_modes \['human'\]",
        ):
            vecwrap.build("OwnWindow-v0", 1, backend="dummy", render_mode="human")
    finally:
        del gymnasium.registry["OwnWindow-v0"]


def test_an_environment_that_renders_no_frames_is_refused_by_check_too():
    said = (
        r"expected OwnWindow to render rgb_array, for one window shows the frames of all; got "
        r"render_modes \['human'\]"
    )
    for env in (OwnWindow, f"{__name__}:OwnWindow"):
        (finding,) = vecwrap.check(env, n=1, backend="dummy", render_mode="human")
        assert finding.severity == "error"
        assert re.search(said, finding.reason)
    gymnasium.register("OwnWindow-v0", OwnWindow)
    try:
        (finding,) = vecwrap.check("OwnWindow-v0", n=1, backend="dummy", render_mode="human")
        assert re.search(said.replace("OwnWindow", "OwnWindow-v0"), finding.reason)
    finally:
        del gymnasium.registry["OwnWindow-v0"]


def test_sub_environments_without_frames_are_refused():
    with (
        DummyBackend([Colour]) as env,
        pytest.raises(PlanError, match="expected Colour to render rgb_array, .* got None"),
    ):
        Viewer(env)


# -- one picture, whatever the wrappers ------------------------------------------------------------


def test_picture_is_the_tiles_with_labels_where_the_pipeline_has_them():
    with vecwrap.build(make(3), backend="dummy", render_mode="rgb_array") as env:
        env.reset()
        np.testing.assert_array_equal(env.picture(), tiles.tile(env.get_images()))
        assert env._repr_html_().startswith("<pre>")
        assert not env.viewer_open
    wrappers = [{"tile": {"labels": True}}, "monitor"]
    with vecwrap.build(make(3), backend="dummy", render_mode="rgb_array", wrappers=wrappers) as env:
        env.reset()
        np.testing.assert_array_equal(env.picture(), env.render())
        np.testing.assert_array_equal(env.picture(), env.find(Tile).render())
        frames = env.get_images()
        height = tiles.STRIP + frames[0].shape[0] + 2 * tiles.LINE
        assert env.picture().shape == (
            height,
            3 * (frames[0].shape[1] + tiles.LINE) + tiles.LINE,
            3,
        )


def test_without_tile_render_gives_gymnasiums_tuple():
    with vecwrap.build(make(3), backend="dummy", render_mode="rgb_array") as env:
        env.reset()
        frames = env.render()
        assert isinstance(frames, tuple)
        assert [frame.shape for frame in frames] == [(100, 160, 3)] * 3
