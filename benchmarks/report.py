"""Results as tables and as plain data for JSON, with the machine that they come from."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.measure import QUANTITIES, WorkResult
from vecwrap.backends.workers.cores import usable_cores

LIBS = (
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

    ``load`` is the number of processes that wanted a core in the last minute, before anything was
    measured: on an idle machine it is near 0, and figures from a busy one are worth little.
    """
    return {
        "cpu": _cpu(),
        "usable_cores": usable_cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: version for name in LIBS if (version := _version(name)) is not None},
        "load": round(os.getloadavg()[0], 2),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def machine_line(machine: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    return (
        f"{machine['cpu']}, {machine['usable_cores']} usable cores, {machine['memory_gb']} GB, "
        f"{machine['system']}, {machine['python']}; {packages}; {machine['date'][:10]}"
    )


def figure(value: float) -> str:
    """Format a figure with three or four significant digits.

    >>> figure(158_731.4), figure(1234.5), figure(12.345), figure(0.04)
    ('158,700', '1,234', '12.3', '0.04')
    """
    if value >= 10_000:
        return f"{round(value, -2):,.0f}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def result_table(result: WorkResult, quantity: str) -> list[tuple[str, ...]]:
    """Return a header and a row per contender: name, median, spread, ratio, remarks; a reason if
    without figures.
    """
    lead = result.lead.name if result.lead else "ours"
    rows: list[tuple[str, ...]] = [
        (QUANTITIES[quantity].unit, "median", "spread", f"{lead} is", "remarks")
    ]
    for m in result.measurements:
        median, values, ratio = m.median(quantity), m.values(quantity), result.ratio(m, quantity)
        if median is None:
            rows.append((m.name, "–", "", "", m.missing or "not measured"))
        else:
            times = (
                ""
                if ratio is None
                else f"{ratio.of_medians:.2f} × ({ratio.low:.2f} to {ratio.high:.2f})"
            )
            rows.append(
                (
                    m.name,
                    figure(median),
                    f"{figure(min(values))} to {figure(max(values))}",
                    times,
                    m.note,
                )
            )
    return rows


def to_data(machine: dict[str, Any], results: Sequence[WorkResult], **more: Any) -> dict[str, Any]:
    """Return everything as plain data: every sample, the medians, and how many times as good the
    lead is.
    """
    return {"machine": machine, **more, "results": [_result_data(result) for result in results]}


def _result_data(result: WorkResult) -> dict[str, Any]:
    contenders = []
    for m in result.measurements:
        measured = [q for q in result.quantities if m.values(q)]
        contenders.append(
            {
                "name": m.name,
                "side": m.side,
                "note": m.note,
                "missing": m.missing,
                "medians": {q: m.median(q) for q in measured},
                "lead_is": {
                    q: ratio._asdict()
                    for q in measured
                    if (ratio := result.ratio(m, q)) is not None
                },
                "rounds": m.rounds,
            }
        )
    return {"key": result.key, "title": result.title, "how": result.how, "contenders": contenders}
