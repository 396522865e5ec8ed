"""``vecwrap list`` through its entry point."""

import re

import pytest

from tests.helpers.terminal_output import on_a_terminal
from vecwrap.cli import main
from vecwrap.cli.listing import rule_rows
from vecwrap.cli.names import backend_rows, wrapper_rows
from vecwrap.pipeline import registry
from vecwrap.pipeline.check import REFUSALS, RULES
from vecwrap.testing.determinism import OF_STREAMS
from vecwrap.wrappers.presets import Preset


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


def test_every_name_is_shown_with_its_parameters(capsys):
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    names = [*registry.wrappers.names(), *registry.backends.names(), *REFUSALS, *OF_STREAMS, *RULES]
    for name in names:
        assert re.search(rf"^{name} ", said, re.MULTILINE), name
    assert 'padding: "zero" or "first" = "zero"' in said


def test_one_name(capsys):
    assert main(["list", "framestack"]) == 0
    said = capsys.readouterr().out
    assert "framestack" in said
    assert "monitor" not in said
    assert "zero_padding" not in said
    assert main(["list", "framestak"]) == 2
    assert capsys.readouterr().err.endswith('"framestak". Did you mean "framestack"?\n')


def test_a_name_that_looks_like_none_gets_the_three_nearest(capsys):
    assert main(["list", "nosuch"]) == 2
    error = capsys.readouterr().err
    near = re.search(r"The nearest are (.*); `vecwrap list` shows all\.$", error)[1].split(", ")
    assert len(near) == 3
    assert main(["list", *(name.strip('"') for name in near)]) == 0


def test_in_full_a_table_has_columns_and_long_texts_hang(capsys):
    assert main(["list", "framestack"]) == 0
    said = capsys.readouterr().out
    assert "  (C, H, W)  (k, C, H, W)                    (k*C, H, W)\n" in said
    assert "|" not in said
    assert all(line == "" or line.startswith("  ") for line in said.splitlines()[1:])
    assert not re.search(" $", said, re.MULTILINE)


def test_on_a_terminal_names_in_backticks_are_coloured(capsys):
    said = on_a_terminal("list", "framestack", columns=80)
    assert "`" not in said
    assert '\x1b[36m"zero"' in said
    assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line).rstrip()) for line in said.splitlines()) <= 80


@pytest.mark.parametrize("name", ["monitor", "framestack", "dummy"])
def test_what_is_named_is_shown_in_full(capsys, name):
    """All that its docstring says: what is in its files and infos is said nowhere else."""
    (row,) = [row for row in [*wrapper_rows(), *backend_rows()] if row.name == name]
    details = re.sub(r"^\|[-|]+\|$", "", row.details.replace("::\n", ":\n"), flags=re.MULTILINE)
    texts = [
        re.sub(r"^\|.*\|$", lambda line: line[0].replace("|", " "), details, flags=re.MULTILINE),
        row.at_end[1:],
        *(row.help[each.name] for each in row.parameters),
    ]
    assert main(["list", name]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert row.details
    assert [text for text in texts if " ".join(text.split()) not in said] == []
    assert main(["list"]) == 0
    assert " ".join(texts[0].split()) not in " ".join(capsys.readouterr().out.split())


def test_a_finding_is_shown_in_full(capsys):
    assert main(["list", "zero_padding"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    (row,) = [row for row in rule_rows() if row.name == "zero_padding"]
    for text in (row.summary, *row.reasons.split("\n\n"), row.wrong, row.right):
        assert text in said


class Slotted:
    """Wraps, and has no dict."""

    __slots__ = ()

    def __call__(self, env, size: int = 3):
        return env


@Preset
def choosy(kind: str = "c"):
    """Refuse what it is given by default."""
    raise ValueError("kind: expected a or b")


@pytest.mark.parametrize(
    ("table", "target", "told"),
    [
        (registry.wrappers, choosy, "Refuse what it is given by default."),
        (registry.wrappers, Slotted(), "strange"),
    ],
)
def test_what_another_package_brings_takes_no_other_rows_along(table, target, told, capsys):
    table.register("strange", target)
    try:
        for words in (["list"], ["list", "strange"], ["schema"]):
            assert main(words) == 0
            said = capsys.readouterr().out
            assert words == ["schema"] or told in " ".join(said.split()), words
    finally:
        table.unregister("strange")
