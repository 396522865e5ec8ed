"""What a command prints on a terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios


def on_a_terminal(*arguments, columns=120):
    """What ``vecwrap`` with these arguments prints on a terminal this wide; it must end well."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")
    }
    command = [sys.executable, "-m", "vecwrap", *arguments]
    said = b""
    with subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**environment, "TERM": "xterm-256color"},
    ) as process:
        os.close(terminal)
        while True:
            try:
                piece = os.read(controller, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            said += piece
    os.close(controller)
    assert process.returncode == 0, said.decode()
    return said.decode().replace("\r\n", "\n")
