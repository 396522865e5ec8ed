"""Walk a page as its reader would: write its files, run its commands, compare what they print.

A code block whose first line is ``# name`` is a file of that name. A ``console`` block holds
commands, each after a ``$``, and below each what it prints. Words are compared. Numbers are not,
since times and versions differ, nor is where lines are broken, which the numbers' widths decide.
``...`` stands for anything; ``exit status 1`` is compared whole. ``pip install`` is not run, but
the extras that it names are looked for.

``python docs/walk.py`` writes into docs/tour.md what the commands print now, and the picture beside
it. Where there is an ellipsis it leaves what stands there, and says so if that is no longer true.
"""

import os
import re
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TOUR = Path(__file__).with_name("tour.md")
WIDTH = 120
ENVIRONMENT = {
    "COLUMNS": str(WIDTH),
    "TERM": "dumb",
    "SDL_VIDEODRIVER": "dummy",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}
_NUMBER = re.compile(r"[-+]?\d[\d,.:T+%-]*(?:e[-+]?\d+)?%?")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?:[0-9a-f]{8}|[0-9a-f]{12})\b")


@dataclass(frozen=True)
class Command:
    """One command of a page, and the text that the page shows below it."""

    line: str
    shown: str


def steps(page: str) -> Iterator[tuple[str, str] | Command]:
    """Go through a page: files, as ``(name, text)``, and commands, in their order."""
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if language == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                line, _, shown = part.partition("\n")
                yield Command(line, shown)
        elif name := re.match(r"# ([\w./-]+\.\w+)\n", body):
            yield name[1], body


def run(line: str, folder: Path) -> str:
    """Run a command as a reader would, and give what it prints.

    Raises:
        AssertionError: its exit status is not 0; a page shows another one with ``; echo "exit
            status $?"``.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    result = subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT, "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, f"$ {line}\n{result.stdout}{result.stderr}"
    return result.stdout


def run_patiently(line: str, folder: Path) -> str:
    """Run a command; ``tune`` once more with much more time, where a busy machine let it measure
    nothing.
    """
    try:
        return run(line, folder)
    except AssertionError:
        if "--budget 6s" not in line:
            raise
        return run(line.replace("--budget 6s", "--budget 120s"), folder)


def check_install(line: str) -> None:
    """See that what ``pip install`` is asked for is what there is."""
    found = re.search(r'"(?:vecwrap|\.)\[([\w,]+)\]', line)
    assert found, line
    project = tomllib.loads(TOUR.parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    missing = {*found[1].split(",")} - project["optional-dependencies"].keys()
    assert not missing, f"{line}: there is no extra {missing}"


def words(text: str) -> list[str]:
    """The words of an output, with each number as ``#`` and without bars; how many workers there
    are, cores decide.
    """
    text = re.sub(
        r"^exit status (\d+)$",
        lambda found: f"exit status {'I' * int(found[1])}.",
        text,
        flags=re.MULTILINE,
    )
    text = text.replace(" workers", " worker")
    return [
        word for word in _NUMBER.sub("#", _HASH.sub("#", text)).replace("█", " ").split() if word
    ]


def alike(shown: str, printed: str) -> bool:
    """Whether an output says the words that a page shows.

    >>> alike("a step: 12.5 µs ...  done", "a step:   3 µs and so on, done")
    True
    >>> alike("one, two", "one, three")
    False
    """
    pattern = " ".join(".*?" if word == "..." else re.escape(word) for word in words(shown))
    return re.fullmatch(pattern, " ".join(words(printed)), re.DOTALL) is not None


def walk(page: str, folder: Path) -> Iterator[tuple[Command, str]]:
    """Take the steps of a page in a folder; give each command with what it printed."""
    for step in steps(page):
        if isinstance(step, tuple):
            name, text = step
            (folder / name).write_text(text, encoding="utf-8")
        elif step.line.startswith("pip install "):
            check_install(step.line)
        else:
            yield step, run_patiently(step.line, folder)


def folded(line: str) -> str:
    """A line that is too long for a page, as several that begin where it does.

    >>> folded("    " + 15 * "refused, " + "twice").splitlines()[1]
    '    refused, refused, twice'
    """
    indent = line[: len(line) - len(line.lstrip())]
    whole = {"break_long_words": False, "break_on_hyphens": False}
    return (
        line
        if len(line) <= WIDTH
        else textwrap.fill(line, WIDTH, subsequent_indent=indent, **whole)
    )


def main(arguments: Sequence[str]) -> None:
    """Write what the commands print now into a page."""
    from PIL import Image

    path = Path(arguments[0]) if arguments else TOUR
    page = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for command, printed in walk(page, folder):
            printed = "".join(f"{folded(line.rstrip())}\n" for line in printed.splitlines())
            if "..." not in command.shown.split():
                page = page.replace(
                    f"$ {command.line}\n{command.shown}", f"$ {command.line}\n{printed}", 1
                )
            elif not alike(command.shown, printed):
                print(f"left as it is, and no longer true:\n$ {command.line}\n{printed}")
        path.write_text(page, encoding="utf-8")
        with Image.open(
            folder / "curves.png"
        ) as picture:  # of fewer colours, so that it is a third as large
            picture.convert("RGB").quantize(128).save(
                path.with_name("tour-curves.png"), optimize=True
            )


if __name__ == "__main__":
    main(sys.argv[1:])
