"""Who may read a page, and what: asked with raw requests, as a browser or an attacker would send
them.
"""

import http.client
import json
import os
import re
import stat
import time
from urllib.parse import urlsplit

import gymnasium
import pytest

import vecwrap
from vecwrap.errors import ArgumentError, PlanError, PlotError, install_command
from vecwrap.live import RunFolder, find_page, serve, server
from vecwrap.live import folder as folder_source

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("plotly")

EVIL = "<img src=x onerror=alert(1)>"


def write_run(folder, *, env_id="CartPole-v1", games=40):
    """A folder as the monitor and `vecwrap run --out` write it."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{i},{i + 1},{i / 10},{i % 4},0\n" for i in range(games))
    header = {
        "t_start": 1000.0,
        "env_id": env_id,
        "step_unit": "agent step",
        "frame_skip": 1,
        "pipeline": "1",
    }
    (folder / "monitor.csv").write_text(f"#{json.dumps(header)}\nr,l,t,env,lost\n{rows}")
    facts = {
        "end": "finished",
        "steps": 820,
        "seconds": 4.0,
        "restarts": 2,
        "versions": {"python": "3.11"},
    }
    (folder / "run.json").write_text(json.dumps(facts))
    (folder / "pipeline.yaml").write_text(f"env: {env_id}\n")
    return folder


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Files are read again at once, whatever the last reading took."""
    monkeypatch.setattr(folder_source, "READ_PAUSE_FACTOR", 0)


@pytest.fixture
def page(tmp_path):
    served = serve(RunFolder(write_run(tmp_path / "run")), 0)
    yield served
    served.close()


