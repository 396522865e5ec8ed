"""Disks that fill or vanish under a run: it goes on, warns once, and what was written stays."""

import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path

import gymnasium
import minari
import numpy as np
import pytest

import vecwrap
from tests.faults.faulty import Faulty
from tests.faults.test_forks import in_child
from tests.helpers.backends import DummyBackend
from tests.helpers.polling import until
from vecwrap.wrappers.monitor import Monitor
from vecwrap.wrappers.record_trajectories import RecordTrajectories
from vecwrap.wrappers.video import Video

ROOT = Path(__file__).parents[2]


class Drawn(Faulty):
    observation_space = Faulty.observation_space["a"]
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    render_mode = "rgb_array"

    def observation(self):
        return super().observation()["a"]

    def render(self):
        return np.zeros((32, 32, 3), np.uint8)


@pytest.mark.parametrize(
    "wrapper",
    ["monitor", "monitor:per_env=true", "video:every=1,length=3", "record_trajectories"],
)
def test_a_folder_that_vanishes(wrapper, tmp_path):
    folder = tmp_path / "run"
    name, _, rest = wrapper.partition(":")
    kwargs = {"every": 1, "length": 3} if name == "video" else {"per_env": True} if rest else {}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        env = vecwrap.build(
            [partial(Drawn, end=0.3)] * 2,
            backend="dummy",
            wrappers=[{name: {"dir": str(folder), **kwargs}}],
        )
        env.reset(seed=1)
        for _ in range(20):
            env.step([0, 1])
        shutil.rmtree(folder)
        folder.write_text("something else stands there now")
        for _ in range(50):
            env.step([0, 1])
        env.close()
    assert len([one for one in told if issubclass(one.category, RuntimeWarning)]) <= 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("backend", ["dummy", "subprocess"])
def test_a_forked_copy_leaves_its_parents_files_alone(backend, tmp_path, quick_workers):
    """Closed or forgotten there, it would finish the video and write the running episodes."""
    wrappers = [
        {"video": {"dir": str(tmp_path / "videos"), "every": 1, "length": 9}},
        {"monitor": {"dir": str(tmp_path)}},
        {"record_trajectories": {"dir": str(tmp_path)}},
    ]
    with vecwrap.build([partial(Drawn, end=0.0)] * 2, backend=backend, wrappers=wrappers) as env:
        env.reset(seed=1)
        for _ in range(4):
            env.step([0, 1])
        before = sorted(tmp_path.rglob("*"))
        wrappers = [env.find(kind) for kind in (Monitor, Video, RecordTrajectories)]
        assert in_child(env.close) == "None"
        assert in_child(lambda: [wrapper.__del__() for wrapper in wrappers]) == str([None] * 3)
        assert sorted(tmp_path.rglob("*")) == before
        for _ in range(4):
            env.step([0, 1])
        facts = json.loads((tmp_path / "videos" / "video-episode-000000.json").read_text())
        assert (facts["frames"], facts["ended"]) == (9, "length")
    episodes = minari.MinariDataset(tmp_path / "episodes-v0" / "data")
    assert [len(episode) for episode in episodes] == [8, 8]


def test_save_goes_on_where_it_once_worked(tmp_path):
    folder = tmp_path / "run"
    env = vecwrap.build("CartPole-v1", n=2, backend="dummy", wrappers=["normalize"])
    env.reset(seed=1)
    folder.touch()
    with pytest.raises(NotADirectoryError, match="expected a folder, got the file .*run$"):
        env.save(folder / "state.npz")
    folder.unlink()
    with pytest.raises(FileNotFoundError, match="a folder that exists, got .*run. Is .*mkdir"):
        env.save(folder / "state.npz")
    assert not folder.exists()
    folder.mkdir()
    assert env.save(folder / "state.npz")
    saved = (folder / "state.npz").read_bytes()
    folder.rename(tmp_path / "away")
    env.step([0, 1])
    with pytest.warns(
        RuntimeWarning, match=r"state.npz can no longer be written .* the last file is kept"
    ):
        assert not env.save(folder / "state.npz")
    assert not env.save(folder / "state.npz"), "one warning is enough"
    (tmp_path / "away").rename(folder)
    assert (folder / "state.npz").read_bytes() == saved
    assert env.save(folder / "state.npz")
    assert (folder / "state.npz").read_bytes() != saved
    folder.rename(tmp_path / "away")
    with pytest.warns(RuntimeWarning):
        env.save(folder / "state.npz")
    env.close()


SCRIPT = """
import time
import vecwrap
env = vecwrap.build("CartPole-v1", n=2, backend={backend!r}, wrappers=["monitor:" + {folder!r}])
env.reset(seed=1)
print("ready", flush=True)
while True:
    env.step(env.action_space.sample())
"""


@pytest.mark.parametrize(
    ("backend", "number"),
    [
        *(("dummy", number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)),
        ("shmem", signal.SIGTERM),
        *(
            pytest.param("shmem", number, marks=pytest.mark.full)
            for number in (signal.SIGINT, signal.SIGKILL)
        ),
    ],
)
def test_a_run_that_is_ended_leaves_whole_files(backend, number, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(backend=backend, folder=str(tmp_path))],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    assert until(lambda: (tmp_path / "monitor.csv").read_bytes().count(b"\n") >= 5)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    # Where Ctrl-C came amid an except block.
    chained = errors.count("\nDuring handling of the above exception")
    assert errors.count("Traceback") - chained == (number == signal.SIGINT), errors
    lines = (tmp_path / "monitor.csv").read_text().splitlines(keepends=True)
    assert len(lines) > 3
    assert all(line.endswith("\n") and line.count(",") == 5 for line in lines[1:])


UNFINISHED = """
import vecwrap
from tests.faults.test_files import Drawn
wrappers = [
    {{"video": {{"dir": {folder!r}, "every": 1}}}}, {{"record_trajectories": {{"dir": {folder!r}}}}}
]
env = vecwrap.build([lambda: Drawn(end=0.0)] * 2, backend={backend!r}, wrappers=wrappers)
env.reset(seed=1)
for _ in range(4):
    env.step([0, 1])
{rest}
"""


@pytest.mark.parametrize(
    ("backend", "rest"),
    [
        ("dummy", ""),
        ("dummy", "del env"),
        ("shmem", ""),
        pytest.param("shmem", "del env", marks=pytest.mark.full),
    ],
)
def test_a_run_that_ends_without_closing_leaves_what_it_would_have_left(backend, rest, tmp_path):
    code = UNFINISHED.format(backend=backend, folder=str(tmp_path), rest=rest)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    facts = json.loads((tmp_path / "video-episode-000000.json").read_text())
    assert (facts["frames"], facts["ended"]) == (5, "closed")
    episodes = minari.MinariDataset(tmp_path / "episodes-v0" / "data")
    assert [len(episode) for episode in episodes] == [4, 4]


def test_no_file_is_written_outside_of_the_folder_that_was_named(tmp_path, monkeypatch):
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    make = partial(gymnasium.make, "CartPole-v1")
    with Monitor(DummyBackend([make] * 2), "run") as env:
        env.reset(seed=1)
        for _ in range(60):
            env.step([0, 1])
        env.save("run/state.npz")
    assert {path.name for path in tmp_path.iterdir()} == {"inside"}
    assert {path.name for path in inside.iterdir()} == {"run"}
    assert {path.name for path in (inside / "run").iterdir()} == {
        "monitor.csv",
        "run.json",
        "state.npz",
    }
