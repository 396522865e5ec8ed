"""The pipeline as data: each form is read, written and read again; whatever cannot be read says where."""

import contextlib
import functools
import itertools
import math
import pickle
import time
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vecwrap.errors import SpecError
from vecwrap.layer_spec import LayerSpec
from vecwrap.scalars import read_scalar, read_yaml_scalar, write_scalar, write_yaml_scalar
from vecwrap.spec import BackendSpec, PipelineSpec
from vecwrap.yaml_file import read_yaml, write_yaml

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


# -- strategies -------------------------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3)
)
words = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
targets = words | st.builds("{}:{}".format, st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,5})?", fullmatch=True), words)


def layers(arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[LayerSpec]:
    return st.builds(
        LayerSpec,
        targets,
        st.lists(arguments, max_size=3).map(tuple),
        st.dictionaries(words, arguments, max_size=3),
    )


def pipelines(arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[PipelineSpec]:
    return st.builds(
        PipelineSpec,
        env=st.sampled_from(["CartPole-v1", "ALE/Pong-v5", "my.module:Id-v0", "an id", 'odd"id', "a|b=c"]),
        n=st.none() | st.integers(1, 99),
        wrappers=st.lists(layers(arguments), max_size=3).map(tuple),
        backend=st.builds(
            BackendSpec, words, st.dictionaries(words.filter(lambda w: w != "name"), arguments, max_size=2)
        ),
        seed=st.none() | st.integers(),
        start_index=st.integers(),
        autoreset=st.sampled_from(["same_step", "next_step", "disabled", "episodic"]),
        copy=st.booleans(),
        batch_size=st.none() | st.integers(1, 9),
        render_mode=st.none() | st.just("rgb_array"),
        env_kwargs=st.dictionaries(words, arguments, max_size=2),
        debug=st.booleans(),
    )


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b)))


# -- round trips ------------------------------------------------------------------------------------------------------


@given(scalars)
def test_a_scalar_is_read_back_from_a_spec_string(value: Any) -> None:
    assert same(read_scalar(write_scalar(value)), value)


@given(values)
def test_a_value_is_read_back_from_yaml(value: Any) -> None:
    data = {"key": value, "block": [value, {"one": value}]}
    read = read_yaml(write_yaml(data, blocks=("block",)), "test").value
    assert LayerSpec("x", (read,)) == LayerSpec("x", (data,))


@given(layers(scalars))
def test_a_layer_is_read_back_from_its_string(layer: LayerSpec) -> None:
    assert LayerSpec.parse(layer.format()) == layer
    assert LayerSpec.parse(str(layer)) == layer


@given(layers(values))
def test_a_layer_is_read_back_from_its_data(layer: LayerSpec) -> None:
    assert LayerSpec.parse(layer.to_data()) == layer


@given(pipelines(scalars))
def test_a_pipeline_is_read_back_from_its_line(spec: PipelineSpec) -> None:
    assert PipelineSpec.parse(format(spec)) == spec


@given(pipelines(values))
def test_a_pipeline_is_read_back_from_its_dict_and_its_yaml(spec: PipelineSpec) -> None:
    assert PipelineSpec.from_dict(spec.to_dict()) == spec
    text = spec.to_yaml()
    assert PipelineSpec.from_yaml(text) == spec
    assert PipelineSpec.from_yaml(text).to_yaml() == text


def test_a_spec_survives_pickling() -> None:
    spec = PipelineSpec.from_yaml(EXAMPLE, "pong.yaml")
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_the_written_file_is_the_one_a_person_would_write() -> None:
    assert PipelineSpec.from_yaml(EXAMPLE).to_yaml() == EXAMPLE


def test_the_written_line_is_the_one_a_person_would_write() -> None:
    line = (
        "PongNoFrameskip-v4 n=8 seed=1 backend=shmem backend.workers=2 | atari | framestack:4 | monitor:dir=runs/pong"
    )
    assert format(PipelineSpec.from_yaml(EXAMPLE)) == line
    assert PipelineSpec.parse(line) == PipelineSpec.from_yaml(EXAMPLE)


