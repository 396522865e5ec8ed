"""Files: what they extend, where their values come from, and what is refused before it is read."""

import os
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vecwrap
from vecwrap.errors import PlanError, SpecError, VecwrapError
from vecwrap.pipeline.evaluation import in_mode
from vecwrap.pipeline.files import write_yaml
from vecwrap.pipeline.plan import plan
from vecwrap.pipeline.spec import PipelineSpec

BASE = """\
env: CartPole-v1
n: 4
backend: {name: subprocess, workers: 2, daemon: false}
env_kwargs: {sutton_barto_reward: true}
wrappers:
  - time_limit: 200
  - framestack:4,padding=first
  - monitor: {dir: runs/base}
eval: {n: 1, seed: 5, wrappers: {framestack: {k: 2}}}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(**files: str) -> None:
    """Write files of the working directory; ``__`` in a name is a slash."""
    for name, text in files.items():
        path = Path(f"{name.replace('__', '/')}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def refusal(path: str) -> str:
    with pytest.raises((SpecError, PlanError)) as error:
        plan(PipelineSpec.load(path))
    return str(error.value)


# -- extends ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_what_a_file_says_is_written_over_what_it_extends() -> None:
    written(
        base=BASE,
        child=(
            "extends: base.yaml\nn: 8\nbackend: {workers: 3}\nenv_kwargs: {render_fps: "
            "30}\neval: {seed: 6}\n"
        ),
    )
    assert PipelineSpec.load("child.yaml").to_dict() == {
        "env": "CartPole-v1",
        "n": 8,
        "backend": {"name": "subprocess", "workers": 3, "daemon": False},
        "env_kwargs": {"sutton_barto_reward": True, "render_fps": 30},
        "wrappers": [
            {"time_limit": 200},
            {"framestack": {"*": [4], "padding": "first"}},
            {"monitor": {"dir": "runs/base"}},
        ],
        "eval": {"n": 1, "seed": 6, "wrappers": {"framestack": {"k": 2}}},
    }


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("said", "wrappers"),
    [
        ("wrappers: [monitor]", ["monitor"]),
        ("wrappers: monitor | flatten", ["monitor", "flatten"]),
        ("wrappers: null", []),
        (
            "wrappers: {framestack: {k: 2}}",
            [
                {"time_limit": 200},
                {"framestack": {"k": 2, "padding": "first"}},
                {"monitor": {"dir": "runs/base"}},
            ],
        ),
        (
            "wrappers: {framestack: 3, 0: {max_episode_steps: 7}}",
            [
                {"time_limit": {"max_episode_steps": 7}},
                {"framestack": 3},
                {"monitor": {"dir": "runs/base"}},
            ],
        ),
        (
            "wrappers: {2: flatten}",
            [{"time_limit": 200}, {"framestack": {"*": [4], "padding": "first"}}, "flatten"],
        ),
    ],
)
def test_a_list_of_wrappers_replaces_and_a_mapping_changes(said: str, wrappers: list[Any]) -> None:
    written(base=BASE, child=f"extends: base.yaml\n{said}\n")
    assert PipelineSpec.load("child.yaml").to_dict().get("wrappers", []) == wrappers


@pytest.mark.usefixtures("here")
def test_a_backend_with_a_name_leaves_the_old_options_behind() -> None:
    written(base=BASE, child="extends: base.yaml\nbackend: {name: shmem, start_method: fork}\n")
    assert PipelineSpec.load("child.yaml").to_dict()["backend"] == {
        "name": "shmem",
        "start_method": "fork",
    }
    written(child="extends: base.yaml\nbackend: dummy\n")
    assert PipelineSpec.load("child.yaml").to_dict()["backend"] == "dummy"


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("said", "steps", "place"),
    [
        ("wrappers: {framestack: {k: 2}}", ("wrappers", 1, "framestack", "k"), "child.yaml:2: "),
        ("wrappers: {framestack: {k: 2}}", ("wrappers", 1), "base.yaml:7: "),
        ("wrappers: {1: flatten}", ("wrappers", 1), "child.yaml:2: "),
        ("wrappers: [flatten]", ("wrappers", 0), "child.yaml:2: "),
        ("wrappers: [flatten]", ("wrappers", 1), "child.yaml:2: "),
        ("backend: {workers: 3}", ("backend", "workers"), "child.yaml:2: "),
        ("backend: {workers: 3}", ("backend", "daemon"), "base.yaml:3: "),
        ("backend: {workers: 3}", ("backend",), "base.yaml:3: "),
        ("backend: {name: shmem}", ("backend", "daemon"), "child.yaml:2: "),
        ("env_kwargs: {a: {b: 1}}", ("env_kwargs", "a", "b"), "child.yaml:2: "),
        ("env_kwargs: [{}, {a: 1}]", ("env_kwargs", "sutton_barto_reward"), "child.yaml:2: "),
        ("eval: {seed: 6}", ("eval", "seed"), "child.yaml:2: "),
        ("eval: {seed: 6}", ("eval", "n"), "base.yaml:9: "),
        ("n: 8", ("start_index",), ""),
    ],
)
def test_each_value_is_from_where_it_was_written(
    said: str, steps: tuple[str | int, ...], place: str
) -> None:
    written(base=BASE, child=f"extends: base.yaml\n{said}\n")
    assert str(PipelineSpec.load("child.yaml").source.at(*steps).location) == place


@pytest.mark.usefixtures("here")
def test_each_mapping_of_a_list_is_from_where_it_was_written() -> None:
    written(
        base="env: CartPole-v1\nenv_kwargs:\n  - a: 1\n  - a: 2\n    b: 3\n",
        child="extends: base.yaml\nenv_kwargs: {1: {a: 4}}\n",
        grandchild="extends: child.yaml\nn: 2\nenv_kwargs: {b: 5}\n",
    )
    source = PipelineSpec.load("grandchild.yaml").source.at("env_kwargs")
    places = [str(source.at(index, name).location) for index in (0, 1) for name in ("a", "b")]
    assert places == [
        "base.yaml:3: ",
        "grandchild.yaml:3: ",
        "child.yaml:2: ",
        "grandchild.yaml:3: ",
    ]


@pytest.mark.usefixtures("here")
def test_a_base_may_leave_out_what_the_file_says_and_null_resets() -> None:
    written(
        wrappers="wrappers: [framestack: 4]\nenv_kwargs: {a: 1}\nseed: 3\n",
        game="extends: wrappers.yaml\nenv: CartPole-v1\nenv_kwargs: null\nseed: null\n",
    )
    assert PipelineSpec.load("game.yaml") == PipelineSpec("CartPole-v1", wrappers=("framestack:4",))
    assert (
        refusal("wrappers.yaml")
        == "wrappers.yaml:1: pipeline: the key env is missing: which environment?"
    )


@pytest.mark.usefixtures("here")
def test_one_file_extends_the_next_each_relative_to_itself() -> None:
    written(
        common__base=BASE,
        common__middle="extends: base.yaml\nn: 5\nwrappers: {monitor: {dir: out}}\n",
        top__child="extends: ../common/middle.yaml\nstats: seen.npz\n",
    )
    planned = plan(PipelineSpec.load("top/child.yaml")).pipeline
    assert planned.n == 5
    assert Path(planned.wrappers[2].kwargs["dir"]).resolve() == Path("common/out").resolve()
    assert planned.stats is not None
    assert Path(planned.stats).resolve() == Path("top/seen.npz").resolve()


@pytest.mark.usefixtures("here")
def test_a_json_file_and_a_yaml_file_extend_each_other() -> None:
    Path("base.json").write_text(
        '{"env": "CartPole-v1",\n "n": 2,\n "wrappers": [{"framestack": 4}]}'
    )
    written(child="extends: base.json\nwrappers: {framestack: {padding: first}}\n")
    Path("last.json").write_text(
        '{"$schema": "pipeline.schema.json", "extends": "child.yaml",\n "n": "x"}'
    )
    assert PipelineSpec.load("child.yaml") == PipelineSpec.parse(
        "CartPole-v1 n=2 | framestack:4,padding=first"
    )
    assert refusal("last.json") == 'last.json:2: n: expected int, got "x".'
    with vecwrap.build("base.json", backend="dummy") as env:
        assert env.single_observation_space.shape == (4, 4)


@pytest.mark.usefixtures("here")
def test_a_line_and_a_dict_extend_a_file_of_the_working_directory() -> None:
    written(base=BASE)
    spec = PipelineSpec.load("base.yaml").override(env="Acrobot-v1", n=2)
    assert PipelineSpec.parse("Acrobot-v1 n=2 extends=base.yaml") == spec
    assert PipelineSpec.from_dict({"extends": "base.yaml", "env": "Acrobot-v1", "n": 2}) == spec
    assert PipelineSpec.parse("Acrobot-v1 extends=base.yaml | flatten").wrapper_names == (
        "flatten",
    )


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("child", "message"),
    [
        (
            "extends: base.yaml\nwrappers: {framestack: {k: four}}\n",
            'child.yaml:2: wrappers[1] "framestack", argument k: expected int, got "four".',
        ),
        (
            "extends: base.yaml\nn: 3\nwrappers:\n  framestack:\n    kk: 3\n",
            (
                'child.yaml:5: wrappers[1] "framestack", argument kk: unknown argument. Did you '
                'mean "k"? It takes'
            ),
        ),
        (
            "extends: base.yaml\nenv_kwargs:\n  1: 2\n",
            "child.yaml:2: env_kwargs: expected the name of an argument, got 1.",
        ),
        (
            "extends: base.yaml\n\nwrappers: {framestak: 3}\n",
            (
                "child.yaml:3: wrappers.framestak: there is no such wrapper. Did you mean "
                '"framestack"?'
            ),
        ),
        (
            "extends: base.yaml\nwrappers: {7: {k: 3}}\n",
            "child.yaml:2: wrappers[7]: there are 3 wrappers, numbered from 0. They are "
            "time_limit, framestack, monitor, inner first.",
        ),
        (
            "extends: base.yaml\nenv: CartPole-v9\n",
            'child.yaml:2: env "CartPole-v9": there is no such version',
        ),
        (
            "extends: base.yaml\nn: 3\nbatch_size: 4\n",
            "child.yaml:3: batch_size: expected 1 to n=3, got 4.",
        ),
        (
            "extends: base.yaml\nbackend: {workers: 0}\n",
            "child.yaml:2: backend.workers: expected at least 1, got 0.",
        ),
        (
            "extends: bad.yaml\n",
            'bad.yaml:3: wrappers[0] "framestak": unknown wrapper. Did you mean "framestack"?',
        ),
        (
            "extends: bad.yaml\nwrappers: {framestak: {k: 3}}\n",
            'bad.yaml:3: wrappers[0] "framestak": unknown wrapper.',
        ),
        (
            "n: 2\nextends: 4\n",
            "child.yaml:2: extends: expected the path of a pipeline file, got 4.",
        ),
        ("extends: nowhere.yaml\n", "child.yaml:1: extends: there is no file nowhere.yaml."),
        (
            "extends: .\n",
            'child.yaml:1: extends: expected the path of a pipeline file, got the folder "."; name',
        ),
        (
            "extends: list.yaml\n",
            'list.yaml:1: pipeline: expected the keys of a pipeline, such as "n: 8", got [1].',
        ),
        (
            "extends: empty.yaml\n",
            'empty.yaml:1: pipeline: expected the keys of a pipeline, such as "n: 8", got an '
            "empty file.",
        ),
        (
            "extends: base.yaml\nextend: 3\n",
            (
                "child.yaml:2: extend: unknown key. The file that this one builds upon is called "
                "extends."
            ),
        ),
        (
            "env: CartPole-v1\nlayers: [flatten]\n",
            "child.yaml:2: layers: unknown key. What wraps the environment is called wrappers.",
        ),
        (
            "env: CartPole-v1\neval: {chain: [flatten]}\n",
            "child.yaml:2: eval.chain: unknown key. What wraps the environment is called wrappers.",
        ),
        ("a: &a {n: 3}\n<<: *a\n", "child.yaml:2: YAML 1.2 has no merge keys"),
        ("env: A-v0\n<<: {n: 3}\n", "child.yaml:2: YAML 1.2 has no merge keys; a file builds"),
        (
            "env: A-v0\nenv_kwargs: &a {k: 1}\neval:\n  env_kwargs: {<<: *a}\n",
            "child.yaml:4: YAML 1.2 has no merge keys",
        ),
        (
            "env: CartPole-v1\t\nn: 1\n",
            "child.yaml:1: this is not YAML: while scanning for the next token found character "
            "'\\t' that cannot start any token. Take spaces, not tabs.",
        ),
        (
            "env:\n\t- A-v0\n",
            "child.yaml:2: this is not YAML: while scanning for the next token found character "
            "'\\t' that cannot start any token. Take spaces, not tabs.",
        ),
        (
            "wrappers: {framestack: 3}\nenv: CartPole-v1\n",
            "child.yaml:1: wrappers: expected a list of wrappers, got {framestack: 3}. A "
            "mapping changes the wrappers of a file that this one extends.",
        ),
    ],
)
def test_a_mistake_names_the_file_that_it_stands_in(child: str, message: str) -> None:
    written(
        base=BASE,
        bad="env: CartPole-v1\nwrappers:\n  - framestak: 4\n",
        list="- 1\n",
        empty="",
        child=child,
    )
    assert refusal("child.yaml").startswith(message)


@pytest.mark.usefixtures("here")
def test_a_mistake_of_the_base_is_told_where_the_base_makes_it() -> None:
    written(
        base=BASE.replace("time_limit: 200", "time_limit: long"), child="extends: base.yaml\nn: 2\n"
    )
    assert refusal("child.yaml").startswith(
        'base.yaml:6: wrappers[0] "time_limit", argument max_episode_steps: expected'
    )


@pytest.mark.usefixtures("here")
def test_files_that_extend_each_other_in_a_circle_are_shown() -> None:
    written(a="extends: sub/b.yaml\n", sub__b="n: 3\nextends: ../c.yaml\n", c="extends: ./a.yaml\n")
    assert refusal("a.yaml") == (
        "sub/../c.yaml:1: extends: the files extend each other in a circle: "
        "a.yaml > sub/b.yaml > sub/../c.yaml > sub/../a.yaml."
    )
    written(self="extends: self.yaml\n")
    assert refusal("self.yaml").endswith("circle: self.yaml > self.yaml.")
    Path("link.yaml").symlink_to("linked.yaml")
    written(linked="extends: link.yaml\n")
    assert refusal("linked.yaml").endswith("circle: linked.yaml > link.yaml.")


@pytest.mark.usefixtures("here")
def test_a_pipe_is_not_waited_for() -> None:
    os.mkfifo("pipe.yaml")
    written(child="extends: pipe.yaml\n")
    assert refusal("child.yaml") == "child.yaml:1: extends: there is no file pipe.yaml."


@pytest.mark.usefixtures("here")
def test_the_hash_is_that_of_the_result_however_it_was_written() -> None:
    written(
        base=BASE,
        child=(
            "extends: base.yaml\nn: 2\nwrappers: {framestack: {k: 2}, monitor: {dir: "
            "elsewhere}}\nseed: 3\n"
        ),
        flat="env: CartPole-v1\nn: 2\nenv_kwargs: {sutton_barto_reward: true}\n"
        "wrappers: [time_limit: 200, framestack: {k: 2, padding: first}, monitor]\n",
    )
    flat = plan(PipelineSpec.load("flat.yaml")).pipeline
    child = plan(PipelineSpec.load("child.yaml")).pipeline
    by_keys = plan(
        PipelineSpec.load("base.yaml").override(n=2, **{"wrappers.framestack.k": 2})
    ).pipeline
    assert flat.hash == child.hash == by_keys.hash
    assert flat.hash != plan(PipelineSpec.load("base.yaml")).pipeline.hash
    assert child == PipelineSpec.from_yaml(child.to_yaml())


@pytest.mark.usefixtures("here")
def test_mappings_join_at_every_depth() -> None:
    written(
        base="env: A-v0\nenv_kwargs: {a: {b: {c: 1, d: 2}, e: 3}}\n",
        child="extends: base.yaml\nenv_kwargs: {a: {b: {d: 4}, f: 5}}\n",
    )
    assert PipelineSpec.load("child.yaml").env_kwargs == {
        "a": {"b": {"c": 1, "d": 4}, "e": 3, "f": 5}
    }


names = st.sampled_from(["a", "b", "c"])
leaves = st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2) | st.none()
trees = st.dictionaries(
    names, st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3)), max_size=3
)
says = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(1, 4),
        "env_kwargs": trees,
        "eval": st.fixed_dictionaries(
            {}, optional={"seed": st.integers(0, 4), "env_kwargs": trees}
        ),
        "wrappers": st.lists(st.sampled_from(["flatten", {"framestack": 4}]), max_size=2),
    },
)


def joined(base: Any, child: Any) -> Any:
    """Mappings join, key by key; anything else replaces: written once more, without any of the
    package's code.
    """
    if not (isinstance(base, dict) and isinstance(child, dict)):
        return deepcopy(child)
    return {
        **base,
        **{key: joined(base[key], child[key]) if key in base else child[key] for key in child},
    }


@settings(deadline=None)
@given(st.lists(says, min_size=2, max_size=4))
def test_any_chain_of_files_is_the_mapping_that_they_join_to(
    tmp_path_factory: Any, chain: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("chain")
    together: dict[str, Any] = {"env": "CartPole-v1"}
    for number, said in enumerate(chain):
        head = {"extends": f"{number - 1}.yaml"} if number else {"env": "CartPole-v1"}
        (folder / f"{number}.yaml").write_text(write_yaml({**head, **said}))
        together = joined(together, said)
    assert PipelineSpec.load(folder / f"{len(chain) - 1}.yaml") == PipelineSpec.from_dict(together)


# -- what is not read ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["big.yaml", "big.json"])
def test_a_file_of_ten_megabytes_is_refused_unread(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / name
    with file.open("wb") as big:
        big.truncate(10_000_000)
    monkeypatch.setattr("vecwrap.pipeline.files.read_yaml", None)
    monkeypatch.setattr("vecwrap.pipeline.files.read_json", None)
    message = (
        rf"{re.escape(name)}: expected a pipeline file of at most 1 MB, got a larger one\. Is "
        r"it the right file\?$"
    )
    with pytest.raises(SpecError, match=message):
        PipelineSpec.load(file)


@pytest.mark.usefixtures("here")
def test_a_base_of_ten_megabytes_is_refused_too() -> None:
    written(child="extends: big.yaml\n")
    with Path("big.yaml").open("wb") as big:
        big.truncate(10_000_000)
    assert refusal("child.yaml").startswith("big.yaml: expected a pipeline file of at most 1 MB")


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"nowhere\.yaml: cannot be read \(No such file or directory\)"
    ):
        PipelineSpec.load(tmp_path / "nowhere.yaml")
    with pytest.raises(SpecError, match=r"cannot be read \(embedded null byte\)"):
        PipelineSpec.load("a\0b.yaml")
    (tmp_path / "image.yaml").write_bytes(b"\x89PNG\xff")
    with pytest.raises(
        SpecError, match=r"image\.yaml: expected text in UTF-8, got byte 0x89 at 0\."
    ):
        PipelineSpec.load(tmp_path / "image.yaml")


def test_equality_of_the_reference_is_not_trivial() -> None:
    assert joined({"a": {"b": 1}}, {"a": {"c": 2}}) == {"a": {"b": 1, "c": 2}}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("change", ["{dir: runs/b}", "runs/b"])
def test_a_path_lies_beside_the_file_that_it_stands_in_however_it_is_given(change: str) -> None:
    written(
        base__base="env: CartPole-v1\nn: 1\nbackend: dummy\nwrappers:\n  - monitor: runs/a\n",
        top__train=f"extends: ../base/base.yaml\nwrappers:\n  monitor: {change}\n",
        top__test=f"extends: ../base/base.yaml\neval:\n  wrappers:\n    monitor: {change}\n",
    )
    for pipeline in (
        PipelineSpec.load("top/train.yaml"),
        in_mode(PipelineSpec.load("top/test.yaml"), "eval"),
    ):
        (wrapper,) = plan(pipeline).pipeline.wrappers
        assert Path(wrapper.kwargs["dir"]).resolve() == Path("top/runs/b").resolve()


def test_a_backend_of_a_base_file_is_told_with_the_line_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("env: CartPole-v1\nn: 2\n\n\nbackend: shmemm\n")
    (tmp_path / "top.yaml").write_text("extends: base.yaml\n\nbackend: {workers: 2}\n")
    with pytest.raises(VecwrapError, match=r"base\.yaml:5: backend \"shmemm\": unknown backend"):
        plan(PipelineSpec.load(tmp_path / "top.yaml"))
    (tmp_path / "top.yaml").write_text(
        "extends: base.yaml\n\nbackend: {name: shmemn, workers: 2}\n"
    )
    with pytest.raises(VecwrapError, match=r"top\.yaml:3: backend \"shmemn\": unknown backend"):
        plan(PipelineSpec.load(tmp_path / "top.yaml"))


def test_a_long_curriculum_is_written_and_read_back() -> None:
    """A run folder's pipeline holds it twice, the second time in the evaluation's wrappers."""
    wrappers = [{"seed_each_episode": {"seeds": list(range(25_000))}}]
    spec = plan(
        PipelineSpec.from_dict(
            {"env": "CartPole-v1", "n": 2, "wrappers": wrappers, "eval": {"n": 1}}
        )
    ).pipeline
    assert PipelineSpec.from_yaml(spec.to_yaml()) == spec
