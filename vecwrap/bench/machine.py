"""The machine that figures come from: without it they mean nothing."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from vecwrap.backends.cores import usable_cores

__all__ = ["describe_machine", "machine_line"]

PACKAGES = (
    "vecwrap",
    "gymnasium",
    "numpy",
    "opencv-python",
    "ale-py",
    "envpool",
    "stable-baselines3",
    "torch",
    "tianshou",
)


def describe_machine() -> dict[str, Any]:
    """Describe this machine and what is installed, as plain data.

    ``load`` is the number of processes that wanted a core in the last minute, before anything was measured: on an idle
    machine it is near 0, and figures from a busy one are worth little.
    """
    return {
        "cpu": _cpu(),
        "usable_cores": usable_cores(),
        "logical_cores": os.cpu_count(),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: version for name in PACKAGES if (version := _version(name)) is not None},
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def machine_line(machine: dict[str, Any]) -> str:
    """Describe the machine in one line."""
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    memory = f", {machine['memory_gb']} GB" if machine["memory_gb"] else ""
    return (
        f"{machine['cpu']}, {machine['usable_cores']} usable cores{memory}, {machine['system']}, {machine['python']}; "
        f"{packages}; {machine['date'][:10]}"
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine() or "unknown"


def _memory_gb() -> int | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (AttributeError, ValueError, OSError):
        return None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
