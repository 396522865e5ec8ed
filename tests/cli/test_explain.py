"""``vecwrap explain`` through its entry point: on a terminal, piped, and for machines."""

import json
import re
from pathlib import Path

from tests.helpers.terminal_output import on_a_terminal
from vecwrap.cli import main
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec

LINE = (
    "Pendulum-v1 n=3 seed=1 backend=dummy | time_limit:9 | rescale_action | "
    "framestack:2,padding=first | monitor"
)


def test_piped_it_is_the_plan_and_nothing_else(capsys):
    assert main(["explain", LINE]) == 0
    assert capsys.readouterr().out == f"{plan(PipelineSpec.parse(LINE)).with_spaces()}\n"


def test_on_a_terminal_it_is_the_same_in_colours():
    said = on_a_terminal("explain", LINE, columns=80)
    assert "\x1b[" in said
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)
    assert plain == f"{plan(PipelineSpec.parse(LINE)).with_spaces()}\n"
    assert max(map(len, plain.splitlines())) <= 80


def test_infinity_is_null_in_json(capsys):
    assert main(["explain", "CartPole-v1", "--set", "backend.step_timeout=.inf", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["backend"]["options"] == {"step_timeout": None}


def test_json_says_all_that_the_text_says(capsys):
    assert main(["explain", LINE, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [wrapper["name"] for wrapper in data["wrappers"]] == [
        "time_limit",
        "rescale_action",
        "framestack",
        "monitor",
    ]
    assert (data["n"], data["seed"], data["backend"]["name"]) == (3, 1, "dummy")
    assert data["wrappers"][2]["after"]["observations"]["shape"] == [2, 3]
    assert data["wrappers"][2]["bytes_per_step"] == 3 * 2 * 3 * 4
    for wrapper in data["wrappers"]:
        assert wrapper["at_an_episodes_end"]


def test_atari_says_in_words_which_lineage_it_is(capsys):
    for wrapper, words in (
        ("atari", "DeepMind lineage"),
        ("atari:machado", "lineage of Machado et al."),
    ):
        assert main(["explain", f"PongNoFrameskip-v4 n=1 backend=dummy | {wrapper}"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert words in said
        assert "at an episode's end: a lost life ends an episode too" in said


def test_settings_and_the_evaluation(tmp_path, capsys):
    file = tmp_path / "p.yaml"
    file.write_text(
        "env: CartPole-v1\nn: 4\nbackend: dummy\nwrappers: [monitor]\neval: {n: 1, wrappers: "
        "[monitor, flatten]}\n"
    )
    assert main(["explain", str(file), "--eval", "--set", "seed=7", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["n"], data["seed"], [wrapper["name"] for wrapper in data["wrappers"]]) == (
        1,
        7,
        ["monitor", "flatten"],
    )


def test_explaining_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = "CartPole-v1 n=2 backend=dummy render_mode=rgb_array | monitor:dir=a | video:dir=b"
    assert main(["explain", line]) == 0
    assert list(Path().iterdir()) == []


def test_a_wrapper_that_refuses_is_one_message_and_status_2(capsys):
    assert main(["explain", "CartPole-v1 n=2 backend=dummy | video"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(
        'error: wrappers[0] "video": expected an environment built with render_mode="rgb_array"'
    )
    assert said.out == ""
