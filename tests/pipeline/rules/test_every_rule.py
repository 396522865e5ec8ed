"""Every rule finds what its own documentation says is wrong, and is silent once that is right."""

import inspect
import re
import shutil
from pathlib import Path

import pytest

import vecwrap
from vecwrap.cli.listing import rule_rows
from vecwrap.pipeline import placed_wrapper, registry, rules, rules_of_games
from vecwrap.pipeline.check import REFUSALS, RULES
from vecwrap.sources.import_paths import import_path
from vecwrap.testing.determinism import OF_STREAMS

PAGE = (Path(__file__).parents[3] / "docs" / "checks.md").read_text(encoding="utf-8")
ROWS = {row.name: row for row in rule_rows()}
EVERY = pytest.mark.parametrize("name", RULES)


def found_in(line):
    return vecwrap.check(line, n=2, backend="dummy")


def test_every_rule_is_applied():
    written = [
        name
        for module in (rules, rules_of_games)
        for name, each in vars(module).items()
        if inspect.isfunction(each)
        and each.__module__ == module.__name__
        and not name.startswith("_")
    ]
    assert sorted(RULES) == sorted(written)


@pytest.fixture(autouse=True)
def an_own_pool(tmp_path, monkeypatch):
    """A pool for the examples, which does not know yet what game it is of."""
    monkeypatch.chdir(tmp_path)
    vecwrap.OpponentPool("runs/pool").add("random")


@EVERY
def test_what_is_wrong_by_its_documentation_is_found_and_nothing_else(name):
    findings = found_in(ROWS[name].wrong)
    assert [finding.id for finding in findings] == [name], findings
    (finding,) = findings
    assert finding.reason.endswith(".")
    assert finding.fix.endswith(".")
    assert finding.docs == f"docs/checks.md#{name}"
    assert finding.place


@EVERY
def test_what_is_right_by_its_documentation_has_no_finding_at_all(name):
    assert found_in(ROWS[name].right) == ()


@EVERY
def test_an_error_is_what_cannot_be_built_and_a_warning_what_can(name):
    rule = ROWS[name]
    if rule.kind == "error":
        with pytest.raises(vecwrap.PlanError):
            vecwrap.build(rule.wrong, n=2, backend="dummy")
    else:
        vecwrap.build(rule.wrong, n=2, backend="dummy").close()
    shutil.rmtree("runs")
    vecwrap.OpponentPool("runs/pool").add("random")
    vecwrap.build(rule.right, n=2, backend="dummy").close()


@pytest.mark.parametrize("name", [*RULES, *REFUSALS, *OF_STREAMS])
def test_every_finding_has_a_section_in_the_docs(name):
    sections = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert sections.count(name) == 1


@EVERY
def test_every_rule_has_a_summary_and_reasons(name):
    assert ROWS[name].summary.endswith(".")
    assert len(ROWS[name].summary) < 100
    assert ROWS[name].reasons


def test_wrappers_of_gymnasium_are_where_the_rules_look_for_them():
    kinds = (
        placed_wrapper.OBSERVATION_NORMALIZERS,
        placed_wrapper.REWARD_NORMALIZERS,
        placed_wrapper.STACKING,
        placed_wrapper.FRAME_SKIPS,
        placed_wrapper.REWARD_CLIPS,
    )
    for name in (name for kind in kinds for name in kind):
        wrapper = registry.wrappers.find(name, name)
        assert registry.wrappers.name_of(wrapper) or import_path(wrapper) == name
