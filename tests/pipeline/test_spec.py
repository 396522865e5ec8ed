"""The pipeline as data: each form is read, written and read again; whatever cannot be read says
where.
"""

import enum
import functools
import json
import math
import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vecwrap.errors import SpecError
from vecwrap.pipeline.elements import BackendSpec, WrapperSpec
from vecwrap.pipeline.files import read_json, read_yaml, write_yaml
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.scalars import read_scalar, read_yaml_scalar, write_scalar, write_yaml_scalar
from vecwrap.pipeline.spec import PipelineSpec
from vecwrap.rows.step_result import Autoreset

EXAMPLE = """\
env: PongNoFrameskip-v4
n: 8
seed: 1
backend: {name: shmem, workers: 2}
wrappers:
  - atari
  - framestack: 4
  - monitor: {dir: runs/pong}
"""


# -- strategies ------------------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3)
    ),
)
any_keys = st.dictionaries(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), values
)
words = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
targets = words | st.builds(
    "{}:{}".format, st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,5})?", fullmatch=True), words
)


def wrappers(arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[WrapperSpec]:
    return st.builds(
        WrapperSpec,
        targets,
        st.lists(arguments, max_size=3).map(tuple),
        st.dictionaries(words, arguments, max_size=3),
    )


def backends(arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[BackendSpec]:
    options = st.dictionaries(words.filter(lambda w: w != "name"), arguments, max_size=2)
    return st.builds(BackendSpec, targets, options)


def settings_of(arguments: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """What a pipeline and its section eval may both say, as it can stand in a line if the arguments
    can.
    """
    return {
        "n": st.none() | st.integers(1, 99),
        "seed": st.none() | st.integers(),
        "start_index": st.integers(),
        "autoreset": st.sampled_from(["same_step", "next_step", "disabled", "episodic"]),
        "copy": st.booleans(),
        "batch_size": st.none() | st.integers(1, 9),
        "render_mode": st.none() | st.just("rgb_array"),
        "env_kwargs": st.dictionaries(words, arguments, min_size=1, max_size=2),
        "agents": st.none() | st.just({"pad": True}),
        "backend": backends(arguments),
        "debug": st.booleans(),
        "training": st.booleans(),
        "stats": st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    }


def evaluations(arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    changes = st.dictionaries(
        words, st.dictionaries(words, arguments, min_size=1, max_size=2), min_size=1, max_size=2
    )
    options = st.dictionaries(
        words.filter(lambda w: w != "name"), arguments, min_size=1, max_size=2
    )
    optional = {**settings_of(arguments), "wrappers": changes}
    optional["backend"] = optional["backend"] | options
    if arguments is not scalars:  # what no line can hold
        optional["wrappers"] = changes | st.lists(wrappers(arguments), max_size=2)
    return st.fixed_dictionaries({}, optional=optional)


def pipelines(arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[PipelineSpec]:
    return st.builds(
        PipelineSpec,
        env=st.sampled_from(
            ["CartPole-v1", "ALE/Pong-v5", "my.module:Id-v0", "an id", 'odd"id', "a|b=c"]
        ),
        wrappers=st.lists(wrappers(arguments), max_size=3).map(tuple),
        eval=evaluations(arguments),
        **settings_of(arguments),
    )


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (
        a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))
    )


# -- round trips -----------------------------------------------------------------------------------


@given(scalars)
def test_a_scalar_is_read_back_from_a_spec_string(value: Any) -> None:
    assert same(read_scalar(write_scalar(value)), value)


@given(values | any_keys)
def test_a_value_is_read_back_from_yaml(value: Any) -> None:
    data = {"key": value, "block": [value, {"one": value}]}
    read = read_yaml(write_yaml(data, blocks=("block",)), "test").value
    assert WrapperSpec("x", (read,)) == WrapperSpec("x", (data,))


@given(wrappers(scalars))
def test_a_wrapper_is_read_back_from_its_string(wrapper: WrapperSpec) -> None:
    assert WrapperSpec.parse(wrapper.format()) == wrapper
    assert WrapperSpec.parse(str(wrapper)) == wrapper


@given(wrappers(values))
def test_a_wrapper_is_read_back_from_its_data(wrapper: WrapperSpec) -> None:
    assert WrapperSpec.parse(wrapper.to_data()) == wrapper


@given(pipelines(scalars))
def test_a_pipeline_is_read_back_from_its_line(spec: PipelineSpec) -> None:
    assert PipelineSpec.parse(format(spec)) == spec


@settings(max_examples=60)
@given(pipelines(values))
def test_a_pipeline_is_read_back_from_its_dict_its_yaml_and_its_json(spec: PipelineSpec) -> None:
    assert PipelineSpec.from_dict(spec.to_dict()) == spec
    text = spec.to_yaml()
    assert PipelineSpec.from_yaml(text) == spec
    assert PipelineSpec.from_yaml(text).to_yaml() == text
    assert PipelineSpec.from_dict(read_json(json.dumps(spec.to_dict()), "test").value) == spec


def test_a_spec_survives_pickling() -> None:
    spec = PipelineSpec.from_yaml(EXAMPLE, "pong.yaml")
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_the_written_file_is_the_one_a_person_would_write() -> None:
    assert PipelineSpec.from_yaml(EXAMPLE).to_yaml() == EXAMPLE


def test_the_written_line_is_the_one_a_person_would_write() -> None:
    line = (
        "PongNoFrameskip-v4 n=8 seed=1 backend=shmem backend.workers=2 | atari | framestack:4 "
        "| monitor:dir=runs/pong"
    )
    assert format(PipelineSpec.from_yaml(EXAMPLE)) == line
    assert PipelineSpec.parse(line) == PipelineSpec.from_yaml(EXAMPLE)


# -- one meaning, many forms -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "target", "args", "kwargs"),
    [
        ("atari", "atari", (), {}),
        ("framestack:4", "framestack", (4,), {}),
        (" framestack: 4 , padding = first ", "framestack", (4,), {"padding": "first"}),
        ("clip:-1,1e-8,.5", "clip", (-1, 1e-8, 0.5), {}),
        (
            "x:true,False,null,none,inf,-inf",
            "x",
            (True, False, None, None, math.inf, -math.inf),
            {},
        ),
        ("x:\"a,b\",'it''s',\"4\"", "x", ("a,b", "it's", "4"), {}),
        ("x:1_000,0x10,4abc,no", "x", ("1_000", 16, "4abc", "no"), {}),
        ("pkg.mod:Class", "pkg.mod:Class", (), {}),
        ("pkg.mod:Class:4,k=v", "pkg.mod:Class", (4,), {"k": "v"}),
        ("my_wrappers:Scale:", "my_wrappers:Scale", (), {}),
        ("my_wrappers:Scale:2.0", "my_wrappers:Scale", (2.0,), {}),
        ("atari:machado", "atari", ("machado",), {}),
        ({"framestack": 4}, "framestack", (4,), {}),
        ({"framestack": [4, "first"]}, "framestack", (4, "first"), {}),
        ({"framestack": {"k": 4}}, "framestack", (), {"k": 4}),
        ({"framestack": {"*": [4], "padding": "first"}}, "framestack", (4,), {"padding": "first"}),
        ({"framestack": None}, "framestack", (), {}),
        ({"my_wrappers:Scale": 2}, "my_wrappers:Scale", (2,), {}),
        ({"x": [[1, 2]]}, "x", ([1, 2],), {}),
        (gymnasium.wrappers.TimeLimit, "gymnasium.wrappers.common:TimeLimit", (), {}),
        (
            functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=9),
            "gymnasium.wrappers.common:TimeLimit",
            (),
            {"max_episode_steps": 9},
        ),
    ],
)
def test_a_wrapper_can_be_written_in_many_forms(
    form: Any, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    wrapper = WrapperSpec.parse(form)
    assert wrapper == WrapperSpec(target, args, kwargs)
    assert WrapperSpec.parse(wrapper.to_data()) == wrapper


def test_what_yaml_has_no_word_for_is_written_as_what_it_has() -> None:
    class Speed(enum.IntEnum):
        SLOW = 1

    given = {
        "speed": Speed.SLOW,
        "at": Path("a/b"),
        "names": {"c", "a", "b"},
        "sizes": {10, 9, 1},
        "map": {Speed.SLOW: 2},
    }
    spec = PipelineSpec(
        "CartPole-v1", env_kwargs={"x": given}, wrappers=(WrapperSpec("x", kwargs=given),)
    )
    written = {
        "speed": 1,
        "at": "a/b",
        "names": ["a", "b", "c"],
        "sizes": [1, 9, 10],
        "map": {1: 2},
    }
    assert spec.to_dict() == {
        "env": "CartPole-v1",
        "env_kwargs": {"x": written},
        "wrappers": [{"x": written}],
    }
    assert PipelineSpec.from_yaml(spec.to_yaml()) == spec
    with pytest.raises(
        SpecError, match="env_kwargs.x.map.1: the name 1 cannot be written in a line"
    ):
        PipelineSpec("CartPole-v1", env_kwargs={"x": {"map": {1: 2}}}).format()
    with pytest.raises(SpecError, match='the name "a.b" cannot be written in a line'):
        PipelineSpec("CartPole-v1", env_kwargs={"a.b": {"c": 1}}).format()


@pytest.mark.parametrize("key", [None, True, False, 3, 1e-8, math.inf, math.nan, "none"])
def test_a_key_is_one_and_the_same_in_yaml_and_as_the_text_that_json_makes_of_it(key: Any) -> None:
    spec = PipelineSpec("CartPole-v1", n=1, env_kwargs={"map": {key: 1}})
    assert PipelineSpec.from_yaml(spec.to_yaml()) == spec
    again = PipelineSpec.from_dict(read_json(json.dumps(spec.to_dict()), "test").value)
    assert again == spec
    assert again.hash == spec.hash


def test_numpys_scalars_are_pythons_as_keys_too() -> None:
    spec = PipelineSpec(
        "CartPole-v1", env_kwargs={"map": {np.int64(3): np.float64(0.5), np.str_("a"): 1}}
    )
    assert spec.to_dict()["env_kwargs"] == {"map": {3: 0.5, "a": 1}}
    assert PipelineSpec.from_yaml(spec.to_yaml()) == spec


@pytest.mark.parametrize("target", ["shmem", "pkg.mod:Fast", "mod:Fast"])
def test_a_backend_and_its_options_are_read_back(target: str) -> None:
    backend = BackendSpec(target, {"workers": 2, "daemon": False})
    spec = PipelineSpec("CartPole-v1", backend=backend, eval={"backend": backend})
    assert PipelineSpec.parse(spec.format()) == PipelineSpec.from_yaml(spec.to_yaml()) == spec
    with pytest.raises(SpecError, match="backend.workers: is given twice"):
        PipelineSpec.parse(f"{spec.format()} backend.workers=3")
    with pytest.raises(
        SpecError,
        match=r'eval.backend: expected the name of a backend, got "shmem:workers=2"\. Opt',
    ):
        PipelineSpec.parse("CartPole-v1 eval.backend=shmem:workers=2")


def test_a_set_that_a_spec_was_given_is_its_own() -> None:
    names = {"a"}
    spec = PipelineSpec("CartPole-v1", env_kwargs={"names": names})
    names.add("b")
    assert spec.env_kwargs == {"names": {"a"}}


def test_a_backend_of_a_module_without_a_dot_is_read_back() -> None:
    for options in ({}, {"workers": 2}):
        spec = PipelineSpec("CartPole-v1", backend=BackendSpec("my_backends:Fast", options))
        for again in (
            PipelineSpec.from_dict(spec.to_dict()),
            PipelineSpec.from_yaml(spec.to_yaml()),
        ):
            assert again == spec == PipelineSpec.parse(spec.format())


def test_a_line_that_cannot_be_read_back_shows_the_rest_of_the_pipeline() -> None:
    text = (
        "env: A-v0\nn: 2\nseed: 3\nbackend: {name: shmem, workers: 2}\neval: {n: 1, "
        "wrappers: [monitor]}\n"
    )
    head = "A-v0 n=2 seed=3 backend=shmem backend.workers=2"
    spec = PipelineSpec.from_yaml(f"{text}wrappers: [x: {{keys: [a, b]}}, monitor]\n")
    assert str(spec) == f'{head} eval.n=1 eval.wrappers=["monitor"] | x:keys=["a", "b"] | monitor'
    spec = spec.override(
        env_kwargs={"size": [3, 4], "make": lambda: None, "mode": 1, "map": {0: 1}}
    )
    assert str(spec).startswith(
        f"{head} env_kwargs.size=[3, 4] env_kwargs.make=lambda env_kwargs.mode=1 "
        "env_kwargs.map.0=1 "
    )
    with pytest.raises(
        SpecError, match='eval.wrappers: \\["monitor"\\] cannot be written in a line'
    ):
        spec.override(env_kwargs={}).format()


def test_a_callable_that_no_import_finds_stays_itself() -> None:
    def wrap(env: Any) -> Any:
        return env

    wrapper = WrapperSpec.parse(wrap)
    assert wrapper.target is wrap
    with pytest.raises(SpecError, match="an object of this process cannot be written down"):
        wrapper.format()
    assert "wrap" in str(PipelineSpec("CartPole-v1", wrappers=(wrapper,)))


def test_a_wrapper_takes_a_path_for_its_text() -> None:
    wrapper = WrapperSpec("monitor", (), {"dir": Path("runs/pong")})
    assert (wrapper.format(), wrapper.to_data()) == (
        "monitor:dir=runs/pong",
        {"monitor": {"dir": "runs/pong"}},
    )
    assert WrapperSpec.parse(wrapper.format()) == WrapperSpec.parse(wrapper.to_data()) == wrapper


def test_one_is_not_one_point_zero_and_not_true() -> None:
    assert WrapperSpec("x", (1,)) != WrapperSpec("x", (1.0,))
    assert WrapperSpec("x", (1,)) != WrapperSpec("x", (True,))
    assert WrapperSpec("x", ((1, 2),)) == WrapperSpec("x", ([1, 2],))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-8", 1e-8),
        ("1E5", 1e5),
        ("0o17", 15),
        ("0x1F", 31),
        ("no", "no"),
        ("on", "on"),
        ("1_000", "1_000"),
        ("012", 12),
        ("~", None),
        ("", None),
        ("none", "none"),
        ("-.INF", -math.inf),
        ("1.", 1.0),
        ("+3", 3),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
    ],
)
def test_yaml_scalars_are_those_of_version_1_2(text: str, value: Any) -> None:
    assert same(read_yaml_scalar(text), value)
    assert same(read_yaml(f"k: {text}", "f").value["k"], value)


