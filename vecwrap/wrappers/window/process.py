"""The window's process: shows pictures until Esc, the close button, or the connection's end.

A standalone script that imports nothing from vecwrap. A message holds a picture: height and width
(two unsigned 32-bit integers) and the pixels, RGB. The answer is an empty message when the picture
is shown, and the reason if there can be no window. The process ends when the user has closed the
window.
"""

import contextlib
import signal
import struct
import sys
from multiprocessing.connection import Connection
from typing import Any

ESCAPE = 27
POLL_SECONDS = 0.01


def serve(connection: Connection, title: str) -> None:
    import cv2  # takes seconds on a slow disk; errors from here on are reported
    import numpy as np

    shown_size = None
    while True:
        news = connection.poll(POLL_SECONDS)
        if news:
            message = connection.recv_bytes()
            height, width = struct.unpack_from("!II", message)
            picture = np.frombuffer(message, np.uint8, offset=8).reshape(height, width, 3)
            if shown_size is None:
                cv2.namedWindow(
                    title, cv2.WINDOW_NORMAL | cv2.WINDOW_KEEPRATIO | cv2.WINDOW_GUI_NORMAL
                )
            if shown_size != (width, height):  # otherwise it keeps the size that the user chose
                shown_size = width, height
                cv2.resizeWindow(title, width, height)
            cv2.imshow(title, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
        closed = shown_size is not None and _closed(cv2, title)  # which also draws the new picture
        if news:
            connection.send_bytes(b"")
        if closed:
            return


def _closed(cv2: Any, title: str) -> bool:
    return bool(
        cv2.waitKey(1) & 0xFF == ESCAPE or cv2.getWindowProperty(title, cv2.WND_PROP_VISIBLE) < 1
    )


def main() -> None:
    # Ctrl-C is for the run; this process ends with the connection.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The other end is gone.
    with Connection(int(sys.argv[1])) as connection, contextlib.suppress(EOFError, OSError):
        try:
            serve(connection, sys.argv[2])
        except Exception as error:
            connection.send_bytes(f"{type(error).__name__}: {error}".encode())
            while True:  # closing with unread data would discard the message
                connection.recv_bytes()


if __name__ == "__main__":
    main()
