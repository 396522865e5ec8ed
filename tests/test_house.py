"""The house: docs/design.md, the contract of import-linter and the code show the same floors."""

import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest

from tests.helpers import package_size

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.xdist_group("house")  # which reads the package once


@pytest.fixture(scope="module")
def found():
    return package_size.files()


@pytest.fixture(scope="module")
def graph(found):
    return package_size.modules_graph(found)


def floors_of_the_page():
    """The names of docs/design.md, by floor."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (`.*?`) \|", page.partition("## What passes")[0], re.MULTILINE)
    return {int(number): sorted(re.findall(r"`(\w+)`", names)) for number, names in rows}


def floors_of_the_contract():
    """The names of the contract in pyproject.toml, by floor."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]
    floors = settings["contracts"][0]["layers"]
    assert floors[0] == "__main__"
    return {
        number: sorted(re.findall(r"\w+", names))
        for number, names in enumerate(reversed(floors[1:]), 1)
    }


def test_the_page_and_the_contract_show_the_same_floors():
    assert floors_of_the_page() == floors_of_the_contract()
    assert len(floors_of_the_page()) == 10


def test_the_code_has_those_names_and_no_other(graph):
    names = {name for floor in floors_of_the_page().values() for name in floor}
    assert names == {package_size.top(name) for name in graph}
    assert len(package_size.names_at_the_top()) == 18


def test_every_import_goes_down_type_only_ones_too(graph):
    floor = {name: number for number, names in floors_of_the_page().items() for name in names}
    up = [
        f"{module} imports {other}"
        for module, others in graph.items()
        for other in others
        if package_size.top(other) != package_size.top(module)
        and floor[package_size.top(other)] >= floor[package_size.top(module)]
    ]
    assert not up


def test_there_is_no_circle(graph):
    assert package_size.circles(package_size.tops_graph(graph)) == []
    assert package_size.circles(graph) == []


def test_no_chain_of_imports_is_longer_than_a_head_follows(graph):
    chain = package_size.deepest(graph)
    assert len(chain) <= package_size.DEEPEST, " ".join(chain)


def test_circles_floors_and_the_deepest_chain_of_a_small_graph():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert package_size.circles(graph) == [["b", "c"]]
    assert package_size.deepest({"a": {"b", "c"}, "b": {"d"}, "c": set(), "d": set()}) == [
        "a",
        "b",
        "d",
    ]
    assert package_size.floors({"a": {"b"}, "b": set(), "d": {"a", "b"}, "e": set()}) == [
        ["b", "e"],
        ["a"],
        ["d"],
    ]


def test_code_is_counted_without_comments_docstrings_and_blanks(tmp_path):
    file = tmp_path / "one.py"
    body = 'def f():\n    """One."""\n    # why\n    return (\n        os\n    )\n'
    file.write_text(f'"""Two\nlines."""\n\nimport os  # said\n\n\n{body}')
    counted = package_size.read(file, {"os": file})
    assert (counted.lines, counted.code, counted.imports) == (12, 5, {"os"})


def test_no_file_is_longer_than_a_head_holds(found):
    assert [name for name, file in found.items() if file.lines > package_size.LONGEST] == []


def test_lines_are_plain(found):
    """100 columns, one assignment a statement, if statements for more than a word."""
    bad = [
        f"{file.path.relative_to(ROOT)}:{line}: {kind}"
        for file in found.values()
        for line, kind in package_size.not_plain(file.path.read_text(encoding="utf-8"))
    ]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(
    "text",
    [
        "x = f(a) if a else b",
        "return_ = [a if a else -b, (a + 1 if a else 0)]",
        "a, b = b, a",
        "x = (a, b)[c]",
        "x = a and f(a) or 'none'",
        f"# {'-' * 99}",
    ],
)
def test_what_is_packed_is_found(text):
    assert len(package_size.not_plain(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "x = a.b if a else -1",
        "x, y = f(a)",
        "# An interrupt finds both or neither.\na, b = b, a",
        "x = a[0, 1]",
        "if a and b or c: pass",
        f"# {'-' * 98}",
    ],
)
def test_what_is_plain_is_left_alone(text):
    assert package_size.not_plain(text) == []


def depth(kind):
    """How many classes of ours are above a class, along its longest line."""
    return max(
        (1 + depth(base) for base in kind.__bases__ if base.__module__.startswith("vecwrap.")),
        default=0,
    )


def test_no_class_is_more_than_two_of_ours_deep(found):
    """A third one above would have to be looked for."""
    deep = set()
    for module in found:
        if module.split(".")[-1] != "__main__":
            kinds = [
                kind
                for kind in vars(importlib.import_module(module)).values()
                if inspect.isclass(kind)
            ]
            deep |= {
                kind.__name__ for kind in kinds if kind.__module__ == module and depth(kind) > 2
            }
    assert not deep
