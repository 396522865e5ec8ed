"""The pages do what they say: their Python runs, their pipelines can be read, their links lead somewhere."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vecwrap.spec import PipelineSpec

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def blocks(page, language):
    """The code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def pages_with(language):
    return [pytest.param(page, id=page.name) for page in PAGES if blocks(page, language)]


@pytest.mark.parametrize("page", pages_with("python"))
def test_the_python_of_a_page_runs_as_one_plain_script(page, tmp_path):
    if "Pong" in "".join(blocks(page, "python")):
        pytest.importorskip("ale_py")
    script = tmp_path / f"{page.stem}.py"
    script.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    result = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("page", pages_with("yaml"))
def test_the_pipelines_of_a_page_can_be_read(page, tmp_path):
    for block in blocks(page, "yaml"):  # one may extend another, which says its name in its first line
        if name := re.match(r"# (\S+\.yaml)$", block, re.MULTILINE):
            (tmp_path / name[1]).write_text(block, encoding="utf-8")
    for block in blocks(page, "yaml"):
        spec = PipelineSpec.from_yaml(block, page.name, tmp_path)
        assert PipelineSpec.from_yaml(spec.to_yaml()) == spec


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index


@pytest.mark.parametrize("name", ["wrappers.md", "backends.md", "checks.md"])
def test_the_generated_pages_are_current(name):
    specification = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generate)
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == generate.PAGES[name](), "run `make docs`"


def test_every_promise_of_reliability_names_a_test_that_is_there():
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    section = page.partition("## The promises")[2].partition("\n## ")[0]
    promises = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(promises) > 15
    for line in promises:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", line)
        assert named, line
        for file, test in named:
            assert re.search(rf"^def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), (file, test)
