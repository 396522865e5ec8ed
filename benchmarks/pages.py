"""What a run produces: plots, and the tables in docs/performance.md."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from benchmarks.growth import Grown

__all__ = ["plot", "publish"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- figures: written by `make bench BENCH_ARGS=--publish` -->", "<!-- end of figures -->"


def plot(grown: Sequence[Grown], folder: Path, console: Console) -> list[Path]:
    """Draw one plot per curve; none, with a message saying why, if matplotlib is not installed."""
    if not grown:
        return []
    try:
        import matplotlib
    except ImportError:
        console.print(Text("no plots: matplotlib is not installed: pip install matplotlib", style="yellow"))
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for each in grown:
        curve = each.curve
        figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
        if curve.overhead:  # scales first: the limits depend on them
            axes.set_xscale("log", base=2)
            axes.set_yscale("symlog", linthresh=0.1)  # an overhead may be negative if a peer's step is cheaper
        for name, points in each.lines.items():
            axes.plot(*zip(*points, strict=True), marker="o", label=name)
        axes.set_title(curve.title)
        axes.set_xlabel(curve.across)
        axes.set_ylabel("µs of overhead per environment step" if curve.overhead else "env steps a second")
        if not curve.overhead:
            axes.set_ylim(bottom=0)
        axes.set_xticks(curve.points, [_label(x, curve.across) for x in curve.points])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
        paths.append(folder / f"{curve.key}.png")
        figure.savefig(paths[-1], dpi=120, metadata={"Software": None})
        pyplot.close(figure)
    return paths


def _label(x: int, across: str) -> str:
    """Bytes in powers of 1024; other numbers as they are."""
    if across != "bytes" or x < 1024:
        return str(x)
    return f"{x >> 20} Mi" if x >= 1 << 20 else f"{x >> 10} Ki"


def publish(text: str, plots: Sequence[Path], page: Path = PAGE) -> None:
    """Put tables and plots into the page on performance, between its two marks.

    Args:
        text: the tables as Markdown.
        plots: the files, which are copied beside the page.
        page: the page.
    """
    folder = page.parent / "performance"
    folder.mkdir(exist_ok=True) if plots else None
    images = []
    for path in plots:
        shutil.copyfile(path, folder / path.name)
        images.append(f"![{path.stem}](performance/{path.name})")
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{page.name}: expected the marks {BEGIN} and {END}, one after the other")
    parts = [before + BEGIN, text.strip(), *(["### How costs grow", *images] if images else []), END + after]
    page.write_text("\n\n".join(parts), encoding="utf-8")
