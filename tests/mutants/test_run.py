"""The mutant runner, on a tree of two files."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).with_name("run.py")
ROOT = RUNNER.parents[2]
MUTANT = """
file = "adder.py"
old = "a + b"
new = "{new}"
row = "sums"
tests = "{tests}"
"""


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "mutants").mkdir(parents=True)
    (root / "adder.py").write_text("def add(a, b):\n    return a + b\n")
    (root / "test_adder.py").write_text(
        "from adder import add\n\n\ndef test_sums():\n    assert add(1, 2) == 3\n\n\n"
        "def test_zero():\n    assert add(0, 0) == 0\n"
    )
    return root


def run(root, **mutants):
    for name, text in mutants.items():
        (root / "mutants" / f"{name}.toml").write_text(text)
    command = [sys.executable, str(RUNNER), "--root", str(root), "--folder", str(root / "mutants"), "--jobs", "2"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return result.returncode, result.stdout + result.stderr


def test_a_mutant_that_the_tests_notice_is_killed_and_the_tree_stays_as_it_was(tree):
    status, output = run(tree, minus=MUTANT.format(new="a - b", tests="test_adder.py"))
    assert status == 0, output
    assert "1 of 1 mutants killed" in output
    assert "a + b" in (tree / "adder.py").read_text()


def test_a_mutant_that_the_named_tests_miss_survives(tree):
    status, output = run(
        tree,
        minus=MUTANT.format(new="a - b", tests="test_adder.py::test_sums"),
        missed=MUTANT.format(new="a - b", tests="test_adder.py::test_zero"),
    )
    assert status == 1, output
    assert "SURVIVED: missed (sums)" in output


def test_a_mutation_that_only_breaks_the_import_is_no_kill(tree):
    status, output = run(tree, broken=MUTANT.format(new="a + + / b", tests="test_adder.py"))
    assert status == 1, output
    assert "BROKEN" in output


def test_text_that_is_not_there_exactly_once_is_refused(tree):
    (tree / "adder.py").write_text("def add(a, b):\n    # a + b\n    return a + b\n")
    status, output = run(tree, twice=MUTANT.format(new="a - b", tests="test_adder.py"))
    assert (status, "occurs 2 times" in output) == (2, True)


def test_tests_that_are_red_without_a_mutation_prove_nothing(tree):
    (tree / "test_adder.py").write_text("def test_red():\n    assert False\n")
    status, output = run(tree, minus=MUTANT.format(new="a - b", tests="test_adder.py"))
    assert (status, "fail without any mutation" in output) == (2, True)


def test_an_unknown_key_is_refused(tree):
    status, output = run(tree, minus=MUTANT.format(new="a - b", tests="test_adder.py") + 'line = "3"\n')
    assert (status, "expected the keys" in output) == (2, True)


def test_every_mutant_here_changes_what_stands_in_the_source_today():
    module = runpy.run_path(str(RUNNER))
    mutants = module["read_mutants"](RUNNER.parent)
    assert mutants
    for mutant in mutants:
        text = mutant.mutated(ROOT)  # raises where the text is not there exactly once
        if mutant.file.endswith(".py"):
            compile(text, mutant.name, "exec", dont_inherit=True)  # or else it breaks everything
        assert all((ROOT / test.partition("::")[0]).exists() for test in mutant.tests), mutant.name