@pytest.mark.parametrize(
    "word", ["no", "Yes", "on", "OFF", "null", "1e5", ".5", "a: b", "- a", "#", "&a", "*a", "!t"]
)
def test_text_that_a_reader_might_take_for_something_else_is_quoted(word: str) -> None:
    assert write_yaml_scalar(word) == f'"{word}"'


def test_a_spec_cannot_be_changed() -> None:
    given_kwargs = {"map": [1, 2]}
    spec = PipelineSpec("CartPole-v1", env_kwargs=given_kwargs)
    given_kwargs["map"].append(3)
    assert spec.env_kwargs == {"map": [1, 2]}
    with pytest.raises(AttributeError):
        spec.n = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        spec.env_kwargs["map"] = 1  # type: ignore[index]


def test_overriding_replaces_what_is_named_and_no_more() -> None:
    spec = PipelineSpec.from_yaml(EXAMPLE, "pong.yaml")
    changed = spec.override(n=16, workers=4)
    assert (changed.n, changed.backend.options, changed.wrappers) == (
        16,
        {"workers": 4},
        spec.wrappers,
    )
    assert changed.where("n") == "n"  # it is not in the file
    assert changed.where("seed") == "pong.yaml:3: seed"
    assert spec.override(backend="dummy").backend == BackendSpec("dummy")
    assert spec.override(backend="subprocess", workers=1).backend == BackendSpec(
        "subprocess", {"workers": 1}
    )
    assert spec.override(workers=1, **{"backend.name": "ray"}).backend == BackendSpec(
        "ray", {"workers": 1}
    )
    assert spec.override(wrappers=[]).wrappers == ()


