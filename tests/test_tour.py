"""docs/tour.md, walked as a reader would: its commands say what it shows and lead where it says."""

import csv
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def walking():
    """docs/walk.py, which is no part of the package."""
    specification = importlib.util.spec_from_file_location(
        "walk_of_docs", ROOT / "docs" / "walk.py"
    )
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


# What measures for seconds, what learns and its picture: the commands have tests of their own.
SLOW = re.compile(
    r"^\$ (?:vecwrap tune|python|vecwrap plot) .*\n(?:(?!\$ |```).*\n)*", re.MULTILINE
)


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.full)])
def test_the_tour_says_what_happens(walking, tmp_path, is_whole):
    page = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    page = page if is_whole else SLOW.sub("", page)
    for package in ("pygame", "matplotlib"):  # what CartPole and the curves are drawn with
        pytest.importorskip(package)
    taken = []
    for command, printed in walking.walk(page, tmp_path):
        taken.append(command.line.removeprefix("vecwrap ").split()[0])
        assert walking.alike(command.shown, printed), (
            f"docs/tour.md shows below `{command.line}`:\n{command.shown}\nit prints:\n{printed}\n"
            "`python docs/walk.py` writes the page again"
        )
    assert set(taken) == {
        "run",
        "check",
        "list",
        "explain",
        "time",
        *(("tune", "python", "plot") if is_whole else ()),
    }
    scores = [
        [
            row["r"]
            for row in csv.DictReader(
                (tmp_path / "runs" / name / "monitor.csv").read_text().splitlines()[1:]
            )
        ]
        for name in ("random", "tuned")
    ]
    assert scores[0] == scores[1] != []
    assert not is_whole or (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("took 1.25 s, 80%\n", "took   17 s,\n5.5%", True),
        (
            "pipeline 2c18071fb6c5 of 2026-11-21T23:09:50+00:00",
            "pipeline 9bc482db020b of 2027-01-02T03:04:05+00:00",
            True,
        ),
        ("score -1.5 ± 2e-3", "score 3 ± 0.5", True),
        ("shmem, 1 worker, same_step", "shmem, 15 workers, same_step", True),
        ("wait 3 ███ until", "wait 4 █████████ until", True),
        ("dummy ...\n...\nthe end", "dummy is quickest\nby far\nthe end", True),
        ("one wrapper", "one player", False),
        ("a b", "a c b", False),
        ("a ... c", "a b", False),
        ("exit status 1", "exit status 2", False),
        ("exit status 1", "exit status 1", True),
        ("", "a word", False),
    ],
)
def test_words_are_compared_and_numbers_are_not(walking, shown, printed, expected):
    assert walking.alike(shown, printed) == expected


def test_a_walk_writes_files_runs_commands_and_refuses_extras_that_there_are_not(walking, tmp_path):
    page = (
        "```yaml\n# a.yaml\nenv: x\n```\n"
        '```console\n$ pip install "vecwrap[cli]"\n$ cat a.yaml\n# a.yaml\nenv: x\n```\n'
    )
    ((command, printed),) = walking.walk(page, tmp_path)
    assert (command.line, command.shown, printed) == (
        "cat a.yaml",
        "# a.yaml\nenv: x\n",
        "# a.yaml\nenv: x\n",
    )
    with pytest.raises(AssertionError, match="there is no extra {'clii'}"):
        list(walking.walk(page.replace("cli]", "clii]"), tmp_path))
    with pytest.raises(AssertionError, match="cat b.yaml"):
        list(walking.walk(page.replace("$ cat a", "$ cat b"), tmp_path))