# -- one meaning, many forms ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "target", "args", "kwargs"),
    [
        ("atari", "atari", (), {}),
        ("framestack:4", "framestack", (4,), {}),
        (" framestack: 4 , padding = first ", "framestack", (4,), {"padding": "first"}),
        ("clip:-1,1e-8,.5", "clip", (-1, 1e-8, 0.5), {}),
        ("x:true,False,null,none,inf,-inf", "x", (True, False, None, None, math.inf, -math.inf), {}),
        ("x:\"a,b\",'it''s',\"4\"", "x", ("a,b", "it's", "4"), {}),
        ("x:1_000,0x10,4abc,no", "x", ("1_000", 16, "4abc", "no"), {}),
        ("pkg.mod:Class", "pkg.mod:Class", (), {}),
        ("pkg.mod:Class:4,k=v", "pkg.mod:Class", (4,), {"k": "v"}),
        ("my_layers:Scale:", "my_layers:Scale", (), {}),
        ("my_layers:Scale:2.0", "my_layers:Scale", (2.0,), {}),
        ("atari:machado", "atari", ("machado",), {}),
        ({"framestack": 4}, "framestack", (4,), {}),
        ({"framestack": [4, "first"]}, "framestack", (4, "first"), {}),
        ({"framestack": {"k": 4}}, "framestack", (), {"k": 4}),
        ({"framestack": {"*": [4], "padding": "first"}}, "framestack", (4,), {"padding": "first"}),
        ({"framestack": None}, "framestack", (), {}),
        ({"my_layers:Scale": 2}, "my_layers:Scale", (2,), {}),
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
def test_a_layer_can_be_written_in_many_forms(
    form: Any, target: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    layer = LayerSpec.parse(form)
    assert layer == LayerSpec(target, args, kwargs)
    assert LayerSpec.parse(layer.to_data()) == layer


def test_a_callable_that_no_import_finds_stays_itself() -> None:
    def wrap(env: Any) -> Any:
        return env

    layer = LayerSpec.parse(wrap)
    assert layer.target is wrap
    with pytest.raises(SpecError, match="an object of this process cannot be written down"):
        layer.format()
    assert "wrap" in str(PipelineSpec("CartPole-v1", wrappers=(layer,)))


def test_one_is_not_one_point_zero_and_not_true() -> None:
    assert LayerSpec("x", (1,)) != LayerSpec("x", (1.0,))
    assert LayerSpec("x", (1,)) != LayerSpec("x", (True,))
    assert LayerSpec("x", ((1, 2),)) == LayerSpec("x", ([1, 2],))


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-8", 1e-8), ("1E5", 1e5), ("0o17", 15), ("0x1F", 31), ("no", "no"), ("on", "on"), ("1_000", "1_000"),
     ("012", 12), ("~", None), ("", None), ("none", "none"), ("-.INF", -math.inf), ("1.", 1.0), ("+3", 3),
     ("1:30", "1:30"),
     ("2020-01-01", "2020-01-01")],
)  # fmt: skip
def test_yaml_scalars_are_those_of_version_1_2(text: str, value: Any) -> None:
    assert same(read_yaml_scalar(text), value)
    assert same(read_yaml(f"k: {text}", "f").value["k"], value)


@pytest.mark.parametrize("word", ["no", "Yes", "on", "OFF", "null", "1e5", ".5", "a: b", "- a", "#", "&a", "*a", "!t"])
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
    assert (changed.n, changed.backend.options, changed.wrappers) == (16, {"workers": 4}, spec.wrappers)
    assert changed.where("n") == "n"  # it is not in the file
    assert changed.where("seed") == "pong.yaml:3: seed"
    assert spec.override(backend="dummy").backend == BackendSpec("dummy")
    assert spec.override(backend="subprocess", workers=1).backend == BackendSpec("subprocess", {"workers": 1})
    assert spec.override(wrappers=[]).wrappers == ()


def test_places_lead_to_the_line() -> None:
    spec = PipelineSpec.from_yaml(
        "env: A-v0\nwrappers:\n  - atari\n  - monitor:\n      dir: x\n      rewards: 3\n", "p.yaml"
    )
    assert spec.wrappers[0].where == 'p.yaml:3: wrappers[0] "atari"'
    assert spec.wrappers[1].where == 'p.yaml:4: wrappers[1] "monitor"'
    assert spec.wrappers[1].where_argument("rewards") == 'p.yaml:6: wrappers[1] "monitor", argument rewards'


