"""Write the README's table of figures from those in performance.md: ``python docs/figures.py``, or ``make docs``.

``make bench BENCH_ARGS=--publish`` writes performance.md, with a row per contender and a column per workload. Those
that a stranger asks for go on into the README, the other way round, between two comments. Nothing is typed by hand.
"""

import re
from pathlib import Path

PAGE = Path(__file__).with_name("performance.md")
README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- figures: written by `make docs` from docs/performance.md -->", "<!-- end of figures -->"
NOT_YET = (
    "Not measured yet. `make bench BENCH_ARGS=--publish` measures the figures of\n"
    "[docs/performance.md](docs/performance.md) on your machine, and `make docs` writes the short table here."
)
OURS = "vecwrap shmem"
PEERS = ("Gymnasium Async", "SB3 SubprocVecEnv", "EnvPool", "ALE AtariVectorEnv")
UNITS = {"env steps/s": "", "s": ", in seconds", "MB": ", memory in MB"}  # and what is added to a workload's title


def rows(page: str) -> list[str]:
    """The rows of the README's table: one per workload that is compared with our default backend."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", page, flags=re.MULTILINE):
        (unit, *titles), _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
        contenders = {name: cells for name, *cells in lines}
        if unit not in UNITS or OURS not in contenders:
            continue
        empty = [""] * len(titles)
        ideal = next((cells for name, cells in contenders.items() if name.startswith("ideal")), empty)
        for i, title in enumerate(titles):
            shares = re.search(r"\(([\d.]+)", ideal[i])
            peers = [contenders.get(name, empty)[i] for name in PEERS]
            last = f"{float(shares[1]):.0%}" if shares else ""
            found.append(f"| {' | '.join([title + UNITS[unit], contenders[OURS][i], *peers, last])} |")
    return found


def block(page: str) -> str:
    """What stands in the README between the two comments."""
    lines = rows(page)
    if not lines:
        return NOT_YET
    heads = ["env steps/s", "vecwrap", *PEERS, "of the ideal"]
    measured = re.search(r"^Measured on: ([^;]*);.*?(\d{4}-\d\d-\d\d)", page, re.MULTILINE)
    where = f" on {measured[1]}, {measured[2]}" if measured else ""
    below = (
        "In brackets: vecwrap's advantage (throughput, start-up time or memory). Values are medians over interleaved "
        f"rounds{where}. EnvPool and ALE's engine are written in C++; the ideal is one process's rate times the cores. "
        "[All figures](docs/performance.md#figures)."
    )
    return "\n".join([f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1), *lines, "", below])


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
        with_block(README.read_text(encoding="utf-8"), PAGE.read_text(encoding="utf-8")), encoding="utf-8"
    )
