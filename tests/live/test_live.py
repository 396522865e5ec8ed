"""What a page says of an environment that runs, read by an HTTP client; and what it costs, counted
in calls.
"""

import contextlib
import gc
import http.client
import json
import os
import signal
import socket
import struct
import threading
import time
import weakref
from urllib.parse import urlsplit

import cv2
import gymnasium
import numpy as np
import pytest

import vecwrap
from tests.test_step_calls import CHAINS, STEPS, WHOLE, build, step_counted
from vecwrap.live import live, observer, page_of, server
from vecwrap.testing import ToyEnv
from vecwrap.tools.core_use import CoreCounts

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("plotly")


def toy(render_mode=None):
    return ToyEnv(render_mode=render_mode)


class Browser:
    """Reads server-sent states, as a tab does."""

    def __init__(self, address, query=""):
        self.parts = urlsplit(address)
        self.connection = http.client.HTTPConnection(
            self.parts.hostname, self.parts.port, timeout=30
        )
        self.connection.request("GET", f"{self.parts.path}events{query}")
        self.answer = self.connection.getresponse()

    def state(self):
        """The next one; None after the last."""
        while line := self.answer.readline():
            if line.startswith(b"event: ended"):
                return None
            if line.startswith(b"data: {"):
                return json.loads(line.removeprefix(b"data: "))
        raise AssertionError("the stream broke off")

    def get(self, path):
        connection = http.client.HTTPConnection(self.parts.hostname, self.parts.port, timeout=30)
        connection.request("GET", f"{self.parts.path}{path}")
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content

    def close(self):
        self.answer.close()
        self.connection.close()


@contextlib.contextmanager
def looking(env, query=""):
    browser = Browser(vecwrap.watch(env, 0), query)
    browser.state()
    try:
        yield browser
    finally:
        browser.close()


def until(env, done, seconds=60):
    """Step until something has happened in the server's thread."""
    env.action_space.seed(1)
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        env.step(env.action_space.sample())
        time.sleep(0.001)


def is_line(env):
    return not env.core.rows.observers and env.core.rows.fast


@pytest.mark.parametrize("chain", CHAINS)
def test_while_nobody_looks_a_step_makes_no_call_more(chain):
    with build(chain, backend="dummy") as env:
        actions = np.zeros(8, np.int64)
        before = min(step_counted(env, actions, whole=True) for _ in range(STEPS))
        vecwrap.watch(env, 0)
        assert (
            min(step_counted(env, actions, whole=True) for _ in range(STEPS))
            == before
            <= WHOLE["dummy", chain]
        )
        with looking(env):
            assert step_counted(env, actions, whole=True) > before
        until(env, lambda: is_line(env))
        assert min(step_counted(env, actions, whole=True) for _ in range(STEPS)) == before


def test_the_state_says_what_the_environment_says():
    with vecwrap.build(
        toy, n=3, backend="dummy", wrappers=["monitor"], render_mode="rgb_array"
    ) as env:
        env.reset(seed=1)
        until(env, lambda: env.find(vecwrap.wrappers.monitor.Monitor).num_episodes > 4)
        with looking(env) as browser:
            state = browser.state()
            scores, lengths, _ = env.find(vecwrap.wrappers.monitor.Monitor).games
            assert [row["score"] for row in state["rows"]] == [
                round(score, 2) for score in scores.tolist()
            ]
            assert [row["length"] for row in state["rows"]] == lengths.tolist()
            assert {row["state"] for row in state["rows"]} == {"running"}
            monitor = env.find(vecwrap.wrappers.monitor.Monitor)
            assert dict(state["figures"])["agent steps"] == f"{monitor.num_steps:,}"
            assert dict(state["figures"])["episodes"] == f"{monitor.num_episodes:,}"
            assert state["status"] == "running"
            assert json.loads(browser.get("about")[1])["plan"] == str(env.plan)


def test_games_without_a_file_are_curves_too():
    games = []
    wrappers = [{"monitor": {"log": games.append}}]
    with vecwrap.build("CartPole-v1", n=2, backend="dummy", wrappers=wrappers) as env:
        vecwrap.watch(env, 0)
        env.reset(seed=1)
        until(env, lambda: len(games) >= 30)
        with looking(env) as browser:
            while browser.state()["games"] < 30:
                pass
            time.sleep(observer.FRAME_INTERVAL_SECONDS)
            (run,) = json.loads(browser.get("curves?x=steps&smooth=10")[1])["runs"]
            assert run["dots"]["y"][:30] == [game.score for game in games[:30]]
            assert run["dots"]["x"][:30] == [game.steps for game in games[:30]]


