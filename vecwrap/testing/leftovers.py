"""What this process has open: child processes, descriptors, shared memory. Empty on systems without /proc."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Holdings", "assert_nothing_left"]


@dataclass(frozen=True)
class Holdings:
    """What is open at one moment.

    Attributes:
        children: process ids of living or unreaped children, with their command lines.
        descriptors: what each open file descriptor refers to.
        shared: names of mapped files that are shared memory.

    >>> before = Holdings.now()
    >>> with Path(__file__).open() as file:
    ...     during = Holdings.now()
    >>> __file__ in before.descriptors.values(), __file__ in during.descriptors.values()  # where there is /proc
    (False, True)
    """

    children: dict[int, str]
    descriptors: dict[int, str]
    shared: frozenset[str]

    @classmethod
    def now(cls) -> Holdings:
        """Return what this process has open."""
        return cls(_children(), _descriptors(), _shared_memory())


def assert_nothing_left(before: Holdings, during: Holdings, patience: float = 5.0) -> None:
    """Raise AssertionError if something newer than ``before`` is still there, or a file of ``during`` is.

    Args:
        before: what was open before the environment was built.
        during: what was open while it ran.
        patience: seconds; a process that was told to end may take a moment.

    Raises:
        AssertionError: something is left; the message says what.

    >>> import vecwrap
    >>> before = Holdings.now()
    >>> with vecwrap.build("CartPole-v1", n=2, backend="shmem", workers=1) as env:
    ...     _ = env.reset(seed=1)
    ...     during = Holdings.now()
    >>> assert_nothing_left(before, during)
    """
    deadline = time.monotonic() + patience
    while True:
        gc.collect()
        left = _left(before, during)
        if not left:
            return
        if time.monotonic() > deadline:
            raise AssertionError("nothing may be left behind after close, got " + "; ".join(left))
        time.sleep(0.02)


def _left(before: Holdings, during: Holdings) -> list[str]:
    now = Holdings.now()
    left = [f"process {pid} ({name})" for pid, name in now.children.items() if pid not in before.children]
    left += [
        f"descriptor {number} ({target})"
        for number, target in now.descriptors.items()
        if before.descriptors.get(number) != target
    ]
    left += [f"mapped {name}" for name in now.shared - before.shared]
    files = {name for name in during.shared - before.shared if name.startswith("/dev/shm/")}
    left += [f"file {name}" for name in files if Path(name).exists()]
    return left


def _children() -> dict[int, str]:
    children = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):  # it has just ended
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == os.getpid():
                children[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ").strip() or fields[0]
    return children


def _descriptors() -> dict[int, str]:
    targets = {}
    for path in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):  # the listing's own descriptor
            targets[int(path.name)] = str(path.readlink())
    return targets


def _shared_memory() -> frozenset[str]:
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    names = {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}
    return frozenset(name for name in names if name.startswith(("/dev/shm/", "/memfd:")))