def ask(page, path="", *, host=None, method="GET", token=None):
    """The status, the headers and the content."""
    parts = urlsplit(page.address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    secret = parts.path.strip("/") if token is None else token
    connection.putrequest(method, f"/{secret}/{path}" if secret else f"/{path}", skip_host=True)
    connection.putheader("Host", parts.netloc if host is None else host)
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


def first_state(page, path="events"):
    """The first server-sent event."""
    parts = urlsplit(page.address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.request("GET", f"{parts.path}{path}")
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.readline() == b"event: state\n"
    state = json.loads(answer.readline().removeprefix(b"data: "))
    connection.close()
    return state


@pytest.mark.parametrize(
    "path", ["", "events", "about", "curves", "page.js", "plotly.min.js", "file/tiles.png"]
)
def test_without_its_secret_nothing_is_shown(page, path):
    for token in ("", "guessed", "..", "%2e%2e"):
        assert ask(page, path, token=token)[0] == 403


@pytest.mark.parametrize(
    "host", ["elsewhere.example", "127.0.0.1.elsewhere.example:8642", "", "0.0.0.0", "10.0.0.1"]
)
def test_a_name_that_is_not_this_machine_is_refused(page, host):
    assert ask(page, host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8642", "127.0.0.1:1", "[::1]:8642"])
def test_this_machine_may_be_named_otherwise_and_its_port_forwarded(page, host):
    assert ask(page, host=host)[0] == 200


def test_where_others_may_look_an_address_or_the_machines_name_will_do_and_no_other_name():
    assert server._is_host(b"10.1.2.3:8642", "0.0.0.0")
    assert not server._is_host(b"elsewhere.example", "0.0.0.0")
    assert server._is_host(b"10.1.2.3", "10.1.2.3")
    assert not server._is_host(b"10.1.2.4", "10.1.2.3")


def test_it_listens_on_this_machine_alone(page):
    assert page._listener.getsockname()[0] == "127.0.0.1"
    assert page.address.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_request_that_could_change_something_is_refused(page, method):
    assert ask(page, "about", method=method)[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        "file/../run.json",
        "file/%2e%2e/secret.txt",
        "file/..%2fsecret.txt",
        "file//etc/passwd",
        "file/run.json",
        "file/videos/../../secret.txt",
        "../secret.txt",
        "index.html.bak",
        "server.py",
        "%2fetc%2fpasswd",
    ],
)
def test_no_file_is_given_but_pictures_and_videos(page, tmp_path, path):
    (tmp_path / "secret.txt").write_text("secret")
    status, _, content = ask(page, path)
    assert status in (403, 404)
    assert b"secret.txt" not in content
    assert b"root:" not in content


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    folder = write_run(tmp_path / "run")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "videos").mkdir()
    (folder / "tiles.png").symlink_to(tmp_path / "secret.png")
    (folder / "videos" / "a.mp4").symlink_to(tmp_path / "secret.png")
    served = serve(RunFolder(folder), 0)
    about = json.loads(ask(served, "about")[2])
    assert (about["picture"], about["videos"]) == (None, [])
    assert ask(served, "file/tiles.png")[0] == ask(served, "file/videos/a.mp4")[0] == 404
    (folder / "run.json").unlink()
    (folder / "run.json").symlink_to(tmp_path / "secret.txt")
    assert "out of it" in first_state(served)["trouble"]
    served.close()


def test_pictures_and_videos_of_the_folder_are_given(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "tiles.png").write_bytes(b"picture")
    (folder / "videos").mkdir()
    (folder / "videos" / "video-episode-0.mp4").write_bytes(b"video")
    served = serve(RunFolder(folder), 0)
    about = json.loads(ask(served, "about")[2])
    assert (about["picture"], about["videos"]) == ("tiles.png", ["videos/video-episode-0.mp4"])
    assert ask(served, "file/tiles.png")[2] == b"picture"
    assert ask(served, "file/videos/video-episode-0.mp4")[2] == b"video"
    served.close()


def test_videos_of_seeds_are_given_too_and_parts_of_a_video_to_a_browser_that_seeks(tmp_path):
    folder = write_run(tmp_path / "runs" / "seed 1")
    (folder / "videos").mkdir()
    (folder / "videos" / "a.mp4").write_bytes(b"0123456789")
    served = serve(RunFolder(tmp_path / "runs"), 0)
    assert json.loads(ask(served, "about")[2])["videos"] == ["seed 1/videos/a.mp4"]
    parts = urlsplit(served.address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.request(
        "GET", f"{parts.path}file/seed%201/videos/a.mp4", headers={"Range": "bytes=2-4"}
    )
    answer = connection.getresponse()
    assert (answer.status, answer.headers["content-type"], answer.read()) == (
        206,
        "video/mp4",
        b"234",
    )
    connection.close()
    served.close()


def test_nothing_is_loaded_from_elsewhere_or_run_from_texts(page):
    """The policy forbids scripts in the page, and the page has none."""
    _, headers, content = ask(page)
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "script-src" not in policy
    assert not re.search(rb"https?://|<script(?! src=)", content)
    script = ask(page, "page.js")[2]
    assert not re.search(rb"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script)
    assert ask(page, "plotly.min.js")[2].startswith(b"/**\n* plotly.js")


def test_the_state_says_what_the_files_say(page):
    state = first_state(page)
    figures = dict(state["figures"])
    assert (state["title"], state["env"], state["status"], state["live"]) == (
        "run",
        "CartPole-v1",
        "finished",
        False,
    )
    assert (
        figures["agent steps"],
        figures["steps/s"],
        figures["episodes"],
        figures["restarts"],
    ) == (
        "820",
        "205",
        "40",
        "2",
    )
    about = json.loads(ask(page, "about")[2])
    assert about["plan"] == "env: CartPole-v1\n"
    assert about["versions"] == [["python", "3.11"]]


def test_curves_are_those_of_the_file(page):
    curves = json.loads(ask(page, "curves?x=episodes&smooth=10")[2])
    (run,) = curves["runs"]
    assert run["dots"] == {"x": list(range(1, 41)), "y": list(range(40))}
    assert run["line"]["mean"] == [sum(range(i - 9, i + 1)) / 10 for i in range(9, 40)]
    # Of four sub-environments the means of the last two games each, which are 2 i to 2 i + 3 at the
    # last episode.
    ends = sorted((j + j - 4) / 2 for j in range(36, 40))
    assert run["quantiles"]["q50"][-1] == (ends[1] + ends[2]) / 2
    assert ask(page, "curves?x=nothing")[0] == ask(page, "curves?smooth=0")[0] == 404


def test_a_file_that_grows_is_read_again(tmp_path):
    folder = write_run(tmp_path / "run", games=3)
    served = serve(RunFolder(folder), 0)
    before = first_state(served)
    with (folder / "monitor.csv").open("a") as file:
        file.write("9,9,9,0,0\n")
    after = first_state(served)
    assert after["version"] > before["version"]
    assert dict(after["figures"])["episodes"] == "4"
    (folder / "monitor.csv").write_text("nothing of the kind\n")
    assert "expected a monitor file" in first_state(served)["trouble"]
    served.close()


def test_whether_a_run_goes_on_is_told_by_its_record_or_by_its_files(tmp_path):
    folder = write_run(tmp_path / "run")
    source = RunFolder(folder)
    assert source.state(None)["status"] == "finished"
    (folder / "run.json").write_text('{"end": null}')
    assert source.state(None)["status"] == "running"
    (folder / "run.json").unlink()
    assert source.state(None)["status"] == "running"
    for path in folder.iterdir():
        os.utime(path, (time.time() - 3 * 3600,) * 2)
    assert source.state(None)["status"] == "last news 3 h 00 min ago"
    (folder / "run.json").write_text('{"end": "failed: out of luck"}')
    assert source.state(None)["status"] == "failed: out of luck"


def test_names_of_a_strangers_run_arrive_as_plain_text(tmp_path):
    served = serve(RunFolder(write_run(tmp_path / "run", env_id=EVIL + "\x1b[31m")), 0)
    state = first_state(served)
    assert state["env"] == EVIL + "\\u001b[31m"  # the page makes it a text node (test_browser.py)
    served.close()


def test_a_given_port_that_is_taken_is_refused_and_the_default_goes_to_the_next(page, tmp_path):
    port = urlsplit(page.address).port
    with pytest.raises(PlanError, match="give another port"):
        serve(RunFolder(tmp_path / "run"), port)
    one, other = (serve(RunFolder(tmp_path / "run")) for _ in range(2))
    assert one.address != other.address
    one.close()
    other.close()


def test_missing_packages_are_named_with_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr(server, "is_installed", lambda name: name != "uvicorn")
    with pytest.raises(PlanError, match=re.escape(f"needs uvicorn: {install_command('live')}")):
        serve(RunFolder(write_run(tmp_path / "run")))


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(PlotError, match="expected the folder of a run"):
        RunFolder(tmp_path / "missing")
    with pytest.raises(
        PlotError, match=r"with monitor files \(\*monitor\.csv\) or pipeline\.yaml, got neither"
    ):
        RunFolder(tmp_path)


def test_a_live_run_is_found_by_its_folder_and_its_record_is_private(tmp_path):
    with vecwrap.build(
        "CartPole-v1", n=2, backend="dummy", wrappers=[f"monitor:{tmp_path}"]
    ) as env:
        address = vecwrap.watch(env, 0)
        assert vecwrap.watch(env) == address
        env.reset(seed=1)
        deadline = time.monotonic() + 30
        while (found := find_page(tmp_path)) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert found == address
        record = tmp_path / server.RECORD
        assert stat.S_IMODE(record.stat().st_mode) == 0o600
        record.chmod(0o644)  # as a stranger's, who could lead elsewhere
        assert find_page(tmp_path) is None
        record.chmod(0o600)
        record.write_text(json.dumps({"address": "http://elsewhere.example/token/"}))
        assert find_page(tmp_path) is None


def test_an_environment_has_no_page_itself_and_says_what_shows_it():
    with vecwrap.build("CartPole-v1", n=2, backend="dummy") as env:
        with pytest.raises(AttributeError, match=r"'watch'\. Here it is vecwrap\.watch\(env\)"):
            env.watch()
        with pytest.raises(
            ArgumentError, match="watch: env: .* a Gymnasium wrapper around one; .* its .env"
        ):
            vecwrap.watch(gymnasium.vector.VectorWrapper(env))


def test_a_record_that_a_killed_run_left_is_ignored(tmp_path):
    record = tmp_path / server.RECORD
    with os.fdopen(os.open(record, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(json.dumps({"address": "http://127.0.0.1:9/token/"}))
    assert find_page(tmp_path) is None
