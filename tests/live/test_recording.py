"""Videos that the page asks for: read back from their files, and compared with what the environment
rendered.
"""

import json
import threading

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("plotly")

import vecwrap
from tests.helpers import polling
from tests.live.test_live import is_line
from tests.live.test_server import ask
from tests.wrappers.test_video import MODES, Painted, episode, play, story
from vecwrap.live import page_of, recording
from vecwrap.wrappers.recording.video_file import VideoFile


def environment(tmp_path, n=2, **options):
    """Its frames tell the row, the episode and the step."""
    made = [lambda render_mode, i=i: Painted(i) for i in range(n)]
    wrappers = [f"monitor:{tmp_path}"]
    env = vecwrap.build(
        made, wrappers=wrappers, render_mode="rgb_array", **{"backend": "dummy", **options}
    )
    env.reset(seed=1)
    return env


def post(page, path="record"):
    """What the page says why not."""
    status, _, content = ask(page, path, method="POST")
    assert status == 200
    return json.loads(content)["why"]


def shown(page):
    """What it says of each video: the row, the words, and where it can be fetched."""
    return page._source._recordings()


def written(page):
    assert polling.until(
        lambda: all(one["file"] or "stopped" in one["text"] for one in shown(page))
    )
    return shown(page)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_the_next_whole_episode_is_in_it_from_its_first_frame_to_its_last(tmp_path, backend, mode):
    workers = {"workers": 1, "parent_share": False} if backend == "shmem" else {}
    with environment(tmp_path, backend=backend, autoreset=mode, **workers) as env:
        page = page_of(env, 0)
        play(env, 2)  # amid the first episode
        assert post(page, "record?row=1") == ""
        assert shown(page) == [{"row": 1, "text": "will begin with its next episode", "file": ""}]
        play(env, 12)
        (one,) = written(page)
        path = tmp_path / "videos" / "watched-env-1.mp4"
        assert story(path) == episode(1, index=1)
        assert (one["text"], one["file"]) == (f"5 frames, {path}", "videos/watched-env-1.mp4")
        assert json.loads(path.with_suffix(".json").read_text())["ended"] == "episode"
        assert ask(page, f"file/{one['file']}")[2] == path.read_bytes()
        assert ask(page, "file/videos/other.mp4")[0] == 404
        assert polling.until(lambda: play(env, 1) or is_line(env) or backend == "shmem")


def test_all_tiles_and_the_same_row_again(tmp_path):
    with environment(tmp_path) as env:
        page = page_of(env, 0)
        assert post(page) == post(page) == ""  # the second time they are waited for already
        play(env, 10)
        written(page)
        post(page, "record?row=0")
        play(env, 10)
        written(page)
    assert {path.name: story(path) for path in sorted((tmp_path / "videos").glob("*.mp4"))} == {
        "watched-env-0.mp4": episode(1),
        "watched-env-1.mp4": episode(1, index=1),
        "watched-env-0-1.mp4": episode(3),
    }


def test_a_reset_before_its_end_ends_it_and_one_before_it_begins_begins_it(tmp_path):
    with environment(tmp_path) as env:
        page = page_of(env, 0)
        post(page, "record?row=0")
        env.reset(seed=2)
        play(env, 2)
        env.reset(seed=3)
        written(page)
    (path,) = (tmp_path / "videos").glob("*.mp4")
    assert story(path) == episode(1)[:3]
    assert json.loads(path.with_suffix(".json").read_text())["ended"] == "reset"


def test_a_disk_that_is_slow_delays_no_step_and_loses_no_frame(tmp_path, monkeypatch):
    held, append = threading.Event(), VideoFile.append
    monkeypatch.setattr(
        VideoFile, "append", lambda file, frame: (held.wait(60), append(file, frame))
    )
    with environment(tmp_path) as env:
        page = page_of(env, 0)
        post(page, "record?row=0")
        play(env, 20)  # while the writer stands still
        assert shown(page)[0]["text"].startswith("being written")
        held.set()
        written(page)
    assert story(tmp_path / "videos" / "watched-env-0.mp4") == episode(1)


def test_more_frames_than_may_wait_end_the_video_and_not_the_run(tmp_path, monkeypatch):
    held, append = threading.Event(), VideoFile.append
    monkeypatch.setattr(
        VideoFile, "append", lambda file, frame: (held.wait(60), append(file, frame))
    )
    monkeypatch.setattr(recording, "MAX_WAITING", 2 * 32 * 48 * 3)
    with environment(tmp_path) as env:
        page = page_of(env, 0)
        post(page, "record?row=0")
        play(env, 20)
        held.set()
        (one,) = written(page)
        assert one["text"].startswith("stopped: frames come faster than they can be written")


def test_a_disk_that_is_full_ends_the_video_and_not_the_run(tmp_path, monkeypatch):
    def full(self, path, fps, first):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(VideoFile, "__init__", full)
    with environment(tmp_path) as env:
        page = page_of(env, 0)
        post(page, "record?row=0")
        assert polling.until(lambda: play(env, 5) or "No space left" in shown(page)[0]["text"])
        play(env, 20)


def test_a_run_that_ends_finishes_what_is_recorded(tmp_path):
    env = environment(tmp_path)
    page = page_of(env, 0)
    post(page)
    play(env, 6)
    env.close()
    page.join()
    assert [one["text"].partition(",")[0] for one in shown(page)] == [
        "stopped: the run ended first"
    ] * 2
    assert story(tmp_path / "videos" / "watched-env-0.mp4") == episode(1)[:3]


def test_why_nothing_is_recorded_is_said(tmp_path):
    with vecwrap.build("CartPole-v1", n=2, backend="dummy") as env:
        env.reset(seed=1)
        page = page_of(env, 0)
        assert 'build it with render_mode="rgb_array"' in post(page)
    with environment(tmp_path) as env:
        page = page_of(env, 0)
        assert "row 7 has no tile" in post(page, "record?row=7")
        assert (
            ask(page, "record?row=-1", method="POST")[0]
            == ask(page, "record?row=x", method="POST")[0]
            == 404
        )
        assert shown(page) == []


def test_nothing_is_recorded_without_the_secret_or_by_another_method(tmp_path):
    with environment(tmp_path) as env:
        page = page_of(env, 0)
        for token in ("", "guessed"):
            assert ask(page, "record", method="POST", token=token)[0] == 403
        assert ask(page, "record", method="POST", host="elsewhere.example")[0] == 403
        for method in ("GET", "PUT", "DELETE", "PATCH"):
            assert ask(page, "record", method=method)[0] in (404, 405)
        assert shown(page) == []
