"""Every rule finds what its own documentation says is wrong, and is silent where that is put right."""

import re
from pathlib import Path

import pytest

import vecwrap
from vecwrap import registry
from vecwrap.rules import look
from vecwrap.rules.check import rules
from vecwrap.rules.normalizing import CLIPS
from vecwrap.rules.refusals import REFUSALS
from vecwrap.values import import_path

PAGE = (Path(__file__).parents[2] / "docs" / "checks.md").read_text(encoding="utf-8")
OURS = [name for name in registry.rules.names() if registry.rules.entry(name).owner == "vecwrap"]
EVERY = pytest.mark.parametrize("name", OURS)


def found_in(line, rule):
    settings = {} if "backend" in line else {"backend": "dummy"}
    settings |= {} if " n=" in line else {"n": 2}
    return vecwrap.check(line, strict=rule.strict, **settings)


@EVERY
def test_what_is_wrong_by_its_documentation_is_found_and_nothing_else(name):
    rule = rules()[name]
    findings = found_in(rule.wrong, rule)
    assert [finding.id for finding in findings] == [name], findings
    (finding,) = findings
    assert finding.reason.endswith(".")
    assert finding.fix.endswith(".")
    assert finding.docs == f"docs/checks.md#{name}"
    assert finding.place


@EVERY
def test_what_is_right_by_its_documentation_has_no_finding_at_all(name):
    rule = rules()[name]
    assert found_in(rule.right, rule) == ()


@EVERY
def test_an_error_is_what_cannot_be_built_and_a_warning_what_can(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rule = rules()[name]
    if rule.severity == "error":
        with pytest.raises(vecwrap.PlanError):
            vecwrap.build(rule.wrong, n=2, backend="dummy")
    elif " n=" not in rule.wrong:
        vecwrap.build(rule.wrong, n=2, backend="dummy").close()
    if " n=" not in rule.right:
        vecwrap.build(rule.right, n=2, backend="dummy").close()


@pytest.mark.parametrize("name", [*OURS, *(refusal.__name__ for refusal in REFUSALS)])
def test_every_finding_has_a_section_in_the_docs(name):
    sections = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert sections.count(name) == 1


@EVERY
def test_one_name_finds_the_rule_and_its_documentation(name):
    rule = rules()[name]
    assert str(registry.rules.entry(name).target).endswith(f":{name}")
    assert rule.summary.endswith(".")
    assert len(rule.summary) < 100
    assert rule.reasons


def test_layers_of_gymnasium_are_where_the_rules_look_for_them():
    names = [*look.OBSERVATION_NORMALIZERS, *look.REWARD_NORMALIZERS, *look.STACKS, *look.FRAME_SKIPS, *CLIPS]
    for name in names:
        layer = registry.wrappers.find(name, name)
        assert registry.wrappers.name_of(layer) or import_path(layer) == name