def test_frames_are_asked_for_only_while_somebody_looks():
    with vecwrap.build(toy, n=3, backend="dummy", render_mode="rgb_array") as env:
        env.reset(seed=1)
        told, frames = [], env.core.runner.set_frames
        env.core.runner.set_frames = lambda wanted: (told.append(list(wanted)), frames(wanted))
        page = page_of(env, 0)
        until(env, lambda: True)
        assert told == []
        with looking(env) as browser:
            until(env, lambda: len(page._source._observer.frames) == 3)
            status, content = browser.get("frame")
            assert status == 200
            tiles = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
            shape = np.asarray(page._source._observer.frames[0]).shape
            assert tiles.shape == (shape[0], 3 * shape[1], 3)
            one = cv2.imdecode(
                np.frombuffer(browser.get("frame?row=1")[1], np.uint8), cv2.IMREAD_COLOR
            )
            assert (one[..., ::-1] == page._source._observer.frames[1]).all()
        until(env, lambda: is_line(env))
        assert env.core.rows.frames.reported == [vecwrap.rows.step_result.Frames.NONE] * 3
        before = len(told)
        until(env, lambda: True)
        assert len(told) == before


def test_frames_come_at_a_bounded_rate(monkeypatch):
    now = [0.0]
    with vecwrap.build(toy, n=2, backend="dummy", render_mode="rgb_array") as env:
        env.reset(seed=1)
        source = live.Live(env)
        monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
        asked = []
        source._observer._request_frames, ask = (
            lambda rows, first: (asked.append(rows), ask(rows, first)),
            source._observer._request_frames,
        )
        now[0] = 100.0
        source.watched(1)
        for _ in range(100):
            now[0] += observer.FRAME_INTERVAL_SECONDS / 10
            env.step([0, 0])
        assert 8 <= sum(bool(rows) for rows in asked) <= 11
        monkeypatch.undo()


def test_two_tabs_and_the_last_that_is_closed_ends_the_looking():
    with vecwrap.build("CartPole-v1", n=2, backend="dummy") as env:
        env.reset(seed=1)
        with looking(env):
            with looking(env):
                until(env, lambda: env.core.rows.observers)
            until(env, lambda: page_of(env)._source._observer.viewers == 1)
            assert env.core.rows.observers
        until(env, lambda: is_line(env))


def test_the_last_steps_of_a_row_that_is_looked_at():
    with vecwrap.build(toy, n=2, backend="dummy") as env:
        env.reset(seed=1)
        with looking(env, "?row=1") as browser:
            until(env, lambda: env.core.rows.observers)
            rewards = [env.step([0, action])[1][1] for action in (1, 0, 1)]
            last = browser.state()["last"]
            while not last or last[0][0] != "1":
                last = browser.state()["last"]
            assert [action for action, *_ in last[:3]] == ["1", "0", "1"]
            assert [float(reward) for _, reward, _ in last[:3]] == pytest.approx(
                rewards[::-1], rel=1e-5
            )


class Lives(ToyEnv):
    """Loses one of its lives in each step."""

    def reset(self, **arguments):
        observation, _ = super().reset(**arguments)
        self.left = 5
        return observation, {"lives": self.left}

    def step(self, action):
        observation, reward, terminated, truncated, _ = super().step(action)
        self.left -= 1
        return observation, reward, terminated, truncated, {"lives": self.left}


def test_lives_are_those_of_the_infos():
    with vecwrap.build(Lives, n=3, backend="dummy") as env:
        env.reset(seed=1)
        with looking(env) as browser:
            until(env, lambda: env.core.rows.observers)
            infos = env.step([0, 0, 0])[4]
            while (lives := [row["lives"] for row in browser.state()["rows"]]) != infos[
                "lives"
            ].tolist():
                assert lives in ([None] * 3, infos["lives"].tolist())


class NoLives(Lives):
    """Counts none, as Pong of the Arcade Learning Environment."""

    def step(self, action):
        return *super().step(action)[:4], {"lives": 0}


def test_of_games_without_lives_none_are_shown():
    with vecwrap.build(NoLives, n=3, backend="dummy") as env:
        env.reset(seed=1)
        with looking(env) as browser:
            until(env, lambda: (page_of(env)._source._observer.lives == 0).all())
            assert [row["lives"] for row in browser.state()["rows"]] == [None] * 3


