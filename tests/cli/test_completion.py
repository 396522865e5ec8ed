"""What Tab offers: through the door that the shells use, and in the shells that are there."""

import os
import shutil
import subprocess
import sys

import pytest
from typer.main import get_command

from vecwrap.cli import main
from vecwrap.cli.app import with_commands


@pytest.fixture
def offered(monkeypatch, capsys):
    """What the command answers to bash for a line; the last word is being typed."""

    def ask(line):
        monkeypatch.setenv("_VECWRAP_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.split('"')[0].count(" ")))
        assert main([]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out.split("\n")[:-1] if captured.out.strip() else []

    return ask


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vecwrap expl", ["explain"]),
        ("vecwrap tune --bud", ["--budget"]),
        ("vecwrap run exam", []),  # the shell then offers files
        ("vecwrap run x --backend s", ["shmem", "subprocess"]),
        ("vecwrap run x --policy z", ["zeros"]),
        ("vecwrap run x --policy model", []),
        ("vecwrap run x --algo ppo", ["ppo", "ppo_lstm"]),
        ("vecwrap run x --out exam", []),
        ("vecwrap list frame", ["frame_skip", "framestack"]),
        ("vecwrap list framestack zero", ["zero_padding"]),
        ("vecwrap check x --ignore normalize_s", ["normalize_stack"]),
        ("vecwrap plot runs --x steps,m", ["steps,minutes"]),
    ],
)
def test_what_fits_is_offered(offered, line, expected):
    assert offered(line) == expected


def test_every_command_is_offered(offered):
    assert set(offered("vecwrap ")) == set(get_command(with_commands()).commands)


SHELLS = {
    "bash": """
        eval "$(vecwrap --show-completion bash)"
        COMP_WORDS=(vecwrap expl); COMP_CWORD=1
        _vecwrap_completion vecwrap
        echo "offered ${COMPREPLY[@]}" """,
    "zsh": """
        autoload -Uz compinit; compinit -u
        eval "$(vecwrap --show-completion zsh)"
        _arguments() { echo "offered $@" }
        words=(vecwrap expl); CURRENT=2; _vecwrap_completion""",
    "fish": """
        vecwrap --show-completion fish | source
        echo offered (complete --do-complete "vecwrap expl")""",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_in_the_shell_itself(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = tmp_path / "vecwrap"  # whatever else is called so on this machine
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vecwrap "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [shell, "-c", SHELLS[shell]],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("offered")]
    assert len(said) == 1, done
    assert "explain" in said[0]
