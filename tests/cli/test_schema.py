"""The JSON schema of pipeline files, read by a validator that is not ours and held against what the
plan accepts.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vecwrap.cli import main
from vecwrap.cli.schema import json_type, pipeline_schema
from vecwrap.errors import PlanError, SpecError
from vecwrap.pipeline.elements import WrapperSpec
from vecwrap.pipeline.fields import KEYS
from vecwrap.pipeline.files import read_file, read_yaml
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.registry import backends, register_wrapper, wrappers
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.pipeline.wrappers import plan_wrappers

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = pipeline_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FILES = sorted([*ROOT.glob("examples/**/*.yaml"), *ROOT.glob("examples/**/*.json")])
NAMES = wrappers.names()


def valid(text):
    return VALIDATOR.is_valid(read_yaml(text, "p.yaml").value)


def test_it_is_a_schema_of_the_draft_that_it_names():
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


# -- what it takes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [pytest.param(file, id=file.name) for file in FILES])
def test_the_examples_are_valid(file):
    VALIDATOR.validate(read_file(file)[0])


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name) for page in sorted((ROOT / "docs").glob("*.md"))]
)
def test_the_pipelines_of_the_pages_are_valid(page):
    for block in re.findall(
        r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        VALIDATOR.validate(read_yaml(block, page.name).value)


WRAPPERS = [
    "atari",
    "framestack: 4",
    "framestack:4,padding=first",
    "' framestack: 4 ,  padding = first '",
    "{framestack: {k: 2}}",
    "{framestack: [4]}",
    "{framestack: {'*': [4], padding: first}}",
    "{monitor: null}",
    "{monitor: runs/pong}",
    "'monitor:dir=\"C:/runs, all\",per_env=true'",
    "'monitor:\"a:b\"'",
    "'monitor:dir='",
    "{clip_reward: [-1, 1]}",
    "'clip_reward:-1e-3,.inf'",
    "{filter_obs: [[a, b]]}",
    "{rescale_action: {low: 0, high: 1}}",
    "mujoco",
    "mujoco:gamma=0.9",
    "{mujoco: {gamma: 0.9, clip: 5}}",
    "pkg.mod:Class",
    "pkg.mod:Class:4,k=v",
    "'my_wrappers:Scale:'",
    "my_wrappers:Scale:2.0",
    "{my_wrappers:Scale: 2}",
    "{pkg.mod:Outer.Inner: {k: [1]}}",
    "{seed_each_episode: [[1, 2]]}",
    "{seed_each_episode: 'my_pkg:seeds'}",
    "{time_limit: 9}",
    "{video: {dir: v, trigger: 'my_pkg:when'}}",
]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_may_be_written_in_any_of_its_forms(wrapper):
    text = f"env: A\nwrappers:\n  - {wrapper}\n"
    PipelineSpec.from_yaml(text)
    VALIDATOR.validate(read_yaml(text, "p.yaml").value)


@pytest.mark.parametrize(
    "text",
    [
        'env: A\nwrappers: atari | framestack:4 | pkg.mod:Class | monitor:dir="a|b"\n',
        "env: A\nwrappers: null\n",
        (
            "env: A\nn: null\nseed: 3\nautoreset: episodic\ncopy: false\nbatch_size: "
            "2\nrender_mode: rgb_array\n"
        ),
        (
            "env: A\nautoreset: NextStep\ntraining: false\nstats: s.npz\nenv_kwargs: {a: "
            "[1]}\nstart_index: 4\n"
        ),
        "$schema: pipeline.schema.json\nenv: A\n",
        "$schema: null\nextends: null\nenv: A\nn: 2\n",
        "env: A\nstart_index: null\nautoreset: null\ncopy: null\ndebug: null\neval: null\n",
        "env: A\ntraining: null\nbackend: null\n",
        (
            "env: [A, B, 'm:C']\nenv_kwargs: [{a: 1}, {}, {b: [2]}]\neval: {env: [A], "
            "env_kwargs: [{a: 2}]}\n"
        ),
        "env: A\neval: {copy: null, training: null, backend: null, stats: null}\n",
        "env: A\nbackend: shmem\n",
        "env: A\nbackend: auto\n",
        "env: A\nbackend: {name: shmem, workers: 2, start_method: fork}\n",
        "env: A\nbackend: {workers: 2}\n",
        "env: A\nbackend: pkg.mod:Backend\n",
        "env: A\nbackend: {name: mod:Backend, anything: 3}\n",
        "env: A\neval: {n: 1, seed: 2, stats: s.npz, training: true, wrappers: [video]}\n",
        "env: A\neval: {wrappers: {framestack: {padding: first}}, backend: {workers: 1}}\n",
        "env: A\neval: {wrappers: [framestack: 4], backend: dummy, env: B}\n",
    ],
)
def test_a_good_file_is_valid(text):
    PipelineSpec.from_yaml(text)
    VALIDATOR.validate(read_yaml(text, "p.yaml").value)


def test_a_file_that_extends_another_changes_its_wrappers():
    head = "extends: base.yaml\nwrappers: "
    assert valid(
        head
        + (
            "{framestack: {padding: first}, time_limit: 9, '2': {k: 3}, Scale: {factor: "
            "2}, a.b:C: 3}\n"
        )
    )
    assert valid(head + "[framestack: 4]\n")


# -- what it refuses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "env: []\n",
        "env: [A, 3]\n",
        "env: A\nenv_kwargs: []\n",
        "env: A\nenv_kwargs: [{}, null]\n",
        "n: 3\n",
        "- env\n",
        "env: 3\n",
        "env: A\nn: four\n",
        "env: A\nn: 1.5\n",
        "env: A\nnum_envs: 4\n",
        "env: A\nautoreset: same\n",
        "env: A\ncopy: 1\n",
        "env: A\nenv_kwargs: [1]\n",
        "env: A\nstats: 3\n",
        "env: A\nwrappers: [framestak]\n",
        "env: A\nwrappers: [framestack]\n",
        "env: A\nwrappers: [framestak: 4]\n",
        "env: A\nwrappers: [4]\n",
        "env: A\nwrappers: ['a b:C']\n",
        "env: A\nwrappers: [{framestack: 4, padding: first}]\n",
        "env: A\nwrappers: [framestack: [4, first]]\nn: [3]\n",
        "env: A\nwrappers: ['framestack:']\n",
        "env: A\nwrappers: ['framestack : 4']\n",
        "env: A\nwrappers: [pkg.mod.Class]\n",
        "extends: 3\n",
        "extends: null\n",
        "extends: ''\n",
        "env: null\n",
        "env: ' '\n",
        "env: A\nstats: ''\n",
        "env: A\neval: {stats: ''}\n",
        "env: A\neval: {env: null}\n",
        "env: A\neval: {drop: monitor}\n",
        "env: A\neval: {add: [monitor]}\n",
        "env: A\nbackend: shmen\n",
        "env: A\nbackend: {name: shmem, workers: two}\n",
        "env: A\nbackend: 'shmen:workers=2'\n",
        "env: A\neval: {num: 3}\n",
        "env: A\neval: {eval: {n: 1}}\n",
        "env: A\neval: {extends: a}\n",
        "env: A\neval: {wrappers: [vidoe]}\n",
    ],
)
def test_a_bad_file_is_not_valid(text):
    assert not valid(text)
    with pytest.raises((SpecError, PlanError)):
        PipelineSpec.from_yaml(text.replace("env: A", "env: CartPole-v1"), "p.yaml")
        plan(PipelineSpec.from_yaml(text.replace("env: A", "env: CartPole-v1"), "p.yaml"))


# -- what it completes -----------------------------------------------------------------------------


pieces = st.sampled_from(
    [
        "framestack",
        "monitor",
        "clip_reward",
        "flatten",
        "pkg.mod",
        "Scale",
        ":",
        ":",
        ",",
        "=",
        "k",
        "dir",
        "padding",
        "first",
        "4",
        "-1e-3",
        '"a:b"',
        "'c,d'",
        "'it''s'",
        "null",
        " ",
        "per_env",
        "true",
        '"',
        "",
    ]
)


def accepted(wrapper):
    """Whether names and types are right."""
    try:
        plan_wrappers([wrapper])
    except (SpecError, PlanError):
        return False
    return True


@settings(max_examples=4 * settings.default.max_examples, deadline=None)
@given(st.lists(pieces, max_size=12).map("".join))
def test_text_that_is_a_wrapper_is_no_mistake_to_an_editor(text):
    try:
        wrapper = WrapperSpec.parse(text)
    except SpecError:
        return
    if ":" in wrapper.target or accepted(wrapper):
        assert VALIDATOR.is_valid({"env": "A", "wrappers": [text]}), text
        assert VALIDATOR.is_valid({"env": "A", "wrappers": f"atari | {text}|{text}"}), text


def test_each_wrapper_is_there_with_its_help():
    *alone, _, mapping = SCHEMA["$defs"]["wrapper"]["anyOf"]
    assert {name for name, told in mapping["properties"].items() if told["description"]} == set(
        NAMES
    )
    assert {told["const"] for told in alone} < set(NAMES)
    # It needs an argument.
    assert {"const": "framestack"}.items() not in [told.items() for told in alone]


def test_the_options_of_every_backend_are_there():
    name, mapping = SCHEMA["$defs"]["backend"]["anyOf"]
    assert {told.get("const") for told in name["anyOf"]} >= {*backends.names(), "auto"}
    assert set(mapping["properties"]) >= {
        "name",
        "workers",
        "envs_per_worker",
        "start_method",
        "on_failure",
    }
    assert all(
        option["description"] for key, option in mapping["properties"].items() if key != "name"
    )


def test_a_type_that_json_has_not_takes_anything():
    assert json_type(int | None) == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert json_type(Callable[[int], int]) == json_type("NotEvaluated") == json_type(Path) == {}


def test_each_key_of_a_pipeline_is_there_with_its_help():
    assert set(SCHEMA["properties"]) == {*KEYS, "extends", "$schema"}
    assert set(SCHEMA["properties"]["eval"]["properties"]) == set(KEYS) - {"eval"}
    for key in KEYS:
        assert SCHEMA["properties"][key]["description"]


def test_a_wrapper_that_is_registered_is_in_it():
    def halve(env, by: float = 2.0, *, why: str):
        """Halve."""

    register_wrapper("halve", halve)
    register_wrapper("absent", "no_such_module_x:Wrapper")
    try:
        validator = jsonschema.Draft202012Validator(pipeline_schema())
    finally:
        wrappers.unregister("halve")
        wrappers.unregister("absent")
    for wrapper, expected in (
        ({"halve": {"why": "so"}}, True),
        ({"halves": 3}, False),
        ("halve", False),
        ("halve:why=so", True),
        ({"absent": {"anything": 3}}, True),
        ("absent:3,4", True),
    ):
        assert validator.is_valid({"env": "A", "wrappers": [wrapper]}) is expected, wrapper
    assert not VALIDATOR.is_valid({"env": "A", "wrappers": ["halve:why=so"]})


# -- the command -----------------------------------------------------------------------------------


def test_the_command_prints_it(capsys):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA


def test_it_is_printed_where_python_drops_docstrings():
    command = [sys.executable, "-OO", "-m", "vecwrap", "schema"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["properties"].keys() == SCHEMA["properties"].keys()


def test_a_file_that_names_its_schema_loads(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(
        "# yaml-language-server: $schema=pipeline.schema.json\nenv: CartPole-v1\nn: 2\n"
    )
    assert PipelineSpec.load(file) == PipelineSpec("CartPole-v1", n=2)
    (tmp_path / "p.json").write_text(
        '{"$schema": "./pipeline.schema.json", "env": "CartPole-v1", "n": 2}'
    )
    assert PipelineSpec.load(tmp_path / "p.json") == PipelineSpec("CartPole-v1", n=2)