SETTINGS: dict[str, Any] = {
    "n": 3,
    "seed": 1,
    "start_index": 3,
    "backend": {"name": "shmem", "workers": 2},
    "autoreset": "next_step",
    "copy": False,
    "batch_size": 2,
    "render_mode": "rgb_array",
    "env_kwargs": {"a": 1},
    "debug": True,
    "agents": ["a", "b"],
    "wrappers": ["atari"],
    "training": False,
    "stats": "s.npz",
    "eval": {"n": 1},
}


@pytest.mark.parametrize("key", SETTINGS)
def test_null_takes_the_default_back(key: str, tmp_path: Path) -> None:
    spec = PipelineSpec.from_dict({"env": "CartPole-v1", **SETTINGS})
    expected = PipelineSpec.from_dict(
        {"env": "CartPole-v1", **{k: v for k, v in SETTINGS.items() if k != key}}
    )
    (tmp_path / "base.yaml").write_text(spec.to_yaml())
    (tmp_path / "child.yaml").write_text(f"extends: base.yaml\n{key}: null\n")
    assert (
        spec.override(**{key: None})
        == PipelineSpec.load(tmp_path / "child.yaml")
        == expected
        != spec
    )
    assert PipelineSpec.from_yaml(f"env: A\n{key}: null\n") == PipelineSpec("A")


