"""What strangers at the page's port take: few descriptors, for a short time, and one word only."""

import contextlib
import logging
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.helpers import polling
from tests.live.test_server import ask, first_state, write_run
from vecwrap.live import RunFolder, connections, serve

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("plotly")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(connections, "REST_SECONDS", 0.0)


@pytest.fixture
def page(tmp_path):
    served = serve(RunFolder(write_run(tmp_path / "run")), 0)
    yield served
    served.close()


@pytest.fixture
def connect(page):
    """Open connections to the page; all are closed in the end."""
    with contextlib.ExitStack() as opened:

        def one(text=""):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before it connects
            connection.settimeout(30)
            opened.enter_context(connection)
            connection.connect(("127.0.0.1", urlsplit(page.address).port))
            connection.sendall(text.encode())
            return connection

        yield one


def request(page, path, secret=None):
    own = urlsplit(page.address).path.strip("/")
    return f"GET /{own if secret is None else secret}/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def rest_of(connection):
    """All that comes until the connection is closed."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 20):
            received += piece
    return received


def descriptors():
    return sum(1 for _ in Path("/dev/fd").iterdir())


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_silent_connections_take_few_descriptors_and_there_is_one_word_of_it(page, connect, caplog):
    ask(page)
    before = descriptors()
    silent = [connect() for _ in range(120)]
    for one in silent[: -connections.MAX_STRANGERS]:
        assert rest_of(one) == b""  # closed by the page
    assert descriptors() <= before + len(silent) + connections.MAX_STRANGERS
    assert ask(page, "about")[0] == 200
    (message,) = said(caplog)
    assert message.startswith("the page: the oldest of more than 24 connections")


def test_a_silent_connection_is_closed_soon_without_a_word(page, connect, caplog, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.1)
    assert rest_of(connect()) == b""
    assert said(caplog) == []


def test_a_request_that_comes_a_byte_at_a_time_is_not_waited_for(page, connect, monkeypatch):
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)
    slow = connect()
    with pytest.raises(ConnectionError):
        for byte in request(page, "about") * 1000:
            slow.sendall(byte.encode())
            time.sleep(0.01)


def test_requests_with_a_wrong_secret_are_answered_and_their_connections_closed(
    page, connect, caplog
):
    ask(page)
    before = descriptors()
    for number in range(100):
        answer = rest_of(connect(request(page, "about", secret=f"guess{number}") * 2))
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert answer.count(b"HTTP/1.1") == 1
    assert polling.until(lambda: descriptors() <= before + 100 + 1)
    assert said(caplog) == []


def test_of_connections_with_the_secret_the_oldest_gives_way(page, connect, monkeypatch):
    """As those of browsers that went to sleep: a new one is always let in."""
    monkeypatch.setattr(connections, "MAX_KNOWN", 3)
    followers = []
    for _ in range(8):
        followers.append(connect(request(page, "events")))
        assert followers[-1].recv(12) == b"HTTP/1.1 200"
    for one in followers[:5]:
        assert b"event: ended" not in rest_of(one)  # it was cut off
    assert first_state(page)["title"] == "run"


def test_an_answer_that_nobody_reads_ends_its_connection(page, connect, monkeypatch):
    monkeypatch.setattr(connections, "STUCK_SECONDS", 0.2)
    aborted = []
    abort = connections.Connection.abort
    monkeypatch.setattr(
        connections.Connection, "abort", lambda self: (aborted.append(self), abort(self))
    )
    whole = len(ask(page, "plotly.min.js")[2])
    assert aborted == []  # it was read
    idle = connect(request(page, "plotly.min.js"))
    assert polling.until(lambda: aborted)
    assert 0 < len(rest_of(idle)) < whole


def test_the_last_descriptors_are_the_runs(page, connect, caplog, monkeypatch):
    most = connections._max_descriptors
    # A new connection takes the lowest number that is free, and the first three never are.
    monkeypatch.setattr(connections, "_max_descriptors", lambda: connections.SPARE_DESCRIPTORS + 3)
    for _ in range(30):
        assert rest_of(connect(request(page, "about"))) == b""
    (message,) = said(caplog)
    assert "the run needs the last descriptors" in message
    monkeypatch.setattr(connections, "_max_descriptors", most)
    assert ask(page, "about")[0] == 200


def test_a_page_that_ends_closes_silent_connections_too(page, connect):
    silent, known = connect(), connect(request(page, "events"))
    assert known.recv(12) == b"HTTP/1.1 200"
    page.close()
    assert not page._thread.is_alive()
    assert rest_of(silent) == b""
    assert rest_of(known).endswith(b"event: ended\ndata: {}\n\n\r\n0\r\n\r\n")
