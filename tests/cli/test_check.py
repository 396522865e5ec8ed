"""``vecwrap check`` through its entry point: what is found, what is good, exit statuses, JSON."""

import json
import re
import sys
from pathlib import Path

import gymnasium
import pytest

from vecwrap.cli import main

GOOD = """env: CartPole-v1
n: 2
seed: 1
backend: dummy
wrappers:
  - framestack: {k: 2, padding: first}
  - monitor
"""
WARNED = GOOD.replace("padding: first", "padding: zero")
WRONG = GOOD.replace("monitor", "video")
PAGE = (Path(__file__).parents[2] / "docs" / "checks.md").read_text(encoding="utf-8")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with a good pipeline, one that is warned of, and one that cannot be
    built.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name, text in (("good", GOOD), ("warned", WARNED), ("wrong", WRONG)):
        Path(f"{name}.yaml").write_text(text)
    return tmp_path


def test_a_folder_that_is_called_like_a_file_is_told_as_a_folder(here, capsys):
    Path("folder.yaml").mkdir()
    assert main(["check", "folder.yaml"]) == 2
    assert capsys.readouterr().err.startswith("error: folder.yaml: cannot be read (Is a directory)")


def test_errors_warnings_and_what_is_good_are_told_apart(here, capsys):
    assert main(["check", "good.yaml", "warned.yaml", "wrong.yaml"]) == 1
    said = capsys.readouterr().out
    assert re.search(r"^good  good\.yaml$", said, re.MULTILINE)
    assert re.search(
        r'^warning  zero_padding  warned\.yaml:6: wrappers\[0\] "framestack"$', said, re.MULTILINE
    )
    assert re.search(r'^error  refused  wrong\.yaml:7: wrappers\[1\] "video"$', said, re.MULTILINE)
    assert re.search(r"^    fix: Use padding=first\.$", said, re.MULTILINE)
    assert re.findall(r"^    see: (.*)$", said, re.MULTILINE) == ["vecwrap list zero_padding"]
    assert said.splitlines()[-1].startswith("1 error and 1 warning. ")
    assert len(list(here.iterdir())) == 3  # no file is written


def test_what_set_makes_wrong_is_told_of_each_file(here, capsys):
    assert main(["check", "good.yaml", "warned.yaml", "--set", "wrappers.framestack.k=four"]) == 1
    said = capsys.readouterr().out
    assert 'error  refused  good.yaml: --set: wrappers[0] "framestack"\n' in said
    assert 'error  refused  warned.yaml: --set: wrappers[0] "framestack"\n' in said


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["good.yaml"], 0),
        (["warned.yaml"], 0),
        (["wrong.yaml"], 1),
        (["good.yaml", "--strict"], 0),
        (["warned.yaml", "--strict"], 1),
        (["warned.yaml", "--strict", "--ignore", "zero_padding"], 0),
        (["wrong.yaml", "--ignore", "no_render_mode"], 2),  # it is no longer found
        (["CartPole-v1 n=2 backend=dummy"], 0),
        (["CartPole-v1 n=2 backend=dummy", "--strict"], 0),
        (["CartPole-v1 n=2 backend=dummy | framestak:4"], 1),
        (["warned.yaml", "--strict", "--set", "wrappers.framestack.padding=first"], 0),
        (["no-such.yaml"], 2),
        (["good.yaml", "no-such.yaml"], 2),
        (["good.yaml", "--ignore", "zero_pading"], 2),
        (["wrong.yaml", "--ignore", "refused"], 2),
        (["wrong.yaml", "--ignore", "unreadable"], 2),
        (["wrong.yaml", "--ignore", "unmakeable"], 1),
        (["good.yaml", "--strickt"], 2),
        ([], 2),
    ],
)
def test_the_exit_status(here, capsys, arguments, status):
    assert main(["check", *arguments]) == status
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert (said.err != "") == (status == 2)
    assert (said.out == "") == (status == 2)


