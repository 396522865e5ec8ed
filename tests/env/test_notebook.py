"""What a notebook shows, in a real one: the plan as a table, the tiles, a recorded clip."""

import base64
import os
import re
from pathlib import Path

import cv2
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import vecwrap
from vecwrap.errors import ArgumentError, install_command
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec

ROOT = Path(__file__).resolve().parents[2]
BUILD = """
import numpy as np
import vecwrap
from vecwrap.wrappers.video import Video
wrappers = ["time_limit:50", "framestack:4", {"tile": {"labels": True}}]
wrappers.append({"video": {"dir": "videos", "length": 10}})
settings = {"render_mode": "rgb_array", "seed": 1, "backend": "dummy"}
env = vecwrap.build("CartPole-v1", n=3, wrappers=wrappers, **settings)
env.reset()
for _ in range(12):
    env.step([0, 1, 0])
np.save("picture.npy", env.picture())
"""
# Until the picture has been renewed once.
WATCHED_WITHOUT_PACKAGES = """
import time
from IPython.display import DisplayHandle
from vecwrap.live import server
installed, server.is_installed = server.is_installed, lambda name: name != "uvicorn"
times, update = [], DisplayHandle.update
DisplayHandle.update = lambda *given: (update(*given), times.append(1))
vecwrap.watch(env)
said, deadline = vecwrap.watch(env), time.monotonic() + 60
while len(times) < 2 and time.monotonic() < deadline:
    env.step([0, 1, 0])
    time.sleep(0.01)
server.is_installed = installed
said
"""
# On Colab, though the packages are there; and with a port of one's own, the page.
WATCHED_ON_COLAB = """
import os
os.environ["COLAB_RELEASE_TAG"] = "release-colab-1"
said = vecwrap.watch(env), vecwrap.watch(env, 0)[:17]
del os.environ["COLAB_RELEASE_TAG"]
said
"""
CELLS = [
    BUILD,
    "env",
    "for _ in range(2):\n    env.show()",
    WATCHED_WITHOUT_PACKAGES,
    "vecwrap.watch(env, 0)",
    WATCHED_ON_COLAB,
    "env.close()",
]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """A notebook that was executed, and the folder it ran in."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT)})
    nbformat.validate(notebook)
    nbformat.write(notebook, folder / "notebook.ipynb")
    return notebook, folder


def outputs(notebook, cell):
    return [output["data"] for output in notebook[0].cells[cell].outputs]


def test_an_environment_is_its_plan(notebook):
    (shown,) = outputs(notebook, 1)
    assert shown["text/plain"].startswith("<VecEnv CartPole-v1, n=3, dummy")
    table = shown["text/html"]
    assert "CartPole-v1, n=3, seed=1, same_step, pipeline " in table
    lines = table.splitlines()
    # What the wrappers of the sub-environments make of it is known after the last of them.
    for name, space in (
        ("time_limit", "(4,) float32"),
        ("framestack", "→ (4, 4) float32"),
        ("tile", "unchanged"),
    ):
        (row,) = (line for line in lines if line.strip().startswith(f"{name} "))
        assert space in row
    assert "max_episode_steps=50" in table
    assert "stacked with its own" in table
    assert "backend dummy: in this process" in table


def test_show_draws_the_tiles_below_the_cell(notebook):
    first, second = outputs(notebook, 2)
    assert first["image/png"] == second["image/png"]
    content = np.frombuffer(base64.b64decode(first["image/png"]), np.uint8)
    image = cv2.cvtColor(cv2.imdecode(content, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    np.testing.assert_array_equal(image, np.load(notebook[1] / "picture.npy"))


def test_watch_without_the_pages_packages_is_a_picture_that_is_renewed(notebook):
    *_, picture, said = outputs(notebook, 3)  # asked for twice, as by a cell that is run again
    content = np.frombuffer(base64.b64decode(picture["image/jpeg"]), np.uint8)
    # The last one, in the first one's place.
    assert cv2.imdecode(content, cv2.IMREAD_COLOR).shape == (
        400,
        3 * 600,
        3,
    )
    assert f"the page needs uvicorn: {install_command('live')}" in said["text/plain"]


def test_watch_embeds_the_page(notebook):
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    pytest.importorskip("plotly")
    (shown,) = outputs(notebook, 4)
    address = re.fullmatch(r"'(http://127\.0\.0\.1:\d+/[\w-]+/)'", shown["text/plain"])[1]
    assert re.fullmatch(rf'<iframe src="{re.escape(address)}" [^<>]*></iframe>', shown["text/html"])


def test_watch_on_colab_is_a_picture_unless_a_port_is_named(notebook):
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    pytest.importorskip("plotly")
    *pictures, said = outputs(notebook, 5)
    assert len(pictures) == 1
    assert "the kernel runs on Colab (COLAB_RELEASE_TAG)" in said["text/plain"]
    assert "'http://127.0.0.1:" in said["text/plain"]


def test_outside_of_a_notebook_it_is_said_what_to_use_instead():
    with vecwrap.build("CartPole-v1", 2, backend="dummy", render_mode="rgb_array") as env:
        env.reset()
        with pytest.raises(
            ArgumentError,
            match=r'expected a Jupyter notebook.*render_mode="human".*env\.picture\(\)',
        ):
            env.show()


def test_what_somebody_wrote_in_a_plan_is_no_html():
    table = plan(
        PipelineSpec.parse('CartPole-v1 n=2 backend=dummy | monitor:"<script>"')
    )._repr_html_()
    assert "<script>" not in table
    assert "&lt;script&gt;" in table


def test_what_was_put_together_by_hand_has_no_plan():
    from tests.helpers.backends import DummyBackend
    from vecwrap.testing import ToyEnv
    from vecwrap.wrappers.monitor import Monitor

    with Monitor(DummyBackend([ToyEnv])) as env:
        assert env._repr_html_() is None


COUNTED = "import psutil\nlen(psutil.Process().children(recursive=True))"


@pytest.mark.full
def test_the_tour_runs_and_building_ten_times_leaves_no_more_processes_than_once(tmp_path):
    pytest.importorskip("stable_baselines3")
    tour = nbformat.read(ROOT / "examples" / "tour.ipynb", 4)
    assert not any(cell.get("outputs") for cell in tour.cells), "outputs are not kept in it"
    (build,) = (i for i, cell in enumerate(tour.cells) if "vecwrap.build" in cell.source[:150])
    again = [nbformat.v4.new_code_cell(tour.cells[build].source) for _ in range(9)]
    counted = [nbformat.v4.new_code_cell(COUNTED) for _ in range(2)]
    tour.cells[build + 1 : build + 1] = [counted[0], *again, counted[1]]
    client = NotebookClient(
        tour, timeout=200, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT)})
    once, ten_times = (cell.outputs[0]["data"]["text/plain"] for cell in counted)
    assert once == ten_times != "0"
    said = "".join(
        output.get("text", "") for cell in tour.cells for output in cell.get("outputs", ())
    )
    assert re.search(r"interrupted after [\d,]+ steps", said)
    assert "4,096 more steps" in said
    assert "8 episodes: return" in said
    (video,) = (
        output["data"]["text/html"]
        for cell in tour.cells
        if "embed=True" in cell.source
        for output in cell.outputs
    )
    content = base64.b64decode(re.search(r"data:video/mp4;base64,([^\"]+)", video)[1])
    (tmp_path / "again.mp4").write_bytes(content)
    reader = cv2.VideoCapture(str(tmp_path / "again.mp4"))
    assert reader.get(cv2.CAP_PROP_FRAME_COUNT) == 100
    reader.release()