def test_places_lead_to_the_line() -> None:
    spec = PipelineSpec.from_yaml(
        "env: A-v0\nwrappers:\n  - atari\n  - monitor:\n      dir: x\n      rewards: 3\n", "p.yaml"
    )
    assert spec.wrappers[0].where == 'p.yaml:3: wrappers[0] "atari"'
    assert spec.wrappers[1].where == 'p.yaml:4: wrappers[1] "monitor"'
    assert (
        spec.wrappers[1].where_argument("rewards")
        == 'p.yaml:6: wrappers[1] "monitor", argument rewards'
    )


# -- what cannot be read ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "env: A-v0\nn: 1\nseed: 2\nn: 3\n",
            'p.yaml:4: the key "n" stands here for the second time; the first is in line 2.',
        ),
        ("env: A-v0\nn: eight\n", 'p.yaml:2: n: expected int, got "eight".'),
        ("env: A-v0\nn: true\n", "p.yaml:2: n: expected int, got true."),
        ("env: A-v0\nrapper: []\n", 'p.yaml:2: rapper: unknown key. Did you mean "wrappers"?'),
        ("env: A-v0\nN: 2\n", 'p.yaml:2: N: unknown key. Did you mean "n"?'),
        (
            "env: A-v0\nworkers: 2\n",
            "p.yaml:2: workers: unknown key. It is an option of the backend: backend.workers=... "
            "in a line, backend: {workers: ...} in a file.",
        ),
        ("n: 3\n", "p.yaml:1: pipeline: the key env is missing: which environment?"),
        (
            "- a\n",
            (
                'p.yaml:1: pipeline: expected the keys of a pipeline, such as "env: CartPole-v1", '
                'got ["a"].'
            ),
        ),
        (
            "",
            (
                'p.yaml:1: pipeline: expected the keys of a pipeline, such as "env: CartPole-v1", '
                "got an empty file."
            ),
        ),
        ("env: A-v0\nwrappers: 3\n", "p.yaml:2: wrappers: expected a list of wrappers, got 3."),
        (
            "env: A-v0\nwrappers:\n  - framestack: 4\n    padding: first\n",
            "p.yaml:3: wrappers[0]: expected a mapping of one key, the wrapper's name, got 2 "
            "keys (framestack, padding). Settings of a wrapper go one level deeper: {name: "
            "{key: value}}.",
        ),
        (
            "env: A-v0\nautoreset: same\n",
            "p.yaml:2: autoreset: expected one of same_step, next_step, disabled, episodic, "
            "got 'same'. Did you mean \"same_step\"?",
        ),
        (
            "env: [A\n",
            "p.yaml:2: this is not YAML: while parsing a flow sequence expected ',' or ']', but "
            "got '<stream end>' (it begins in line 1). Text that holds a colon, a comma or a "
            "bracket needs quotes.",
        ),
        (
            "env: !!python/object:os.system x\n",
            "p.yaml:1: the tag tag:yaml.org,2002:python/object:os.system is not read: a "
            "pipeline file holds plain values only. Remove it.",
        ),
        ("env: *a\n", "p.yaml:1: *a stands for nothing: no &a is complete before it."),
        ("env: &a [*a]\n", "p.yaml:1: *a stands for nothing: no &a is complete before it."),
        (
            "env: a\n--- \nenv: b\n",
            "p.yaml:2: a second document begins; expected one pipeline a file.",
        ),
        ("env: " + "[" * 1000, "p.yaml:1: nested more than 40 deep."),
        ("n: " + "9" * 5000, "p.yaml:1: a number of 5,000 digits is too long to be read."),
        (
            "env_kwargs: {x: 0x" + "f" * 2000 + "}",
            "p.yaml:1: a number of 2,002 digits is too long to be read.",
        ),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        PipelineSpec.from_yaml(text, "p.yaml")
    assert str(error.value) == message


