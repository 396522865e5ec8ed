"""Bring known bugs back one at a time, and demand that the tests named beside each notice.

Each ``tests/mutants/*.toml`` is one area of what is promised and holds ``[[mutant]]`` tables, with
the keys

``file``     the source file, relative to the root of the checkout ``old``      the text to take
out; it occurs exactly once in the file ``pattern``  instead of ``old``: a regular expression that
matches exactly once, with ``^`` and ``$`` at every line ``new``      the text to put in its place;
after a pattern, ``\\1`` is its first group, as in ``re.sub`` ``row``      the row of the semantics
table, or the law, that the mutant breaks ``tests``    what must turn red: a pytest argument, or a
list of them

Take as little text as is unique, so that a mutant outlives what changes around it: a pattern where
the lines around matter, with ``\\s+`` for their indentation. At most 265 mutants in all: one for
each bug, not for each way to write it.

The checkout itself is never touched: each job works on a copy of its own. Exit status 1 where a
mutant survives, 2 where the mutants themselves are wrong (text not found, tests that fail without
any mutation).
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".git",
    ".venv*",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    "*.egg-info",
    "build",
    "dist",
    "runs",
)
KEYS = {"file", "new", "row", "tests"}
FAILED = (
    1  # pytest's exit status for tests that ran and failed; others mean that nothing was tested
)


class MutantError(Exception):
    """A mutant that cannot be tried."""


@dataclass(frozen=True)
class Mutant:
    """One known bug: a change of one place, and the tests that must notice it."""

    name: str
    file: str
    pattern: re.Pattern[str]
    new: str
    row: str
    tests: tuple[str, ...]

    def mutated(self, root: Path) -> str:
        """The text of the file with the bug in it."""
        path = root / self.file
        if not path.is_file():
            raise MutantError(f"{self.name}: there is no file {self.file}")
        text = path.read_text(encoding="utf-8")
        mutated, count = self.pattern.subn(self.new, text)
        if count != 1:
            raise MutantError(
                f"{self.name}: its text occurs {count} times in {self.file}, expected exactly once"
            )
        if mutated == text:
            raise MutantError(f"{self.name}: it changes nothing")
        return mutated


@dataclass(frozen=True)
class Outcome:
    """What the tests said of one mutant."""

    mutant: Mutant
    verdict: str
    seconds: float
    output: str

    @property
    def killed(self) -> bool:
        return self.verdict in ("killed", "killed (hangs)")


def read_mutants(folder: Path) -> list[Mutant]:
    """Read every mutant of a folder, in the order of file names.

    Raises:
        MutantError: for a missing or unknown key.
    """
    mutants = []
    for path in sorted(folder.glob("*.toml")):
        entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
        for i, entry in enumerate(entries):
            name = f"{path.stem}[{i}]"
            if set(entry) not in (KEYS | {"old"}, KEYS | {"pattern"}):
                raise MutantError(
                    f"{name}: expected the keys {sorted(KEYS)} and old or pattern, got "
                    f"{sorted(entry)}"
                )
            if "old" in entry:
                pattern, new = (
                    re.compile(re.escape(entry["old"])),
                    entry["new"].replace("\\", r"\\"),
                )
            else:
                pattern, new = re.compile(entry["pattern"], re.MULTILINE), entry["new"]
            tests = entry["tests"]
            tests = (tests,) if isinstance(tests, str) else tuple(tests)
            mutants.append(Mutant(name, entry["file"], pattern, new, entry["row"], tests))
    return mutants


def run_tests(
    root: Path, tests: tuple[str, ...], timeout: float, *extra: str
) -> tuple[int | None, str]:
    """Run tests in a copy of the tree; give pytest's exit status (None: out of time) and what it
    printed.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not soak",
        *extra,
        *tests,
    ]
    # First on the path, so that the copy is imported and not the checkout that is installed.
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output
    return process.returncode, output


def try_mutant(mutant: Mutant, root: Path, timeout: float) -> Outcome:
    """Put the bug into the copy, run its tests, and put the copy right again."""
    path = root / mutant.file
    text = path.read_text(encoding="utf-8")
    start = time.monotonic()
    try:
        path.write_text(mutant.mutated(root), encoding="utf-8")
        status, output = run_tests(root, mutant.tests, timeout)
    finally:
        path.write_text(text, encoding="utf-8")
    verdicts = {FAILED: "killed", None: "killed (hangs)", 0: "SURVIVED"}
    verdict = verdicts.get(status, f"BROKEN: pytest's exit status {status}")
    return Outcome(mutant, verdict, time.monotonic() - start, output)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Bring known bugs back one at a time; the tests must notice each."
    )
    parser.add_argument(
        "names", nargs="*", help="only the mutants whose name or row contains one of these"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(__file__).parent, help="where the .toml files are"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to copy")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument(
        "--timeout", type=float, default=300.0, help="seconds for the tests of one mutant"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="show what pytest printed for each mutant"
    )
    options = parser.parse_args(arguments)

    try:
        mutants = read_mutants(options.folder)
        if options.names:
            mutants = [
                m for m in mutants if any(part in f"{m.name} {m.row}" for part in options.names)
            ]
        for mutant in mutants:
            mutant.mutated(options.root)
    except MutantError as error:
        print(error)
        return 2
    if not mutants:
        print("no mutants")
        return 2

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        roots: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for job in range(options.jobs):
            root = Path(folder) / str(job)
            shutil.copytree(options.root, root, ignore=LEFT_OUT)
            roots.put(root)

        tests = tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
        print(f"{len(mutants)} mutants; first their tests without any mutation ...", flush=True)
        status, output = run_tests(root, tests, options.timeout * 4)
        if status != 0:
            print(output)
            print("the tests of the mutants fail without any mutation")
            return 2

        def work(mutant: Mutant) -> Outcome:
            root = roots.get()
            try:
                outcome = try_mutant(mutant, root, options.timeout)
            finally:
                roots.put(root)
            line = f"{outcome.verdict:15} {outcome.seconds:6.1f} s  {mutant.name:40} {mutant.row}"
            print(line, flush=True)
            if options.verbose or not outcome.killed:
                print(outcome.output, flush=True)
            return outcome

        with ThreadPoolExecutor(options.jobs) as pool:
            outcomes = list(pool.map(work, mutants))

    bad = [outcome for outcome in outcomes if not outcome.killed]
    print(f"{len(outcomes) - len(bad)} of {len(outcomes)} mutants killed")
    for outcome in bad:
        print(f"  {outcome.verdict}: {outcome.mutant.name} ({outcome.mutant.row})")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
