"""A screen that nobody sees, what is on it, and what a user does there: under Xvfb, with X's own
protocol.
"""

import contextlib
import os
import shutil
import subprocess
import time

import numpy as np
import pytest


@contextlib.contextmanager
def screen(width=1024, height=768):
    """The name of a new display."""
    if shutil.which("Xvfb") is None or shutil.which("openbox") is None:
        pytest.skip("needs Xvfb and a window manager: apt-get install xvfb openbox")
    pytest.importorskip("Xlib")
    reader, writer = os.pipe()
    command = [
        "Xvfb",
        "-displayfd",
        str(writer),
        "-screen",
        "0",
        f"{width}x{height}x24",
        "-nolisten",
        "tcp",
        "-noreset",
    ]
    with subprocess.Popen(command, pass_fds=[writer], stderr=subprocess.DEVNULL) as server:
        os.close(writer)
        try:
            with os.fdopen(reader) as said:
                name = f":{said.readline().strip()}"
            # Without a manager, one window of Qt's in eight stays black.
            manager = ["openbox", "--sm-disable"]
            environment = {**os.environ, "DISPLAY": name}
            with subprocess.Popen(manager, env=environment, stderr=subprocess.DEVNULL) as managing:
                try:
                    wait_until(lambda: _managed(name))
                    yield name
                finally:
                    managing.terminate()
        finally:
            server.terminate()


def _managed(name):
    """Whether the window manager is there."""
    looked = Screen(name)
    try:
        return (
            looked.root.get_full_property(looked.display.intern_atom("_NET_SUPPORTING_WM_CHECK"), 0)
            is not None
        )
    finally:
        looked.close()


class Screen:
    """A connection to a display."""

    def __init__(self, name):
        import Xlib.display

        self.display = Xlib.display.Display(name)
        self.root = self.display.screen().root

    def close(self):
        self.display.close()

    def windows(self, title):
        """The windows with this in their title."""
        found = []
        todo = [self.root]
        while todo:
            window = todo.pop()
            with contextlib.suppress(Exception):  # it went meanwhile
                if (
                    title in str(window.get_wm_name() or "")
                    and window.get_attributes().map_state == 2
                ):
                    found.append(window)
                todo += window.query_tree().children
        return found

    def uncover(self, window):
        """Wait until something coloured is seen of a window; put it away and bring it back, as a
        user would, if not.

        On this kind of screen one window of Qt's in some twenty to fifty, whatever opens it, takes
        itself for hidden although it is not, and draws nothing until it is mapped once more.
        """
        for _ in range(20):
            for _ in range(100):
                with contextlib.suppress(Exception):  # it is just being moved or sized
                    image = self.image(window)
                    if (image != image[..., :1]).any():
                        return
                time.sleep(0.02)
            window.unmap()
            window.map()
            self.display.flush()
        raise AssertionError("nothing is drawn")

    def image(self, window):
        """What is seen of a window, (height, width, 3) uint8."""
        from Xlib import X

        area = window.get_geometry()
        at = window.translate_coords(self.root, 0, 0)
        data = self.root.get_image(
            -at.x, -at.y, area.width, area.height, X.ZPixmap, 0xFFFFFFFF
        ).data
        return np.frombuffer(data, np.uint8).reshape(area.height, area.width, 4)[..., 2::-1]

    def press(self, window, name):
        """Press a key and let it go."""
        import Xlib.XK
        from Xlib import X
        from Xlib.protocol import event

        code = self.display.keysym_to_keycode(Xlib.XK.string_to_keysym(name))
        for kind in (event.KeyPress, event.KeyRelease):
            window.send_event(
                kind(
                    time=X.CurrentTime,
                    root=self.root,
                    window=window,
                    child=X.NONE,
                    same_screen=1,
                    state=0,
                    root_x=0,
                    root_y=0,
                    event_x=0,
                    event_y=0,
                    detail=code,
                )
            )
        self.display.flush()

    def push_the_button(self, window):
        """Do what a window manager does when the button in the title bar is pushed."""
        from Xlib import X
        from Xlib.protocol import event

        protocols, delete = (
            self.display.intern_atom(name) for name in ("WM_PROTOCOLS", "WM_DELETE_WINDOW")
        )
        data = (32, [delete, X.CurrentTime, 0, 0, 0])
        window.send_event(event.ClientMessage(window=window, client_type=protocols, data=data))
        self.display.flush()


def wait_until(holds):
    """Wait for something that happens by itself, in another process."""
    from Xlib.error import XError

    for _ in range(1000):
        with contextlib.suppress(XError, IndexError):  # a window that is just being moved or sized
            if holds():
                return
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")
