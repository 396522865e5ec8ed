"""Write the README's table of figures from those in performance.md: ``python docs/figures.py``, or ``make docs``.

``make bench BENCH_ARGS=--publish`` writes performance.md. A few of its rows, those that a stranger asks for, go on into
the README, between two comments. Nothing is typed by hand, and nothing is measured here.
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

RATE = "env steps/s"
START = "64 Pongs from build to the first seeded observation, without fork"
ROWS = (  # the section, the quantity, and what the README calls it
    ("CartPole-v1, n=8", RATE, "8 CartPoles"),
    ("CartPole-v1, n=64", RATE, "64 CartPoles"),
    ("a step that computes for 1 ms, n=8", RATE, "8 envs, 1 ms per step"),
    ("a step that computes for 100 µs, with a 3×256×256 uint8 observation, n=8", RATE, "8 envs, 100 µs, 3×256×256 px"),
    ("Pong, skip 4, 84×84 grey, a stack of 4, n=8", RATE, "8 Pongs"),
    ("Pong, skip 4, 84×84 grey, a stack of 4, n=16", RATE, "16 Pongs"),
    (START, "s", "64 Pongs ready, in seconds"),
    (START, "MB", "their memory, in MB"),
)
OURS = "vecwrap shmem"
PEERS = ("Gymnasium Async", "SB3 SubprocVecEnv", "EnvPool", "ALE AtariVectorEnv")
IDEAL = re.compile(r"(ideal: )?\d+ × ")

Table = dict[str, tuple[str, str]]  # by contender: its median, and how many times as good we are, "" for ourselves


def tables(page: str) -> dict[tuple[str, str], Table]:
    """The tables of figures in performance.md, by section and quantity."""
    found: dict[tuple[str, str], Table] = {}
    for section in re.split(r"^### ", page, flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0].strip()
        table: Table | None = None
        for line in section.splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if len(cells) < 4:
                table = None
            elif table is None:  # the header
                table = found.setdefault((title, cells[0]), {}) if cells[1] == "median" else None
            elif cells[1] not in ("---", "–"):
                table[cells[0]] = cells[1], cells[3].partition(" ×")[0]
    return found


def block(page: str) -> str:
    """What stands in the README between the two comments."""
    found = tables(page)
    lines = []
    for title, quantity, words in ROWS:
        table = found.get((title, quantity), {})
        if OURS in table and not table[OURS][1]:  # the others' ratios are to it
            ideal = next((f"{float(ratio):.0%}" for name, (_, ratio) in table.items() if IDEAL.match(name)), "")
            cells = [words, f"**{table[OURS][0]}**", *(peer(table, name) for name in PEERS), ideal]
            lines.append("| " + " | ".join(cells) + " |")
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


def peer(table: Table, name: str) -> str:
    """The cell of a peer; empty where it was not measured or cannot do the work."""
    if name not in table:
        return ""
    median, ratio = table[name]
    return f"{median} ({float(ratio):.3g}\u00a0×)" if ratio else median


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
