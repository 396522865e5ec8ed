"""The site of docs/ holds every page and every public name, its pictures are what a run gives, and
it builds.
"""

import doctest
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import vecwrap

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def script(name):
    """A module of docs/, which is no part of the package."""
    specification = importlib.util.spec_from_file_location(f"{name}_of_docs", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


def targets(nav):
    """The pages of a nav, in their order."""
    for entry in nav:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else targets(value)


def test_the_nav_lists_every_page_once():
    settings = YAML(typ="safe").load(ROOT.joinpath("mkdocs.yml"))
    made = ["changelog.md", "contributing.md", "examples.md"]  # by docs/hooks.py
    assert sorted(targets(settings["nav"])) == sorted(
        [*(page.name for page in DOCS.glob("*.md")), *made]
    )


def test_the_reference_has_every_public_name():
    shown = re.findall(
        r"^::: ([\w.]+)$", DOCS.joinpath("api.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    public = {f"{target}.{name}" for name, target in vecwrap._PUBLIC.items()}
    assert public <= {*shown}, public - {*shown}


WRITTEN_BY_HAND = {
    "same_step": [
        [
            "1.0",
            "1.1 +1",
            "1.2 +1",
            "2.0 +1 end (1.3)",
            "2.1 +1",
            "2.2 +1",
            "3.0 +1 end (2.3)",
            "3.1 +1",
        ],
        ["1.0", "1.1 +1", "1.2 +1", "1.3 +1", "2.0 +1 end (1.4)", "2.1 +1", "2.2 +1", "2.3 +1"],
    ],
    "next_step": [
        ["1.0", "1.1 +1", "1.2 +1", "1.3 +1 end", "2.0 +0", "2.1 +1", "2.2 +1", "2.3 +1 end"],
        ["1.0", "1.1 +1", "1.2 +1", "1.3 +1", "1.4 +1 end", "2.0 +0", "2.1 +1", "2.2 +1"],
    ],
    "disabled": [
        ["1.0", "1.1 +1", "1.2 +1", "1.3 +1 end", "2.0", "2.1 +1", "None", "2.2 +1"],
        ["1.0", "1.1 +1", "1.2 +1", "1.3 +1", "None", "1.4 +1 end", "2.0", "2.1 +1"],
    ],
    "episodic": [
        [
            "1.0",
            "1.1 +1",
            "1.2 +1",
            "1.3 +1 end",
            "1.3 +0 end",
            "1.3 +0 end",
            "1.3 +0 end",
            "1.3 +0 end",
        ],
        [
            "1.0",
            "1.1 +1",
            "1.2 +1",
            "1.3 +1",
            "1.4 +1 end",
            "1.4 +0 end",
            "1.4 +0 end",
            "1.4 +0 end",
        ],
    ],
}


@pytest.mark.parametrize("mode", WRITTEN_BY_HAND)
def test_a_timeline_shows_what_the_contract_says(mode):
    timelines = script("timelines")
    calls = timelines.play(mode)
    assert [[str(cells[i]) for _, cells in calls] for i in range(2)] == WRITTEN_BY_HAND[mode]
    drawn = DOCS.joinpath(f"autoreset-{mode}.svg").read_text(encoding="utf-8")
    assert drawn == timelines.draw(mode), "`make docs` draws it again"


@pytest.mark.parametrize("name", ["hooks", "doctests"])
def test_the_examples_of_what_makes_the_site_are_true(name):
    pytest.importorskip("mkdocstrings")
    results = doctest.testmod(script(name))
    assert results.attempted
    assert not results.failed


@pytest.fixture
def build(tmp_path):
    """Builds the site of a copy of the pages, which can be broken."""
    for module in ("material", "mkdocstrings"):
        pytest.importorskip(module)
    for name in ("docs", "examples", "vecwrap"):
        shutil.copytree(
            ROOT / name,
            tmp_path / name,
            ignore=shutil.ignore_patterns("__pycache__", "runs", "build"),
        )
    for name in ("mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path)

    def build():
        # Which does not count what --quiet hides.
        command = [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
        ]
        environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
        )

    return build


def test_the_site_builds_without_a_warning(build, tmp_path):
    good = build()
    assert good.returncode == 0, good.stdout + good.stderr
    start = (tmp_path / "build/site/index.html").read_text(encoding="utf-8")
    assert "Start in 30 seconds" in start
    # A file of the repository, on a page of the site.
    assert 'href="examples/#quickstart-py"' in start
    assert 'id="quickstart-py"' in (tmp_path / "build/site/examples/index.html").read_text(
        encoding="utf-8"
    )
    reference = (tmp_path / "build/site/api/index.html").read_text(encoding="utf-8")
    assert 'id="vecwrap.pipeline.build.build"' in reference


@pytest.mark.full
def test_a_link_that_leads_nowhere_is_an_error(build, tmp_path):
    with (tmp_path / "docs/levels.md").open("a", encoding="utf-8") as page:
        page.write("\n[Nowhere](tour.md#no-such-heading)\n")
    broken = build()
    assert broken.returncode != 0
    assert "no-such-heading" in broken.stdout + broken.stderr
