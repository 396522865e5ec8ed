"""A window that shows pictures, in its own process: OpenCV ends it if the display cannot be used, and freezes."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from vecwrap.errors import PlanError

PATIENCE = 60.0  # seconds; a window that does not answer for this long is given up
_INSTEAD = (
    'Instead: render_mode="rgb_array" with the wrapper video (a file to watch later), vecwrap run --snapshot tiles.png '
    "(a picture), or env.show() in a notebook"
)


def refuse_without_display() -> None:
    """Refuse if it is known in advance that no window can be opened, and say what to use instead."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise PlanError(
            'render_mode="human": expected a display for the window, got none (DISPLAY is not set). '
            f"{_INSTEAD}. Over ssh, ssh -X may lend one; xvfb-run makes one that nobody sees."
        )


class Window:
    """A window that shows pictures, (height, width, 3) uint8; a PlanError says why none can be opened."""

    def __init__(self, title: str, picture: NDArray[np.uint8]) -> None:
        refuse_without_display()
        self._connection, theirs = socket.socketpair()
        self._connection.settimeout(PATIENCE)
        self._poller = select.poll()  # select() takes no descriptor above 1023
        self._poller.register(self._connection, select.POLLIN)
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- Qt's complaints, for an error
        script = str(Path(__file__).with_name("process.py"))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", script, "0", title],
                stdin=theirs.fileno(),  # a small descriptor, however many are open here
                stdout=self._said,
                stderr=self._said,
                start_new_session=True,
            )
        self._open = self._busy = True
        self._reason = ""
        try:
            self._send(picture)
            self._listen(wait=True)
            if not self._open:
                raise self._refusal()
        except BaseException:
            self.close()
            raise

    @property
    def open(self) -> bool:
        self._listen()
        return self._open

    def show(self, picture: NDArray[np.uint8]) -> None:
        self._listen(wait=self._busy)
        if self._open:
            self._send(picture)

    def close(self) -> None:
        self._end()
        self._said.close()

    def _end(self) -> None:
        self._open = False
        with contextlib.suppress(OSError):  # reaches the other end even if a fork of this process has a copy
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, picture: NDArray[np.uint8]) -> None:
        height, width = picture.shape[:2]
        try:
            self._connection.sendall(struct.pack("!II", height, width))
            self._connection.sendall(np.ascontiguousarray(picture).data.cast("B"))
            self._busy = True
        except OSError:  # it was closed in the meantime, or does not answer
            self._open = False

    def _listen(self, *, wait: bool = False) -> None:
        """Read its messages; with ``wait``, at least until the last picture is shown or the window is gone."""
        while self._open and self._poller.poll(PATIENCE * 1000 if wait and self._busy else 0):
            said = self._receive(1)
            if said == b"s":
                self._busy = False
            else:
                self._open = False
                while more := self._receive(4096):
                    said += more
                self._reason = said.decode(errors="replace").removeprefix("!")
        if wait and self._busy:  # it does not answer
            self._open = False

    def _receive(self, count: int) -> bytes:
        try:
            return self._connection.recv(count)
        except OSError:
            return b""

    def _refusal(self) -> PlanError:
        self._end()
        reason = self._reason
        if "not implemented" in reason:
            return PlanError(
                'render_mode="human": expected an OpenCV that can open windows, got opencv-python-headless: '
                f"pip uninstall opencv-python-headless && pip install opencv-python. {_INSTEAD}."
            )
        if reason.startswith(("ImportError", "ModuleNotFoundError")):
            return PlanError(f'render_mode="human": OpenCV cannot be imported ({reason}): pip install opencv-python.')
        self._said.seek(0)
        lines = [line for line in self._said.read().decode(errors="replace").splitlines() if line.strip()]
        reason = reason or (lines[0] if lines else f"exit status {self._process.returncode}")
        display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        return PlanError(
            f'render_mode="human": no window can be opened on the display {display} ({reason.strip()}). {_INSTEAD}.'
        )
