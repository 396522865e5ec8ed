"""Write the README's table of figures from those in performance.md: ``python docs/figures.py``, or
``make docs``.

``make bench BENCH_ARGS=--publish`` writes performance.md, with a row per contender and a column per
workload. Those that a stranger asks for go on into the README, the other way round, between two
comments. Nothing is typed by hand.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).with_name("performance.md")
README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = (
    "<!-- figures: written by `make docs` from docs/performance.md -->",
    "<!-- end of figures -->",
)
NOT_YET = (
    "Not measured yet. `make bench BENCH_ARGS=--publish` measures the figures of\n"
    "[docs/performance.md](docs/performance.md) on your machine, and `make docs` writes the short "
    "table here."
)
PEERS = (
    "Gymnasium Sync",
    "Gymnasium Async",
    "SB3 DummyVecEnv",
    "SB3 SubprocVecEnv",
    "EnvPool",
    "ALE AtariVectorEnv",
)
RATE, SECONDS, MEGABYTES = "env steps/s", "s", "MB"  # the units of the tables that are taken
TIE = 0.05  # ratios that differ from 1 by less are called a tie: two runs differ by more
BELOW = (
    "The column vecwrap is what `build` does by default, with the backend that it chose. In "
    "brackets: how many times as fast as the other library vecwrap is; *a tie* is within 5 %, and "
    "**bold** is faster than vecwrap. EnvPool and ALE's engine are written in C++; of EnvPool the "
    "best number of threads is shown."
)
# What stands above the other two tables, and the headings in performance.md that they are below.
OTHERS = {
    "**Engines**, bare and under our wrappers: environment steps a second, and in brackets the "
    "part of the bare engine's ([what was measured]"
    "(docs/performance.md#engines-bare-and-under-our-wrappers)).": (
        "### Engines, bare and under our wrappers"
    ),
    "**Chains**: what wrappers cost by themselves, in µs a vector step ([what was measured]"
    "(docs/performance.md#chains)).": "### Chains",
}


def tables(page: str) -> Iterator[tuple[str, list[str], dict[str, list[str]]]]:
    """Each table of the page that has our default backend in bold: its unit, its workloads, its
    rows by their names.
    """
    for table in re.findall(r"(?:^\|.*\n)+", page, flags=re.MULTILINE):
        (unit, *titles), _, *lines = [
            [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()
        ]
        contenders = {name: cells for name, *cells in lines}
        if unit in (RATE, SECONDS, MEGABYTES) and any(
            cell.startswith("**") for cell in lines[0][1:]
        ):
            yield unit, titles, contenders


def number(cell: str) -> float:
    """The figure that a cell of the page begins with.

    >>> number("**12,300**"), number("9,100 (17.4 ×)"), number("")
    (12300.0, 9100.0, nan)
    """
    found = re.match(r"\**([\d,.]+)", cell)
    return float(found[1].replace(",", "")) if found else math.nan


def best(contenders: dict[str, list[str]], peer: str, column: int) -> str:
    """The cell of a library's quickest row: EnvPool has one for each number of threads."""
    cells = [
        cells[column]
        for name, cells in contenders.items()
        if re.fullmatch(rf"{peer}(, \d+ threads?)?", name)
    ]
    return max(filter(None, cells), key=number, default="")


def compared(ours: float, cell: str) -> str:
    """A library's figure beside ours.

    >>> [compared(100.0, cell) for cell in ("50 (2 ×)", "98 (1.02 ×)", "200 (0.5 ×)", "")]
    ['50 (2 ×)', '98 (a tie)', '**200** (0.5 ×)', '']
    """
    figure, _, ratio = cell.partition(" ")
    if not figure or abs(ours / number(cell) - 1) < TIE:
        return f"{figure} (a tie)" if figure else ""
    return f"**{figure}** {ratio}" if number(cell) > ours else cell


def rows(page: str) -> list[str]:
    """The rows of the README's table: one for each workload whose rate is compared."""
    found = []
    for unit, titles, contenders in tables(page):
        (lead, ours), *_ = contenders.items()
        if unit != RATE or not any(peer in contenders for peer in PEERS[:4]):
            continue
        for i, title in enumerate(titles):
            peers = [compared(number(ours[i]), best(contenders, peer, i)) for peer in PEERS]
            if any(peers[:4]):
                mine = f"{ours[i].strip('*')} ({lead.removeprefix('vecwrap ')})"
                found.append(f"| {' | '.join([title, mine, *peers])} |")
    return found


def start_up(page: str) -> str:
    """Sentences on how long many sub-environments take to start, and how much memory they take."""
    said = []
    for unit, (title, *_), contenders in tables(page):
        if unit != RATE:
            ours, *others = [
                f"{name} {cells[0].split(' ')[0].strip('*')} {unit}"
                for name, cells in contenders.items()
            ]
            said.append(
                f"{title}{', memory' if unit == MEGABYTES else ''}: {ours} ({', '.join(others)})."
            )
    return " ".join(said)


def table_below(page: str, heading: str) -> str:
    r"""The first table below a heading of the page.

    >>> table_below("### A\n\n### B\ntext\n\n| x |\n|---|\n| 1 |\n\nmore", "### B")
    '| x |\n|---|\n| 1 |'

    Raises:
        ValueError: there is no such heading, or no table below it.
    """
    _, _, below = page.partition(f"{heading}\n")
    found = re.search(r"(?:^\|.*\n)+", below.partition("\n#")[0], flags=re.MULTILINE)
    if found is None:
        raise ValueError(f"performance.md: expected a table below {heading!r}")
    return found[0].strip()


def block(page: str) -> str:
    """What stands in the README between the two comments: three tables."""
    lines = rows(page)
    if not lines:
        return NOT_YET
    heads = ["env steps/s", "vecwrap", *PEERS]
    runs = re.findall(r"^Measured on: ([^;]*);.*?(\d{4}-\d\d-\d\d)", page, re.MULTILINE)
    where = " and ".join(f"on {machine}, {date}" for machine, date in runs)
    below = f"{BELOW} {start_up(page)}".strip()
    below += f" Values are medians over interleaved rounds {where}".rstrip() + "."
    if len(runs) > 1:
        below += f" Rows of {len(runs)} runs cannot be compared with each other."
    below += " [All figures](docs/performance.md#figures)."
    parts = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1), *lines, "", below]
    for title, heading in OTHERS.items():
        parts += ["", title, "", table_below(page, heading)]
    return "\n".join(parts)


def with_block(readme: str, page: str) -> str:
    """The README with the block that belongs to a page of figures.

    Raises:
        ValueError: one of its two comments is missing.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md: expected {BEGIN} and {END}, one after the other")
    return f"{before}{BEGIN}\n\n{block(page)}\n\n{END}{after}"


if __name__ == "__main__":
    README.write_text(
        with_block(README.read_text(encoding="utf-8"), PAGE.read_text(encoding="utf-8")),
        encoding="utf-8",
    )