def test_where_the_time_of_a_step_goes_is_shown_while_somebody_looks():
    with vecwrap.build("CartPole-v1", n=3, backend="dummy", wrappers=["monitor"]) as env:
        env.reset(seed=1)
        with looking(env) as browser:
            shares = page_of(env)._source._observer.shares.shares
            until(env, lambda: shares() and all(microseconds for *_, microseconds in shares()))
            while not (times := browser.state()["times"]):
                pass
            assert [name for name, *_ in times] == ["sub-environments", "wrappers", "your program"]


def test_the_page_says_whether_the_learners_threads_take_the_workers_core(monkeypatch):
    with vecwrap.build("CartPole-v1", n=2, backend="dummy") as env:
        source = live.Live(env)
        now = [100.0]
        monkeypatch.setattr(live.time, "perf_counter", lambda: now[0])
        counted = [CoreCounts(0, 0.0, 0.0, {7: 30.0})]
        source._observer.cores.read = lambda: counted[-1]
        assert source.state(None)["remark"] == ""
        counted.append(CoreCounts(100, 1.2, 1.0, {7: 30.5}))
        assert source.state(None)["remark"] == ""  # it is looked at every few seconds
        now[0] += live.REMARK_WINDOW_SECONDS
        assert source.state(None)["remark"].startswith("your learner's threads take your workers'")
        now[0] += live.REMARK_WINDOW_SECONDS
        assert source.state(None)["remark"] == ""  # nothing was waited for since


def test_an_observer_counts_waits_from_the_request_to_the_arrival():
    with vecwrap.build("CartPole-v1", n=2, backend="dummy", wrappers=["monitor"]) as env:
        env.reset(seed=1)
        watching = observer.Observer(env)
        watching.viewers = 1
        moments = []
        watching.cores.has_workers = True
        watching.cores.begin_wait = lambda: moments.append("begins")
        watching.cores.end_wait = lambda: moments.append("ends")
        env.core.observe(watching)
        for _ in range(3):
            env.step([0, 1])
        # the actions are given, and sent; their results are asked for, and arrive
        assert moments == ["begins", "begins", "begins", "ends"] * 3


class Bad(gymnasium.Wrapper):
    """Its frames fail."""

    def render(self):
        raise RuntimeError("<b>no picture</b>")


def bad(render_mode=None):
    return Bad(toy(render_mode))


def test_what_cannot_be_rendered_does_not_end_the_run():
    with vecwrap.build(bad, n=2, backend="dummy", render_mode="rgb_array") as env:
        env.reset(seed=1)
        with looking(env) as browser:
            page = page_of(env)
            until(env, lambda: page._source._observer.why_no_frames)
            while browser.state()["frames"]:
                pass
            assert "<b>no picture</b>" in browser.state()["why_no_frames"]


@pytest.mark.parametrize("backend", ["dummy", "shmem"])
def test_a_run_that_ends_says_so_and_its_page_ends(backend):
    env = vecwrap.build("CartPole-v1", n=2, backend=backend, wrappers=["monitor"])
    env.reset(seed=1)
    with looking(env) as browser:
        page = page_of(env)
        env.close()
        states = []
        while (state := browser.state()) is not None:
            states.append(state)
        assert states[-1]["status"] == "finished"
    page.join()
    assert not page.is_served


def test_a_lost_worker_is_seen():
    with vecwrap.build(
        "CartPole-v1", n=2, backend="shmem", workers=2, parent_share=False, on_failure="restart"
    ) as env:
        env.reset(seed=1)
        with looking(env) as browser:
            os.kill(env.health().workers[1].pid, signal.SIGKILL)
            until(env, lambda: env.health().restarts.sum() == 1)
            while (row := browser.state()["rows"][1])["state"] != "restarted":
                env.step([0, 0])
            assert row["restarts"] == 1
            assert "SIGKILL" in row["reason"]


def test_signals_are_left_alone_and_the_environment_is_not_kept_alive():
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    env = vecwrap.build("CartPole-v1", n=2, backend="dummy")
    env.reset(seed=1)
    page = page_of(env, 0)
    assert page._thread.daemon
    assert page._thread is not threading.current_thread()
    with looking(env):
        assert handlers[1] is signal.getsignal(signal.SIGTERM)
    core = weakref.ref(env.core)
    del env
    page.join()
    del page
    gc.collect()
    assert core() is None


