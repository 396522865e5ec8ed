"""Videos as animated pictures: their frames, their speed, their size."""

import numpy as np
import pytest
from PIL import Image

import vecwrap
from vecwrap.errors import ClipError
from vecwrap.tools.clip import Clip
from vecwrap.wrappers.recording.video_file import VideoFile

FPS = 40


def shade(k):
    """The grey of frame k, which a video changes a little."""
    return 40 + 8 * k


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    path = tmp_path_factory.mktemp("clip") / "video.mp4"
    file = None
    for k in range(20):  # half a second
        frame = np.full((60, 90, 3), shade(k), np.uint8)
        frame[:, :30] = (200, 40, 40)
        if file is None:
            file = VideoFile(path, FPS, frame)
        else:
            file.append(frame)
    file.close()
    return path


def read(path):
    """The number of the video's frame that each frame shows, and milliseconds from its beginning; by Pillow."""
    numbers, begins, now = [], [], 0
    with Image.open(path) as image:
        assert image.info["loop"] == 0  # for ever
        for k in range(image.n_frames):
            image.seek(k)
            pixels = np.asarray(image.convert("RGB")).astype(int)
            np.testing.assert_allclose(pixels[pixels.shape[0] // 2, 5], (200, 40, 40), atol=12)
            numbers.append(round((pixels[pixels.shape[0] // 2, -5].mean() - 40) / 8))
            begins.append(now)
            now += image.info["duration"]
    return numbers, begins, now


@pytest.mark.parametrize("kind", [".webp", ".gif"])
def test_all_frames_are_there_and_it_plays_at_the_speed_of_the_video(video, tmp_path, kind):
    clip = vecwrap.Clip(video).save(tmp_path / f"clip{kind}")
    assert [frame.shape for frame in Clip(video).frames()] == [(60, 90, 3)] * 20
    numbers, begins, end = read(clip.path)
    assert numbers == list(range(20))
    np.testing.assert_allclose(begins, np.arange(20) * 1000 / FPS, atol=5)  # a GIF counts in hundredths
    assert end == pytest.approx(500, abs=5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"fps": 10}, [0, 4, 8, 12, 16]),
        ({"fps": 1000}, list(range(20))),
        ({"start": 0.25}, list(range(10, 20))),
        ({"start": 0.1, "seconds": 0.2}, list(range(4, 12))),
        ({"start": 0.1, "seconds": 0.2, "fps": 20}, [4, 6, 8, 10]),
        ({"fps": 39}, list(range(0, 20, 2))),
        ({"fps": 16}, [0, 3, 6, 9, 12, 15, 18]),
    ],
)
def test_some_of_it_at_the_same_speed(video, tmp_path, options, expected):
    numbers, begins, end = read(Clip(video).save(tmp_path / "clip.webp", **options).path)
    assert numbers == expected
    times = np.array(expected) - expected[0]
    np.testing.assert_allclose(begins, times * 1000 / FPS, atol=1.5)
    assert end > begins[-1]


def test_a_wider_video_is_scaled_down_and_a_narrower_one_left_alone(video, tmp_path):
    for width, expected in [(45, (45, 30)), (400, (90, 60))]:
        with Image.open(Clip(video).save(tmp_path / "clip.gif", width=width).path) as image:
            assert image.size == expected


def test_a_gif_never_has_more_frames_than_browsers_play(tmp_path):
    path = tmp_path / "fast.mp4"
    file = VideoFile(path, 120, np.zeros((20, 20, 3), np.uint8))
    for k in range(1, 24):
        file.append(np.full((20, 20, 3), 10 * k, np.uint8))
    file.close()
    with Image.open(Clip(path).save(tmp_path / "fast.gif").path) as image:
        durations = []
        for k in range(image.n_frames):
            image.seek(k)
            durations.append(image.info["duration"])
    assert min(durations) >= 20
    assert sum(durations) == pytest.approx(200, abs=25)


@pytest.mark.parametrize("kind", [".webp", ".gif"])
def test_one_frame_is_a_picture_too(video, tmp_path, kind):
    clip = Clip(video).save(tmp_path / f"clip{kind}", start=0.1, seconds=0.02)
    with Image.open(clip.path) as image:
        assert image.n_frames == 1
        pixels = np.asarray(image.convert("RGB")).astype(int)
    assert pixels[30, -5].mean() == pytest.approx(shade(4), abs=3)


@pytest.mark.parametrize("kind", [".webp", ".gif"])
def test_of_an_animated_picture_no_frames_are_read(video, tmp_path, kind):
    clip = Clip(video).save(tmp_path / f"clip{kind}", width=45)
    message = rf"clip{kind}: expected an \.mp4 video to read frames from, got an animated image; give the video"
    with pytest.raises(ClipError, match=message):
        next(clip.frames())
    with pytest.raises(ClipError, match=message):
        clip.save(tmp_path / "again.gif")
    assert not (tmp_path / "again.gif").exists()


def test_a_missing_folder_is_made_as_pictures_of_curves_make_theirs(video, tmp_path):
    clip = Clip(video).save(tmp_path / "paper" / "figures" / "clip.gif")
    assert len(read(clip.path)[0]) == 20


def test_what_cannot_be_done_is_said(video, tmp_path):
    with pytest.raises(ClipError, match=r"clip: .*missing\.mp4: no such file"):
        Clip(tmp_path / "missing.mp4")
    with pytest.raises(ClipError, match=r'expected a file \.mp4, \.webp or \.gif, got ".*monitor\.csv"'):
        Clip(tmp_path / "monitor.csv")
    with pytest.raises(ClipError, match=r'expected a file \.webp or \.gif to write, got "clip\.png"'):
        Clip(video).save("clip.png")
    for options in ({"start": -1}, {"seconds": 0}, {"fps": 0}, {"width": 0}):
        with pytest.raises(ClipError, match="clip: "):
            Clip(video).save(tmp_path / "clip.gif", **options)
    with pytest.raises(ClipError, match="nothing is left from second 9 on"):
        Clip(video).save(tmp_path / "clip.gif", start=9)
    (tmp_path / "torn.mp4").write_bytes(b"no video")
    with pytest.raises(ClipError, match=r"clip\.gif cannot be written: .*torn\.mp4'; give another file"):
        Clip(video).save(tmp_path / "torn.mp4" / "clip.gif")
    with pytest.raises(ClipError, match=r"torn\.mp4 cannot be read as a video"):
        Clip(tmp_path / "torn.mp4").save(tmp_path / "clip.gif")
    assert not list(tmp_path.glob("*.gif"))
