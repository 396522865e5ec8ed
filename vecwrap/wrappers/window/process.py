"""The window's process: shows pictures as they arrive, until Esc, its close button, or the end of the connection.

A standalone script that imports nothing from vecwrap. Per picture it reads height and width (two unsigned 32-bit
integers) and the pixels, RGB. It answers ``s`` when the picture is shown, and ``!`` with the reason if there can be no
window. It ends when the user has closed the window.
"""

import select
import signal
import socket
import struct
import sys
from typing import Any

ESCAPE = 27
POLL_SECONDS = 0.01


def serve(connection: socket.socket, title: str) -> None:
    import cv2  # takes seconds on a slow disk; errors from here on are reported
    import numpy as np

    shown_size = None
    while True:
        news = bool(select.select([connection], [], [], POLL_SECONDS)[0])
        if news:
            size = _read(connection, 8)
            if size is None:
                return
            height, width = struct.unpack("!II", size)
            pixels = _read(connection, height * width * 3)
            if pixels is None:
                return
            picture = np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
            if shown_size is None:
                cv2.namedWindow(title, cv2.WINDOW_NORMAL | cv2.WINDOW_KEEPRATIO | cv2.WINDOW_GUI_NORMAL)
            if shown_size != (width, height):  # otherwise it keeps the size that the user chose
                shown_size = width, height
                cv2.resizeWindow(title, width, height)
            cv2.imshow(title, cv2.cvtColor(picture, cv2.COLOR_RGB2BGR))
        closed = shown_size is not None and _closed(cv2, title)  # which also draws the new picture
        if news:
            connection.sendall(b"s")
        if closed:
            return


def _closed(cv2: Any, title: str) -> bool:
    return bool(cv2.waitKey(1) & 0xFF == ESCAPE or cv2.getWindowProperty(title, cv2.WND_PROP_VISIBLE) < 1)


def _read(connection: socket.socket, count: int) -> bytearray | None:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        received = connection.recv_into(view)
        if not received:
            return None
        view = view[received:]
    return data


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run; this process ends with the connection
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        try:
            serve(connection, sys.argv[2])
        except OSError:
            pass  # the other end is gone
        except Exception as error:
            connection.sendall(f"!{type(error).__name__}: {error}".encode())
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):  # closing with unread data would discard the message
                pass


if __name__ == "__main__":
    main()
