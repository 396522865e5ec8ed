"""The page in a real browser: headless Chromium, driven by Playwright; skipped where either is
missing.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import imageio.v3 as imageio
import numpy as np
import pytest

sync_api = pytest.importorskip("playwright.sync_api")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("plotly")

import vecwrap  # noqa: E402
from tests.helpers import polling  # noqa: E402
from tests.live.test_server import EVIL, write_run  # noqa: E402
from tests.wrappers.test_video import frames_of  # noqa: E402
from vecwrap.live import RunFolder, page_of, serve  # noqa: E402
from vecwrap.rows.step_result import Frames  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium"),
    pytest.mark.xdist_group("browser"),  # one process has it
]
PATIENCE = 60_000  # milliseconds
WIDTH = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def chromium():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium):
    """A new tab; whatever is written into its console or a neighbour's, or asked of another server,
    fails the test.
    """
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE)
    said, hosts = [], set()
    context.on("console", lambda message: said.append(message.text))
    context.on("weberror", lambda error: said.append(str(error.error)))
    context.on("dialog", lambda dialog: said.append(dialog.message))
    context.on("request", lambda request: hosts.add(urlsplit(request.url).hostname))
    yield context.new_page()
    context.close()
    gone = "Failed to load resource: net::ERR_"  # what Chromium says when a program was killed
    assert [text for text in said if not text.startswith(gone)] == []
    assert hosts <= {"127.0.0.1", None}  # None: data and blobs


@pytest.fixture
def finished(tmp_path):
    served = serve(RunFolder(write_run(tmp_path / "run")), 0)
    yield served
    served.close()


def dots(tab):
    """How many episodes the chart shows."""
    return tab.evaluate("document.getElementById('chart').data?.[0].x.length ?? 0")


def until(tab, expression):
    """Wait for it; the page's policy forbids Playwright's own way, which evaluates text in the
    page.
    """
    deadline = time.monotonic() + PATIENCE / 1000
    while not tab.evaluate(expression):
        assert time.monotonic() < deadline, expression
        time.sleep(0.05)


def test_a_finished_run(tab, finished):
    tab.goto(finished.address)
    tab.wait_for_selector("#chart .scatterlayer")
    assert dots(tab) == 40
    assert tab.text_content("#status") == "finished"
    assert "820" in tab.text_content("#figures")
    assert tab.text_content("#plan") == "env: CartPole-v1\n"
    assert tab.is_hidden("#live")
    # and with the keyboard
    tab.focus("#axes input:checked")
    tab.keyboard.press("ArrowRight")
    until(tab, "document.getElementById('chart').data[0].x[0] === 1")  # the first episode
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "smooth"
    tab.keyboard.press("Home")
    until(
        tab,
        "document.getElementById('chart').data.some((one) => one.mode === 'lines' && one.x[39])",
    )


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.full)])
def test_in_a_narrow_window_nothing_sticks_out(tab, finished, scheme):
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.emulate_media(color_scheme=scheme)
    tab.goto(finished.address)
    tab.wait_for_selector("#chart .scatterlayer")
    assert tab.evaluate(WIDTH) <= 390
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, ground[4:-1].split(","))) / 3
    assert (brightness < 100) == (scheme == "dark")


def test_names_of_a_strangers_run_are_text(tab, tmp_path):
    """The names of the run, of seeds and of versions, and the pipeline hold markup, which is shown
    as such.
    """
    for number in (1, 2):
        seed = write_run(tmp_path / "runs" / f"{EVIL} {number}", env_id=f"{EVIL}{number}")
        (seed / "run.json").unlink()
    (tmp_path / "runs" / "run.json").write_text(
        f'{{"end": "{EVIL}", "versions": {{"{EVIL}": "{EVIL}"}}}}'
    )
    served = serve(RunFolder(tmp_path / "runs"), 0)
    tab.goto(served.address)
    tab.wait_for_selector("#chart .scatterlayer")
    tab.wait_for_selector("#versions th", state="attached")
    assert EVIL in tab.text_content("#env")
    assert tab.text_content("#status") == EVIL
    assert tab.text_content("#versions th") == EVIL
    assert tab.evaluate("document.querySelectorAll('img[src=x], main script').length") == 0
    assert EVIL in tab.text_content("#chart .legend")
    served.close()


def test_a_video_of_the_folder_is_played(tab, tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "videos").mkdir()
    frames = np.zeros((20, 32, 48, 3), np.uint8)
    imageio.imwrite(folder / "videos" / f"{EVIL[:20]}.mp4", frames, fps=10)
    served = serve(RunFolder(folder), 0)
    tab.goto(served.address)
    tab.wait_for_selector("#chart .scatterlayer")
    tab.click("#videos button")
    until(tab, "document.getElementById('film').videoWidth === 48")
    assert tab.text_content("#film-name") == f"videos/{EVIL[:20]}.mp4"
    served.close()


@pytest.mark.parametrize("width", [390, pytest.param(1400, marks=pytest.mark.full)])
def test_players_of_a_strangers_run_are_text_in_tables_that_do_not_stick_out(tab, tmp_path, width):
    folder = write_run(tmp_path / "run")
    rows = "".join(f"1,2,{i},0,0,{EVIL}{i % 9},0,{i % 2}\n" for i in range(90))
    (folder / "monitor.csv").write_text(
        f'#{{"t_start": 1.0, "env_id": "a"}}\nr,l,t,env,lost,opponent,seat,result\n{rows}'
    )
    served = serve(RunFolder(folder), 0)
    tab.set_viewport_size({"width": width, "height": 800})
    tab.goto(served.address)
    tab.wait_for_selector("#ladder td")
    assert tab.locator("#ladder tr").count() == 11
    assert tab.locator("#matrix td[title]").count() == 9
    assert EVIL in tab.text_content("#matrix")
    assert tab.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    tab.wait_for_selector("#chart .scatterlayer")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    served.close()


def test_ratings_of_snapshots_are_drawn_over_their_steps(tab, tmp_path):
    folder = write_run(tmp_path / "run")
    pool = vecwrap.OpponentPool(
        folder / "pool", make="tests.helpers.rock_paper_scissors:make", scripted=["random"]
    )
    for steps in (300, 700):
        name = pool.add({"logits": np.full(3, steps, np.float32)}, facts={"steps": steps})
        pool.record("random", 1, player=name)
    pool.save()
    served = serve(RunFolder(folder), 0)
    tab.goto(served.address)
    tab.wait_for_selector("#ratings .scatterlayer")
    assert tab.evaluate("document.getElementById('ratings').data[0].x") == [300, 700]
    assert tab.evaluate("document.getElementById('ratings').layout.xaxis.title.text") == "steps"
    assert "Elo points above random" in tab.text_content("#leaderboard-words")
    served.close()


@contextlib.contextmanager
def played(env):
    """Step it in a thread, slowly enough for two cores, until the end of the block."""
    env.action_space.seed(1)
    env.reset()
    stop = threading.Event()

    def play():
        while not stop.is_set():
            env.step(env.action_space.sample())
            time.sleep(0.01)

    player = threading.Thread(target=play)
    player.start()
    try:
        yield
    finally:
        stop.set()
        player.join()


def changing(tab, expression):
    """Wait until it is another than it was."""
    until(tab, f"{expression} !== {tab.evaluate(expression)!r}")


def growing(tab):
    """Wait until the chart shows later episodes than now."""
    tab.wait_for_selector("#chart .scatterlayer")
    latest = "document.getElementById('chart').data[0].x.at(-1)"
    until(tab, f"{latest} > {tab.evaluate(latest)}")


def pixels(number):
    return f"document.querySelectorAll('#tiles canvas')[{number}].toDataURL()"


def test_cartpole_is_followed_until_it_ends(tab, tmp_path):
    """Curves grow, tiles change, a click or a key shows one large with its last steps; a narrow
    window holds it all.
    """
    wrappers = [f"monitor:{tmp_path}"]
    env = vecwrap.build(
        "CartPole-v1", n=4, backend="dummy", wrappers=wrappers, render_mode="rgb_array", seed=1
    )
    address = vecwrap.watch(env, 0)
    with played(env):
        tab.goto(address)
        growing(tab)
        assert tab.text_content("#status") == "running"
        assert tab.locator("#tiles button").count() == tab.locator("#rows i").count() == 4
        until(tab, "document.querySelector('#tiles canvas').width > 300")
        changing(tab, pixels(0))
        tab.click("#tiles button:nth-child(2)")
        tab.wait_for_selector("#last td")
        until(tab, "document.getElementById('large-frame').width === 600")
        changing(tab, "document.getElementById('large-frame').toDataURL()")
        assert tab.text_content("#large-title").startswith("#1 · score ")
        # Three parts, and the whole.
        until(tab, "document.querySelectorAll('#times tr').length === 4")
        with tab.expect_download() as saved:
            tab.click("#save-one")
        assert imageio.imread(saved.value.path()).shape == (400, 600, 3)
        tab.click("#record-one")
        until(
            tab,
            (
                r"/^\d+ frames, "
                r".*watched-env-1.mp4$/.test(document.getElementById('recording-one').textContent)"
            ),
        )
        assert len(frames_of(tmp_path / "videos" / "watched-env-1.mp4")) > 5
        assert tab.locator("#recordings a").get_attribute("href") == "file/videos/watched-env-1.mp4"
        tab.set_viewport_size({"width": 390, "height": 800})
        until(tab, f"{WIDTH} <= 390")  # once the chart is drawn again
        assert tab.evaluate("document.getElementById('large').getBoundingClientRect().right") <= 390
        tab.keyboard.press("Escape")
        tab.wait_for_selector("#large", state="hidden")
        assert tab.evaluate(WIDTH) <= 390
        # Where it was before.
        assert tab.evaluate("document.activeElement.title").startswith("#1 · ")
        tab.keyboard.press("Tab")
        tab.keyboard.press("Enter")
        until(tab, "document.getElementById('large-title').textContent.startsWith('#2 · ')")
    env.close()
    until(tab, "document.getElementById('status').textContent === 'finished'")


def test_a_few_episodes_are_dots_that_one_sees_and_no_toolbar_lies_on_them(tab, tmp_path):
    served = serve(RunFolder(write_run(tmp_path / "run", games=5)), 0)
    tab.goto(served.address)
    tab.wait_for_selector("#chart .scatterlayer .points path")
    marker = tab.evaluate("document.getElementById('chart').data[0].marker")
    assert (dots(tab), marker["size"] >= 8, marker["opacity"] > 0.8) == (5, True, True)
    tab.hover("#chart")
    assert tab.locator("#chart .modebar-btn").count() == 0
    served.close()


@pytest.mark.parametrize("n", [8, pytest.param(24, marks=pytest.mark.full)])
def test_in_a_narrow_window_all_tiles_can_be_seen_without_a_window_of_their_own(tab, n):
    tab.set_viewport_size({"width": 390, "height": 800})
    env = vecwrap.build("CartPole-v1", n=n, backend="dummy", render_mode="rgb_array", seed=1)
    address = vecwrap.watch(env, 0)
    with played(env):
        tab.goto(address)
        until(tab, f"document.querySelectorAll('#tiles canvas').length === {n}")
        changing(tab, pixels(n - 1))
        box = "document.getElementById('tiles')"
        until(tab, f"{box}.scrollHeight <= {box}.clientHeight && {WIDTH} <= 390")
        lines = tab.evaluate(
            "new Set([...document.querySelectorAll('#tiles button')].map((one) => "
            "one.offsetTop)).size"
        )
        assert lines == -(-n // 3)
    env.close()


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_a_program_that_has_ended_says_how_its_run_is_shown_again(tab, tmp_path, how):
    """Closed in order, the page gets a last word; of a killed one the connection breaks off."""
    folder = tmp_path / "a run"
    code = (
        "import sys, vecwrap\nenv = vecwrap.build('CartPole-v1', 2, [{'monitor': {'dir': "
        f"{str(folder)!r}}}}}], backend='dummy')\nenv.reset()\nprint(vecwrap.watch(env, 0), "
        "flush=True)\nsys.stdin.readline()\nenv.close()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as program:
        tab.goto(program.stdout.readline().strip())
        until(tab, "document.getElementById('status').textContent === 'running'")
        assert tab.is_hidden("#over")
        if how == "killed":
            program.kill()
        else:
            program.stdin.write("\n")
            program.stdin.flush()
        until(tab, "!document.getElementById('over').hidden")
        assert "the program has ended" in tab.text_content("#over")
        assert f"vecwrap watch '{folder}'" in tab.text_content("#over")


def test_two_tabs_and_the_last_that_is_closed_ends_the_frames(tab):
    env = vecwrap.build("CartPole-v1", n=2, backend="dummy", render_mode="rgb_array", seed=1)
    told, frames = [], env.core.runner.set_frames
    env.core.runner.set_frames = lambda wanted: (told.append(wanted), frames(wanted))
    address = vecwrap.watch(env, 0)
    observer = page_of(env)._source._observer
    with played(env):
        assert told == []
        tab.goto(address)
        other = tab.context.new_page()
        other.goto(address)
        for one in (other, tab):
            one.bring_to_front()
            until(one, "(document.querySelector('#tiles canvas') || {}).width > 300")
            changing(one, pixels(1))
        tab.close()
        assert polling.until(lambda: observer.viewers == 1)
        changing(other, pixels(1))
        other.close()
        assert polling.until(lambda: not observer.viewers and not env.core.rows.observers)
    before = len(told)
    for _ in range(200):
        env.step([0, 1])
    assert len(told) == before + (env.core.rows.frames.reported != [Frames.NONE] * 2) <= before + 1
    assert env.core.rows.fast
    env.close()


def test_the_button_says_why_nothing_is_recorded(tab):
    env = vecwrap.build("CartPole-v1", n=2, backend="dummy", wrappers=["monitor"], seed=1)
    address = vecwrap.watch(env, 0)
    with played(env):
        tab.goto(address)
        tab.click("#record")
        until(
            tab,
            (
                "document.getElementById('record-why').textContent.includes('build it with "
                "render_mode=')"
            ),
        )
        assert tab.is_hidden("#recordings")
    env.close()


def test_pong_with_a_worker_that_is_killed_while_somebody_looks(tab, tmp_path):
    env = vecwrap.build(
        "PongNoFrameskip-v4",
        n=4,
        backend="shmem",
        workers=2,
        parent_share=False,
        on_failure="restart",
        wrappers=["atari", "time_limit:30", f"monitor:{tmp_path}"],
        render_mode="rgb_array",
        seed=1,
    )
    address = vecwrap.watch(env, 0)
    with played(env):
        tab.goto(address)
        growing(tab)
        until(tab, "document.querySelector('#tiles canvas').width === 160")
        for number in range(4):
            changing(tab, pixels(number))
        assert tab.is_hidden("#restarts")
        os.kill(env.health().workers[1].pid, signal.SIGKILL)
        tab.wait_for_selector("#reasons li")
        states = (
            "[...document.querySelectorAll('#rows i')].map((one) => one.dataset.state).join(' ')"
        )
        until(tab, f"{states} === 'running running restarted restarted'")
        assert "#2 #3: 1 restart; " in tab.text_content("#reasons")
        assert "SIGKILL" in tab.text_content("#reasons")
        assert "restarts2" in tab.text_content("#figures")
        for number in range(4):
            changing(tab, pixels(number))
        growing(tab)
    env.close()
    until(tab, "document.getElementById('status').textContent === 'finished'")
