"""The page's connections: few at a time, and none stays long without showing the page's secret.

Whoever knows the port can connect, and each connection is a descriptor of the program that is
watched. So connections are accepted here, one at a time; asyncio's own server accepts all that wait
and, once there are no descriptors left, logs a traceback for each of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import Callable, Mapping
from typing import Any

MAX_STRANGERS = 24  # connections that have not shown the secret; the oldest gives way
MAX_KNOWN = 40  # connections that have: a browser has up to six
SPARE_DESCRIPTORS = 32  # the last ones below the limit are the run's
REQUEST_SECONDS = 5.0  # from the connection to a whole request with the secret
STUCK_SECONDS = 15.0  # in which a browser reads nothing of its answer
# after each stranger that was turned away, so that strangers take no time of the run
REST_SECONDS = 0.01
RETRY_SECONDS = 1.0  # after a connection that could not be accepted
_STATE = "connection"  # the name in the ASGI scope's state

_log = logging.getLogger("vecwrap")


def connection_of(scope: Mapping[str, Any]) -> Connection:
    """Return the connection that a request came through."""
    found: Connection = scope["state"][_STATE]
    return found


class Connections:
    """Accepts connections until ``stopping``; ``make`` returns each connection's HTTP protocol.

    The requests of an HTTP protocol have the state that ``make`` receives.
    """

    def __init__(self, make: Callable[[dict[str, Any]], Any], stopping: Callable[[], bool]) -> None:
        self._make = make
        self._stopping = stopping
        self._strangers: dict[
            Connection, None
        ] = {}  # in the order in which they came, as those that are known
        self._known: dict[Connection, None] = {}
        self._rests = False  # before the next connection
        self._warned = False

    async def accept(self, listener: socket.socket) -> None:
        """Accept connections until the task is cancelled."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:  # no descriptor is left, or the connection has gone
                self._warn(f"a connection cannot be accepted ({error.strerror or error})")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self._stopping():
                accepted.close()
            elif accepted.fileno() >= _max_descriptors() - SPARE_DESCRIPTORS:
                accepted.close()
                self._warn(
                    "connections are refused, because the run needs the last descriptors (ulimit "
                    "-n)"
                )
                self._rests = True
            else:
                await loop.connect_accepted_socket(self._new, accepted)
            if self._rests:
                self._rests = False
                await asyncio.sleep(REST_SECONDS)

    def close(self) -> None:
        """End all connections at once."""
        for connection in [*self._strangers, *self._known]:
            connection.abort()

    def add(self, connection: Connection) -> None:
        self._strangers[connection] = None
        if len(self._strangers) > MAX_STRANGERS:
            self._warn(
                f"the oldest of more than {MAX_STRANGERS} connections that do not show its secret "
                "are closed"
            )
            self.turn_away(next(iter(self._strangers)))

    def welcome(self, connection: Connection) -> None:
        """The connection has shown the secret."""
        if connection not in self._strangers:
            return
        self.remove(connection)
        self._known[connection] = None
        if len(self._known) > MAX_KNOWN:
            next(iter(self._known)).abort()

    def turn_away(self, connection: Connection) -> None:
        self._rests = True
        connection.abort()

    def rest(self) -> None:
        self._rests = True

    def remove(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)

    def _new(self) -> Connection:
        state: dict[str, Any] = {}
        state[_STATE] = connection = Connection(self, self._make(state))
        return connection

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("the page: %s; the run goes on, and this is logged once", what)


class Connection(asyncio.Protocol):
    """A connection: forwards to an HTTP protocol, and ends if the peer sends or reads nothing."""

    def __init__(self, connections: Connections, http: Any) -> None:
        self._connections = connections
        self._http = http
        self._transport: Any = None
        self._request_due: asyncio.TimerHandle | None = None
        self._progress_due: asyncio.TimerHandle | None = None

    def welcome(self) -> None:
        """A request with the secret has come."""
        _cancel(self._request_due)
        self._connections.welcome(self)

    def refuse(self) -> None:
        """A request without the secret has come; its answer closes the connection."""
        self._connections.rest()

    def abort(self) -> None:
        self._connections.remove(self)
        self._transport.abort()

    # -- asyncio's protocol ------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        _notice_lost_peers(transport.get_extra_info("socket"))
        loop = asyncio.get_running_loop()
        self._request_due = loop.call_later(REQUEST_SECONDS, self._connections.turn_away, self)
        self._http.connection_made(transport)
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        _cancel(self._request_due)
        _cancel(self._progress_due)
        self._connections.remove(self)
        self._http.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._http.data_received(data)

    def eof_received(self) -> bool | None:
        ended: bool | None = self._http.eof_received()
        return ended

    def pause_writing(self) -> None:
        self._http.pause_writing()
        self._await_progress()

    def resume_writing(self) -> None:
        _cancel(self._progress_due)
        self._http.resume_writing()

    def _await_progress(self, before: int | None = None) -> None:
        """End the connection if nothing of what waits to be sent has been read for a while."""
        waiting = self._transport.get_write_buffer_size()
        if before is not None and waiting >= before:
            self.abort()
            return
        loop = asyncio.get_running_loop()
        self._progress_due = loop.call_later(STUCK_SECONDS, self._await_progress, waiting)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _max_descriptors() -> float:
    """How many descriptors the program may have."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    return limit


def _notice_lost_peers(connection: socket.socket) -> None:
    """Have the system end a connection whose peer is gone or reads nothing.

    This also holds if little data waits to be sent.
    """
    # it is gone already; the system has no such option
    with contextlib.suppress(OSError, AttributeError):
        connection.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(2 * STUCK_SECONDS * 1000)
        )