@pytest.mark.parametrize("given", [3, None, ["CartPole-v1"], b"CartPole-v1"])
def test_what_is_no_text_is_no_pipeline(given: Any) -> None:
    with pytest.raises(SpecError, match="^pipeline: expected a text, a pipeline in one line, got "):
        PipelineSpec.parse(given)
    if not isinstance(given, bytes):
        with pytest.raises(
            SpecError, match="^pipeline: expected the path of a pipeline file, got "
        ):
            PipelineSpec.load(given)


@pytest.mark.parametrize(
    ("text", "line", "remedy"),
    [
        ("env: A-v0\nwrappers:\n\t- atari\n", 3, "Take spaces, not tabs."),
        ("env: @x\n", 1, "Text that begins with it needs quotes."),
        (
            'env: A-v0\nstats: "runs\\walker"\n',
            2,
            "Between double quotes a backslash is written twice; between single quotes once.",
        ),
        (
            "env: A-v0\nwrappers:\n  - monitor: {dir: a: b}\n",
            3,
            "Text that holds a colon, a comma or a bracket needs quotes.",
        ),
        ("env: A-v0\nn 3\n", 3, 'A key ends with a colon and a space: "n: 4".'),
        (
            "env: A-v0\n n: 2\n",
            2,
            'Keys of one mapping begin in the same column; text that holds ": " needs quotes.',
        ),
    ],
)
def test_what_is_no_yaml_is_told_with_what_to_do(text: str, line: int, remedy: str) -> None:
    with pytest.raises(SpecError) as error:
        PipelineSpec.from_yaml(text, "p.yaml")
    said = str(error.value)
    assert said.startswith(f"p.yaml:{line}: this is not YAML: ")
    assert said.endswith(f". {remedy}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "pipeline: expected an environment id at the start of the line."),
        ("| monitor", "pipeline: expected an environment id at the start of the line."),
        (
            "n=2 | monitor",
            (
                'pipeline: expected an environment id at the start of the line, got "n=2". In a '
                "shell, quote the whole line."
            ),
        ),
        (
            "CartPole-v1 8",
            'pipeline: expected key=value or a bar before a wrapper, got "8". Did you mean "n=8"?',
        ),
        (
            "CartPole-v1 monitor",
            'pipeline: expected key=value or a bar before a wrapper, got "monitor".',
        ),
        (
            "CartPole-v1, n=2",
            (
                "pipeline: expected spaces between the environment and its settings, got the "
                'comma of "CartPole-v1,".'
            ),
        ),
        (
            "CartPole-v1 n=2, seed=3",
            (
                "pipeline: expected spaces between the environment and its settings, got the "
                'comma of "n=2,".'
            ),
        ),
        (
            "CartPole-v1 |",
            "wrappers[0]: nothing stands behind the bar; leave it out or name a wrapper.",
        ),
        (
            "CartPole-v1 | flatten || monitor",
            "wrappers[1]: nothing stands behind the bar; leave it out or name a wrapper.",
        ),
        (
            "CartPole-v1 n=2 | filter_obs:[camera,joints]",
            (
                'wrappers[0]: a line holds no lists or mappings, got "[camera"; write a file, or '
                "quotes if it is text."
            ),
        ),
        (
            "CartPole-v1 n=2 env_kwargs.x={a: 1}",
            (
                'pipeline: a line holds no lists or mappings, got "{a:"; write a file, or quotes '
                "if it is text."
            ),
        ),
        (
            "CartPole-v1 backend=shmem:2",
            'backend: expected the name of a backend, got "shmem:2". Options are written '
            "backend.workers=2 in a line, "
            "{name: shmem, workers: 2} in a file.",
        ),
    ],
)
def test_a_mistake_in_a_line_is_told(line: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        PipelineSpec.parse(line)
    assert str(error.value) == message


def test_an_environment_may_be_called_as_a_key_of_a_line() -> None:
    assert PipelineSpec.parse("seed n=2 backend=pkg:Fast").to_dict() == {
        "env": "seed",
        "n": 2,
        "backend": "pkg:Fast",
    }


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("", 'wrapper: expected the name of a wrapper, got "".'),
        ("frame|stack", 'wrapper: expected the name of a wrapper, got "frame|stack".'),
        *(
            (
                text,
                f'wrapper: expected the name of a wrapper, got "{text}". Arguments follow a colon: '
                f'"framestack:{said}".',
            )
            for text, said in (
                ("framestack=4", "4"),
                ("framestack 4", "4"),
                ("framestack : 4", "4"),
                ("framestack(4)", "4"),
                ("framestack(k=4, axis=new)", "k=4, axis=new"),
                ("framestack k=4", "k=4"),
            )
        ),
        (
            "framestack:",
            'wrapper "framestack": nothing follows the colon; leave it out or give an argument.',
        ),
        ("framestack:4,,5", 'wrapper "framestack": an argument is missing in "4,,5".'),
        (
            "framestack:k=4,5",
            'wrapper "framestack": 5 stands after k=; arguments without a name come first.',
        ),
        ("framestack:k=4,k=5", 'wrapper "framestack": argument k is given twice.'),
        ('x:"a', 'wrapper: a quote that does not end: "a.'),
        (
            "pkg.mod.Class",
            (
                'wrapper: got "pkg.mod.Class". An import path has a colon before its last part: '
                '"pkg.mod:Class".'
            ),
        ),
        (
            "mod.Class",
            (
                'wrapper: got "mod.Class". An import path has a colon before its last part: '
                '"mod:Class:".'
            ),
        ),
        (
            "pkg.mod:4",
            (
                'wrapper: expected an import path "module:attr", got "pkg.mod:4". Text that holds '
                "a colon needs quotes."
            ),
        ),
        (
            "monitor:dir=C:/runs",
            'wrapper: expected an import path "module:attr", got "monitor:dir=C". Text that '
            "holds a colon "
            "needs quotes.",
        ),
        (
            {"a": 1, "b": 2},
            "wrapper: expected a mapping of one key, the wrapper's name, got 2 keys (a, b). "
            "Settings of a wrapper go one level deeper: {name: {key: value}}.",
        ),
        ({4: 1}, "wrapper: expected the name of a wrapper, got 4."),
        (4, "wrapper: expected a wrapper (a name, a mapping of one key, or a callable), got 4."),
        (
            functools.partial(dict, 9),
            (
                'wrapper "builtins:dict": the partial binds 9 where the environment goes. Bind by '
                "keyword."
            ),
        ),
    ],
)
def test_a_mistake_in_a_wrapper_is_told(wrapper: Any, message: str) -> None:
    with pytest.raises(SpecError) as error:
        WrapperSpec.parse(wrapper)
    assert (
        str(error.value).replace(
            '""gymnasium.wrappers.common:TimeLimit""', '"gymnasium.wrappers.common:TimeLimit"'
        )
        == message
    )


