"""vecwrap clip: what Clip.save does, from the command line."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vecwrap.cli import main
from vecwrap.tools.clip import Clip
from vecwrap.wrappers.recording.video_file import VideoFile


@pytest.fixture
def video(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = VideoFile(tmp_path / "video.mp4", 20, np.zeros((40, 60, 3), np.uint8))
    for k in range(1, 20):
        file.append(np.full((40, 60, 3), 12 * k, np.uint8))
    file.close()


def test_every_option_does_what_save_does(video, capsys):
    arguments = ["--width", "30", "--fps", "10", "--start", "0.2", "--seconds", "0.5"]
    assert main(["clip", "video.mp4", "out.webp", *arguments]) == 0
    said = capsys.readouterr().out
    assert said.startswith("out.webp: ")
    assert said.rstrip().endswith(" KiB")
    same = Clip("video.mp4").save("same.webp", width=30, fps=10, start=0.2, seconds=0.5).path
    assert Path("out.webp").read_bytes() == same.read_bytes()
    with Image.open("out.webp") as image:
        assert (image.size, image.n_frames) == ((30, 20), 5)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["missing.mp4", "out.gif"], 2, "missing.mp4: no such file"),
        (["video.webp", "out.gif"], 2, "clip: video.webp: expected an .mp4 video"),
        (["video.mp4", "out.png"], 2, "expected a file .webp or .gif to write"),
        (["video.mp4", "out.gif", "--start", "-1"], 2, "--start"),
    ],
)
def test_a_mistake_is_one_message(video, capsys, arguments, status, said):
    Clip("video.mp4").save("video.webp")
    assert main(["clip", *arguments]) == status
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