def test_a_call_that_cannot_be_used_is_told(here, capsys):
    main(["check", "no-such.yaml"])
    assert "no-such.yaml: cannot be read (No such file or directory)" in capsys.readouterr().err
    main(["check", "good.yaml", "--ignore", "zero_pading"])
    assert 'Did you mean "zero_padding"?' in capsys.readouterr().err


def test_json_is_a_list_of_findings(here, capsys):
    assert main(["check", "good.yaml", "warned.yaml", "wrong.yaml", "--json"]) == 1
    warning, error = json.loads(capsys.readouterr().out)
    assert warning == {
        "pipeline": "warned.yaml",
        "id": "zero_padding",
        "severity": "warning",
        "file": "warned.yaml",
        "line": 6,
        "place": 'wrappers[0] "framestack"',
        "wrapper": "framestack",
        "reason": warning["reason"],
        "fix": "Use padding=first.",
        "docs": "docs/checks.md#zero_padding",
    }
    assert (error["id"], error["line"]) == ("refused", 7)
    assert main(["check", "good.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (GOOD.replace("framestack", "framestak"), 6, 'unknown wrapper. Did you mean "framestack"?'),
        (GOOD.replace("k: 2", "k: two"), 6, 'argument k: expected int, got "two".'),
        (GOOD.replace("n: 2", "n: 0"), 2, "expected at least 1 sub-environment, got 0."),
        (GOOD.replace("seed", "sed"), 3, "unknown key."),
        (GOOD.replace("v1", "v9"), 1, "there is no such version"),
        (GOOD + "n: 3\n", 8, "stands here for the second time"),
        (GOOD + "  - {", 8, ""),
    ],
)
def test_what_cannot_be_read_or_planned_has_its_line(here, capsys, text, line, says):
    Path("bad.yaml").write_text(text)
    assert main(["check", "bad.yaml", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert (finding["severity"], finding["file"], finding["line"]) == ("error", "bad.yaml", line)
    assert says in finding["reason"]
    assert finding["id"] in ("unreadable", "refused")
    assert "bad.yaml" not in finding["reason"]


EXITS = """
import sys

import gymnasium

import vecwrap

gymnasium.register("Exits-v0", "exits_when_imported:Env")


class Outer(vecwrap.VecEnvWrapper):
    def __init__(self, env):
        sys.exit(0)


class Inner(gymnasium.Wrapper):
    def __init__(self, env):
        sys.exit(0)
"""


@pytest.mark.parametrize(
    ("pipeline", "says"),
    [
        ("exits_when_imported:make", "importing exits_when_imported raised SystemExit: 0"),
        ("exits_when_imported:Known-v0", "importing exits_when_imported raised SystemExit: 0"),
        ("exits_when_made:Exits-v0", "raised SystemExit in make: 0"),
        (
            "CartPole-v1 | exits_when_imported:Wrapper:",
            "importing exits_when_imported raised SystemExit: 0",
        ),
        ("CartPole-v1 | exits_when_made:Outer:", "raised SystemExit: 0"),
        ("CartPole-v1 | exits_when_made:Inner:", "raised SystemExit: 0"),
    ],
)
def test_a_module_that_exits_is_a_finding_and_ends_nothing(
    here, capsys, monkeypatch, pipeline, says
):
    Path("exits_when_imported.py").write_text("import sys\nsys.exit(0)\n")
    Path("exits_when_made.py").write_text(EXITS)
    monkeypatch.syspath_prepend(here)
    try:
        assert main(["check", pipeline, "--json"]) == 1
    finally:
        sys.modules.pop("exits_when_made", None)
        gymnasium.registry.pop("Exits-v0", None)
    (finding,) = json.loads(capsys.readouterr().out)
    assert says in finding["reason"]


def test_the_evaluation_can_be_checked_too(here, capsys):
    Path("eval.yaml").write_text(GOOD + "eval: {wrappers: [framestack: 2]}\n")
    assert main(["check", "eval.yaml", "--strict"]) == 0
    assert main(["check", "eval.yaml", "--strict", "--eval"]) == 1
    assert "zero_padding" in capsys.readouterr().out


def test_what_cannot_be_a_wrapper_of_the_evaluation_is_a_finding(here, capsys):
    Path("eval.yaml").write_text(
        GOOD + "eval: {wrappers: ['gymnasium.wrappers.vector:RecordEpisodeStatistics']}\n"
    )
    for arguments in ([], ["--eval"]):
        assert main(["check", "eval.yaml", "--json", *arguments]) == 1
        (finding,) = json.loads(capsys.readouterr().out)
        assert (finding["id"], finding["file"], finding["line"]) == ("refused", "eval.yaml", 8)


def test_the_page_shows_what_is_printed(here, capsys):
    Path("cartpole.yaml").write_text(
        "env: CartPole-v1\nn: 2\nwrappers:\n  - framestack: 4\nbackend: dummy\n"
    )
    main(["check", "cartpole.yaml"])
    said = capsys.readouterr().out.partition("\n\n")[0]
    assert f"$ vecwrap check cartpole.yaml\n{said}\n```" in PAGE


FLAWED = GOOD.replace("CartPole-v1", "tests.helpers.bad_envs:Clock").replace(
    "  - framestack: {k: 2, padding: first}\n", ""
)


def test_twice_plays_what_has_no_errors_and_names_the_first_difference(here, capsys):
    Path("flawed.yaml").write_text(FLAWED)
    assert (
        main(["check", "good.yaml", "flawed.yaml", "wrong.yaml", "--twice", "--steps", "20"]) == 1
    )
    said = capsys.readouterr().out
    assert re.search(r"^good  good\.yaml$", said, re.MULTILINE)
    assert re.search(r"^error  stream_differs  flawed\.yaml:1: env$", said, re.MULTILINE)
    assert re.search(
        r"^    with seed 1, reward of sub-environment 0, episode 1, step 1, is \d",
        said,
        re.MULTILINE,
    )
    assert "see:" not in said
    assert said.count("stream_differs") == 1
    assert len(list(here.iterdir())) == 4  # no file is written


def test_twice_as_json_has_the_place_in_the_file_as_data(here, capsys):
    Path("flawed.yaml").write_text(FLAWED)
    assert main(["check", "flawed.yaml", "--twice", "--steps", "20", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found["id"] == "stream_differs"
    assert found["docs"] == "docs/checks.md#stream_differs"
    assert (found["pipeline"], found["file"], found["line"], found["place"]) == (
        "flawed.yaml",
        "flawed.yaml",
        1,
        "env",
    )


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["tests.helpers.bad_envs:Clock n=2 backend=dummy"], 0),
        (["tests.helpers.bad_envs:Clock n=2 backend=dummy", "--twice"], 1),
        (
            [
                "tests.helpers.bad_envs:Clock n=2 backend=dummy",
                "--twice",
                "--ignore",
                "stream_differs",
            ],
            0,
        ),
        (["tests.helpers.bad_envs:InfoOnly n=2 backend=dummy", "--twice"], 0),
        (["tests.helpers.bad_envs:InfoOnly n=2 seed=1 backend=dummy", "--twice", "--strict"], 1),
        (
            [
                "tests.helpers.bad_envs:InfoOnly n=2 seed=1 backend=dummy",
                "--twice",
                "--strict",
                "--ignore",
                "info_differs",
            ],
            0,
        ),
        (["CartPole-v1 n=2 backend=dummy", "--steps", "20"], 2),
        (["CartPole-v1 n=2 backend=dummy", "--twice", "--steps", "0"], 2),
    ],
)
def test_statuses_of_twice(here, arguments, status):
    arguments = (
        [*arguments, "--steps", "20"]
        if "--twice" in arguments and "--steps" not in arguments
        else arguments
    )
    assert main(["check", *arguments]) == status
