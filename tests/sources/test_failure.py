"""What a failure says beside its message: how to draw without a display, what an action must be."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import vecwrap
from vecwrap.sources.failure import make_failure

PROGRAM = """
import vecwrap

with vecwrap.build("HalfCheetah-v5", n=1, backend={backend!r}, render_mode="rgb_array") as env:
    env.reset(seed=1)
    try:
        env.render()
    except vecwrap.SubEnvError as error:
        print("SAID", error)
"""


@pytest.mark.parametrize(
    ("driver", "backend"),
    [
        (None, "subprocess"),
        ("glfw", "dummy"),
        *(
            pytest.param(*each, marks=pytest.mark.full)
            for each in ((None, "dummy"), ("glfw", "subprocess"))
        ),
    ],
)
def test_mujoco_without_a_display_says_what_to_set(backend, driver):
    pytest.importorskip("mujoco")
    variables = {
        name: value for name, value in os.environ.items() if name not in ("DISPLAY", "MUJOCO_GL")
    }
    if driver is not None:
        variables["MUJOCO_GL"] = driver
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM.format(backend=backend)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
    assert (
        "To draw without a display, set MUJOCO_GL=egl (or osmesa) before the program starts"
        in done.stdout
    )


def raised_in(folder, kind, message):
    """The failure of an exception that a file in this folder raises."""
    file = Path(folder, "drawing.py")
    file.parent.mkdir(parents=True)
    file.write_text("def draw(kind, message):\n    raise kind(message)\n")
    found = {}
    exec(compile(file.read_text(), str(file), "exec"), found)
    try:
        found["draw"](kind, message)
    except Exception as error:
        return make_failure(0, error).message
    raise AssertionError("it raises")


@pytest.mark.parametrize(
    ("driver", "message", "said"),
    [
        (
            "",
            "gladLoadGL error",
            "gladLoadGL error. To draw without a display, set MUJOCO_GL=egl (or osmesa)",
        ),
        (
            "egl",
            "Cannot initialize a EGL device display.",
            "display. MUJOCO_GL=egl needs a driver with EGL; MUJOCO",
        ),
        (
            "OSMesa",
            "'NoneType' object has no attribute 'glGetError'",
            ". MUJOCO_GL=osmesa needs the library OSMesa",
        ),
        (
            "egl",
            "The PYOPENGL_PLATFORM environment variable is set to glx",
            ". Unset PYOPENGL_PLATFORM, or set it to",
        ),
    ],
)
def test_what_is_said_follows_from_what_is_set(driver, message, said, tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", driver)
    assert said in raised_in(tmp_path / "mujoco", RuntimeError, message)
    assert raised_in(tmp_path / "elsewhere", RuntimeError, message) == message
    assert (
        raised_in(tmp_path / "other" / "mujoco", RuntimeError, "unstable simulation")
        == "unstable simulation"
    )


def test_pygame_without_a_display(tmp_path):
    kind = type("error", (RuntimeError,), {"__module__": "pygame"})
    assert "SDL_VIDEODRIVER=dummy" in raised_in(
        tmp_path / "pygame", kind, "No available video device"
    )
    assert raised_in(tmp_path / "other", kind, "Out of memory") == "Out of memory"


def test_an_environment_that_does_not_draw_says_nothing_of_displays():
    assert make_failure(0, ValueError("EGL")).message == "EGL"


@pytest.mark.parametrize(
    ("space", "action", "takes"),
    [
        (spaces.Discrete(2), np.int64(7), "Discrete(2) takes 0 or 1"),
        (spaces.Discrete(1, start=3), np.int64(7), "Discrete(1, start=3) takes 3 alone"),
        (spaces.Discrete(6, start=-2), np.int64(7), "Discrete(6, start=-2) takes -2 to 3"),
        (spaces.Box(-1, 1, (2,)), np.full(2, 3, np.float32), "The action is outside of Box"),
        (spaces.Discrete(2), np.int64(1), None),
    ],
)
@pytest.mark.parametrize("backend", ["dummy", "threads"])
def test_an_action_outside_of_its_space_is_named_where_the_step_fails(
    space, action, takes, backend
):
    class Strict(gymnasium.Env):
        observation_space = spaces.Discrete(2)
        action_space = space

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            raise AssertionError("invalid")

    with vecwrap.build(Strict, n=1, backend=backend) as env:
        env.reset()
        with pytest.raises(vecwrap.SubEnvError) as raised:
            env.step([action])
    said = str(raised.value)
    if takes is None:
        assert "invalid\nThe others are unharmed" in said
    else:
        assert f"invalid\n{takes}" in said