# -- what cannot be read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("env: A-v0\nn: 1\nseed: 2\nn: 3\n",
         'p.yaml:4: the key "n" stands here for the second time; the first is in line 2.'),
        ("env: A-v0\nn: eight\n", 'p.yaml:2: n: expected int, got "eight".'),
        ("env: A-v0\nn: true\n", "p.yaml:2: n: expected int, got true."),
        ("env: A-v0\nrapper: []\n", 'p.yaml:2: rapper: unknown key. Did you mean "wrappers"?'),
        ("env: A-v0\nworkers: 2\n",
         "p.yaml:2: workers: unknown key. It is the backend's: backend: {name: shmem, workers: 2}."),
        ("n: 3\n", "p.yaml:1: pipeline: the key env is missing: which environment?"),
        ("- a\n", 'p.yaml:1: pipeline: expected a mapping with the key env, got ["a"].'),
        ("", "p.yaml:1: pipeline: expected a mapping with the key env, got null."),
        ("env: A-v0\nwrappers: 3\n", "p.yaml:2: wrappers: expected a list of layers, got 3."),
        (
            "env: A-v0\nwrappers:\n  - framestack: 4\n    padding: first\n",
            "p.yaml:3: wrappers[0]: expected a mapping of one key, the layer's name, got 2 keys (framestack, padding). "
            "Settings of a layer go one level deeper: {name: {key: value}}.",
        ),
        ("env: A-v0\nautoreset: same\n",
         "p.yaml:2: autoreset: expected one of same_step, next_step, disabled, episodic, "
         "got 'same'. Did you mean \"same_step\"?"),
        ("env: [A\n",
         "p.yaml:2: this is not YAML: while parsing a flow sequence expected ',' or ']', but got '<stream end>'."),
        ("env: !!python/object:os.system x\n",
         "p.yaml:1: the tag tag:yaml.org,2002:python/object:os.system is not read: a "
         "pipeline file holds plain values only. Remove it."),
        ("env: *a\n", "p.yaml:1: *a stands for nothing: no &a is complete before it."),
        ("env: &a [*a]\n", "p.yaml:1: *a stands for nothing: no &a is complete before it."),
        ("env: a\n--- \nenv: b\n", "p.yaml:2: a second document begins; expected one pipeline a file."),
        ("env: " + "[" * 1000, "p.yaml:1: nested more than 40 deep."),
        ("n: " + "9" * 5000, "p.yaml:1: a number of 5,000 digits is too long to be read."),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        PipelineSpec.from_yaml(text, "p.yaml")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("", 'layer: expected the name of a layer, got "".'),
        ("framestack:", 'layer "framestack": nothing follows the colon; leave it out or give an argument.'),
        ("framestack:4,,5", 'layer "framestack": an argument is missing in "4,,5".'),
        ("framestack:k=4,5", 'layer "framestack": 5 stands after k=; arguments without a name come first.'),
        ("framestack:k=4,k=5", 'layer "framestack": argument k is given twice.'),
        ('x:"a', 'layer: a quote that does not end: "a.'),
        ("pkg.mod.Class",
         'layer: got "pkg.mod.Class". An import path has a colon before its last part: "pkg.mod:Class".'),
        ("pkg.mod:4",
         'layer: expected an import path "module:attr", got "pkg.mod:4". Text that holds a colon needs quotes.'),
        ("monitor:dir=C:/runs",
         'layer: expected an import path "module:attr", got "monitor:dir=C". Text that holds a colon '
         "needs quotes."),
        ({"a": 1, "b": 2},
         "layer: expected a mapping of one key, the layer's name, got 2 keys (a, b). Settings of a layer go "
         "one level deeper: {name: {key: value}}."),
        ({4: 1}, "layer: expected the name of a layer, got 4."),
        (4, "layer: expected a layer (a name, a mapping of one key, or a callable), got 4."),
        (functools.partial(dict, 9),
         'layer "builtins:dict": the partial binds 9 where the environment goes. Bind by keyword.'),
    ],
)  # fmt: skip
def test_a_mistake_in_a_layer_is_told(layer: Any, message: str) -> None:
    with pytest.raises(SpecError) as error:
        LayerSpec.parse(layer)
    assert (
        str(error.value).replace('""gymnasium.wrappers.common:TimeLimit""', '"gymnasium.wrappers.common:TimeLimit"')
        == message
    )


@settings(max_examples=300)
@given(st.text() | st.from_regex(r"[a-z:.,='\" |\\]{0,20}", fullmatch=True))
def test_any_text_is_a_layer_or_a_spec_error(text: str) -> None:
    for read in (LayerSpec.parse, PipelineSpec.parse, lambda t: PipelineSpec.from_yaml(t, "f")):
        with contextlib.suppress(SpecError):
            read(text)


@given(st.dictionaries(st.sampled_from(["env", "n", "wrappers", "backend", "env_kwargs", "seed", "x", 3]), values))
def test_any_dict_is_a_pipeline_or_a_spec_error(data: Any) -> None:
    with contextlib.suppress(SpecError):
        PipelineSpec.from_dict(data)


def test_an_alias_bomb_is_refused_at_once() -> None:
    letters = "abcdefghij"
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n"
    for before, after in itertools.pairwise(letters):
        bomb += f"{after}: &{after} [{','.join(['*' + before] * 9)}]\n"
    began = time.perf_counter()
    with pytest.raises(SpecError, match="more than 20,000 values, aliases counted"):
        PipelineSpec.from_yaml(bomb, "bomb.yaml")
    assert time.perf_counter() - began < 2  # without the check it would not end


def test_a_file_of_more_than_a_megabyte_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "big.yaml"
    file.write_text("env: CartPole-v1\n#" + "x" * 1_000_000)
    with pytest.raises(SpecError, match=r"big\.yaml: expected a pipeline file of at most 1 MB, got a larger one\."):
        PipelineSpec.load(file)


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.yaml: cannot be read \(No such file or directory\)"):
        PipelineSpec.load(tmp_path / "nowhere.yaml")
    (tmp_path / "image.yaml").write_bytes(b"\x89PNG\xff")
    with pytest.raises(SpecError, match=r"image\.yaml: expected text in UTF-8, got byte 0x89 at 0\."):
        PipelineSpec.load(tmp_path / "image.yaml")


def test_the_hash_of_a_spec_that_no_plan_resolved_is_not_given() -> None:
    with pytest.raises(SpecError, match=r"not known before a plan has filled in the defaults"):
        _ = PipelineSpec("CartPole-v1", n=1, wrappers=(LayerSpec("framestack"),)).hash
