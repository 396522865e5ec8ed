"""A window that shows pictures, in its own process.

OpenCV ends its process if the display cannot be used, and can freeze.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from vecwrap.errors import PlanError

ANSWER_SECONDS = 60  # seconds; a window that does not answer for this long is given up
_INSTEAD = (
    'Instead: render_mode="rgb_array" with the wrapper video (a file to watch later), vecwrap run '
    "--snapshot tiles.png (a picture), or env.show() in a notebook"
)


def refuse_without_display() -> None:
    """Refuse if it is known that no window can be opened, and say what to use instead."""
    if sys.platform == "linux" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        raise PlanError(
            'render_mode="human": expected a display for the window, got none (DISPLAY is not '
            f"set). {_INSTEAD}. Over ssh, ssh -X may lend one; xvfb-run makes one that nobody sees."
        )


class Window:
    """A window for (height, width, 3) uint8 pictures; PlanError says why none can be opened."""

    def __init__(self, title: str, picture: NDArray[np.uint8]) -> None:
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", ANSWER_SECONDS, 0))
        self._connection = Connection(ours.detach())
        # Qt's complaints, for an error.
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        script = str(Path(__file__).with_name("process.py"))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", script, "0", title],
                stdin=theirs.fileno(),  # a small descriptor, however many are open here
                stdout=self._said,
                stderr=self._said,
                start_new_session=True,
            )
        self._open = True
        self._awaits_answer = False  # to the last picture
        self._reason = ""
        try:
            self.show(picture)
            self._wait()
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
        """Show a picture, once the last one is shown."""
        self._wait()
        if self._open:
            try:
                self._connection.send_bytes(
                    struct.pack("!II", *picture.shape[:2]) + picture.tobytes()
                )
                self._awaits_answer = True
            except OSError:  # it was closed in the meantime, or does not read
                self._open = False

    def close(self) -> None:
        self._open = False
        self._connection.close()
        # the end of the connection is not enough if a fork of this process has a copy
        self._process.kill()
        self._process.wait()
        self._said.close()

    def _wait(self) -> None:
        """Wait until the last picture is shown; a window that does not answer is given up."""
        if self._open and self._awaits_answer:
            self._open = self._connection.poll(ANSWER_SECONDS)
        self._listen()

    def _listen(self) -> None:
        """Receive the answers that are there."""
        try:
            while self._open and self._connection.poll():
                self._reason = self._connection.recv_bytes().decode(errors="replace")
                self._awaits_answer = False
                self._open = not self._reason
        except (EOFError, OSError):  # it has ended
            self._open = False

    def _refusal(self) -> PlanError:
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)  # for its exit status, and its last words
        reason = self._reason
        if "not implemented" in reason:
            return PlanError(
                'render_mode="human": expected an OpenCV that can open windows, got '
                "opencv-python-headless: pip uninstall opencv-python-headless && pip install "
                f"opencv-python. {_INSTEAD}."
            )
        self._said.seek(0)
        lines = [
            line for line in self._said.read().decode(errors="replace").splitlines() if line.strip()
        ]
        reason = reason or next(iter(lines), f"exit status {self._process.returncode}")
        display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        return PlanError(
            f'render_mode="human": no window can be opened on the display {display} '
            f"({reason.strip()}). {_INSTEAD}."
        )
