"""Cores: how many this process may use, and which one it runs on."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


# PyDLL keeps the GIL, unlike CDLL: the call takes only a tenth of a microsecond.
current_core: Callable[[], int] = getattr(ctypes.PyDLL(None), "sched_getcpu", lambda: -1)
"""Return the number of the core that this process is on; -1 if the system does not report it."""


def usable_cores(cgroup: Path = _CGROUP, membership: Path = _MEMBERSHIP) -> int:
    """Return the number of cores that workers can actually share, at least 1.

    The minimum of the processor affinity, the quotas of this process's control group and its
    ancestors (v2 ``cpu.max`` or v1 ``cpu.cfs_quota_us``), ``SLURM_CPUS_PER_TASK``, and from Python
    3.13 on ``PYTHON_CPU_COUNT``.
    """
    if hasattr(os, "sched_getaffinity"):
        affinity = len(os.sched_getaffinity(0))
    else:
        affinity = os.cpu_count() or 1
    limits = [float(affinity), *_quotas(cgroup, membership)]
    slurm = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if slurm.isdigit():
        limits.append(float(slurm))
    if hasattr(os, "process_cpu_count"):
        limits.append(float(os.process_cpu_count() or affinity))
    return max(1, int(min(limits)))


def _quotas(cgroup: Path, membership: Path) -> Iterator[float]:
    """The quotas, in cores, of the groups from the process's own to the outermost visible one."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    for line in ["0::/", "0:cpu:/", *lines]:  # the own may be hidden in a container
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        own = Path(path.lstrip("/"))
        for group in (own, *own.parents):
            files = [cgroup / group / "cpu.max"]
            if controllers:  # v1
                of_v1 = cgroup / "cpu" / group
                files = [of_v1 / "cpu.cfs_quota_us", of_v1 / "cpu.cfs_period_us"]
            quota = _quota(*files)
            if quota is not None:
                yield quota


def _quota(*files: Path) -> float | None:
    """The quota that is in one file, or in two, of microseconds and the period that they are of."""
    try:
        quota, period = (float(word) for file in files for word in file.read_text().split())
    except (OSError, ValueError):  # no such group; "max": no limit
        return None
    if quota > 0 and period > 0:
        return quota / period
    return None
