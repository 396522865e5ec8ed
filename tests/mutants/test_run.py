"""The mutant runner, on a tree of two files."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).with_name("run.py")
ROOT = RUNNER.parents[2]
MUTANT = """
[[mutant]]
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
    command = [
        sys.executable,
        str(RUNNER),
        "--root",
        str(root),
        "--folder",
        str(root / "mutants"),
        "--jobs",
        "2",
    ]
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
    assert "SURVIVED: missed[0] (sums)" in output


def test_a_mutation_that_only_breaks_the_import_is_no_kill(tree):
    status, output = run(tree, broken=MUTANT.format(new="a + + / b", tests="test_adder.py"))
    assert status == 1, output
    assert "BROKEN" in output


def test_text_that_is_not_there_exactly_once_is_refused(tree):
    (tree / "adder.py").write_text("def add(a, b):\n    # a + b\n    return a + b\n")
    status, output = run(tree, twice=MUTANT.format(new="a - b", tests="test_adder.py"))
    assert (status, "occurs 2 times" in output) == (2, True)


def by_pattern(pattern, new):
    return MUTANT.format(new=new, tests="test_adder.py").replace(
        'old = "a + b"', f"pattern = '{pattern}'"
    )


def test_a_pattern_finds_what_stands_between_other_lines_and_new_takes_its_groups(tree):
    (tree / "adder.py").write_text("def add(a, b):\n    # a + b\n    return a + b\n")
    status, output = run(tree, minus=by_pattern(r"^(\s+return) (\w) \+", r"\\1 \\2 -"))
    assert status == 0, output


def test_a_pattern_that_matches_twice_is_refused(tree):
    status, output = run(tree, twice=by_pattern(r"\w, |\w \+", "b, "))
    assert (status, "occurs 2 times" in output) == (2, True)


def test_a_mutation_that_changes_nothing_is_refused(tree):
    status, output = run(tree, same=MUTANT.format(new="a + b", tests="test_adder.py"))
    assert (status, "changes nothing" in output) == (2, True)


def test_tests_that_are_red_without_a_mutation_prove_nothing(tree):
    (tree / "test_adder.py").write_text("def test_red():\n    assert False\n")
    status, output = run(tree, minus=MUTANT.format(new="a - b", tests="test_adder.py"))
    assert (status, "fail without any mutation" in output) == (2, True)


def test_an_unknown_key_is_refused(tree):
    status, output = run(
        tree, minus=MUTANT.format(new="a - b", tests="test_adder.py") + 'line = "3"\n'
    )
    assert (status, "expected the keys" in output) == (2, True)


def test_a_text_and_a_pattern_are_too_much(tree):
    status, output = run(
        tree, minus=MUTANT.format(new="a - b", tests="test_adder.py") + 'pattern = "a"\n'
    )
    assert (status, "old or pattern" in output) == (2, True)


def mutants_here():
    return runpy.run_path(str(RUNNER))["read_mutants"](RUNNER.parent)


def test_every_mutant_here_changes_what_stands_in_the_source_today():
    for mutant in mutants_here():
        text = mutant.mutated(ROOT)  # raises where the text is not there exactly once
        if mutant.file.endswith(".py"):
            compile(text, mutant.name, "exec", dont_inherit=True)  # or else it breaks everything


def test_the_tests_that_must_notice_are_there():
    for mutant in mutants_here():
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert (ROOT / file).is_file(), (mutant.name, test)
            function = name.partition("[")[0]
            assert not function or f"def {function}(" in (ROOT / file).read_text(), (
                mutant.name,
                test,
            )


def test_the_net_is_light():
    assert 1 <= len(mutants_here()) <= 265
    assert len(list(RUNNER.parent.glob("*.toml"))) <= 12
