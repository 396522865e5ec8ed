"""The tables in docs/performance.md: what is compared with the same one of our contenders stands
beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import QUANTITIES, WorkResult
from benchmarks.report import figure, machine_line, result_table

__all__ = ["markdown", "publish", "table", "tables"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BEGIN, END = (
    "<!-- figures: written by `make bench BENCH_ARGS=--publish` -->",
    "<!-- end of figures -->",
)


def markdown(machine: dict[str, Any], results: Sequence[WorkResult]) -> str:
    """Return all tables as one page's text, the machine first."""
    parts = [f"Measured on: {machine_line(machine)}. Load before: {machine['load']}.\n"]
    for result in results:
        parts.append(f"### {result.title}\n\n{result.how}\n")
        quantities = result.quantities or ["rate"]  # if nobody has figures, at least the reasons
        parts += [table(result_table(result, q)) for q in quantities]
    return "\n".join(parts)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, from its header on."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return (
        "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines
        )
        + "\n"
    )


def tables(machine: dict[str, Any], results: Sequence[WorkResult]) -> str:
    """Return a column per workload and a row per contender: its median, and how many times as good
    the bold one is.
    """
    groups: dict[tuple[str, str], list[WorkResult]] = {}
    for result in results:
        for quantity in result.quantities if result.lead else ():
            groups.setdefault((result.lead.name, quantity), []).append(result)
    parts = [f"Measured on: {machine_line(machine)}. Load before: {machine['load']}.\n"]
    for (_, quantity), group in groups.items():
        names = dict.fromkeys(
            m.name for result in group for m in result.measurements if m.values(quantity)
        )
        rows = [[name, *(_cell(result, name, quantity) for result in group)] for name in names]
        parts.append(
            table([[QUANTITIES[quantity].unit, *(result.title for result in group)], *rows])
        )
    return "\n".join(parts)


def _cell(result: WorkResult, name: str, quantity: str) -> str:
    m = next((m for m in result.measurements if m.name == name), None)
    median = m.median(quantity) if m else None
    if median is None:
        return ""
    ratio = result.ratio(m, quantity)
    return (
        f"**{figure(median)}**"
        if ratio is None
        else f"{figure(median)} ({figure(ratio.of_medians)}\u00a0×)"
    )


def publish(text: str, page: Path = PAGE, *, begin: str = BEGIN, end: str = END) -> None:
    """Put tables into the page on performance, between two marks."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{page.name}: expected the marks {begin} and {end}, one after the other")
    page.write_text("\n\n".join([before + begin, text.strip(), end + after]), encoding="utf-8")
