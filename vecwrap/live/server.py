"""The page's server: a few addresses below a secret one, in a daemon thread of the watched program.

Every request needs the secret and a Host that means this machine, so that no other page of the
browser, and no other user of the machine, can read it. The only request that changes anything, POST
record, adds a video to the run.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import html
import ipaddress
import json
import os
import re
import secrets
import socket
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator
from functools import partial
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from vecwrap.env.untrusted import open_regular
from vecwrap.errors import PlanError, install_command, is_installed, one_line
from vecwrap.live.connections import Connections, connection_of
from vecwrap.live.page_source import PageSource, curves
from vecwrap.tools.runs import AXES

PORT = 8642  # free in IANA's list
PORTS = 20  # that are tried from there on, for a second run
LOOPBACK = "127.0.0.1"
TICK_SECONDS = 0.5  # seconds between two states
RECORD = ".page.json"  # in a run's folder, while the run serves a page
PLOTLY = "plotly.min.js"
STATIC = {"index.html": "text/html", "page.css": "text/css"}
STATIC |= dict.fromkeys(("page.js", "details.js", PLOTLY), "text/javascript")
_ADDRESS = re.compile(r"http://(127\.0\.0\.1|localhost|\[::1\]):\d+/[\w-]+/")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; "
        "object-src 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
EMPTY_STATE: dict[str, Any] = {  # a state, until there is one
    **dict.fromkeys(("title", "env", "status", "trouble", "again"), ""),
    **dict.fromkeys(("live", "frames"), False),
    **dict.fromkeys(("version", "games"), 0),
    **dict.fromkeys(("figures", "rows"), ()),
}


def why_no_page() -> str:
    """Return which of the page's packages are not installed; nothing if all are."""
    missing = [name for name in ("starlette", "uvicorn", "plotly") if not is_installed(name)]
    if missing:
        return f"the page needs {', '.join(missing)}: {install_command('live')}"
    return ""


