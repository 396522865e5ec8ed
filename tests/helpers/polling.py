"""Waiting for what happens by itself, in another process or thread."""

import time

import psutil

# seconds; no measure of anything: it keeps what would never happen from being waited for for ever
LONG = 60.0


def until(holds, seconds=LONG):
    """Wait until ``holds()``; whether it came to that."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(pids):
    """Wait until these processes have ended with all their threads (zombies have); whether it came
    to that.
    """
    return until(lambda: all(map(_has_ended, pids)))


def _has_ended(pid):
    try:
        process = psutil.Process(int(pid))
        if process.status() != psutil.STATUS_ZOMBIE:
            return False
        # A killed process is called a zombie while its other threads still hold what it has open.
        return len(process.threads()) <= 1
    except psutil.NoSuchProcess:
        return True
