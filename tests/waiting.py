"""Waiting for what happens by itself, in another process or thread."""

import time

import psutil

LONG = 60.0  # seconds; no measure of anything: it keeps what would never happen from being waited for for ever


def until(holds, seconds=LONG):
    """Wait until ``holds()``; whether it came to that."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def gone(pids):
    """Wait until none of these processes runs any more (a zombie has ended); whether it came to that."""
    return until(lambda: not any(map(_runs, pids)))


def _runs(pid):
    try:
        return psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
