"""The pages of help, and the errors of calls that cannot be used, as a person reads them."""

import os
import re
import subprocess
import sys

import pytest
from typer.main import get_command

from tests.helpers.terminal_output import on_a_terminal
from vecwrap.cli import main
from vecwrap.cli.app import COMMANDS, with_commands
from vecwrap.pipeline import registry

BOXES = re.compile("[\u2500-\u257f]")


def options_of(name):
    return get_command(with_commands()).commands[name].params


@pytest.fixture(params=["80", "120"])
def columns(request, monkeypatch):
    monkeypatch.setenv("COLUMNS", request.param)
    return int(request.param)


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_a_page_is_plain_whole_and_fits(command, columns, capsys):
    assert main([*command, "--help"]) == 0
    page = capsys.readouterr().out
    assert main([*command, "-h"]) == 0
    assert capsys.readouterr().out == page
    assert not BOXES.search(page)
    assert not re.search(r"<\w+>| $|\{|\x1b|INTEGER|\[default", page, re.MULTILINE)
    assert max(map(len, page.splitlines())) <= columns
    words = " ".join(page.split())
    names = [name for each in map(options_of, command) for option in each for name in option.opts]
    assert [name for name in names if name.startswith("-") and name not in words] == []
    texts = [option.help or "" for each in map(options_of, command) for option in each]
    assert [text for text in texts if " ".join(text.split()) not in words] == []
    assert page.endswith("\n")


def test_commands_and_options_are_in_groups(capsys):
    assert main(["--help"]) == 0
    page = capsys.readouterr().out
    assert re.findall(r"^(\w.*):$", page, re.MULTILINE) == [
        "Run",
        "Understand",
        "Measure",
        "Analyse",
        "Options",
    ]
    assert re.findall(r"^  ([a-z]+)  ", page, re.MULTILINE) == list(COMMANDS)
    assert main(["run", "--help"]) == 0
    page = capsys.readouterr().out
    assert re.findall(r"^(\w.*):$", page, re.MULTILINE) == [
        "Arguments",
        "What runs",
        "How long",
        "Policy",
        "Output",
        "Browser",
        "Options",
    ]
    for name in ("auto", *registry.backends.names()):
        assert re.search(rf"\b{name}\b", page), name
    assert "  -n, --n N  " in page


def test_every_command_that_takes_a_pipeline_can_refuse_imports():
    taking = [
        name
        for name in COMMANDS
        if any(each.name in ("pipeline", "pipelines") for each in options_of(name))
    ]
    assert set(taking) == {"run", "explain", "check", "time", "tune", "tournament"}
    for name in taking:
        assert "--no-imports" in [opt for each in options_of(name) for opt in each.opts], name


@pytest.mark.parametrize("command", ["time", "tune"])
def test_what_measures_refuses_imports_too(command, capsys):
    assert main([command, "toys_of_cli:Toy n=2", "--no-imports"]) == 2
    assert "expected nothing to import" in capsys.readouterr().err
    assert "toys_of_cli" not in sys.modules


def test_no_arguments_are_help_and_status_2(capsys):
    assert main([]) == 2
    assert capsys.readouterr().out.startswith("Usage: vecwrap COMMAND")


def test_on_a_terminal_names_are_coloured_unless_that_is_unwanted(monkeypatch):
    assert "\x1b[36m  --policy POLICY" in on_a_terminal("run", "-h", columns=80)
    command = [sys.executable, "-m", "vecwrap", "run", "-h"]
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
    piped = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "\x1b" not in piped.stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["run"], "run: expected PIPELINE, got none. See vecwrap run --help."),
        (["check"], "check: expected PIPELINE..., got none. See vecwrap check --help."),
        (
            ["tournament", "x"],
            "tournament: expected --pool DIR, got none. See vecwrap tournament --help.",
        ),
        (["rnu"], "there is no command rnu. Did you mean run?"),
        (["quux"], "there is no command quux. See vecwrap --help."),
        (["--quux"], "vecwrap: there is no option --quux. See vecwrap --help."),
        (["run", "x", "--stepz", "4"], "run: there is no option --stepz. Did you mean --steps?"),
        (
            ["run", "x", "--num-envs", "4"],
            "run: there is no option --num-envs. The number of sub-environments is called n.",
        ),
        (
            ["run", "x", "--steps"],
            "--steps: expected N after it, got nothing. See vecwrap run --help.",
        ),
        (
            ["run", "x", "--steps", "-5"],
            "--steps: expected a whole number from 1, such as 10000 or 1e4, got -5",
        ),
        (["run", "x", "--seed", "a"], "--seed: expected a whole number, got a"),
        (
            ["run", "x", "--port", "70000"],
            "--port: expected a whole number from 0 to 65535, got 70000",
        ),
        (
            ["run", "x", "--interval", "nan"],
            "--interval: expected a number of seconds from 0.001, got nan",
        ),
        (
            ["time", "x", "--seconds", "0"],
            "--seconds: expected a number of seconds from 0.001, got 0",
        ),
        (
            ["run", "CartPole-v1", "n=4"],
            "run: expected one PIPELINE, got more: n=4. Quote the whole pipeline: vecwrap run "
            "'CartPole-v1 n=4'",
        ),
        (
            ["schema", "x"],
            "schema: expected no more arguments, got x. See vecwrap schema --help.",
        ),
        (
            ["watch", "nodir"],
            "nodir: expected the folder of a run, got none. `vecwrap run PIPELINE --out nodir` "
            "writes one",
        ),
        (
            ["run", "CartPole-v1 | framestack"],
            'wrappers[0] "framestack": the argument k: int is missing. `vecwrap list framestack` '
            "shows all of them.",
        ),
    ],
)
def test_a_call_that_cannot_be_used_is_one_line_in_one_style(
    arguments, error, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"error: {error}\n")


def test_the_file_of_a_page_has_no_folder_of_a_run(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("x")
    assert main(["watch", str(tmp_path / "notes.txt")]) == 2
    assert "got a file; give the folder that holds it" in capsys.readouterr().err
