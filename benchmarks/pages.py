"""The tables in docs/performance.md."""

from __future__ import annotations

from pathlib import Path

__all__ = ["publish"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- figures: written by `make bench BENCH_ARGS=--publish` -->", "<!-- end of figures -->"


def publish(text: str, page: Path = PAGE) -> None:
    """Put tables into the page on performance, between its two marks."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{page.name}: expected the marks {BEGIN} and {END}, one after the other")
    page.write_text("\n\n".join([before + BEGIN, text.strip(), END + after]), encoding="utf-8")