class Address(str):
    """Where a page is; as the value of a notebook's cell it is the page itself."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{html.escape(self)}" width="100%" height="720" style="border: '
            '0"></iframe>'
        )


class Page:
    """A page that is being served.

    Attributes:
        address: where, with the secret in it.
    """

    _server: Any

    def __init__(
        self, source: PageSource, listener: socket.socket, host: str, record: Path | None
    ) -> None:
        uvicorn: Any = import_module("uvicorn")
        token = secrets.token_urlsafe(16)
        port = listener.getsockname()[1]
        shown = LOOPBACK if host in ("0.0.0.0", "::", "") else host
        if ":" in shown:
            shown = f"[{shown}]"
        self.address = Address(f"http://{shown}:{port}/{token}/")
        self._source = source
        self._listener = listener
        self._record = record
        config = uvicorn.Config(
            _application(source, token, host, self._is_stopping),
            log_config=None,
            log_level="critical",
            http="h11",
            ws="none",
            proxy_headers=False,
            lifespan="off",
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._work, name="vecwrap: page", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # informs browsers, and leaves no record

    @property
    def is_served(self) -> bool:
        """Whether it can still be opened."""
        return self._thread.is_alive() and not self._server.should_exit

    def close(self) -> None:
        """Stop serving it, after browsers were notified."""
        atexit.unregister(self.close)
        self._server.should_exit = True
        if threading.current_thread() is not self._thread:
            self._thread.join(5)

    def join(self) -> None:
        """Wait until it is no longer served."""
        while self._thread.is_alive():  # in slices, so that Ctrl-C is handled
            self._thread.join(0.5)

    def _work(self) -> None:
        with self._listener, _recorded(self._record, self.address):
            try:
                asyncio.run(self._serve())
            finally:
                self._source.done()
        atexit.unregister(self.close)

    async def _serve(self) -> None:
        config = self._server.config
        config.load()
        http = config.http_protocol_class
        states = self._server.server_state
        make = partial(http, config, states)
        connections = Connections(make, self._is_stopping)
        accepting = asyncio.create_task(connections.accept(self._listener))
        ending = asyncio.create_task(self._end())
        await self._server.serve(sockets=[])
        ending.cancel()
        accepting.cancel()
        connections.close()
        await asyncio.sleep(0)  # in which they are closed

    def _is_stopping(self) -> bool:
        return bool(self._server.should_exit)

    async def _end(self) -> None:
        """End with what is watched, after every browser was notified."""
        while not self._source.ended:
            await asyncio.sleep(TICK_SECONDS)
        await asyncio.sleep(3 * TICK_SECONDS)
        self._server.should_exit = True


def serve(
    source: PageSource, port: int | None = None, host: str = LOOPBACK, record_in: Path | None = None
) -> Page:
    """Serve a page of this source on ``port``, or on the first free port from the default.

    If ``port`` is taken, PlanError is raised.

    ``record_in``: the run's folder, where ``find_page`` finds it.
    """
    if why := why_no_page():
        raise PlanError(f"watch: {why}")
    record = None
    if record_in is not None:
        record = record_in / RECORD
    return Page(source, _listen(port, host), host, record)


@contextlib.contextmanager
def _recorded(record: Path | None, address: str) -> Iterator[None]:
    """Have the address in a file that only this user can read, as long as the page is served."""
    if record is not None:
        with contextlib.suppress(OSError):
            record.parent.mkdir(parents=True, exist_ok=True)
            record.unlink(missing_ok=True)
            with os.fdopen(
                os.open(record, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
            ) as file:
                file.write(json.dumps({"address": address}))
    try:
        yield
    finally:
        if record is not None:
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                if json.loads(record.read_text())["address"] == address:
                    record.unlink()


def find_page(folder: Path) -> str | None:
    """Return the address of the page that a run in this folder serves; None if there is none.

    A record counts only if this user wrote it, and if it leads to this machine and to a page.
    """
    try:
        with open_regular(folder / RECORD) as file:
            status = os.fstat(file.fileno())
            address = json.loads(file.read(1_000))["address"]
        if (
            status.st_uid != os.getuid()
            or status.st_mode & 0o077
            or not _ADDRESS.fullmatch(address)
        ):
            return None
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{address}about", timeout=3) as answer:
            if answer.status == 200:
                return str(address)
            return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _listen(port: int | None, host: str) -> socket.socket:
    tried = [port]
    if port is None:
        tried = [*range(PORT, PORT + PORTS), 0]
    for number in tried:
        try:
            family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, number), family=family)
        except (OSError, OverflowError) as error:
            trouble = error
            if isinstance(error, socket.gaierror):
                break
    raise PlanError(
        f"watch: expected a host and a port to listen on, got {host}:{port}: {trouble}; give "
        "another port"
    )


def _application(source: PageSource, token: str, host: str, stopping: Any) -> Any:
    """The ASGI application."""
    responses: Any = import_module("starlette.responses")
    routing: Any = import_module("starlette.routing")
    page = resources.files("vecwrap.live") / "page"
    viewers = 0
    latest = EMPTY_STATE

    def data(content: Any) -> Any:
        return responses.Response(_json(content), media_type="application/json", headers=HEADERS)

    async def static(request: Any) -> Any:
        name = request.path_params.get("name", "index.html")
        if name not in STATIC:
            return _refused(responses, 404)
        folder = page
        headers = HEADERS
        if name == PLOTLY:
            folder = resources.files("plotly") / "package_data"
            headers = {**HEADERS, "Cache-Control": "private, max-age=86400"}
        return responses.Response(
            (folder / name).read_bytes(), media_type=STATIC[name], headers=headers
        )

    async def events(request: Any) -> Any:
        row = _number(request.query_params.get("row"))
        stream = look(request, row)
        return responses.StreamingResponse(stream, media_type="text/event-stream", headers=HEADERS)

    def state(row: int | None) -> str:
        nonlocal latest
        try:
            found = source.state(row)
            text = _json(found)
        except Exception as error:  # what cannot be shown does not end the page
            return _json({**latest, "trouble": one_line(error)})
        latest = found
        return text

    async def look(request: Any, row: int | None) -> AsyncIterator[str]:
        nonlocal viewers
        viewers += 1
        source.watched(viewers)
        try:
            while True:
                # before the state, so that the last one is complete
                ended = source.ended or stopping()
                yield f"event: state\ndata: {state(row)}\n\n"
                if ended:
                    yield "event: ended\ndata: {}\n\n"
                    return
                await asyncio.sleep(TICK_SECONDS)
                if await request.is_disconnected():
                    return
        finally:
            viewers -= 1
            source.watched(viewers)

    async def about(request: Any) -> Any:
        return data(source.about())

    async def lines(request: Any) -> Any:
        axis = request.query_params.get("x", "steps")
        window = _number(request.query_params.get("smooth", "100"))
        if axis not in AXES or not window:
            return _refused(responses, 404)
        return data(curves(source.runs(), axis, window))

    async def frame(request: Any) -> Any:
        row = _number(request.query_params.get("row"))
        content = source.frame(row)
        if content is None:  # not yet
            return responses.Response(status_code=204, headers=HEADERS)
        kind = "image/jpeg" if row is None else "image/png"
        return responses.Response(content, media_type=kind, headers=HEADERS)

    async def file(request: Any) -> Any:
        path: Path | None = source.file(request.path_params["name"])
        if path is None:
            return _refused(responses, 404)
        return responses.FileResponse(path, headers=HEADERS)

    async def record(request: Any) -> Any:
        row = request.query_params.get("row")
        if row is not None and _number(row) is None:
            return _refused(responses, 404)
        return data({"why": source.record(_number(row))})

    found = {"/": static, "/events": events, "/about": about, "/curves": lines, "/frame": frame}
    found |= {"/file/{name:path}": file, "/{name}": static}
    routes = [routing.Route(path, endpoint, methods=["GET"]) for path, endpoint in found.items()]
    routes.insert(0, routing.Route("/record", record, methods=["POST"]))
    router = routing.Router([routing.Mount(f"/{token}", routes=routes)])

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        first = scope["path"].removeprefix("/").partition("/")[0]
        knows = secrets.compare_digest(first.encode(), token.encode())
        allowed = knows and _is_host(dict(scope["headers"]).get(b"host", b""), host)
        connection = connection_of(scope)
        if allowed:
            connection.welcome()
            await router(scope, receive, send)
        else:
            connection.refuse()
            await _refused(responses, 403)(scope, receive, send)

    return guarded


def _refused(responses: Any, status: int) -> Any:
    words = {
        403: "Open the whole address that was printed, with its secret.",
        404: "There is no such page.",
    }
    closed = {}
    if status == 403:
        closed = {"Connection": "close"}
    return responses.PlainTextResponse(words[status], status, headers=HEADERS | closed)


def _is_host(header: bytes, host: str) -> bool:
    """Whether a request names this machine: a page elsewhere could let a name of its own lead here.

    >>> _is_host(b"127.0.0.1:8642", "127.0.0.1"), _is_host(b"elsewhere.example:8642", "127.0.0.1")
    (True, False)
    """
    text = header.decode(errors="replace").lower()
    name = text.partition(":")[0]
    if text.startswith("["):
        name = text[1:].partition("]")[0]
    if name in ("localhost", LOOPBACK, "::1", host.lower()):
        return True
    if host not in ("0.0.0.0", "::", ""):
        return False
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return name in (socket.gethostname().lower(), socket.getfqdn().lower())


def _number(text: str | None) -> int | None:
    if text is not None and text.isdecimal() and len(text) < 10:
        return int(text)
    return None


def _json(content: Any) -> str:
    """JSON, which has no infinity and no NaN; TypeError or ValueError for what it has not."""
    return json.dumps(content, ensure_ascii=True, allow_nan=False)