def test_the_stream_is_the_same_while_somebody_looks():
    def play(watched):
        with vecwrap.build("CartPole-v1", n=3, backend="dummy", wrappers=["monitor"]) as env:
            env.action_space.seed(2)
            env.reset(seed=1)
            with looking(env) if watched else contextlib.nullcontext():
                return [env.step(env.action_space.sample())[:4] for _ in range(200)]

    for one, other in zip(play(False), play(True), strict=True):
        for a, b in zip(one, other, strict=True):
            assert (a == b).all()


def test_a_client_that_never_reads_and_one_that_is_gone_delay_no_step():
    """One asks for states and reads none, one resets its connection amid the answer; then the
    looking ends.
    """
    with vecwrap.build(toy, n=2, backend="dummy", render_mode="rgb_array") as env:
        env.reset(seed=1)
        page = page_of(env, 0)
        parts, sockets = urlsplit(page.address), []
        for _ in range(2):
            client = socket.create_connection((parts.hostname, parts.port), timeout=30)
            # Close is a reset.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(
                f"GET {parts.path}events HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode()
            )
            sockets.append(client)
        until(env, lambda: page._source._observer.viewers == 2)
        sockets[1].close()
        until(env, lambda: page._source._observer.viewers == 1)
        sockets[0].close()
        until(env, lambda: is_line(env))


def test_a_server_that_stands_still_delays_no_step(monkeypatch):
    with vecwrap.build(toy, n=2, backend="dummy", render_mode="rgb_array") as env:
        env.reset(seed=1)
        stands, held, state = threading.Event(), threading.Event(), live.Live.state
        with looking(env):
            until(env, lambda: len(page_of(env)._source._observer.frames) == 2)
            monkeypatch.setattr(
                live.Live, "state", lambda *given: (stands.set(), held.wait(60), state(*given))[-1]
            )
            assert stands.wait(60)
            for _ in range(500):
                env.step([0, 1])
            assert not held.is_set()
            held.set()


class Extreme(gymnasium.Env):
    """Pays, and has left, what JSON or a float cannot hold."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, value):
        self.value = value

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        observation = np.full(1, np.inf, np.float32)
        infos = {"lives": self.value, "health": self.value}
        return observation, float(self.value), self.steps % 3 == 0, False, infos


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e300, np.float32(2), 2**70])
@pytest.mark.parametrize("wrappers", [[], ["monitor"]])
def test_numbers_that_json_does_not_know_are_shown_and_end_nothing(value, wrappers, monkeypatch):
    monkeypatch.setattr(server, "TICK_SECONDS", 0.02)
    wrappers = [{"monitor": {"info_keys": ["health"]}}] if wrappers else []
    with vecwrap.build(lambda: Extreme(value), n=2, backend="dummy", wrappers=wrappers) as env:
        env.reset(seed=1)
        with looking(env) as browser:
            observer = page_of(env)._source._observer
            until(env, lambda: env.core.rows.observers and observer.steps > 10)
            state = browser.state()
            while state["games"] < 3 * bool(wrappers) or (
                wrappers and not state["rows"][0]["length"]
            ):
                env.step([0, 1])
                state = browser.state()
            assert state["trouble"] == ("" if wrappers else live.NO_MONITOR)
            row = state["rows"][0]
            if not wrappers:
                assert (row["score"], row["length"]) == (None, None)
            if np.isinf(float(value)):
                assert row["score"] == (str(float(value)) if wrappers else None)
                assert row["lives"] == (str(float(value)) if value > 0 else None)
                score = dict(state["figures"])["score, last 100"]
                assert score == ("–" if not wrappers else f"–, {state['games']} not finite")
            assert json.loads(browser.get("curves?x=steps&smooth=10")[1])["window"] == 10


def test_a_state_that_cannot_be_made_is_a_trouble_and_the_stream_goes_on(monkeypatch):
    monkeypatch.setattr(server, "TICK_SECONDS", 0.02)
    with vecwrap.build(toy, n=2, backend="dummy") as env:
        env.reset(seed=1)
        with looking(env) as browser:
            before = browser.state()
            monkeypatch.setattr(live.Live, "_rows", lambda *_: 1 / 0)
            while (state := browser.state())["trouble"] == before["trouble"]:
                pass
            assert state["trouble"] == "ZeroDivisionError: division by zero"
            assert state["rows"] == before["rows"]
            monkeypatch.undo()
            while browser.state()["trouble"] != before["trouble"]:
                pass
