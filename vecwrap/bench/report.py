"""Results as Markdown and as plain data for JSON; the terminal's tables are made by the commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vecwrap.bench.contender import QUANTITIES
from vecwrap.bench.machine import machine_line
from vecwrap.bench.results import Measurement, WorkResult

__all__ = [
    "figure",
    "markdown",
    "ratio_cell",
    "result_header",
    "result_rows",
    "spread_cell",
    "to_data",
]


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


def spread_cell(measurement: Measurement, quantity: str) -> str:
    """Return the smallest and the largest figure of the rounds."""
    values = measurement.values(quantity)
    return f"{figure(min(values))} to {figure(max(values))}" if values else ""


def ratio_cell(result: WorkResult, measurement: Measurement, quantity: str) -> str:
    """Return how many times as good the lead is, with the bounds within single rounds."""
    lead = result.lead
    if lead is None or lead is measurement:
        return ""
    ratio = result.ratio(lead.name, measurement.name, quantity)
    return "" if ratio is None else f"{ratio.of_medians:.2f} × ({ratio.low:.2f} to {ratio.high:.2f})"


def result_rows(result: WorkResult, quantity: str) -> list[tuple[str, str, str, str, str]]:
    """Return a row per contender: name, median, spread, ratio, remarks; the reason if there are no figures."""
    rows = []
    for m in result.measurements:
        median = m.median(quantity)
        if median is not None:
            cells = (figure(median), spread_cell(m, quantity), ratio_cell(result, m, quantity), m.note)
        else:
            cells = ("–", "", "", m.missing or "not measured")
        rows.append((m.name, *cells))
    return rows


def result_header(result: WorkResult, quantity: str) -> tuple[str, ...]:
    """Return the titles of ``result_rows``' columns."""
    lead = result.lead.name if result.lead else "ours"
    return QUANTITIES[quantity].unit, "median", "spread", f"{lead} is", "remarks"


def markdown(machine: dict[str, Any], results: Sequence[WorkResult]) -> str:
    """Return all tables as one page's text, the machine first."""
    parts = [f"Measured on: {machine_line(machine)}. Load before: {machine['load']}.\n"]
    for result in results:
        parts.append(f"### {result.title}\n\n{result.how}\n")
        quantities = result.quantities or ["rate"]  # if nobody has figures, at least the reasons
        parts += [_table(result_header(result, q), result_rows(result, q)) for q in quantities]
    return "\n".join(parts)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines) + "\n"


def to_data(machine: dict[str, Any], results: Sequence[WorkResult], **more: Any) -> dict[str, Any]:
    """Return everything as plain data."""
    return {"machine": machine, **more, "results": [result.to_data() for result in results]}
