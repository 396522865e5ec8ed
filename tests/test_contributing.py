"""CONTRIBUTING.md is short, and what it names exists: floors, files and targets of make."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FOLDERS = ("tests", "docs", "examples", "benchmarks", ".ci", "vecwrap")


def named_paths(text):
    """Paths below a folder of the repository or of the package; NAME stands for any file's."""
    tops = [*FOLDERS, *(path.name for path in (ROOT / "vecwrap").iterdir() if path.is_dir())]
    top = "|".join(re.escape(name) for name in tops)
    return [path.rstrip(".") for path in re.findall(rf"(?<![\w./-])(?:{top})/[\w./-]*", text)]


def exists(path):
    pattern = re.sub(r"(?<![A-Z])NAME(?![A-Z])", "*", path.rstrip("/"))
    return any(list(root.glob(pattern)) for root in (ROOT, ROOT / "vecwrap"))


def test_it_can_be_read_on_the_first_day():
    assert len(TEXT.splitlines()) < 150


def test_every_path_that_it_names_exists():
    paths = named_paths(TEXT)
    assert len(paths) > 50
    assert [path for path in paths if not exists(path)] == []


def test_every_target_of_make_that_it_names_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:`|^\$ )make ([a-z-]+)", TEXT, re.MULTILINE))
    assert {"test", "test-full", "lint", "mutants", "soak"} <= named <= targets


def test_it_draws_the_floors_of_the_contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"][1:]
    drawing = TEXT.partition("## The floors")[2].partition("\n## ")[0]
    drawn = re.findall(r"^ *(\d+)  (\w+(?: \| \w+)*)  ", drawing, re.MULTILINE)
    assert drawn == [(str(len(layers) - i), names) for i, names in enumerate(layers)]


def test_a_path_that_does_not_exist_is_found():
    text = "`env/backend.py`, tests/wrappers/test_NAME.py, [a](docs/gone.md), `vecwrap/NAMELESS`."
    paths = named_paths(text)
    assert len(paths) == 4
    assert [path for path in paths if not exists(path)] == ["docs/gone.md", "vecwrap/NAMELESS"]