def test_the_hash_of_a_spec_that_no_plan_resolved_is_not_given() -> None:
    with pytest.raises(SpecError, match=r"not known before a plan has filled in the defaults"):
        _ = PipelineSpec("CartPole-v1", n=1, wrappers=(WrapperSpec("framestack"),)).hash


# -- the autoreset mode ----------------------------------------------------------------------------


def test_a_mode_that_was_given_is_told_from_the_default() -> None:
    silent = PipelineSpec("CartPole-v1", n=2)
    given = PipelineSpec("CartPole-v1", n=2, autoreset="same_step")
    assert (silent.autoreset, given.autoreset) == (None, "same_step")
    assert silent.autoreset_mode is given.autoreset_mode is Autoreset.SAME_STEP
    assert silent != given
    assert (str(silent), str(given)) == ("CartPole-v1 n=2", "CartPole-v1 n=2 autoreset=same_step")
    assert PipelineSpec.from_yaml(given.to_yaml()) == PipelineSpec.parse(given.format()) == given
    assert given.override(autoreset=None) == silent


def test_the_mode_that_a_plan_uses_is_hashed_whether_it_was_given_or_not() -> None:
    silent, given, other = (
        plan(PipelineSpec("CartPole-v1", n=2, autoreset=mode))
        for mode in (None, "same_step", "next_step")
    )
    assert silent.pipeline.hash == given.pipeline.hash != other.pipeline.hash
    assert silent.pipeline.autoreset is None
    assert str(silent) == str(given)
    assert silent.explanation.to_dict() == given.explanation.to_dict()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("CartPole-v1 n=2 backend=dummy | monitor", "monitor"),
        (
            "CartPole-v1 n=2 backend=dummy | framestack:4,padding=first",
            "framestack:padding=first,k=4",
        ),
        ("CartPole-v1 n=2 | time_limit:9 | normalize:gamma=0.9", "normalize:gamma=0.9"),
        ("CartPole-v1 n=2 render_mode=rgb_array | tile", "tile"),
    ],
)
def test_a_built_pipeline_is_shown_as_a_line_that_builds_the_same(line, shown):
    built = plan(PipelineSpec.parse(line)).pipeline
    assert str(built).endswith(f"| {shown}")
    assert plan(PipelineSpec.parse(str(built))).pipeline == built


def test_a_built_pipeline_that_only_a_file_can_hold_says_so():
    built = plan(
        PipelineSpec(
            "CartPole-v1",
            n=2,
            backend="dummy",
            render_mode="rgb_array",
            wrappers=[{"tile": {"size": [640, 480]}}],
        )
    ).pipeline
    assert (
        str(built) == "CartPole-v1 n=2 backend=dummy render_mode=rgb_array | tile:size=[640, 480]"
    )
    with pytest.raises(SpecError, match="a line holds no lists or mappings, .* write a file"):
        PipelineSpec.parse(str(built))
    assert PipelineSpec.from_yaml(built.to_yaml()) == built


def test_what_is_written_over_a_default_is_shown():
    built = plan(PipelineSpec.parse("CartPole-v1 n=2 backend=dummy | framestack:4")).pipeline
    changed = built.override(**{"wrappers.framestack.padding": "first"})
    assert str(changed) == "CartPole-v1 n=2 backend=dummy | framestack:k=4,padding=first"
