"""How many cores this process may use: the least of what the system, a container and a batch scheduler allow."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["usable_cores"]

_CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """Give the number of cores that workers can really share, at least 1.

    The least of the processor affinity, the cgroup quota (v2 ``cpu.max`` or v1 ``cpu.cfs_quota_us``) and
    ``SLURM_CPUS_PER_TASK``.

    Args:
        cgroup: where the control group's files are.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [float(affinity)]
    if (quota := _quota(cgroup)) is not None:
        limits.append(quota)
    slurm = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if slurm.isdigit():
        limits.append(float(slurm))
    return max(1, int(min(limits)))


def _quota(cgroup: Path) -> float | None:
    try:
        words = (cgroup / "cpu.max").read_text().split()
    except OSError:
        try:
            cpu = cgroup / "cpu"
            words = [(cpu / name).read_text().strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        except OSError:
            return None
    try:
        quota, period = float(words[0]), float(words[1])
    except (ValueError, IndexError):  # "max": no limit
        return None
    return quota / period if quota > 0 and period > 0 else None
